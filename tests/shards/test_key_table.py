"""Key tables: whatever the keys, the table finds exactly their samples, and damage never finds others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import DataError, FormatError, VersionError
from shardstream.shards import key_table
from shardstream.shards.index import Keys
from shardstream.shards.key_table import TAIL_BYTES, Covers, KeyTable, SortedKeys, hashes_of, table_bytes

OWN, BELOW = "0123456789abcdef" * 2, "f" * 32


def keys_of(names: list[str]) -> Keys:
    blob = "".join(names).encode()
    return Keys(np.cumsum([len(name.encode()) for name in names], dtype="<u4"), memoryview(blob))


def made(names: list[str], covers: Covers | None = None, *, run: int | None = None, shard: int = 7) -> bytes:
    covers = covers or Covers(0, len(names), OWN)
    with SortedKeys(covers, run) as keys:
        for begin in range(0, len(names), shard):
            part = names[begin : begin + shard]
            first = covers.start + begin
            keys.add(hashes_of(keys_of(part)), np.arange(first, first + len(part)))
        return b"".join(table_bytes(keys))


class Read:
    """Reads of a table's bytes, counted."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.reads: list[tuple[int, int]] = []
        self.stays = True

    def __call__(self, offset: int, length: int) -> tuple[memoryview, bool]:
        self.reads.append((offset, length))
        return self.data[offset : offset + length], self.stays

    def table(self) -> KeyTable:
        return KeyTable.parse(self.data[-TAIL_BYTES:], len(self.data), self, url="there")


KEYS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8), max_size=60)


@pytest.mark.parametrize("bits", [64, 2, 0])
@given(names=KEYS, run=st.integers(1, 70), block=st.integers(1, 9))
def test_every_key_finds_its_samples_in_order(bits: int, names: list[str], run: int, block: int) -> None:
    """Also where hashes are equal: with two bits there are four, with none there is one."""
    with pytest.MonkeyPatch.context() as patch:
        whole = key_table.key_hash
        patch.setattr(key_table, "key_hash", lambda data: whole(data) & ((1 << bits) - 1) if bits < 64 else whole(data))
        patch.setattr(key_table, "_LEAST_BLOCK", block)
        data = made(names, Covers(5, 5 + len(names), OWN, BELOW), run=run)
        assert data == made(names, Covers(5, 5 + len(names), OWN, BELOW), shard=3)
        table = Read(data).table()
        assert table.covers == Covers(5, 5 + len(names), OWN, BELOW)
        for name in {*names, "another"}:
            found = list(table.numbers(name))
            assert found == sorted(found)
            assert [number for number in found if names[number - 5] == name] == [
                5 + i for i, other in enumerate(names) if other == name
            ]
        hashes = [int(one) for part, _ in table.entries() for one in part]
        assert hashes == sorted(hashes)
        assert len(hashes) == len(names)


def test_a_key_is_found_by_one_read_of_one_block() -> None:
    names = [f"key/{i}" for i in range(20_000)]
    read = Read(made(names))
    table = read.table()
    for number in (0, 777, 19_999):
        read.reads.clear()
        assert next(table.numbers(names[number])) == number
        assert len(read.reads) <= 1
        assert all(length <= 4096 * 12 for _, length in read.reads)
        assert next(table.numbers(names[number])) == number
        assert len(read.reads) <= 1  # the block is held


def test_the_directory_stays_short(monkeypatch) -> None:
    monkeypatch.setattr(key_table, "_LEAST_BLOCK", 1)
    monkeypatch.setattr(key_table, "_MOST_BLOCKS", 10)
    names = [f"key/{i}" for i in range(161)]
    read = Read(made(names))
    table = read.table()
    assert len(list(table.entries())) == 6  # of 32
    assert next(table.numbers("key/160")) == 160


def test_numbers_beyond_32_bits_take_eight_bytes() -> None:
    covers = Covers((1 << 32) - 2, (1 << 32) + 2, OWN, BELOW)
    table = Read(made(["a", "b", "c", "d"], covers)).table()
    assert [next(table.numbers(name)) for name in "abcd"] == list(range(covers.start, covers.stop))


def test_no_damage_finds_anything() -> None:
    data = made([f"key/{i}" for i in range(40)], run=16)
    wanted = "key/17"
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        with pytest.raises(DataError) as error:
            list(Read(bytes(damaged)).table().numbers(wanted))
        assert "there" in str(error.value)
    for size in range(len(data)):
        with pytest.raises(FormatError, match="truncated"):
            Read(data[:size]).table()


def test_a_newer_version_says_so() -> None:
    data = bytearray(made(["a"]))
    at = len(data) - key_table.TRAILER.size + 8
    data[at] = 2
    with pytest.raises(VersionError, match="version 2"):
        Read(bytes(data)).table()


def test_a_table_that_names_other_samples_is_refused() -> None:
    with SortedKeys(Covers(0, 1, OWN)) as keys:
        keys.add(hashes_of(keys_of(["a"])), np.array([1]))
        data = b"".join(table_bytes(keys))
    with pytest.raises(FormatError, match="not about"):
        list(Read(data).table().numbers("a"))
