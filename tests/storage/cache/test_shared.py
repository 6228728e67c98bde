"""A cache that the members of a group share, and those who are not members."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from shardstream.storage.cache import Cache, folder
from shardstream.storage.cache import maintenance as upkeep
from shardstream.storage.cache import session as places
from shardstream.storage.cache.manifests import keep_manifest, kept_manifest
from shardstream.storage.cache.tier import memory_folder

from .making import MIB, STRANGER, URL, World, in_child, names_in, needs_root, noise

GROUP = 54_400


def as_user(user: int, *groups: int, umask: int = 0o077) -> Callable[[Callable[[], None]], None]:
    """A runner of work in a child that belongs to a user, whose first group is his own."""

    def run(work: Callable[[], None]) -> None:
        def child() -> None:
            os.umask(umask)
            os.setgroups(groups)
            os.setgid(user)
            os.setuid(user)
            work()

        in_child(child)

    return run


@pytest.fixture
def open_world() -> Iterator[World]:
    """Everybody may read its store and make things in its folder."""
    with tempfile.TemporaryDirectory() as name:  # below pytest's own folders nobody else may look
        world = World(Path(name))
        world.put("shard", noise(2 * MIB + 5))
        (world.folder / "remote.log").touch()
        for path in (world.folder, *world.folder.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        # What is imported when it is used first, other users may not be able to read.
        with tempfile.TemporaryDirectory() as own:
            assert world.store(Cache(f"{own}/disk", memory=own)).get("shard") == world.objects["shard"]
        yield world


@pytest.mark.one_in(2)
@needs_root
@pytest.mark.parametrize("prepared", [False, True])
def test_members_of_a_group_share_a_cache(open_world, prepared) -> None:
    world, data = open_world, open_world.objects["shard"]
    (memory := world.folder / "memory").mkdir()
    memory.chmod(0o1777)
    if prepared:
        world.cache.mkdir()
        os.chown(world.cache, 0, GROUP)
        world.cache.chmod(0o2770)
    else:
        world.folder.chmod(0o2777)
        os.chown(world.folder, 0, GROUP)
    disk, both = Cache(world.cache, shared=True), Cache(world.cache, memory=memory, shared=True)

    def first() -> None:
        for cache in (disk, both):
            assert world.store(cache, fingerprint="a" * 32).get("shard") == data
            assert keep_manifest(cache, URL, "e", b"head", b"table")

    def second() -> None:
        world.origin.forget()
        for cache in (disk, both):
            store = world.store(cache, fingerprint="a" * 32)
            assert store.get("shard") == data
            assert kept_manifest(cache, URL).head == b"head"
        assert world.origin.fetched() == 0
        assert world.store(both, fingerprint="b" * 32).get("shard") == data
        assert keep_manifest(both, URL, "f", b"second", b"table")
        store.release()
        assert len(upkeep.clear(both, chosen=lambda one: one.fingerprint == "a" * 32)[0]) == 2
        assert not places._warned

    as_user(STRANGER, GROUP)(first)
    as_user(STRANGER + 1, GROUP)(second)
    made = [path for top in (world.cache, Path(memory_folder(both))) for path in (top, *top.rglob("*"))]
    assert {path.stat().st_gid for path in made} == {GROUP}
    assert {path.stat().st_mode & 0o7777 for path in made} == {0o2770, 0o660}
    assert {path.stat().st_uid for path in made if path != world.cache} == {STRANGER, STRANGER + 1}

    def outsider() -> None:
        assert world.store(disk).get("shard") == data
        assert places._warned == {str(world.cache)}

    as_user(STRANGER + 2)(outsider)


@needs_root
def test_members_who_begin_at_one_moment(open_world) -> None:
    world, data = open_world, open_world.objects["shard"]
    world.folder.chmod(0o2777)
    os.chown(world.folder, 0, GROUP)
    (memory := world.folder / "memory").mkdir()
    memory.chmod(0o1777)
    cache = Cache(world.cache, memory=memory, shared=True)
    pids = []
    for user in range(STRANGER, STRANGER + 6):
        pid = os.fork()
        if not pid:
            code = 1
            with suppress(BaseException):
                os.umask(0o077)
                os.setgroups([GROUP])
                os.setgid(user)
                os.setuid(user)
                store = world.store(cache)
                assert store.get("shard") == data
                assert store.holds("shard")
                code = len(places._warned)
            os._exit(code)
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 6


@needs_root
def test_a_folder_that_a_member_is_just_making_is_waited_for(open_world) -> None:
    """For a moment it is his alone."""
    world = open_world
    world.cache.mkdir(0o700)
    os.chown(world.cache, STRANGER, GROUP)
    rights = threading.Timer(0.3, world.cache.chmod, [0o2770])
    rights.start()
    as_user(STRANGER + 1, GROUP)(lambda: folder.Folder.root(str(world.cache), shared=True))
    rights.join()


@needs_root
def test_a_shared_folder_has_to_be_fit_for_it(open_world, caplog, monkeypatch) -> None:
    world, data = open_world, open_world.objects["shard"]
    monkeypatch.setattr(folder, "_YOUNG", 0.0)  # nobody is about to change its rights
    cases = [
        (0, GROUP, 0o2777, "may be written by everybody: chmod o-w"),
        (0, GROUP, 0o770, "does not give its group to what is made in it: chmod g+s"),
        (0, STRANGER + 2, 0o2777, f"is shared by group {STRANGER + 2}, which this user is not in"),
        (STRANGER, GROUP, 0o700, ""),  # his own: it is made fit
    ]
    for user, group, mode, what in cases:
        world.cache.mkdir()
        os.chown(world.cache, user, group)
        world.cache.chmod(mode)

        def work(what: str = what) -> None:
            places._warned.clear()
            assert world.store(Cache(world.cache, shared=True)).get("shard") == data
            assert [what in record.getMessage() for record in caplog.records] == [True] * bool(what)

        as_user(STRANGER, GROUP)(work)
        shutil.rmtree(world.cache)


@needs_root
def test_without_saying_so_nobody_trusts_a_group(open_world) -> None:
    world, data = open_world, open_world.objects["shard"]
    world.cache.mkdir()
    os.chown(world.cache, 0, GROUP)
    world.cache.chmod(0o2770)
    as_user(STRANGER, GROUP)(lambda: names_in(world, Cache(world.cache, shared=True)))

    def alone() -> None:
        world.origin.forget()
        assert kept_manifest(Cache(world.cache), URL) is None
        assert world.store(Cache(world.cache)).get("shard") == data
        assert world.origin.fetched() == len(data)

    as_user(STRANGER + 1, GROUP)(alone)
