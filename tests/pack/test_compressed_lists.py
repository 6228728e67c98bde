"""Lists as gzip, bzip2, xz and zstd files: the samples of the plain list, in bounded memory, or one clear error."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from shardstream import ImageOptions, StorageOptions
from shardstream.dataset.lists import compressed, decompression
from shardstream.errors import MissingExtraError, SourceError
from shardstream.pack.run import pack
from shardstream.pack.sources.lists import lines
from shardstream.pack.sources.lists.source import ListSource
from shardstream.pack.sources.opening import open_source
from shardstream.storage.base.location import Access

from ..storage.places import S3Place
from .making import PYTHON, photo_list, photos, samples, tree

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}
SUFFIXES = sorted(COMPRESS)
TEXTS = {
    "list.csv": 'path,label\n"a, b/1.jpg",1\na/2.jpg,2\n',
    "list.tsv": "a/1.jpg\t1\na/2.jpg\t2\n",
    "list.jsonl": '{"path": "a/1.jpg", "label": 1}\n{"path": "a/2.jpg", "label": 2}\n',
    "list.txt": "a/b c.jpg 1\na/2.jpg 2\n",
    "list.lst": "1\t1\ta/1.jpg\n2\t2\ta/2.jpg\n",
}


def items(source: Any) -> list[object]:
    return list(source.part(np.arange(len(source))))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", TEXTS)
def test_a_compressed_list_is_the_plain_one(tmp_path: Path, name: str, suffix: str) -> None:
    (tmp_path / name).write_text(TEXTS[name])
    (tmp_path / f"{name}{suffix.upper()}").write_bytes(COMPRESS[suffix](TEXTS[name].encode()))
    plain, packed = open_source(tmp_path / name), open_source(tmp_path / f"{name}{suffix.upper()}")
    assert isinstance(plain, ListSource)
    assert items(plain) == items(packed)
    assert plain.fingerprint == packed.fingerprint
    assert packed.url == str(tmp_path / f"{name}{suffix.upper()}")


@pytest.mark.full
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_workers_pack_it_to_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    path = photo_list(tmp_path, 40)
    (tmp_path / f"list.tsv{suffix}").write_bytes(COMPRESS[suffix](path.read_bytes()))
    pack(path, tmp_path / "plain", workers=0, shard_size="5kB", images=ImageOptions(jpeg="keep"))
    for workers in (0, 2):
        pack(
            f"{path}{suffix}",
            tmp_path / f"{workers}",
            workers=workers,
            shard_size="5kB",
            images=ImageOptions(jpeg="keep"),
        )
        assert tree(tmp_path / f"{workers}") == tree(tmp_path / "plain")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_archives_that_follow_one_another_are_one_list(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [f"a/{i}.jpg\t{i}\n".encode() for i in range(300)]
    monkeypatch.setattr(decompression, "_PIECE", 100)  # so that an archive is not read at once
    data = b"".join(map(COMPRESS[suffix], [b"".join(parts[:200]), b"", b"".join(parts[200:])]))
    padding = b"" if suffix == ".zst" else b"\0" * 512
    (tmp_path / f"list.tsv{suffix}").write_bytes(data + padding)
    assert len(open_source(tmp_path / f"list.tsv{suffix}")) == 300  # type: ignore[arg-type]


def test_a_frame_of_zstd_that_is_skipped(tmp_path: Path) -> None:
    data = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size" + COMPRESS[".zst"](b"a.jpg\t1\n")
    (tmp_path / "list.tsv.zst").write_bytes(data)
    assert len(open_source(tmp_path / "list.tsv.zst")) == 1  # type: ignore[arg-type]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("suffix", [".bz2", ".zst"])
def test_by_a_pipe_the_content_tells(tmp_path: Path, suffix: str) -> None:
    path = photo_list(tmp_path, 12)
    done = subprocess.run(
        [*PYTHON, "-m", "shardstream.cli", "pack", "/dev/stdin", tmp_path / "out", "--workers", "0", "--quiet"],
        input=COMPRESS[suffix](path.read_bytes()),
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    pack(path, tmp_path / "plain", workers=0)
    assert samples(tmp_path / "out") == samples(tmp_path / "plain")


def test_from_a_store(tmp_path: Path, s3: S3Place) -> None:
    path = photo_list(tmp_path, 12)
    for photo in photos(tmp_path, 12):
        s3.plant(f"set/{photo}", (tmp_path / photo).read_bytes())
    s3.plant("set/list.tsv.gz", gzip.compress(path.read_bytes()))
    assert open_source(s3 / "set/list.tsv.gz", access=Access(s3.options)).url == s3 / "set/list.tsv.gz"
    pack(s3 / "set/list.tsv.gz", tmp_path / "out", storage=StorageOptions(source=s3.options), workers=2)
    pack(path, tmp_path / "plain", workers=0)
    assert samples(tmp_path / "out") == samples(tmp_path / "plain")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_that_was_cut_off_or_damaged_is_an_error_with_its_place(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    text = "".join(f"a/{number:016x}.jpg\t1\n" for number in rng.integers(0, 1 << 62, 4000)).encode()
    path, data = tmp_path / f"list.tsv{suffix}", COMPRESS[suffix](text)
    for size in (len(data) - 1, len(data) // 2, 20):
        path.write_bytes(data[:size])
        with pytest.raises(SourceError, match="is cut off") as caught:
            open_source(path)
        assert caught.value.place == {"url": str(path), "offset": size}
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes(byte ^ 0xFF for byte in data[middle : middle + 64]) + data[middle + 64 :])
    with pytest.raises(SourceError, match="cannot be decompressed from here on") as caught:
        open_source(path)
    assert caught.value.place["url"] == str(path)
    assert 0 <= int(caught.value.place["offset"]) < len(data)
    path.write_bytes(data + b"something else")
    with pytest.raises(SourceError, match=r"cannot be decompressed|cut off") as caught:
        open_source(path)
    assert caught.value.hint


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_plain_list_that_is_called_so_is_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"list.csv{suffix}"
    path.write_text(TEXTS["list.csv"])
    with pytest.raises(SourceError, match=f"called {suffix}, but is not a") as caught:
        open_source(path)
    assert "rename it to 'list.csv'" in str(caught.value.hint)
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="empty"):
        open_source(path)


@pytest.mark.parametrize("name", ["photos.gz", "table.parquet.gz", "a.jpg.xz", "a.zst", "b.bz2"])
def test_other_archives_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"x"))
    with pytest.raises(SourceError, match="an archive cannot be packed") as caught:
        open_source(tmp_path / name)
    assert "list.csv.gz" in str(caught.value.hint)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.tsv.gz").write_bytes(gzip.compress("a.jpg\t1\n".encode("utf-16")))
    with pytest.raises(SourceError, match="not a text list"):
        open_source(tmp_path / "list.tsv.gz")


def test_without_the_package_for_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "list.tsv.zst").write_bytes(COMPRESS[".zst"](b"a.jpg\t1\n"))
    with pytest.raises(MissingExtraError, match="lists that are compressed with zstd") as caught:
        open_source(tmp_path / "list.tsv.zst")
    assert "[zstd]" in str(caught.value.hint)


def repeated_gzip(piece: bytes, count: int) -> bytes:
    """One member. After a full flush a piece becomes the bytes that it became before, so only two are compressed."""
    one, crc = zlib.compressobj(9, wbits=-15), 0
    first, other = (one.compress(piece) + one.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    for _ in range(count):
        crc = zlib.crc32(piece, crc)
    head = gzip.compress(b"")[:10]
    return head + first + other * (count - 1) + one.flush() + struct.pack("<II", crc, len(piece) * count % 2**32)


BOMBS: dict[str, Callable[[int], bytes]] = {
    ".gz": lambda count: repeated_gzip(b"a" * (1 << 20), count),
    ".bz2": lambda count: bz2.compress(b"a" * (1 << 20)) * count,
    ".xz": lambda count: lzma.compress(b"a" * (1 << 20)) * count,
    # A frame of one repeated byte: four bytes a block of 128 KB.
    ".zst": lambda count: b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\x00\x10a" * 8 * count + b"\x03\x00\x10a",
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_bomb_does_not_fill_the_memory(tmp_path: Path, suffix: str) -> None:
    """A gigabyte of one letter, in a process that may take half of that, and of which little may reach the disk."""
    path = tmp_path / f"bomb.csv{suffix}"
    path.write_bytes(BOMBS[suffix](1024))
    assert path.stat().st_size < 2_000_000
    script = (
        "import resource, sys\n"
        "from shardstream.errors import SourceError\n"
        "from shardstream.pack.sources.opening import open_source\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), -1))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, -1))\n"
        "try:\n"
        "    open_source(sys.argv[1])\n"
        "except SourceError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([*PYTHON, "-c", script, path], capture_output=True, timeout=120, text=True, check=False)
    assert "a line of the list has more than 64 MiB" in done.stdout, done.stderr
    assert str(path) in done.stdout


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a.jpg,1\nb.jpg,2\n" + "\n" * 5000, 2),  # blank lines belong to the record before them
        ("a.jpg,1\n" + '"b' + "\n" * 5000 + '.jpg",2\n', 2),
        ("a.jpg,1\nb.jpg,2\n" + "c" * 5000, 3),
    ],
)
def test_a_record_that_is_too_long_is_named(
    tmp_path: Path, text: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LONGEST", 4000)
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(SourceError, match="a line of the list has more than") as caught:
        open_source(tmp_path / "list.csv")
    assert caught.value.place == {"url": str(tmp_path / "list.csv"), "line": line}


def test_the_list_may_not_change_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list.tsv.gz"
    path.write_bytes(gzip.compress(b"a.jpg\t1\n"))
    pieces = compressed._pieces

    def touched(*arguments: Any) -> Any:
        yield from pieces(*arguments)
        os.utime(path, (1, 1))

    monkeypatch.setattr(compressed, "_pieces", touched)
    with pytest.raises(SourceError, match="the list changed"):
        open_source(path)
