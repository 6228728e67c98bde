"""Tar files that are compressed: the same samples as those of the plain tar, and one error for what cannot be read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import struct
import sys
from typing import Any

import pytest
import zstandard

from shardstream.errors import FormatError
from shardstream.formats.blocks import found_blocks, gzip_parts, zstd_frames
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.tar.webdataset import WebDataset
from shardstream.testing import MemoryStore

from .scanning import samples, scanned
from .tars import tar_of

FORMAT = WebDataset()
MEMBERS = [(f"{row:03d}.{name}", b"%d" % row * 50) for row in range(40) for name in ("txt", "bin")]
PACKED = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda tar: zstandard.ZstdCompressor().compress(tar),
}


def frames(tar: bytes, size: int, **options: Any) -> bytes:
    """A tar in zstd frames of so many bytes each, with what is skipped between them."""
    compress = zstandard.ZstdCompressor(**options).compress
    parts = [compress(tar[begin : begin + size]) for begin in range(0, len(tar), size)]
    return struct.pack("<II5s", 0x184D2A57, 5, b"hello").join(parts)


@pytest.mark.parametrize("how", PACKED)
def test_compressed_tars_are_read_inflated(how: str) -> None:
    tar = tar_of(MEMBERS)
    plain = samples(FORMAT, MemoryStore({"a.tar": tar}))
    for name in (f"a.tar.{how}", "a.tar", "a.TAR." + how):
        assert samples(FORMAT, MemoryStore({name: PACKED[how](tar), "a.json": b"{}"})) == plain
    several = PACKED[how](tar[:4096]) + PACKED[how](tar[4096:])
    assert samples(FORMAT, MemoryStore({f"a.tar.{how}": several})) == plain


@pytest.mark.parametrize("options", [{}, {"write_content_size": False}, {"write_checksum": True}])
def test_tars_in_zstd_frames_have_a_block_for_each(options: dict[str, bool]) -> None:
    tar = tar_of(MEMBERS)
    packed = frames(tar, 3000, **options)
    assert samples(FORMAT, MemoryStore({"a.tar.zst": packed})) == samples(FORMAT, MemoryStore({"a.tar": tar}))
    store = MemoryStore({"a.tar.zst": packed})
    found = FORMAT.blocks(ObjectBytes(store, "a.tar.zst", len(packed)), {})
    assert found is not None
    assert len(found.blocks) == -(-len(tar) // 3000)
    assert found.blocks.size == len(tar)
    assert (found.first is None) == ("write_content_size" not in options)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", [*PACKED, "frames", "streamed"])
def test_compressed_tars_that_are_cut_off_or_damaged(how: str) -> None:
    tar, rng = tar_of(MEMBERS[:12]), random.Random(3)
    packed = frames(tar, 3000, write_content_size=how == "frames") if how not in PACKED else PACKED[how](tar)
    lengths = range(6, len(packed), 9)
    hostile = [packed[:length] for length in lengths]
    for _ in range(50):
        data = bytearray(packed)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        hostile.append(bytes(data))
    for number, data in enumerate(hostile):
        try:
            found = list(scanned(FORMAT, MemoryStore({"a.tar": data})))
        except FormatError:
            continue
        whole = number >= len(lengths) or how in ("frames", "streamed", "gz")
        assert whole
        assert found


def test_what_is_too_large_or_packed_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "indexed_gzip", None)  # by which large ones are read in parts
    tar = tar_of(MEMBERS)
    for module in (found_blocks, gzip_parts, zstd_frames):
        monkeypatch.setattr(module, "LARGEST_WHOLE", 25_000)
    monkeypatch.setattr(gzip_parts, "_WHOLE", 1000)
    for how, pack in PACKED.items():
        with pytest.raises(FormatError, match=r"larger than[\s\S]*pack the data set"):
            samples(FORMAT, MemoryStore({f"a.tar.{how}": pack(tar)}))
    assert len(samples(FORMAT, MemoryStore({"a.tar.zst": frames(tar, 9000)}))) == 40
    with pytest.raises(FormatError, match="compressed with lz4"):
        samples(FORMAT, MemoryStore({"a.tar.lz4": b"\x04\x22\x4d\x18" + bytes(99)}))
    inner = tar_of([("a.tar", tar_of(MEMBERS[:2]))])
    with pytest.raises(FormatError, match="holds tar files"):
        samples(FORMAT, MemoryStore({"a.tar.zst": PACKED["zst"](inner)}))


def test_bombs_are_refused_before_they_inflate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "indexed_gzip", None)
    for module in (found_blocks, gzip_parts, zstd_frames):
        monkeypatch.setattr(module, "LARGEST_WHOLE", 4 << 20)
    bomb = bytes(32 << 20)
    for how in ("gz", "zst"):
        with pytest.raises(FormatError, match="larger than"):
            samples(FORMAT, MemoryStore({f"a.tar.{how}": PACKED[how](bomb)}))
    frame = zstandard.ZstdCompressor().compress(b"x" * 300)
    announced = bytearray(frame)
    assert announced[4] >> 6 == 1  # two bytes of the content size, from 256 on
    announced[5:7] = b"\xff\xff"
    with pytest.raises(FormatError):
        samples(FORMAT, MemoryStore({"a.tar.zst": bytes(announced)}))
