"""Objects that are compressed in blocks, shown inflated: what is read, how often it is inflated, what is refused."""

from __future__ import annotations

import asyncio
import bz2
import gc
import gzip
import lzma
import os
import pickle
import random
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from shardstream.errors import ChecksumError, DecodeError, StorageError
from shardstream.formats.blocks import BlockList, BlockStore, ObjectBlocks
from shardstream.formats.blocks import store as store_module
from shardstream.formats.blocks.codecs import (
    CODECS,
    LARGEST,
    checksum_of,
    inflate,
    inflate_unknown,
    inflated_start,
)
from shardstream.formats.blocks.held import HeldBlocks, held
from shardstream.storage import MappedBuffers, Request, Store, counters, fetch
from shardstream.storage.base.buffers import joined
from shardstream.storage.local.store import LocalStore
from shardstream.storage.transfer.loop import run
from shardstream.testing import MemoryStore


def deflate(data: bytes) -> bytes:
    made = zlib.compressobj(wbits=-15)
    return made.compress(data) + made.flush()


def cramjam(name: str, how: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(getattr(getattr(pytest.importorskip("cramjam"), name), how)(data))


PACK: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "zstd": zstandard.ZstdCompressor().compress,
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "deflate": deflate,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "brotli": cramjam("brotli", "compress"),
    "snappy": cramjam("snappy", "compress_raw"),
    "lz4": cramjam("lz4", "compress"),
}
DATA = random.Random(0).randbytes(300) + b"abc" * 900
SINGLE = ("zstd", "zlib", "deflate")


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    held.clear()
    yield
    held.clear()


# ----------------------------------------------------------------------------------------------------------- codecs


def test_all_codecs_are_tested() -> None:
    assert PACK.keys() == CODECS.keys() - {"nested", "hdf5", "gzip-part", "parquet"}  # whose formats test them


@pytest.mark.parametrize("name", PACK)
@pytest.mark.parametrize("data", [b"", b"x", DATA, bytes(5 << 20)])
def test_blocks_inflate_to_exactly_what_they_announce(name: str, data: bytes) -> None:
    stored, codec = memoryview(PACK[name](data)), CODECS[name]
    found = inflate(codec, stored, len(data))
    assert found == data
    assert found.readonly
    for lie in (len(data) - 1, len(data) + 1, LARGEST + 1):
        with pytest.raises(DecodeError):
            inflate(codec, stored, lie)


@pytest.mark.parametrize("name", [one for one in PACK if one != "none"])
def test_blocks_that_are_cut_off_or_damaged_are_decode_errors(name: str) -> None:
    stored, rng = PACK[name](DATA[:500]), random.Random(1)
    for length in range(len(stored)):
        with pytest.raises(DecodeError):
            inflate(CODECS[name], memoryview(stored[:length]), 500)
    for _ in range(200):
        data = bytearray(stored)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            assert len(inflate(CODECS[name], memoryview(data), 500)) == 500
        except DecodeError:
            continue
    if name in SINGLE:
        with pytest.raises(DecodeError):
            inflate(CODECS[name], memoryview(stored + stored), 1000)


@pytest.mark.parametrize("name", ["gzip", "bz2", "xz"])
def test_streams_that_follow_one_another_are_one(name: str) -> None:
    stored = memoryview(PACK[name](DATA) + PACK[name](b"") + PACK[name](DATA) + bytes(512))
    assert inflate(CODECS[name], stored, 2 * len(DATA)) == DATA + DATA
    with pytest.raises(DecodeError):
        inflate(CODECS[name], memoryview(bytes(stored) + b"x"), 2 * len(DATA))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["zstd", "gzip", "zlib", "deflate", "bz2", "xz"])
def test_blocks_of_unknown_size(name: str) -> None:
    stored = memoryview(PACK[name](DATA))
    assert inflate_unknown(CODECS[name], stored, len(DATA)) == DATA
    assert inflate_unknown(CODECS[name], stored, len(DATA) - 1) is None
    assert inflate_unknown(CODECS[name], memoryview(PACK[name](bytes(50 << 20))), 1 << 20) is None


def test_the_start_of_what_is_cut_off() -> None:
    stored = gzip.compress(DATA)
    assert inflated_start(CODECS["gzip"], memoryview(stored[:400]), 100) == DATA[:100]
    assert inflated_start(CODECS["gzip"], memoryview(stored[:5]), 100) == b""


# ------------------------------------------------------------------------------------------------------------ places


def packed(parts: list[tuple[str, bytes]], *, checked: bool = True) -> tuple[bytes, ObjectBlocks]:
    """An object of these parts, each a block, with bytes between them that belong to none."""
    out, blocks = b"head", BlockList()
    for name, data in parts:
        stored = PACK[name](data)
        check = checksum_of(CODECS[name], memoryview(data)) if checked and name != "none" else 0
        blocks.add(name, len(out), len(stored), len(data), check)
        out += stored + b"between"
    return out, blocks.of(len(out))


def blocked(parts: list[tuple[str, bytes]], **options: Any) -> tuple[BlockStore, MemoryStore, bytes]:
    data, blocks = packed(parts, **options)
    inner = MemoryStore({"x": data, "plain": b"as it is"})
    return BlockStore(inner, {"x": blocks}.get), inner, b"".join(part for _, part in parts)


PARTS = [("zstd", DATA), ("none", b"plain" * 40), ("gzip", b""), ("deflate", DATA[::-1]), ("zlib", b"z"), ("bz2", DATA)]


def inflated_by(act: Callable[[], Any]) -> int:
    before = counters().snapshot()
    act()
    return counters().since(before)["inflated_blocks"]


def test_every_range_is_that_of_the_inflated_object() -> None:
    store, _, whole = blocked(PARTS)
    rng = random.Random(0)
    assert store.size("x") == len(whole) == store.meta("x").size
    assert {one.path: one.size for one in store.list()} == {"x": len(whole), "plain": 8}
    assert store.get("x") == whole
    assert b"".join(store.pieces("x", 1000)) == whole
    assert store.get_tail("x", 50) == (whole[-50:], len(whole))
    assert store.whole("x")[0] == whole
    for _ in range(300):
        begin = rng.randrange(len(whole) + 1)
        length = rng.randrange(len(whole) - begin + 1)
        assert store.get("x", begin, length) == whole[begin : begin + length]
        assert (
            joined(run(lambda begin=begin, length=length: store.read("x", begin, length), wait=9, what="x"))
            == (whole[begin : begin + length])
        )
    for begin, length in ((len(whole), 1), (0, len(whole) + 1), (-1, 2), (5, -1)):
        with pytest.raises(StorageError):
            store.get("x", begin, length)


def test_what_is_not_compressed_passes_through_and_nothing_is_written() -> None:
    store, _, _ = blocked(PARTS)
    assert (store.get("plain"), store.get_tail("plain", 2), store.size("plain")) == (b"as it is", (b"is", 8), 8)
    assert not store.mapped
    with pytest.raises(StorageError, match="read only"):
        store.put("y", b"")
    assert store.file_of("x") is None
    assert not store.holds("x")


def test_a_block_is_inflated_once_however_many_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_SMALL", 0)
    store, inner, whole = blocked(PARTS)
    requests = [Request("x", begin, 10) for begin in range(0, len(whole) - 10, 50)]

    def act() -> None:
        buffers = fetch(store, lambda: requests)
        assert all(buffers.view(*one) == whole[one.offset : one.offset + 10] for one in requests)

    assert inflated_by(act) == 4  # one is empty, one plain
    reads = [one for one in inner.requests if one.kind != "list"]
    assert inflated_by(act) == 0
    store.repair("x", 0, 1)
    assert inflated_by(act) == 1
    assert len(reads) < 20


def test_small_blocks_are_kept_only_where_a_part_of_them_is_read() -> None:
    store, _, whole = blocked(PARTS)
    for _ in range(2):
        assert inflated_by(lambda: store.get("x")) == 4
    assert inflated_by(lambda: store.get("x", 0, len(whole) - 1)) == 4
    assert inflated_by(lambda: store.get("x", len(whole) - 9, 9)) == 0


def local(folder: Path, parts: list[tuple[str, bytes]]) -> tuple[BlockStore, bytes]:
    data, blocks = packed(parts)
    folder.joinpath("x").write_bytes(data)
    folder.joinpath("plain").write_bytes(b"as it is")
    return BlockStore(LocalStore(folder), {"x": blocks}.get), b"".join(part for _, part in parts)


def test_small_blocks_of_files_are_inflated_where_they_are_used(tmp_path: Path) -> None:
    store, whole = local(tmp_path, PARTS)
    assert store.at_hand("x")
    assert store.at_hand("plain")
    assert not blocked(PARTS)[0].at_hand("x")
    buffers = MappedBuffers(store)
    rng = np.random.default_rng(0)
    for _ in range(50):
        offsets = rng.integers(0, len(whole), 20)
        lengths = rng.integers(0, len(whole) - offsets + 1)
        found = buffers.views("x", offsets, lengths)
        pairs = list(zip(offsets.tolist(), lengths.tolist(), strict=True))
        assert found == [whole[at : at + length] for at, length in pairs]
        assert [buffers.view("x", *one) for one in pairs] == found
        assert store.get("x", *pairs[0]) == found[0]
        at = np.minimum(offsets, len(whole) - 40)
        assert buffers.gather("x", at, 40).tobytes() == b"".join(whole[one : one + 40] for one in at.tolist())
    assert buffers.views("plain", np.array([3, 0]), np.array([2, 2])) == [b"it", b"as"]
    assert store.get("x") == whole
    for at, length in ((len(whole), 1), (-1, 2), (5, -1)):
        with pytest.raises(StorageError):
            buffers.views("x", np.array([0, at]), np.array([1, length]))


def test_a_small_block_of_a_file_is_inflated_once_by_those_who_read_parts_of_it(tmp_path: Path) -> None:
    store, whole = local(tmp_path, [("zstd", DATA), ("zstd", DATA)])
    at = np.arange(0, len(whole), 100)
    assert inflated_by(lambda: store.views("x", at, np.full(len(at), 50))) == 2
    assert inflated_by(lambda: store.views("x", at, np.full(len(at), 50))) == 0
    assert store.repair("x", 0, 1)
    assert inflated_by(lambda: store.views("x", at, np.full(len(at), 50))) == 1
    large, _ = local(tmp_path, [("zstd", bytes(1 << 20))])
    assert not large.at_hand("x")
    nothing, _ = local(tmp_path, [])
    assert nothing.at_hand("x")
    with pytest.raises(StorageError):
        nothing.views("x", np.array([0]), np.array([1]))


def test_a_small_block_of_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    store, _ = local(tmp_path, [("zstd", DATA), ("deflate", DATA)])
    path = tmp_path / "x"
    path.write_bytes(path.read_bytes()[:-30] + bytes(30))
    again = BlockStore(LocalStore(tmp_path), store._blocks_of)
    with pytest.raises((ChecksumError, DecodeError), match=r"(?s)a block.*x, offset [1-9]"):
        again.views("x", np.array([0, len(DATA)]), np.array([5, 5]))


def test_threads_that_read_the_same_block_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store = blocked([("zstd", DATA)])[0]
    begun = threading.Event()
    monkeypatch.setattr(store_module, "inflate", lambda *given: (begun.wait(0.2), inflate(*given))[1])
    threads = [threading.Thread(target=store.get, args=("x", at, 5)) for at in range(8)]

    def act() -> None:
        for one in threads:
            one.start()
        for one in threads:
            one.join(30)

    assert inflated_by(act) == 1


def test_a_read_that_is_given_up_takes_nothing_from_the_others() -> None:
    store, _, whole = blocked([("zstd", DATA), ("zstd", DATA)])

    async def act() -> list[memoryview]:
        gone = asyncio.ensure_future(store.read("x", 0, 10))
        stays = asyncio.ensure_future(store.read("x", 0, len(whole)))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert joined(run(act, wait=20, what="x")) == whole


def test_what_is_held_is_bounded() -> None:
    kept = HeldBlocks(100)
    for number in range(9):
        kept.put(1, "x", number, memoryview(bytes(30)))
    assert [number for number in range(9) if kept.get(1, "x", number) is not None] == [6, 7, 8]
    kept.put(1, "x", 9, memoryview(bytes(500)))
    assert kept.get(1, "x", 9) is not None
    assert kept.get(1, "x", 8) is None
    kept.put(2, "x", 9, memoryview(bytes(1)))
    assert kept.get(1, "x", 9) is None  # there are others now
    kept.forget(2)
    assert kept.get(2, "x", 9) is None


def test_no_more_is_inflated_at_a_time_than_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "HELD", 6 * len(DATA))
    monkeypatch.setattr(store_module, "_TOGETHER", 0)
    store, _, whole = blocked([("zstd", DATA)] * 20)
    now, most, lock = [0], [0], threading.Lock()

    def slow(*given: Any) -> memoryview:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        try:
            threading.Event().wait(0.005)
            return inflate(*given)
        finally:
            with lock:
                now[0] -= 1

    monkeypatch.setattr(store_module, "inflate", slow)
    assert store.get("x") == whole
    assert 1 < most[0] <= 6


def test_stores_that_go_leave_no_blocks_and_pickles_carry_none() -> None:
    assert inflated_by(lambda: blocked([("zstd", DATA)])[0].get("x")) == 1
    gc.collect()
    assert held._bytes == 0
    copy = pickle.loads(pickle.dumps(BlockStore(MemoryStore(), dict[str, Any]().get)))
    assert isinstance(copy, Store)


@pytest.mark.parametrize("name", ["zstd", "gzip", "deflate"])
def test_other_bytes_than_those_that_were_indexed(name: str) -> None:
    data, blocks = packed([(name, DATA)])
    other, _ = packed([(name, DATA[:-1] + b"?")])
    same_size = other[: len(data)].ljust(len(data), b"-")
    store = BlockStore(MemoryStore({"x": same_size}), {"x": blocks}.get)
    with pytest.raises((ChecksumError, DecodeError), match=r"(?s)a block.*x, offset 4"):
        store.get("x")


def test_a_table_comes_back_from_its_bytes() -> None:
    _, blocks = packed(PARTS)
    again = ObjectBlocks.unpack(blocks.stored, blocks.pack())
    assert (again.size, again.pack(), len(again)) == (blocks.size, blocks.pack(), len(blocks))
    set = BlockList()
    for number, setting in enumerate([b"one", b"", b"two", b"one"]):
        set.add("gzip", number, 1, 1, setting=setting)
    again = ObjectBlocks.unpack(9, set.of(9).pack())
    made = [(one.codec, one.setting) for one in again.stored_blocks(range(4))]
    assert made == [(2, b"one"), (2, b""), (2, b"two"), (2, b"one")]
    assert again.settings == [b"one", b"two"]
    vast = BlockList()
    vast.add("none", 0, 5 << 30, 5 << 30)
    assert (len(vast), vast.of(0).size) == (5, 5 << 30)
    with pytest.raises(ValueError, match="at most"):
        vast.add("zstd", 0, 9, LARGEST + 1)


def test_a_forked_child_reads_for_itself() -> None:
    store, _, whole = blocked(PARTS)
    assert store.get("x") == whole
    child = os.fork()
    if not child:
        os._exit(0 if store.get("x") == whole else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("x") == whole


def test_a_store_that_is_collected_while_blocks_are_looked_up_does_not_wait_for_that() -> None:
    kept = HeldBlocks(100)
    kept.put(1, "a", 0, memoryview(b"x" * 60))

    class Collected(str):
        def __hash__(self) -> int:  # asked for in the midst of `get`, as garbage may be collected there
            kept.forget(1)
            return super().__hash__()

    thread = threading.Thread(target=kept.get, args=(2, Collected("b"), 0), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    kept.put(2, "b", 0, memoryview(b"y" * 60))
    assert kept.get(1, "a", 0) is None
    kept.forget(2)
    assert kept.get(2, "b", 0) is None
