"""Reads through the cache equal the local truth, whatever is there already and however it is asked for."""

from __future__ import annotations

import asyncio
import pickle
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardstream.errors import NotFoundError, StorageError, UsageError
from shardstream.storage import counters
from shardstream.storage.cache import Cache, CachedBuffers, fill
from shardstream.storage.transfer import loop

from .making import MIB, World, noise

SIZE = 5 * MIB + 12_345


def read(store, path, offset, length, size=None) -> bytes:
    return b"".join(loop.run(lambda: store.read(path, offset, length, size=size), wait=60, what="a test"))


@pytest.fixture
def big(world) -> bytes:
    return world.put("a/shard-0.tar", noise(SIZE))


def test_what_was_read_once_is_not_read_again(world, big) -> None:
    store = world.store()
    assert store.get("a/shard-0.tar") == big
    assert world.origin.fetched() == SIZE
    assert store.get("a/shard-0.tar", 100, 2 * MIB) == big[100 : 100 + 2 * MIB]
    assert pickle.loads(pickle.dumps(store)).get("a/shard-0.tar") == big
    assert world.origin.fetched() == SIZE


def test_only_the_blocks_of_a_range_are_fetched(world, big) -> None:
    store = world.store()
    assert read(store, "a/shard-0.tar", MIB + 5, 10) == big[MIB + 5 : MIB + 15]
    assert read(store, "a/shard-0.tar", 3 * MIB - 5, 10) == big[3 * MIB - 5 : 3 * MIB + 5]
    assert sorted(world.origin.requests()) == [("a/shard-0.tar", MIB, MIB), ("a/shard-0.tar", 2 * MIB, 2 * MIB)]
    assert store.get_tail("a/shard-0.tar", 7) == (big[-7:], SIZE)
    assert world.origin.requests()[-1] == ("a/shard-0.tar", 5 * MIB, 12_345)


def test_a_range_that_ends_with_a_block_touches_no_further_one(world) -> None:
    data = world.put("x", noise(4 * MIB))
    store = world.store()
    assert read(store, "x", MIB, MIB) == data[MIB : 2 * MIB]
    assert read(store, "x", 3 * MIB + 1, MIB - 1) == data[3 * MIB + 1 :]  # to the end, which is that of a block
    assert world.origin.requests() == [("x", MIB, MIB), ("x", 3 * MIB, MIB)]
    for offset, length, held in [
        (MIB, MIB, True), (3 * MIB, MIB, True), (3 * MIB + 5, MIB, False), (MIB, MIB + 1, False), (4 * MIB, 1, False)
    ]:  # fmt: skip
        ranges = np.array([offset]), np.array([length])
        assert store.holds_ranges("x", *ranges) is held
        copies = store.copies("x", *ranges)
        assert (copies is not None) is held
        assert not held or bytes(copies[0]) == data[offset : offset + length]


def test_neighbouring_absent_blocks_are_one_request_up_to_a_bound(world) -> None:
    data = world.put("x", noise(20 * MIB))
    store = world.store()
    assert read(store, "x", 4 * MIB, 1) == data[4 * MIB : 4 * MIB + 1]
    world.origin.forget()
    assert store.get("x") == data
    assert sorted(world.origin.requests()) == [
        ("x", 0, 4 * MIB),
        ("x", 5 * MIB, 8 * MIB),
        ("x", 13 * MIB, 7 * MIB),
    ]


def test_what_is_held_is_known_at_once(world, big) -> None:
    store = world.store()
    assert not store.holds("a/shard-0.tar")
    assert not store.holds_ranges("a/shard-0.tar", np.array([0]), np.array([5]))
    assert store.copies("a/shard-0.tar", np.array([0]), np.array([5])) is None
    store.get("a/shard-0.tar", 0, 2 * MIB)
    assert not store.holds("a/shard-0.tar")
    offsets, lengths = np.array([MIB - 10, 5, 0]), np.array([20, 5, 0])
    assert store.holds_ranges("a/shard-0.tar", offsets, lengths)
    assert store.copies("a/shard-0.tar", offsets, lengths) == [big[MIB - 10 : MIB + 10], big[5:10], b""]
    for start, length in ((2 * MIB - 1, 2), (SIZE, 1), (0, SIZE + 1)):
        assert not store.holds_ranges("a/shard-0.tar", np.array([start]), np.array([length]))
        assert store.copies("a/shard-0.tar", np.array([start]), np.array([length])) is None
    store.get("a/shard-0.tar")
    assert store.holds("a/shard-0.tar")
    (whole,) = store.copies("a/shard-0.tar", np.array([0]), np.array([SIZE]))
    assert whole == big
    assert whole.readonly
    none = np.array([], np.int64)
    assert store.holds_ranges("a/shard-0.tar", none, none)
    assert store.copies("a/shard-0.tar", none, none) == []


def test_another_process_verifies_before_it_uses(world, big) -> None:
    world.store().get("a/shard-0.tar")
    other = world.store()
    assert not other.holds("a/shard-0.tar")
    assert other.holds_ranges("a/shard-0.tar", np.array([0, 2 * MIB]), np.array([3 * MIB, SIZE - 2 * MIB]))
    assert other.holds("a/shard-0.tar")
    assert other.get("a/shard-0.tar") == big
    assert world.origin.fetched() == SIZE


@pytest.mark.parametrize("warm", [False, True])
def test_buffers_of_a_cache(world, big, warm) -> None:
    store = world.store()
    if warm:
        store.get("a/shard-0.tar")
    buffers = CachedBuffers(store)
    offsets, lengths = np.array([4 * MIB, 7, 7]), np.array([9, 0, MIB])
    found = buffers.views("a/shard-0.tar", offsets, lengths)
    assert found == [big[4 * MIB : 4 * MIB + 9], b"", big[7 : 7 + MIB]]
    assert buffers.view("a/shard-0.tar", SIZE - 5, None) == big[-5:]
    assert buffers.view("a/shard-0.tar", 5, 0) == b""
    for offsets in (np.array([3 * MIB, 5, 2 * MIB]), np.array([100, 104, 96]), np.array([], np.int64)):
        rows = buffers.gather("a/shard-0.tar", offsets, 4)
        assert rows.shape == (len(offsets), 4)
        assert [row.tobytes() for row in rows] == [big[start : start + 4] for start in offsets.tolist()]
    with pytest.raises(StorageError, match="past the end"):
        buffers.views("a/shard-0.tar", np.array([0, SIZE]), np.array([1, 1]))


def test_objects_without_identity_are_not_cached(world) -> None:
    world.put("known", b"k" * 100)
    (world.folder / "remote" / "other").write_bytes(b"first")
    store = world.store()
    assert store.get("other") == b"first"
    (world.folder / "remote" / "other").write_bytes(b"second")
    assert store.get("other") == b"second"
    assert store.get_tail("other", 3) == (b"ond", 6)
    assert store.size("other") == 6
    assert not world.files()


def test_errors_of_the_store_pass_through_with_their_place(world, big) -> None:
    store = world.store()
    (world.folder / "remote" / "a/shard-0.tar").unlink()
    with pytest.raises(NotFoundError) as caught:
        store.get("a/shard-0.tar")
    assert caught.value.place["url"] == "s3://bucket/remote/a/shard-0.tar"
    with pytest.raises(StorageError, match="past the end") as caught:
        store.get("a/shard-0.tar", SIZE, 1)
    assert caught.value.place["offset"] == SIZE
    with pytest.raises(StorageError, match="should have 5 bytes"):
        read(store, "a/shard-0.tar", 0, 5, size=5)
    world.put("a/shard-0.tar", big)
    assert store.get("a/shard-0.tar") == big


def test_an_object_of_another_size_is_refused(world, big) -> None:
    store = world.store()
    (world.folder / "remote" / "a/shard-0.tar").write_bytes(big + b"more")
    with pytest.raises(StorageError):
        store.get("a/shard-0.tar")


def test_empty_objects(world) -> None:
    world.put("empty", b"")
    store = world.store()
    assert store.get("empty") == b""
    assert store.get_tail("empty", 5) == (b"", 0)
    assert read(store, "empty", 0, 0) == b""


def test_equal_names_in_two_data_sets_and_a_data_set_rewritten_under_its_url(world, big) -> None:
    first = world.store(fingerprint="a" * 32)
    assert first.get("a/shard-0.tar") == big
    new = world.put("a/shard-0.tar", noise(SIZE, seed=1))
    rewritten = world.store(fingerprint="b" * 32)
    assert rewritten.get("a/shard-0.tar") == new
    assert rewritten.get("a/shard-0.tar") == new
    assert first.get("a/shard-0.tar") == big
    # Even if somebody gives two contents one fingerprint.
    same = world.store(fingerprint="a" * 32)
    assert same.get("a/shard-0.tar") == new
    assert first.get("a/shard-0.tar") == big


def test_two_tasks_that_want_the_same_blocks_fetch_them_once(world, big) -> None:
    store = world.store(delay=0.02)

    async def both() -> list[list[memoryview]]:
        reads = [store.read("a/shard-0.tar", start, 2 * MIB) for start in (0, MIB, MIB // 2, 0, 3 * MIB)]
        return await asyncio.gather(*reads)

    found = loop.run(both, wait=60, what="a test")
    for start, pieces in zip((0, MIB, MIB // 2, 0, 3 * MIB), found, strict=True):
        assert b"".join(pieces) == big[start : start + 2 * MIB]
    assert world.origin.fetched() == 5 * MIB


def test_a_failed_fetch_fails_only_those_that_need_it(world, big) -> None:
    store = world.store()
    path = world.folder / "remote" / "a/shard-0.tar"
    store.get("a/shard-0.tar", 0, MIB)
    path.rename(path.with_name("gone"))

    async def both() -> list[object]:
        reads = [store.read("a/shard-0.tar", 0, MIB), store.read("a/shard-0.tar", MIB - 1, MIB)]
        return await asyncio.gather(*reads, return_exceptions=True)

    there, absent = loop.run(both, wait=60, what="a test")
    assert b"".join(there) == big[:MIB]
    assert isinstance(absent, NotFoundError)


def test_what_could_not_be_stored_is_handed_over_as_it_was_fetched(world, big) -> None:
    """Nothing is copied, and no empty piece follows a range that ends where a piece does, every 300,001 bytes."""
    fetch = world.origin.read
    fetched = []

    async def fetch_while_somebody_removes_the_file(*args, **options) -> list[memoryview]:
        for file in world.files():
            file.unlink()
        fetched.extend(await fetch(*args, **options))
        return fetched

    world.origin.read = fetch_while_somebody_removes_the_file
    store = world.store()
    found = loop.run(lambda: store.read("a/shard-0.tar", 5, 2 * 300_001 - 5), wait=60, what="a test")
    assert b"".join(found) == big[5 : 2 * 300_001]
    assert [len(piece) for piece in found] == [300_001 - 5, 300_001]
    assert all(piece.obj is fetched[0].obj for piece in found)
    assert not world.files()


def test_counters_tell_what_came_from_where(world, big) -> None:
    before = counters().snapshot()
    store = world.store()
    store.get("a/shard-0.tar", 0, MIB)
    store.get("a/shard-0.tar", 0, 100)
    since = counters().since(before)
    assert since["cache_fetched_bytes"] == MIB
    assert since["cache_hit_bytes"] == 100


@pytest.mark.parametrize("kind", ["data set", "foreign files", "a file"])
def test_a_folder_that_is_no_cache_is_refused_and_left_alone(world, big, kind) -> None:
    if kind == "a file":
        world.cache.write_text("mine")
    else:
        world.cache.mkdir()
        (world.cache / ("dataset.json" if kind == "data set" else "mine.txt")).write_text("mine")
    with pytest.raises(UsageError, match=r"data set|other files|must be a folder") as caught:
        world.store().hold()
    assert caught.value.place["url"] == str(world.cache)
    with pytest.raises(UsageError):
        world.store().get("a/shard-0.tar")
    assert not world.cache.is_dir() or len(list(world.cache.iterdir())) == 1


def test_what_a_cache_may_be_called() -> None:
    assert Cache.of("x/y").path.endswith("/x/y")
    assert Cache("/c", size="1.5GB").size == 1_500_000_000
    spec = Cache("/c", memory="/dev/shm", memory_size="1MiB")
    assert Cache.of(spec) is spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    for wrong in ({"path": "s3://b/c"}, {"path": ""}, {"path": 5}, {"path": "/c", "size": "much"}):
        with pytest.raises(UsageError):
            Cache(**wrong)
    with pytest.raises(UsageError, match="memory_size"):
        Cache("/c", memory_size=5)


RANGES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, SIZE), st.integers(0, SIZE)), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    ranges=RANGES,
    size=st.sampled_from([None, 4 * MIB, 6 * MIB, 12 * MIB]),
    memory=st.sampled_from([None, 1, 6 * MIB, 12 * MIB]),
    held=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_any_ranges_in_any_tier_equal_the_truth(tmp_path_factory, ranges, size, memory, held) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    (world.folder / "memory").mkdir()
    limits = {} if memory is None else {"memory": world.folder / "memory", "memory_size": memory}
    cache = Cache(world.cache, size=size, **limits)
    objects = [world.put(f"object-{i}", noise(SIZE - i, seed=i)) for i in range(2)]
    store, other = world.store(cache), world.store(cache)
    for (which, start, end), mine in zip(ranges, held, strict=False):
        end = min(end, SIZE - which)
        start = min(start, end)
        expected = objects[which][start:end]
        asked = store if mine else other
        found = asked.copies(f"object-{which}", np.array([start]), np.array([end - start]))
        assert found in (None, [expected])
        assert asked.get(f"object-{which}", start, end - start) == expected
        assert read(asked, f"object-{which}", start, end - start) == expected
    total = sum(path.stat().st_size for path in world.files())
    assert size is None or total <= size
    shutil.rmtree(world.folder)


def test_a_process_that_ends_says_nothing_about_its_cache(world, big, monkeypatch, caplog) -> None:
    async def refused(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    store = world.store()
    store.get("a/shard-0.tar", 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(fill, "_stored", refused)
        assert read(store, "a/shard-0.tar", 2 * MIB, 10) == big[2 * MIB : 2 * MIB + 10]
    assert not caplog.records
    assert read(store, "a/shard-0.tar", 3 * MIB, 10) == big[3 * MIB : 3 * MIB + 10]
    assert store.holds_ranges("a/shard-0.tar", np.array([3 * MIB]), np.array([10]))
