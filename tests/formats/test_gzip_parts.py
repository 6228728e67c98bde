"""Large gzip files in parts: from any access point the same bytes, with nothing but zlib; damage is one error."""

import gzip
import json
import random
import sys
import zlib

import pytest

import shardstream as ss
from shardstream.errors import DecodeError, FormatError
from shardstream.formats.blocks import BlockStore, found_blocks, gzip_parts
from shardstream.formats.blocks.codecs import CODECS, inflate
from shardstream.formats.blocks.gzip_parts import gzip_blocks
from shardstream.formats.blocks.gzip_points import part_pieces
from shardstream.formats.jsonl.format import JsonLines
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.tar.webdataset import WebDataset
from shardstream.testing import MemoryStore
from tests.formats.catalog.every import tar_of
from tests.formats.scanning import samples

pytest.importorskip("indexed_gzip")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(gzip_parts, "SPACING", 100_000)
    monkeypatch.setattr(gzip_parts, "_WHOLE", 50_000)


def text(size: int) -> bytes:
    choose = random.Random(0)
    words = [choose.randbytes(choose.randint(1, 4)).hex() for _ in range(2000)]
    return " ".join(choose.choices(words, k=size // 5)).encode()


PLAIN = text(3_000_000)
FILES = {
    "one": gzip.compress(PLAIN, 6),
    "fast": gzip.compress(PLAIN, 1),
    "several": b"".join(gzip.compress(PLAIN[at : at + 70_000]) for at in range(0, len(PLAIN), 70_000)),
    "stored": gzip.compress(random.Random(1).randbytes(400_000), 0),
    "tape": gzip.compress(PLAIN) + bytes(512),
}


def blocks(data: bytes):
    return gzip_blocks(ObjectBytes(MemoryStore({"a": data}), "a", len(data)))


@pytest.mark.parametrize("name", FILES)
def test_parts_are_the_file(name):
    data = FILES[name]
    found = blocks(data).blocks
    assert len(found) > 2
    store = BlockStore(MemoryStore({"a": data}), {"a": found}.get)
    plain = gzip.decompress(data)
    assert store.size("a") == len(plain)
    assert store.get("a") == plain
    for at in range(0, len(plain), 90_001):
        assert store.get("a", at, min(5000, len(plain) - at)) == plain[at : at + 5000]
    assert all(found.checksums)


def test_access_points_begin_at_any_bit():
    found = {setting[0] for name in ("one", "fast") for setting in blocks(FILES[name]).blocks.settings}
    assert found == set(range(8))


def test_small_files_are_one_block():
    data = gzip.compress(PLAIN[:40_000])
    assert [len(found) for found in (blocks(data).blocks, blocks(data).blocks.settings)] == [1, 0]


@pytest.mark.parametrize("hurt", ["footer", "inside", "behind"])
def test_what_is_damaged_is_an_error_with_its_name(hurt):
    data = FILES["one"]
    damaged = {
        "footer": data[:-3],
        "inside": data[:500_000] + bytes(20) + data[500_020:],
        "behind": data + b"more",
    }[hurt]
    with pytest.raises(FormatError, match="does not inflate") as caught:
        blocks(damaged)
    assert caught.value.place["url"].endswith("/a")


@pytest.mark.parametrize("size", [len(FILES["one"]) // 2, 9000, 300])
def test_of_a_file_that_is_cut_off_the_rest_is_read(size):
    data = FILES["one"][:size]
    found = blocks(data)
    assert found.damage is not None
    assert (found.damage.what, found.damage.place["offset"]) == ("the gzip file is cut off", size)
    store = BlockStore(MemoryStore({"a": data}), {"a": found.blocks}.get)
    assert len(store.get("a")) > size
    assert PLAIN.startswith(bytes(store.get("a")))


def test_rows_of_a_file_that_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    rows = [{"n": row, "text": PLAIN[row * 50 : row * 50 + 70].decode()} for row in range(300)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    for size in (len(lines) // 2, lines.index(b"\n", 9000) + 1):  # also where a row ends
        compress = zlib.compressobj(wbits=31)
        cut = compress.compress(lines[:size]) + compress.flush(zlib.Z_SYNC_FLUSH)
        (tmp_path / "a.jsonl.gz").write_bytes(cut)
        with pytest.raises(FormatError, match="the gzip file is cut off"):
            ss.index(tmp_path / "a.jsonl.gz")
        ss.index(tmp_path / "a.jsonl.gz", damaged="reject")
        found = [(one["n"], one["text"]) for one in ss.Reader(tmp_path / "a.jsonl.gz")]
        assert found == [(row["n"], row["text"]) for row in rows[: lines[:size].count(b"\n")]]


def test_a_part_that_changed_is_noticed():
    data = FILES["one"]
    found = blocks(data).blocks
    (block,) = found.stored_blocks([3])
    codec, size, setting = block.codec, block.size, block.setting
    stored = memoryview(data)[block.offset : block.offset + block.length]
    assert inflate(codec, stored, size, setting) == gzip.decompress(data)[int(found.starts[3]) :][:size]
    for wrong, bad in (
        (stored[: len(stored) // 2], setting),
        (stored, b"\x07junk"),
        (stored[:0], setting),
        (stored, b""),
    ):
        with pytest.raises(DecodeError, match=r"does not inflate|inflates to"):
            inflate(CODECS["gzip-part"], wrong, size, bad)
    with pytest.raises(DecodeError, match="inflates to more than"):
        inflate(codec, stored, size - 1000, setting)
    assert found.settings[0] == b"\0"  # the beginning of a file needs no window


def test_pieces_are_small_however_much_they_hold():
    bomb = gzip.compress(bytes(9_000_000))
    stored = memoryview(zlib.compress(bytes(9_000_000), wbits=-15))
    assert max(map(len, part_pieces(stored, b"\0"))) <= 1 << 20
    assert blocks(bomb).blocks.size == 9_000_000


def test_without_the_package_a_file_is_one_block_or_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "indexed_gzip", None)
    assert len(blocks(FILES["one"]).blocks) == 1
    monkeypatch.setattr(gzip_parts, "LARGEST_WHOLE", 1_000_000)
    with pytest.raises(FormatError, match=r"larger than 1\.0 MB when it is inflated") as caught:
        blocks(FILES["one"])
    assert "[gzip]" in str(caught.value)


def test_a_file_that_inflates_to_more_than_is_read_is_refused(monkeypatch):
    monkeypatch.setattr(gzip_parts, "_MOST", 1_000_000)
    monkeypatch.setattr(gzip_parts, "_STEP", 500_000)
    with pytest.raises(FormatError, match=r"larger than 1\.0 MB"):
        blocks(FILES["one"])


def test_formats_read_in_parts_what_they_read_as_a_whole(monkeypatch):
    rows = [{"n": row, "text": PLAIN[row * 500 : row * 500 + 700].decode()} for row in range(3000)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert [values for _, values in samples(JsonLines(), MemoryStore({"a.jsonl.gz": gzip.compress(lines)}))] == rows
    tar = tar_of({f"{row:04d}.txt": PLAIN[row * 9000 : row * 9000 + 9000] for row in range(300)})
    found = samples(WebDataset(), MemoryStore({"a.tar.gz": gzip.compress(tar)}))
    assert "".join(values["txt"] for _, values in found).encode() == PLAIN[: 300 * 9000]
    assert found_blocks.LARGEST_WHOLE == 256 << 20
