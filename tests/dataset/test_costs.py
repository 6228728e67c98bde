"""Samples of a shard as batches of about the same cost: arithmetic on integers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.dataset.costs import CostSpec, ShardBatches, dealt
from shardstream.errors import UsageError

from ..examples import thorough

BUDGET = 1 << 30
costs = st.one_of(
    st.lists(st.integers(1, BUDGET), max_size=300),
    st.lists(st.integers(1, BUDGET // 20), max_size=3000),
    st.lists(st.sampled_from([1, BUDGET // 3, BUDGET // 2, BUDGET // 2 + 1, BUDGET]), max_size=300),
    st.tuples(st.integers(1, BUDGET), st.integers(0, 400)).map(lambda pair: [pair[0]] * pair[1]),
)


def batches_of(given: list[int]) -> list[list[int]]:
    order, ends = dealt(np.array(given, np.int64))
    return [part.tolist() for part in np.split(order, ends[:-1])] if len(ends) else []


@thorough
@given(costs)
def test_every_sample_is_in_one_batch_and_none_costs_too_much(given: list[int]) -> None:
    found = batches_of(given)
    assert sorted(one for batch in found for one in batch) == list(range(len(given)))
    assert all(batch == sorted(batch) and batch for batch in found)
    loads = [sum(given[one] for one in batch) for batch in found]
    assert max(loads, default=0) <= BUDGET
    assert len(found) >= -(-sum(given) // BUDGET)
    if given and max(given) <= BUDGET // 20:  # small samples fill batches evenly, but in windows of a few
        assert len(found) <= -(-sum(given) * 128 // (127 * BUDGET)) * 1.06 + 1
        assert max(loads) - min(loads) <= max(0.06 * BUDGET, max(given)) + 0.06 * BUDGET


def test_batches_lie_where_their_samples_do() -> None:
    """So that a worker that reads some batches reads one stretch of a shard."""
    draws = np.random.default_rng(0)
    given = draws.integers(1, BUDGET // 10, 20_000)
    found = batches_of(given.tolist())
    width = max(batch[-1] - batch[0] for batch in found)
    assert width < 20_000 * 60 / len(found)
    assert all(max(early) < min(late) for early, late in zip(found, found[100:], strict=False))


def test_lognormal_costs_fill_batches_evenly() -> None:
    draws = np.random.default_rng(0)
    seconds = np.minimum(np.exp(draws.normal(np.log(5), 0.6, 20_000)), 120)
    order, ends = dealt(np.ceil(seconds * (BUDGET / 120)).astype(np.int64))
    loads = np.add.reduceat(seconds[order], np.concatenate([[0], ends[:-1]]))
    assert loads.mean() > 0.985 * 120
    assert np.mean(np.abs(loads / loads.mean() - 1) < 0.015) > 0.98


def test_what_batches_consist_of_stays_what_it_is() -> None:
    """States count these batches, whatever the version that saved them."""
    given = np.arange(1, 5001, dtype=np.int64) * 48_271 % 2_147_483_647 % (BUDGET // 3) + 1
    order, ends = dealt(given)
    found = hashlib.sha256(order.astype("<i8").tobytes() + ends.astype("<i8").tobytes()).hexdigest()
    assert (len(ends), found[:16]) == (625, "555909daf63166f8")


def test_members_of_any_batches() -> None:
    batches = ShardBatches(np.arange(10, dtype=np.uint8)[::-1], np.array([3, 4, 10]))
    places, counts = batches.members(np.array([2, 0, 1]))
    assert places.tolist() == [4, 5, 6, 7, 8, 9, 0, 1, 2, 3]
    assert counts.tolist() == [6, 3, 1]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "name one field, got {}"),
        ({"a": 1, "b": 2}, "name one field"),
        ({3: 1}, "name one field"),
        ({"a": 0}, "must be positive, .* got 0"),
        ({"a": -1.5}, "must be positive, .* got -1.5"),
        ({"a": "1e101"}, "of 100 digits at most, got '1e101'"),
        ({"a": 1e-101}, "of 100 digits at most, got 1e-101"),
        ({"a": float("nan")}, "must be a finite number"),
        ({"a": "many"}, "must be a finite number, got 'many'"),
    ],
)
def test_what_is_no_cost(given: object, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        CostSpec.of(given)
