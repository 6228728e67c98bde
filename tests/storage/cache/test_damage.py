"""Whatever happens to the files of a cache, what is read is right, or comes from the store."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import xxhash

from shardstream.storage import counters
from shardstream.storage.base.held import can_copy
from shardstream.storage.base.memory import HeldObjects, WholeObjects
from shardstream.storage.cache import Cache
from shardstream.storage.cache.blocks import BlockFile, Described
from shardstream.storage.cache.folder import Folder
from shardstream.storage.transfer import loop

from .making import MIB, World, flip, in_child, noise

SIZE = 5 * MIB + 12_345
MAP, DATA = 4096, 8192  # where the map and the object begin in the file
WHOLE = np.array([0]), np.array([SIZE])


@pytest.fixture
def big(world) -> bytes:
    return world.put("shard", noise(SIZE))


def warm(world) -> Path:
    """The file of an object that is in the cache; what is fetched from now on is counted."""
    world.store().get("shard")
    world.origin.forget()
    (file,) = world.files()
    return file


@pytest.mark.parametrize("where", [DATA, DATA + 3 * MIB + 7, DATA + SIZE - 1, MAP, MAP + 8 * 5 + 7])
def test_a_flipped_bit_is_noticed_by_the_next_process_and_the_block_fetched_again(world, big, where) -> None:
    flip(warm(world), where)
    before = counters().snapshot()
    store = world.store()
    assert store.get("shard") == big
    assert len(world.origin.requests()) == 1
    assert world.origin.fetched() <= MIB
    assert counters().since(before)["cache_repaired"] == 1
    assert world.store().get("shard") == big
    assert len(world.origin.requests()) == 1


def test_damage_is_noticed_by_who_asks_what_is_held(world, big) -> None:
    flip(warm(world), DATA + MIB)
    store = world.store()
    assert store.holds_ranges("shard", np.array([0]), np.array([MIB]))
    assert not store.holds_ranges("shard", *WHOLE)
    assert store.get("shard") == big
    assert store.holds("shard")


@pytest.mark.skipif(not can_copy(), reason="this system does not copy from a process's own memory")
def test_what_is_held_is_sound_until_a_block_is_doubted(world, big) -> None:
    file = warm(world)
    store = world.store()
    assert store.held("shard") is None  # nobody has compared it yet
    assert store.get("shard") == big
    held = store.held("shard")
    objects = HeldObjects(np.array([held.address]), WholeObjects(1))
    assert objects.views(np.array([0]), np.array([0]), np.array([SIZE])) == [big]
    assert held.sound()
    flip(file, DATA + MIB)
    assert store.repair("shard", MIB, 10)
    assert not held.sound()
    assert store.held("shard") is None
    assert store.get("shard") == big
    assert held.sound()  # the same file, filled again
    assert objects.views(np.array([0]), np.array([0]), np.array([SIZE])) == [big]
    os.truncate(file, SIZE)
    assert objects.views(np.array([0]), np.array([0]), np.array([SIZE])) is None
    assert store.held("shard") is None


@pytest.mark.parametrize("where", [0, 9, 30])
def test_a_file_with_a_damaged_head_is_made_anew(world, big, where) -> None:
    file = warm(world)
    flip(file, where)
    assert world.store().get("shard") == big
    assert world.store().copies("shard", *WHOLE) == [big]
    assert world.origin.fetched() == SIZE
    assert world.files() == [file]


@pytest.mark.parametrize("left", [0, 100, MAP, MAP + 8 * 3, DATA, DATA + 2 * MIB, DATA + SIZE - 1])
def test_a_file_cut_between_two_processes(world, big, left) -> None:
    os.truncate(warm(world), left)
    assert world.store().copies("shard", *WHOLE) is None
    assert world.store().get("shard") == big
    assert world.origin.fetched() == SIZE


@pytest.mark.parametrize("left", [0, MAP + 8, DATA + 2 * MIB])
def test_a_file_cut_while_it_is_in_use_kills_nobody(world, big, left) -> None:
    def train() -> None:
        store = world.store()
        assert store.get("shard") == big
        (file,) = world.files()
        os.truncate(file, left)
        assert store.get("shard", 3 * MIB, 50) == big[3 * MIB : 3 * MIB + 50]
        assert store.get("shard") == big
        assert store.holds("shard")
        os.truncate(file, left)
        assert store.copies("shard", *WHOLE) is None
        assert b"".join(loop.run(lambda: store.read("shard", 0, SIZE), wait=60, what="a test")) == big
        assert store.copies("shard", *WHOLE) == [big]

    in_child(train)


def test_data_that_spoils_after_it_was_verified_is_repaired_when_the_reader_says_so(world, big) -> None:
    store = world.store()
    store.get("shard")
    world.origin.forget()
    (file,) = world.files()
    flip(file, DATA + 2 * MIB + 5)
    assert store.get("shard", 2 * MIB, 10) != big[2 * MIB : 2 * MIB + 10]
    assert store.repair("shard", 2 * MIB, 10)
    assert not store.holds("shard")
    assert store.get("shard") == big
    assert world.origin.requests() == [("shard", 2 * MIB, MIB)]


def test_data_that_was_spoilt_on_its_way_is_fetched_again_once(world, big) -> None:
    path = world.folder / "remote" / "shard"
    flip(path, MIB)
    store = world.store()
    wrong = store.get("shard", MIB, 10)
    assert wrong != big[MIB : MIB + 10]
    assert store.repair("shard", MIB, 10)
    assert store.get("shard", MIB, 10) == wrong
    assert not store.repair("shard", MIB, 10)  # it is the object that is damaged
    flip(path, MIB)
    other = world.store()
    assert other.get("shard", MIB, 10) == wrong
    assert other.repair("shard", MIB, 10)
    assert other.get("shard", MIB, 10) == big[MIB : MIB + 10]
    assert not other.repair("elsewhere", 0, 10)
    assert not other.repair("shard", 0, 0)


def test_words_whose_data_never_reached_the_disk_are_absent_blocks(world, big) -> None:
    file = warm(world)
    with open(file, "r+b") as out:  # as after a power failure
        out.seek(DATA + MIB)
        out.write(bytes(2 * MIB))
    assert world.store().get("shard") == big
    assert world.origin.fetched() == 2 * MIB


@pytest.mark.parametrize("what", ["folder", "sets", "file", "ledger", "marker"])
def test_what_is_removed_while_it_is_used_does_not_matter(world, big, what, caplog) -> None:
    second = world.put("second", noise(MIB + 5, seed=3))
    third = world.put("third", noise(10, seed=4))
    store = world.store()
    store.hold()
    assert store.get("shard", 0, 2 * MIB) == big[: 2 * MIB]
    (file,) = world.files()
    target = {"folder": world.cache, "sets": world.cache / "sets", "file": file}.get(what)
    target = target or world.cache / {"ledger": "ledger", "marker": "shardstream-cache.json"}[what]
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    for _ in range(2):
        assert store.get("shard") == big
        assert store.get("second") == second
        assert store.get("third") == third
    assert world.store().get("shard") == big
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 1


def test_a_cache_that_was_renamed_is_left_alone(world, big) -> None:
    world.put("second", noise(MIB))
    store, other = world.store(), world.store(fingerprint="f" * 32)
    store.get("shard", 0, MIB)
    other.hold()
    gone = world.folder / "gone"
    world.cache.rename(gone)
    before = sorted(gone.rglob("*"))
    for _ in range(2):
        assert store.get("second") == world.objects["second"]
        assert store.get("shard") == big
    assert sorted(gone.rglob("*")) == before
    assert world.store().get("second") == world.objects["second"]
    assert [file.name[:6] for file in world.files()] == ["second"]


def test_a_full_disk_streams_with_one_warning(world, big, caplog) -> None:
    small = world.put("small", noise(100_000, seed=7))

    def train() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, 2 * MIB))
        store, other = world.store(), world.store()
        for _ in range(2):
            assert store.get("shard", 5, 100) == big[5:105]
            assert store.get("small") == small
            assert other.get("shard") == big
        assert len(world.files()) == 1
        assert ("shard", 5, 100) in world.origin.requests()  # not rounded out to blocks
        (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert f"the cache {world.cache} is full" in warning.getMessage()
        assert "give cache= a folder of a larger disk" in warning.getMessage()

    in_child(train)


def test_a_size_limit_leaves_the_rest_streaming(world, caplog) -> None:
    objects = [world.put(f"object-{i}", noise(2 * MIB, seed=i)) for i in range(4)]
    cache = Cache(world.cache, size="5MB")
    store = world.store(cache)
    for _ in range(2):
        for i, data in enumerate(objects):
            assert store.get(f"object-{i}") == data
    assert [path.name[:8] for path in world.files()] == ["object-0", "object-1"]
    assert world.origin.fetched() == 4 * 2 * MIB + 2 * 2 * MIB
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "has reached its size of 5,000,000 bytes" in warning.getMessage()


def as_nobody(work) -> None:
    """Run in a child that may not write what is not its own, also where the tests run as root."""

    def child() -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        work()

    in_child(child)


@contextmanager
def unwritable(world) -> Iterator[None]:
    """Nobody may write to the cache, nor to anything but the log; what is fetched meanwhile is counted."""
    world.origin.forget()
    for folder, _, files in os.walk(world.folder):
        os.chmod(folder, 0o555)
        for file in files:
            os.chmod(os.path.join(folder, file), 0o444)
    os.chmod(world.folder / "remote.log", 0o666)
    try:
        yield
    finally:
        for folder, _, _ in os.walk(world.folder):
            os.chmod(folder, 0o755)


def test_a_cache_that_cannot_be_written_is_read_and_the_rest_streams(caplog) -> None:
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name))
        data = world.put("shard", noise(SIZE))
        world.store().get("shard", 0, 2 * MIB)
        before = sorted((str(path), path.stat().st_mtime_ns) for path in world.cache.rglob("*"))

        def train() -> None:
            store = world.store()
            store.hold()
            for _ in range(2):
                assert store.get("shard", 0, 100) == data[:100]
                assert store.holds_ranges("shard", np.array([5]), np.array([MIB]))
            assert not world.origin.fetched()
            assert store.get("shard", 3 * MIB, 100) == data[3 * MIB : 3 * MIB + 100]
            assert world.origin.requests() == [("shard", 3 * MIB, 100)]
            (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
            assert "cannot be written" in warning.getMessage()

        with unwritable(world):
            as_nobody(train)
            assert sorted((str(path), path.stat().st_mtime_ns) for path in world.cache.rglob("*")) == before


def test_a_spoilt_block_of_a_cache_that_cannot_be_written_comes_from_the_store_from_then_on() -> None:
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name))
        data = world.put("shard", noise(SIZE))
        flip(world.folder / "remote" / "shard", MIB)
        world.store().get("shard", 0, 2 * MIB)  # its words fit what came
        flip(world.folder / "remote" / "shard", MIB)

        def train() -> None:
            store = world.store()
            assert store.get("shard", MIB, 10) != data[MIB : MIB + 10]
            before = counters().snapshot()
            assert store.repair("shard", MIB, 10)
            for _ in range(2):
                assert store.get("shard", MIB, 10) == data[MIB : MIB + 10]
                assert store.copies("shard", np.array([MIB]), np.array([10])) is None
                assert not store.repair("shard", MIB, 10)  # it comes from the store: reading again would not help
            assert counters().since(before)["cache_repaired"] == 1
            assert world.origin.requests() == [("shard", MIB, 10)] * 2
            assert store.copies("shard", np.array([5]), np.array([10])) == [data[5:15]]

        with unwritable(world):
            as_nobody(train)


def test_a_cache_that_cannot_be_made_streams(caplog) -> None:
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name))
        data = world.put("shard", noise(100))
        (world.folder / "remote.log").touch()
        os.chmod(world.folder / "remote.log", 0o666)
        os.chmod(name, 0o555)

        def train() -> None:
            store = world.store()
            assert store.get("shard") == data
            assert store.get("shard", 5, 5) == data[5:10]
            (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
            assert "cannot be used (Permission denied)" in warning.getMessage()

        try:
            as_nobody(train)
        finally:
            os.chmod(name, 0o755)


def test_a_block_that_another_process_has_just_cleared_is_fetched_too(world, big) -> None:
    first, second = world.store(), world.store()
    for store in (first, second):
        assert store.get("shard") == big
    (file,) = world.files()
    flip(file, DATA + 5)
    assert second.repair("shard", 0, 10)
    assert second.get("shard", 0, 10) == big[:10]
    flip(file, DATA + 5)
    assert first.repair("shard", 0, 10)  # its map says absent now, and the damaged bytes are still there
    assert second.get("shard", 0, 10) != big[:10]
    assert second.repair("shard", 0, 10)
    assert second.get("shard", 0, 10) == big[:10]


def test_a_block_that_arrives_after_it_was_found_damaged_and_storing_was_given_up_is_there(world, big) -> None:
    file = warm(world)
    flip(file, DATA + 5)
    folder = Folder.root(str(file.parent))
    held = BlockFile(folder, file.name, Described("shard", SIZE, xxhash.xxh3_64_intdigest(big), ""), writable=True)
    held.give_up(OSError("another block could not be stored"))
    assert held.doubt(0, 1) == 1
    assert not held.words(0, 1).any()  # in this process: the map is as it was
    held.store(0, [memoryview(big)[:MIB]])  # had been fetched by then
    assert held.words(0, 1).all()
    assert held.verify(np.arange(held.described.blocks)) == 0
    assert held.complete
    assert held.read([0], [SIZE]) == [big]
