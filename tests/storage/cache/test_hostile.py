"""What others plant in a cache: nobody's files are touched, and what is read is right, or comes from the store."""

from __future__ import annotations

import ast
import logging
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import shardstream.storage.cache as room
from shardstream.errors import NotFoundError, StorageError
from shardstream.storage.cache import Cache
from shardstream.storage.cache import maintenance as upkeep
from shardstream.storage.cache import session as places
from shardstream.storage.cache.manifests import forget_manifest, keep_manifest, kept_manifest, kept_manifests
from shardstream.storage.cache.tier import memory_folder

from .making import STRANGER, URL, World, in_child, names_in, needs_root

PRECIOUS = b"precious" * 1000


# ------------------------------------------------------------------------------------------------------------- plants


class Victim:
    """A file and a folder elsewhere that nothing may happen to."""

    def __init__(self, parent: Path) -> None:
        self.folder = parent / "victim"
        self.folder.mkdir()
        self.file = self.folder / "file"
        self.file.write_bytes(PRECIOUS)
        (self.folder / "x.blocks").write_bytes(PRECIOUS)
        self._before = self._state()

    def _state(self) -> list[tuple[object, ...]]:
        found = sorted([self.folder, *self.folder.iterdir()])
        return [(path, one.st_mode, one.st_uid, one.st_size, one.st_mtime_ns) for path in found if (one := path.stat())]

    def is_whole(self) -> bool:
        return self._state() == self._before and self.file.read_bytes() == PRECIOUS


def link_to_file(at: Path, victim: Victim) -> None:
    at.symlink_to(victim.file)


def link_to_folder(at: Path, victim: Victim) -> None:
    at.symlink_to(victim.folder)


def link_to_nothing(at: Path, victim: Victim) -> None:
    at.symlink_to(victim.folder / "new")


def second_name(at: Path, victim: Victim) -> None:
    with suppress(FileExistsError):
        os.link(victim.file, victim.folder / "linked")  # before its state is noted
    os.link(victim.folder / "linked", at)


def fifo(at: Path, victim: Victim) -> None:
    os.mkfifo(at)


def listening(at: Path, victim: Victim) -> None:
    here = os.getcwd()
    os.chdir(at.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(at.name)
    finally:
        os.chdir(here)


def file_of_a_stranger(at: Path, victim: Victim) -> None:
    at.write_bytes(b"forged")
    os.chown(at, STRANGER, STRANGER)


def file_for_everybody(at: Path, victim: Victim) -> None:
    at.write_bytes(b"forged")
    at.chmod(0o666)


def folder_of_a_stranger(at: Path, victim: Victim) -> None:
    at.mkdir()
    (at / "x.blocks").write_bytes(b"forged")
    os.chown(at, STRANGER, STRANGER)


def folder_for_a_file(at: Path, victim: Victim) -> None:
    at.mkdir()


def file_for_a_folder(at: Path, victim: Victim) -> None:
    at.write_bytes(b"")


PLANTS = [link_to_file, link_to_folder, link_to_nothing, second_name, fifo, listening, folder_for_a_file]
PLANTS += [file_for_a_folder, file_for_everybody]
STRANGE = [file_of_a_stranger, folder_of_a_stranger]


def use(world: World, cache: Cache) -> None:
    """All that is done with a cache: what is read has to be right."""
    keep_manifest(cache, URL, "e", b"head", b"table")
    kept = kept_manifest(cache, URL)
    assert kept is None or (kept.head, kept.table) == (b"head", b"table")
    kept_manifests(cache)
    for _ in range(2):
        store = world.store(cache)
        store.hold()
        for path, expected in world.objects.items():
            assert store.get(path) == expected
            assert store.copies(path, np.array([5]), np.array([9])) in (None, [expected[5:14]])
        store.release()
    for work in (upkeep.look, upkeep.verify, lambda cache: upkeep.clear(cache, chosen=lambda _: True)):
        with suppress(StorageError):  # also NotFoundError: nothing of ours could be made
            work(cache)
    forget_manifest(cache, URL)


def caches(world: World, cache: Cache) -> Iterator[Path]:
    """A name of a cache, missing from an otherwise empty cache, and from a full one."""
    names = names_in(world, cache)
    full = world.folder / "full"
    world.cache.rename(full)
    for name in names:
        (world.cache / name).parent.mkdir(parents=True)
        yield world.cache / name
        shutil.rmtree(world.cache)
        shutil.copytree(full, world.cache)
        at = world.cache / name
        shutil.rmtree(at) if at.is_dir() else at.unlink()
        yield at
        shutil.rmtree(world.cache)


def ours(path: Path) -> bool:
    info = path.lstat()
    return info.st_uid == os.getuid() and (path.is_dir() or path.is_file()) and not path.is_symlink()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("plant", [*PLANTS, *(pytest.param(one, marks=needs_root) for one in STRANGE)])
def test_whatever_lies_under_a_name_that_a_cache_uses(world, data, tmp_path, plant, caplog) -> None:
    victim = Victim(tmp_path)
    if plant is second_name:
        os.link(victim.file, victim.folder / "linked")
        victim._before = victim._state()
    cache = Cache(world.cache)
    for at in caches(world, cache):
        caplog.clear()
        places._warned.clear()
        plant(at, victim)
        use(world, cache)
        assert victim.is_whole(), at
        warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warnings) <= 1, at
        # It was left alone and said, or it has made way for a file of the cache.
        if os.path.lexists(at) and not ours(at):
            assert "cannot be" in warnings[0], at
            assert at.name in warnings[0], at


def test_a_file_of_any_size_takes_no_memory(world, data) -> None:
    """Whoever shares a cache can make its files longer than the memory, without a disk that holds them."""
    cache = Cache(world.cache)
    names = [name for name in names_in(world, cache) if (world.cache / name).is_file()]
    shutil.copytree(world.cache, world.folder / "full")
    assert {Path(name).suffix for name in names} >= {".blocks", ".manifest", ".json"}
    for name in names:
        os.truncate(world.cache / name, 1 << 40)
        use(world, cache)
        shutil.rmtree(world.cache)
        shutil.copytree(world.folder / "full", world.cache)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"url": 3, "fingerprint": []}', "[]", ""])
def test_descriptions_that_are_none(world, data, text) -> None:
    cache = Cache(world.cache)
    names_in(world, cache)
    for name in world.cache.rglob("*.json"):
        name.write_text(text)
    use(world, cache)


@needs_root
def test_a_folder_of_somebody_else_is_no_cache(world, data, caplog) -> None:
    world.cache.mkdir()
    os.chown(world.cache, STRANGER, STRANGER)
    use(world, Cache(world.cache))
    (warning,) = {record.getMessage() for record in caplog.records}
    assert f"belongs to user {STRANGER}" in warning
    assert "shared=True" in warning
    assert not list(world.cache.iterdir())
    with pytest.raises(StorageError, match=f"belongs to user {STRANGER}") as caught:
        upkeep.look(Cache(world.cache))
    assert caught.value.place["url"] == str(world.cache)
    # A folder of one's own in it will do.
    own = Cache(world.cache / "own")
    use(world, own)
    assert len({record.getMessage() for record in caplog.records}) == 1


@needs_root
def test_memory_of_somebody_else_is_left_out(world, data, tmp_path, caplog) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    cache = Cache(world.cache, memory=memory)
    os.mkdir(memory_folder(cache))
    os.chown(memory_folder(cache), STRANGER, STRANGER)
    assert world.store(cache).get("shard") == data
    assert not os.listdir(memory_folder(cache))
    assert f"belongs to user {STRANGER}" in caplog.text
    assert len(world.files()) == 1


def test_a_link_to_the_cache_may_be_ones_own(world, data, tmp_path) -> None:
    (tmp_path / "disk").mkdir()
    world.cache.symlink_to("disk")
    assert world.store().get("shard") == data
    assert len(list((tmp_path / "disk").rglob("*.blocks"))) == 1
    again = Cache(tmp_path / "second")
    (tmp_path / "second").symlink_to(world.cache)
    assert upkeep.look(again)[0].sets[0].complete == 1


@needs_root
def test_a_link_of_somebody_else_is_not_followed(world, data, tmp_path, caplog) -> None:
    (tmp_path / "disk").mkdir()
    world.cache.symlink_to(tmp_path / "disk")
    os.lchown(world.cache, STRANGER, STRANGER)
    assert world.store().get("shard") == data
    assert not list((tmp_path / "disk").iterdir())
    assert f"is a symbolic link of user {STRANGER}" in caplog.text


@needs_root
@pytest.mark.parametrize("what", ["*.blocks", "*.manifest"])
@pytest.mark.parametrize("how", ["of a stranger", "for everybody"])
def test_what_others_may_have_written_is_not_served(world, data, what, how) -> None:
    """In a folder that everybody may write to; the file is whole, checksums and all."""
    cache = Cache(world.cache)
    names_in(world, cache)
    for path in (world.cache, *world.cache.rglob("*")):
        if path.is_dir():
            path.chmod(0o777)
    (file,) = world.cache.rglob(what)
    os.chown(file, STRANGER, STRANGER) if how == "of a stranger" else file.chmod(0o666)
    world.origin.forget()
    assert (kept_manifest(cache, URL) is None) == (what == "*.manifest")
    assert world.store().get("shard") == data
    assert world.origin.fetched() == (len(data) if what == "*.blocks" else 0)
    assert keep_manifest(cache, URL, "e", b"head", b"table")
    assert (file.stat().st_uid, file.stat().st_mode & 0o002) == (os.getuid(), 0)


@pytest.mark.parametrize("name", ["shardstream-cache.json", "ledger", "lease", "sets", "manifests"])
def test_looking_at_a_cache_says_what_was_planted(world, data, tmp_path, name) -> None:
    names_in(world, Cache(world.cache))
    (world.cache / name).rename(tmp_path / "moved")
    (world.cache / name).symlink_to(tmp_path / "moved")
    for work in (upkeep.look, upkeep.verify, lambda cache: upkeep.clear(cache, chosen=lambda _: True)):
        with pytest.raises(StorageError, match=f"{name} is a symbolic link, which no cache makes: remove it"):
            work(Cache(world.cache))


def test_nobody_else_may_write_what_a_cache_makes_whatever_the_umask_says(world, data) -> None:
    def make() -> None:
        os.umask(0)
        names_in(world, Cache(world.cache))

    in_child(make)
    assert {path.stat().st_mode & 0o022 for path in (world.cache, *world.cache.rglob("*"))} == {0}


def test_data_sets_of_a_process_share_what_they_hold_open(world, data, tmp_path) -> None:
    (tmp_path / "memory").mkdir()
    cache = Cache(world.cache, memory=tmp_path / "memory", memory_size=1)
    before = set(os.listdir("/proc/self/fd"))
    stores = [world.store(cache, fingerprint=f"{number:032x}") for number in range(15)]
    for store in stores:
        assert store.get("shard") == data
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 64
    for store in stores:
        store.release()
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1  # of the listing


def test_only_folder_opens_anything_by_a_name() -> None:
    """The others have `Folder`; `capacity` reads what the kernel says, which nobody plants."""
    calls = {"open", "stat", "lstat", "mkdir", "makedirs", "unlink", "remove", "rename", "replace", "rmdir", "listdir"}
    calls |= {"scandir", "access", "utime", "chmod", "chown", "link", "symlink", "truncate", "walk", "exists", "isdir"}
    calls |= {"isfile", "islink", "getsize", "statvfs", "glob", "rmtree", "mkfifo", "fork", "Path"}
    found = []
    for file in Path(room.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            owner, _, last = name.rpartition(".")
            if last in calls and owner in ("", "os", "os.path", "glob", "shutil", "pathlib"):
                found.append((file.stem, name))
    assert {stem for stem, _ in found} <= {"folder", "capacity", "cached_dataset"}
    assert [name for stem, name in found if stem == "cached_dataset"] == ["os.utime"]  # of a descriptor


def test_there_may_still_be_no_cache(tmp_path) -> None:
    with pytest.raises(NotFoundError, match="no cache here"):
        upkeep.look(Cache(tmp_path / "none", shared=True))
