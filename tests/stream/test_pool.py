"""Batches that are made where they are used lie on memory that is used again, and never while somebody looks at it."""

from __future__ import annotations

import collections
import gc
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.stream.tensors.slabs import HomePool, Strip

from .making import numbered, write_dataset

SIZE = 1 << 20  # of a sample
PARTS: list[Callable[[torch.Tensor], Any]] = [
    lambda values: values,
    lambda values: values[SIZE : SIZE + 5],
    lambda values: values[: 2 * SIZE].view(torch.int32)[7:],
    lambda values: values.numpy()[1:],
    lambda values: memoryview(values.numpy()),
    lambda values: torch.empty(0, dtype=torch.uint8).set_(values.untyped_storage())[3:],  # type: ignore[call-overload]
    lambda values: values.clone().share_memory_(),
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 samples of about 1 MiB, each full of its number."""
    shards = numbered([70, 50], raw=lambda n: bytes([n]) * (SIZE + 1000 * (n % 7)))
    return write_dataset(tmp_path_factory.mktemp("photos"), shards)


def dataset(photos: Path, batch_size: int, **arguments: Any) -> ss.ShardDataset:
    return ss.ShardDataset(photos, fields={"raw": "bytes", "id": None}, batch_size=batch_size, **arguments)


def holds(batch: dict[str, Any]) -> bool:
    return all(bool((row == number).all()) for row, number in zip(batch["raw"], batch["id"].tolist(), strict=True))


def pooled() -> int:
    """Bytes of the slabs that this process has."""
    return sum(slab.size for slab in gc.get_objects() if type(slab).__name__ == "Slab")


def test_large_batches_lie_where_others_lay(photos: Path) -> None:
    batches = dataset(photos, 40)
    for _ in range(2):
        addresses = [batch["raw"].values.data_ptr() for batch in batches]
        assert len(addresses) == 3
        assert len(set(addresses)) == 2  # one is made while the last one is looked at
    assert not pooled()  # nothing is kept from iteration to iteration


def test_smaller_ones_are_left_to_the_heap(photos: Path) -> None:
    stream = iter(dataset(photos, 20))
    next(stream)
    assert not pooled()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HomePool, "smallest", 1)


@pytest.mark.one_in(4)
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("loader", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_whatever_part_of_a_batch_is_kept_stays_as_it_was(photos: Path, seed: int, loader: bool) -> None:
    draw = random.Random(seed)
    batches = dataset(photos, 3, shuffle=True)
    kept: list[tuple[Any, bytes]] = []
    for _ in range(2):
        for batch in ss.Loader(batches, num_workers=0) if loader else batches:
            assert holds(batch)
            if draw.random() < 0.4:
                part = draw.choice(PARTS)(batch.pop("raw").values)
                kept.append((part, np.asarray(part).tobytes()))
            while kept and draw.random() < 0.3:
                part, before = kept.pop(draw.randrange(len(kept)))
                assert np.asarray(part).tobytes() == before
                del part
    assert all(np.asarray(part).tobytes() == before for part, before in kept)


@pytest.mark.full
@pytest.mark.usefixtures("small")
def test_all_batches_may_be_kept(photos: Path) -> None:
    kept = [batch for _ in range(3) for batch in dataset(photos, 5)]
    assert len({batch["raw"].values.data_ptr() for batch in kept}) == 72  # more than there are slabs
    assert all(map(holds, kept))


@pytest.mark.full
@pytest.mark.usefixtures("small")
def test_memory_is_bounded_and_given_up(photos: Path) -> None:
    batches = dataset(photos, 4, shuffle=True)
    most = 0
    for number, _batch in enumerate(batches):
        if number % 4 == 3:
            most = max(most, pooled())
    assert 0 < most <= 4 * 4 * 1.25 * (SIZE + 6000)  # two of each of two sizes
    del _batch
    assert not pooled()
    stream = iter(batches)
    batch = next(stream)
    assert pooled()
    del stream  # left before its end
    gc.collect()
    assert holds(batch)
    del batch
    assert not pooled()


@pytest.mark.full
@pytest.mark.usefixtures("small")
def test_two_iterations_at_once(photos: Path) -> None:
    batches, other = dataset(photos, 3), dataset(photos, 4)
    for first, second, third in zip(batches, batches, other, strict=False):
        assert holds(first)
        assert holds(second)
        assert holds(third)


@pytest.mark.usefixtures("small")
def test_a_forked_child_sees_what_was_there_when_it_was_made(photos: Path) -> None:
    stream = iter(dataset(photos, 3))
    batch = next(stream)
    octets = batch["raw"].values.numpy()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)  # or the end, if the parent fails
        os._exit(0 if (octets[:SIZE] == 0).all() else 1)
    os.close(reading)
    try:
        del batch, octets
        collections.deque(stream, maxlen=0)
    finally:
        os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_large_arrays_of_a_strip_share_memory_that_is_used_again() -> None:
    pool = HomePool()
    with pool.in_charge():
        strip = Strip(2 << 20)
        large = [strip.empty((1 << 17,), np.int64), strip.empty((1 << 16,), np.int64)]
        small, beyond = strip.empty((9,), np.int32), strip.empty((1 << 17,), np.int64)
    first, second = (one.ctypes.data for one in large)
    assert second - first == 1 << 20
    assert small.base is beyond.base is None  # who keeps a few numbers for long does not keep it all
    del large[0], strip
    with pool.in_charge():
        other = Strip(2 << 20).empty((1 << 17,), np.int64).ctypes.data
        assert other != first
        large.clear()
        assert Strip(2 << 20).empty((1 << 17,), np.int64).ctypes.data in (first, other)
    pool.clear()
