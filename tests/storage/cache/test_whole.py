"""An object that is whole is compared with its own checksum: once, when its last block came."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import xxhash

from shardstream.storage.cache import blocks

from .making import MIB, flip, noise


def forge(file: Path, data: bytes) -> None:
    """Other bytes of the same length, each block with the word that fits it."""
    with open(file, "r+b") as out:
        out.seek(blocks._PAGE)
        out.write(b"".join(word.to_bytes(8, "little") for word in blocks.block_words([memoryview(data)])))
        out.seek(file.stat().st_size - len(data))
        out.write(data)


def test_a_forged_object_is_found_out_by_its_own_checksum(world, data) -> None:
    world.store().get("shard")
    (file,) = world.files()
    forge(file, noise(len(data), seed=9))
    world.origin.forget()
    assert world.store().get("shard") == data
    assert world.origin.fetched() == len(data)
    world.origin.forget()
    assert world.store().get("shard") == data
    assert world.origin.fetched() == 0


@pytest.mark.parametrize("ranges", [[(MIB, MIB), (2 * MIB, 5)], [(0, 2 * MIB + 5)]], ids=["in parts", "at once"])
def test_a_forged_block_is_found_out_when_the_last_block_came(world, data, ranges) -> None:
    world.store().get("shard", 0, MIB)
    (file,) = world.files()
    wrong = bytes(MIB)
    with open(file, "r+b") as out:
        out.seek(file.stat().st_size - len(data))
        out.write(wrong)
        out.seek(blocks._PAGE)
        out.write(xxhash.xxh3_64_intdigest(wrong).to_bytes(8, "little"))
    store = world.store()
    assert store.get("shard", 0, 5) == wrong[:5]  # a partly filled object has no such moment
    for offset, length in ranges:
        assert store.get("shard", offset, length) == data[offset : offset + length]
    assert store.get("shard") == data
    assert store.holds("shard")


def test_a_whole_object_is_compared_once_for_all_processes(world, data, monkeypatch) -> None:
    compared = []
    whole = blocks.BlockFile._whole
    monkeypatch.setattr(blocks.BlockFile, "_whole", lambda *args: compared.append(1) or whole(*args))
    world.store().get("shard")
    assert len(compared) == 1
    for _ in range(3):
        assert world.store().get("shard") == data
    assert len(compared) == 1
    (file,) = world.files()
    flip(file, 8192)  # a block that is fetched again is the same again
    assert world.store().get("shard") == data
    assert len(compared) == 1


def test_a_file_of_before_that_was_never_compared_is(world, data) -> None:
    world.store().get("shard")
    (file,) = world.files()
    with open(file, "r+b") as out:
        out.seek(blocks._SEAL)
        out.write(bytes(8))
    world.origin.forget()
    assert world.store().get("shard") == data
    assert world.origin.fetched() == 0
    assert file.read_bytes()[blocks._SEAL : blocks._PAGE] != bytes(8)


def test_an_object_that_is_another_one_in_the_store_is_read_as_without_a_cache(world, data, caplog) -> None:
    identities = world.identities()
    other = noise(len(data), seed=3)
    (world.folder / "remote" / "shard").write_bytes(other)
    store = world.store()
    store._identify = identities
    for _ in range(2):
        assert store.get("shard") == other
    assert world.origin.fetched() == 2 * len(data)  # once again, to be sure
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "shardstream verify" in warning.getMessage()
