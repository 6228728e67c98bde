"""Ten billion samples in a million shards."""

from __future__ import annotations

import tracemalloc
from dataclasses import asdict, replace

import numpy as np
import pytest

from shardstream import rng
from shardstream.order import ORDER_VERSIONS, EpochOrder, default_parameters, step_positions

from .reference import Position, Shape, permutation

SHARDS = 1_000_000


@pytest.fixture(scope="module")
def counts():
    words = rng.words(SHARDS, seed=0, domain=rng.Domain.PACK)
    return 9_000 + rng.below(words, 2_001).astype(np.int64)


@pytest.fixture(scope="module")
def parameters(counts):
    made = default_parameters(
        int(counts.sum()), batch_size=128, world_size=64, num_workers=8, mean_bytes=1e5, shuffle=True
    )
    assert made.lanes == 64 * 8 * 32
    return made


@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", sorted(ORDER_VERSIONS, reverse=True))
def test_positions_by_reference_arithmetic(counts, parameters, version):
    parameters = replace(parameters, version=version)
    order = EpochOrder(counts, seed=7, epoch=3, parameters=parameters)
    assert abs(order.samples - 10**10) < 10**8
    reference = Position(counts.tolist(), seed=7, epoch=3, shape=Shape(**asdict(parameters)))
    middle = order.samples // 2
    positions = [0, 1, middle, middle + 1, middle + 70, order.samples - 70_000, order.samples - 2, order.samples - 1]
    shards, rows = order.locate(np.array(positions))
    assert list(zip(shards.tolist(), rows.tolist(), strict=True)) == [reference.locate(p) for p in positions]


@pytest.mark.full
@pytest.mark.parametrize("version", ORDER_VERSIONS)
def test_the_ragged_last_row_does_not_overflow(counts, version):
    """A million lanes and long chunks make the products of the last row as large as they get."""
    shape = Shape(lanes=1_000_003, chunk=9_000, window=100, version=version)
    parameters = default_parameters(
        int(counts.sum()), batch_size=128, world_size=1, num_workers=0, mean_bytes=1, shuffle=True,
        lanes=shape.lanes, chunk=shape.chunk, window=shape.window,
    )  # fmt: skip
    order = EpochOrder(counts, seed=7, epoch=3, parameters=replace(parameters, version=version))
    last = order.samples - 1
    positions = np.array([last - 9 * 10**8, last - 10**6, last])
    shards, rows = order.locate(positions)
    assert np.all(rows < counts[shards])
    n, lanes = order.samples, shape.lanes
    body = n // lanes // shape.chunk * shape.chunk * lanes
    spans = range(lanes) if version == 1 else permutation(lanes, seed=7, domain=11, epoch=3)
    for p, lane, offset in zip(positions.tolist(), *(part.tolist() for part in order.lanes_of(positions)), strict=True):
        span = -(-(p - body + 1) * lanes // (n - body)) - 1
        assert (spans[lane], offset) == (span, body // lanes + p - body - span * (n - body) // lanes)
        assert 0 <= offset < (span + 1) * n // lanes - span * n // lanes


def test_memory_is_a_few_bytes_a_shard(counts, parameters):
    tracemalloc.start()
    order = EpochOrder(counts, seed=7, epoch=3, parameters=parameters)
    run = {"samples": order.samples, "start": order.samples // 2, "rank": 5, "world_size": 64, "batch_size": 128}
    for step in range(300):
        order.locate(step_positions(step, **run, tail="drop")[0])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 16 * SHARDS
