"""Kept manifests; looking at a cache, verifying and clearing it."""

from __future__ import annotations

import os

import pytest

from shardstream.errors import NotFoundError, UsageError
from shardstream.storage.cache import Cache
from shardstream.storage.cache import maintenance as upkeep
from shardstream.storage.cache.manifests import forget_manifest, keep_manifest, kept_manifest, kept_manifests

from .making import MIB, flip, noise

URL = "s3://bucket/remote"


def test_a_manifest_that_is_kept_comes_back(tmp_path) -> None:
    cache = Cache(tmp_path / "cache")
    assert kept_manifest(cache, URL) is None
    assert keep_manifest(cache, URL, '"e1"', b'{"a": 1}', b"\0table")
    found = kept_manifest(cache, URL)
    assert (found.url, found.etag, found.head, found.table) == (URL, '"e1"', b'{"a": 1}', b"\0table")
    assert keep_manifest(cache, URL, None, b"new", b"")
    assert keep_manifest(cache, URL + "2", None, b"other", b"")
    assert kept_manifest(cache, URL).head == b"new"
    assert kept_manifest(cache, URL).etag is None
    assert {one.url for one in kept_manifests(cache)} == {URL, URL + "2"}
    forget_manifest(cache, URL)
    assert kept_manifest(cache, URL) is None


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_manifest_is_none(tmp_path, damage) -> None:
    cache = Cache(tmp_path / "cache")
    keep_manifest(cache, URL, "e", b"head" * 100, b"table" * 100)
    (file,) = (tmp_path / "cache" / "manifests").iterdir()
    if damage == "flip":
        flip(file, 300)
    else:
        os.truncate(file, 0 if damage == "empty" else 200)
    assert kept_manifest(cache, URL) is None
    assert keep_manifest(cache, URL, "e", b"head", b"table")
    assert kept_manifest(cache, URL).head == b"head"


def test_each_bit_and_each_length_of_a_manifest_may_be_damaged(tmp_path) -> None:
    cache = Cache(tmp_path / "cache")
    keep_manifest(cache, URL, "e", b'{"a": 1}', b"\0table")
    (file,) = (tmp_path / "cache" / "manifests").iterdir()
    whole = file.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        assert kept_manifest(cache, URL) is None, bit
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert kept_manifest(cache, URL) is None, length


def test_a_cache_that_cannot_be_written_keeps_no_manifest_and_a_foreign_folder_is_refused(tmp_path) -> None:
    assert not keep_manifest(Cache("/proc/nowhere/cache"), URL, None, b"", b"")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").write_text("")
    with pytest.raises(UsageError, match="other files"):
        keep_manifest(Cache(tmp_path / "mine"), URL, None, b"", b"")


@pytest.fixture
def filled(world):
    world.put("a", noise(3 * MIB + 5))
    world.put("b", noise(2 * MIB, seed=1))
    store = world.store(fingerprint="a" * 32)
    store.get("a")
    store.get("b", MIB, 5)
    world.store(fingerprint="b" * 32).get("b")
    return store


def test_what_is_in_a_cache(world, filled) -> None:
    (tier,) = upkeep.look(Cache(world.cache, size="1GB"))
    assert tier.path == str(world.cache)
    assert not tier.memory
    assert tier.limit is None
    assert tier.used == sum(one.bytes for one in tier.sets) == sum(file.stat().st_size for file in world.files())
    first, second = tier.sets
    assert (first.url, first.fingerprint, first.objects, first.complete) == (URL, "a" * 32, 2, 1)
    assert (first.present, first.in_use) == (4 * MIB + 5, True)
    assert (second.objects, second.complete, second.present, second.in_use) == (1, 1, 2 * MIB, False)


def test_clearing_spares_what_is_in_use(world, filled) -> None:
    cache = Cache(world.cache)
    for fingerprint in "ab":
        keep_manifest(cache, URL, None, fingerprint.encode(), b"")
    cleared, kept = upkeep.clear(cache, chosen=lambda _: True)
    assert [one.fingerprint[0] for one in cleared] == ["b"]
    assert [one.fingerprint[0] for one in kept] == ["a"]
    assert kept_manifest(cache, URL) is not None  # of the one that is left
    assert len(world.files()) == 2
    filled.release()
    cleared, kept = upkeep.clear(cache, chosen=lambda one: one.fingerprint == "a" * 32)
    assert (len(cleared), len(kept)) == (1, 0)
    assert kept_manifest(cache, URL) is None
    (tier,) = upkeep.look(cache)
    assert (tier.used, tier.sets) == (0, ())
    assert world.store().get("b") == world.objects["b"]


def test_verifying_finds_and_clears_damage(world, filled) -> None:
    cache = Cache(world.cache)
    seen = []
    assert upkeep.verify(cache, progress=lambda *now: seen.append(now)) == (6 * MIB + 5, [])
    assert [one[2] for one in seen] == [0, 0, 0]
    assert seen[-1][0] == seen[-1][1]
    a, _, other = world.files()
    flip(a, 8192 + MIB + 3)
    os.truncate(other, 100)
    _, damages = upkeep.verify(cache)
    assert [(one.file, one.path, one.offset) for one in damages] == [(str(a), "a", MIB), (str(other), None, None)]
    assert [one.what for one in upkeep.verify(cache)[1]] == ["it is cut, or its head is damaged"]
    world.origin.forget()
    assert world.store(fingerprint="a" * 32).get("a") == world.objects["a"]
    assert world.origin.requests() == [("a", MIB, MIB)]


def test_an_object_that_was_spoilt_on_its_way_is_found_when_it_is_complete(world) -> None:
    data = world.put("a", noise(3 * MIB))
    flip(world.folder / "remote" / "a", 5)
    world.store().get("a")
    flip(world.folder / "remote" / "a", 5)
    ((damage,),) = upkeep.verify(Cache(world.cache))[1:]
    assert damage.what == "the object is not the one in the manifest"
    assert world.store().get("a") == data


def test_there_may_be_no_cache(tmp_path) -> None:
    for work in (upkeep.look, upkeep.verify, lambda cache: upkeep.clear(cache, chosen=lambda _: True)):
        with pytest.raises(NotFoundError, match="no cache here"):
            work(Cache(tmp_path / "none"))
        assert not (tmp_path / "none").exists()
        (tmp_path / "x").touch()
        with pytest.raises(UsageError):
            work(Cache(tmp_path))


def test_verifying_names_what_somebody_planted(world, filled, tmp_path) -> None:
    *_, file = world.files()
    file.unlink()
    (tmp_path / "elsewhere").write_bytes(b"precious")
    file.symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        (damage,) = upkeep.verify(Cache(world.cache))[1]
        assert damage.file == str(file)
        assert "is a symbolic link, which no cache makes: remove it" in damage.what
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"
