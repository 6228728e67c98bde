"""Objects whose size nobody knows before they are read: kept whole, with their version, asked for again when opened."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shardstream.errors import NotFoundError
from shardstream.storage import Store
from shardstream.storage.cache import Cache, CachedStore
from shardstream.storage.cache import store as cached_stores
from shardstream.storage.cache.maintenance import look, verify
from shardstream.storage.transfer import loop
from shardstream.testing import MemoryStore

from .counted import CountedStore
from .making import MIB, flip, noise

OBJECTS = {"small": noise(55_000, 1), "empty": b"", "large": noise(2 * MIB + 5, 2), "a b/é.jpg": b"x"}
BASE = 8192  # where the bytes of an object begin in its file


class Opened:
    """A store in memory, whose objects a cache keeps as they come."""

    def __init__(self, folder: Path) -> None:
        self.origin = MemoryStore(OBJECTS)
        self.folder = folder
        self.cache = Cache(folder)

    def store(self, origin: Store | None = None, cache: Cache | None = None, since: int | None = None) -> CachedStore:
        """As of a data set that is opened now."""
        return CachedStore(
            (origin or self.origin).of_versions(lambda _: 0),  # as it knows of nothing that others have read
            cache or self.cache,
            fingerprint="0" * 32,
            identify=nothing_known,
            since=time.time_ns() if since is None else since,
        )

    def asked(self) -> list[str]:
        """What was asked of the store since the last call."""
        found = [request.kind for request in self.origin.requests]
        self.origin.requests.clear()
        return found

    def file(self) -> Path:
        (found,) = self.folder.rglob("*.blocks")
        return found


def nothing_known(path: str) -> None:
    return None


def read(store: Store, path: str) -> bytes:
    return b"".join(loop.run(lambda: store.read(path, 0, None), wait=60, what="a test"))


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path / "cache")


@pytest.mark.parametrize("path", OBJECTS)
def test_what_came_once_is_asked_for_once_by_whoever_opens_the_data_set(opened: Opened, path: str) -> None:
    store = opened.store()
    assert read(store, path) == OBJECTS[path]
    assert "open" in opened.asked()
    for same in (store, pickle.loads(pickle.dumps(store)), opened.store(since=store.since)):
        assert read(same, path) == OBJECTS[path]
        assert opened.asked() == []
    other = opened.store()
    for expected in (["head"], []):
        assert read(other, path) == OBJECTS[path]
        assert opened.asked() == expected
    assert [one.complete for one in look(opened.cache)[0].sets] == [1]
    assert verify(opened.cache)[1] == []


@pytest.mark.parametrize("new", [noise(55_000, 9), noise(3 * MIB, 9), b""])
def test_a_changed_object_is_noticed(opened: Opened, new: bytes) -> None:
    read(opened.store(), "small")
    opened.origin.plant("small", new)
    store = opened.store()
    for _ in range(2):
        assert read(store, "small") == new
    assert look(opened.cache)[0].used == opened.file().stat().st_size
    opened.origin.delete("small")
    assert read(store, "small") == new
    with pytest.raises(NotFoundError):
        read(opened.store(), "small")


@pytest.mark.parametrize("new", [noise(55_000, 9), noise(65_000, 9)])
def test_a_changed_object_is_noticed_in_each_tier(opened: Opened, tmp_path: Path, new: bytes) -> None:
    (tmp_path / "memory").mkdir()
    cache = Cache(opened.folder, memory=tmp_path / "memory", memory_size="70kB")
    read(opened.store(cache=cache), "small")
    assert len(list((tmp_path / "memory").rglob("*.blocks"))) == 1
    opened.origin.plant("small", new)
    store = opened.store(cache=cache)
    opened.asked()
    for expected in (["head", "open"], []):
        assert read(store, "small") == new
        assert opened.asked() == expected
    assert len(list(tmp_path.rglob("*.blocks"))) == 1
    assert sum(tier.used for tier in look(cache)) == BASE + len(new)


def _flipped(file: Path) -> None:
    flip(file, BASE + 54_321)


def _other_head(file: Path) -> None:
    flip(file, 30)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _without_a_word(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4096:4104] = bytes(8)  # the block was written, and its word was not
    file.write_bytes(data)


@pytest.mark.parametrize("damage", [_flipped, _other_head, _cut, _without_a_word])
def test_what_is_damaged_or_half_written_is_fetched_anew(opened: Opened, damage: Callable[[Path], object]) -> None:
    store = opened.store()
    read(store, "small")
    damage(opened.file())
    opened.asked()
    for expected in (["open"], []):
        assert read(store, "small") == OBJECTS["small"]
        assert opened.asked() == expected


@pytest.mark.parametrize("when", [0, 10**19])
def test_a_time_that_cannot_be_is_none(opened: Opened, when: int) -> None:
    store = opened.store()
    read(store, "small")
    with open(opened.file(), "r+b") as file:
        file.seek(4096 - 8)
        file.write(when.to_bytes(8, "little"))
    opened.asked()
    for expected in (["head"], []):
        assert read(store, "small") == OBJECTS["small"]
        assert opened.asked() == expected


def test_those_who_read_at_once_ask_once(opened: Opened) -> None:
    store = opened.store()

    async def several() -> list[list[memoryview]]:
        return await asyncio.gather(*(store.read("small", 0, None) for _ in range(9)))

    found = loop.run(several, wait=60, what="a test")
    assert {b"".join(one) for one in found} == {OBJECTS["small"]}
    assert opened.asked() == ["open"]


def test_what_has_no_room_streams(opened: Opened) -> None:
    store = opened.store(cache=Cache(opened.folder, size="100kB"))
    for _ in range(2):
        assert all(read(store, path) == data for path, data in OBJECTS.items())
    assert look(opened.cache)[0].used == sum(file.stat().st_size for file in opened.folder.rglob("*.blocks")) < 100_000
    opened.asked()
    assert read(store, "small") == OBJECTS["small"]
    assert opened.asked() == []


def test_objects_without_versions_are_read_through(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    origin = CountedStore(tmp_path / "plain", tmp_path / "log")
    (tmp_path / "plain/x").write_bytes(b"one")
    store = opened.store(origin)
    assert read(store, "x") == b"one"
    (tmp_path / "plain/x").write_bytes(b"two")
    assert read(store, "x") == b"two"
    assert not list(opened.folder.rglob("*.blocks"))


def test_nothing_is_kept_for_data_sets_that_name_their_objects(opened: Opened) -> None:
    store = CachedStore(opened.origin, opened.cache, fingerprint="0" * 32, identify=nothing_known)
    for _ in range(2):
        opened.asked()
        assert read(store, "small") == OBJECTS["small"]
        assert opened.asked() == ["open"]


def test_an_object_that_is_removed_while_it_is_read_is_fetched(opened: Opened, monkeypatch) -> None:
    store = opened.store()
    read(store, "small")

    class Racing(cached_stores.CacheSession):
        def came(self, path: str):
            found = super().came(path)
            if found is not None:
                opened.file().unlink()
            return found

    store._session.__class__ = Racing
    assert read(store, "small") == OBJECTS["small"]
