"""Many processes on one cache: bytes fetched once, limits kept together, nobody hurt by another's death."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from shardstream.storage.cache import Cache
from shardstream.storage.cache import fill as bring
from shardstream.storage.cache.folder import Folder
from shardstream.storage.cache.ledger import Busy
from shardstream.storage.cache.locks import Claim, FileLock, is_locked, lock_file
from shardstream.storage.cache.locks import claim as claim_descriptor
from shardstream.storage.cache.tier import Tier

from .making import MIB, noise

fork = multiprocessing.get_context("fork")


def claim(path, first: int, stop: int) -> Claim | tuple[int, int]:
    return claim_descriptor(os.open(path, os.O_RDWR), first, stop)


def together(works) -> None:
    """Run in processes that begin at one moment; all must end well."""
    barrier = fork.Barrier(len(works))

    def begin(work) -> None:
        barrier.wait(30)
        work()

    children = [fork.Process(target=begin, args=(work,)) for work in works]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * len(children)


def wait_for(what) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_eight_processes_that_start_cold_fetch_each_byte_once(world) -> None:
    """Lanes of their own that meet at edges, as workers have them, and a shard that all of them read."""
    objects = {f"object-{i}": world.put(f"object-{i}", noise(4 * MIB + 999 * i, seed=i)) for i in range(6)}
    total = sum(map(len, objects.values()))

    def epoch(worker: int) -> None:
        store = world.store(delay=0.005)
        draw = np.random.default_rng(worker)
        for name, data in objects.items():
            lane = len(data) // 8
            first = 0 if name == "object-0" else worker * lane
            last = len(data) if name == "object-0" or worker == 7 else first + lane
            for start in draw.permutation(np.arange(first, last, 55_000)).tolist():
                length = min(55_000, last - start)
                assert store.get(name, start, length) == data[start : start + length]

    together([partial(epoch, worker) for worker in range(8)])
    assert total <= world.origin.fetched() <= 1.05 * total
    world.origin.forget()
    together([partial(epoch, worker) for worker in range(8)])
    assert world.origin.fetched() == 0


def test_a_process_killed_in_the_middle_of_a_fetch_leaves_nothing_to_wait_for(world) -> None:
    data = world.put("object", noise(3 * MIB))
    world.store().hold()

    def victim() -> None:
        world.store(delay=60).get("object")

    child = fork.Process(target=victim)
    child.start()
    wait_for(lambda: world.origin.fetched() == 3 * MIB)
    (file,) = world.files()
    assert claim(str(file), 0, 1) == (0, 1)  # the kernel says who has what
    killed = time.monotonic()
    waiting = fork.Process(target=lambda: os._exit(world.store().get("object") != data))
    waiting.start()
    child.kill()
    child.join()
    waiting.join(30)
    assert waiting.exitcode == 0
    assert time.monotonic() - killed < bring._PATIENCE  # not by its patience
    assert world.store().copies("object", np.array([0]), np.array([3 * MIB])) == [data]
    assert world.origin.fetched() == 6 * MIB


def test_nobody_waits_for_long_for_a_process_that_is_stopped(world, monkeypatch) -> None:
    data = world.put("object", noise(3 * MIB))
    monkeypatch.setattr(bring, "_PATIENCE", 0.2)
    child = fork.Process(target=lambda: world.store(delay=60).get("object", MIB, MIB))
    child.start()
    try:
        wait_for(lambda: world.origin.fetched() == MIB)
        os.kill(child.pid, signal.SIGSTOP)
        assert world.store().get("object") == data
        assert world.origin.fetched() == 4 * MIB
    finally:
        child.kill()
        child.join()


@pytest.mark.full
def test_killed_at_any_moment(world) -> None:
    objects = {f"object-{i}": world.put(f"object-{i}", noise(MIB * 3 // 2, seed=i)) for i in range(8)}

    def victim() -> None:
        while True:
            store = world.store()
            for name in objects:
                store.get(name)
            for file in world.files():
                with suppress(FileNotFoundError):
                    file.unlink()

    for moment in range(12):
        child = fork.Process(target=victim)
        child.start()
        time.sleep(0.02 + 0.007 * moment)
        child.kill()
        child.join()
        survivor = world.store()
        for name, data in objects.items():
            assert survivor.get(name) == data
        del survivor
    # The next user counts anew.
    tier = Tier(str(world.cache), None)
    tier.prepare()
    with tier.ledger.open() as book:
        assert book.used == sum(file.stat().st_size for file in world.files())
    assert not list(world.cache.rglob(".new-*"))


def test_processes_keep_a_limit_together(world) -> None:
    names = [f"object-{i}" for i in range(16)]
    objects = {name: world.put(name, noise(MIB // 2, seed=i)) for i, name in enumerate(names)}
    cache = Cache(world.cache, size=4 * MIB)

    def work(worker: int) -> None:
        store = world.store(cache)
        for name in np.random.default_rng(worker).permutation(names).tolist():
            assert store.get(name) == objects[name]
            assert sum(file.stat().st_size for file in world.files()) <= 4 * MIB

    together([partial(work, worker) for worker in range(6)])
    assert len(world.files()) == 7


def test_data_sets_in_use_stay_and_others_make_room(world) -> None:
    objects = [world.put(f"object-{i}", noise(2 * MIB, seed=i)) for i in range(3)]
    cache = Cache(world.cache, size=5 * MIB)
    old, used = world.store(cache, fingerprint="a" * 32), world.store(cache, fingerprint="b" * 32)
    assert old.get("object-0") == objects[0]
    assert used.get("object-1") == objects[1]
    third = world.store(cache, fingerprint="c" * 32)
    assert third.get("object-2") == objects[2]
    assert [file.parent.name[0] for file in world.files()] == ["a", "b"]  # both in use, no room for the third
    del old
    again = world.store(cache, fingerprint="c" * 32)
    assert again.get("object-2") == objects[2]
    assert [file.parent.name[0] for file in world.files()] == ["b", "c"]
    assert used.copies("object-1", np.array([0]), np.array([2 * MIB])) == [objects[1]]


def test_what_is_not_ours_is_never_removed(world) -> None:
    world.put("object", noise(2 * MIB))
    cache = Cache(world.cache, size=3 * MIB)
    world.store(cache, fingerprint="a" * 32).get("object")
    foreign = world.cache / "sets" / "foreign"
    foreign.mkdir()
    for name in ("lease", "x.blocks", "dataset.json"):
        (foreign / name).write_bytes(b"mine")
    mine = world.cache / "sets" / ("a" * 32) / "notes.txt"
    mine.write_text("mine")
    (world.cache / "sets" / "linked").symlink_to(foreign)
    world.store(cache, fingerprint="b" * 32).get("object")
    assert len(world.files()) == 2  # the new object and the foreign file
    assert sorted(os.listdir(foreign)) == ["dataset.json", "lease", "x.blocks"]
    assert mine.exists()


def test_a_forked_child_opens_the_cache_for_itself(world) -> None:
    data = world.put("object", noise(MIB))
    store = world.store()
    assert store.get("object") == data

    def child() -> None:
        assert store.get("object") == data
        assert store.copies("object", np.array([0]), np.array([MIB])) == [data]

    together([child] * 3)
    assert world.origin.fetched() == MIB


# ------------------------------------------------------------------------------------------------------------- locks


def test_claims_name_what_another_has_claimed(tmp_path) -> None:
    path = tmp_path / "x"
    path.touch()
    first = claim(str(path), 3, 5)
    assert isinstance(first, Claim)
    assert claim(str(path), 0, 10) == (3, 5)
    assert claim(str(path), 4, 10) == (4, 5)
    beside = claim(str(path), 5, 6)
    assert isinstance(beside, Claim)
    first.release()
    assert isinstance(claim(str(path), 0, 5), Claim)
    assert isinstance(claim(str(path), 0, 6), tuple)


def test_a_child_forked_meanwhile_does_not_prolong_a_lock(tmp_path) -> None:
    folder, path = Folder.root(str(tmp_path)), tmp_path / "x"
    held = lock_file(folder, "x", shared=False, wait=0)
    claimed = claim(path, 0, 1)
    pipe = os.pipe()
    child = os.fork()
    if not child:
        os.close(pipe[1])
        os.read(pipe[0], 1)
        os._exit(0)
    assert is_locked(folder, "x")
    held.release()
    claimed.release()
    assert not is_locked(folder, "x")
    assert isinstance(claim(path, 0, 1), Claim)
    os.close(pipe[1])
    os.waitpid(child, 0)


def test_a_lock_is_on_the_file_that_has_the_name(tmp_path) -> None:
    folder = Folder.root(str(tmp_path))
    first = lock_file(folder, "x", shared=True, wait=0)
    assert isinstance(first, FileLock)
    assert lock_file(folder, "x", shared=False, wait=0.01) is None
    folder.unlink("x")
    assert isinstance(lock_file(folder, "x", shared=False, wait=0.01), FileLock)


def test_a_ledger_that_is_held_too_long_is_an_error_and_a_damaged_one_is_counted_anew(world) -> None:
    world.put("object", noise(MIB))
    world.store().get("object")
    tier = Tier(str(world.cache), None)
    with tier.ledger.open() as book:
        used = book.used
        with pytest.raises(Busy, match="held by other processes"), tier.ledger.open(wait=0.01):
            pass
    (world.cache / "ledger").write_bytes(b"nonsense")
    with tier.ledger.open() as book:
        assert book.used == used == sum(file.stat().st_size for file in world.files())
