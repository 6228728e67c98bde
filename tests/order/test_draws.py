"""Draws by weight against exact fractions: every draw once, in every shard and row its share, whatever the numbers."""

from __future__ import annotations

import math
from dataclasses import asdict
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.order import EpochOrder, MixedOrder, OrderParameters, WeightedDraws
from shardstream.order.draws import _scaled

from ..examples import thorough
from . import make_golden
from .reference import Shape
from .reference_weights import drawn_rows, draws_moved, weighted_epoch
from .strategies import epochs, everything, parameters, seeds

_WEIGHT = st.integers(0, 9) | st.integers(0, 1 << 50)
weights = st.lists(st.lists(_WEIGHT, max_size=8), min_size=1, max_size=8).filter(lambda shards: any(map(any, shards)))
samples = st.integers(1, 60) | st.integers(1, 2000)


def begins_of(weights: list[list[int]]) -> np.ndarray:
    return np.array([0, *accumulate(map(sum, weights))], np.int64)


def rows_of(draws: WeightedDraws, weights: list[list[int]], begin: int, shard: int, places: np.ndarray) -> list[int]:
    """The rows of a shard at these places, which lie on the line sorted by weight."""
    of_shard = np.array(weights[shard], np.int64)
    laid = draws.laid(shard, of_shard, of_shard)
    times = np.empty_like(of_shard)
    moved = int(draws.moved(places)[0])
    times[laid] = draws.counts(begin, of_shard[laid], moved)
    return np.repeat(np.arange(len(of_shard)), times)[draws.number(places) - draws.first(begin, moved)].tolist()


def sequence_of(order: EpochOrder, draws: WeightedDraws, weights: list[list[int]]) -> list[tuple[int, int]]:
    shards, places = order.locate(np.arange(order.samples))
    begins = begins_of(weights).tolist()
    at = zip(shards.tolist(), places, strict=True)
    return [(shard, rows_of(draws, weights, begins[shard], shard, place[None])[0]) for shard, place in at]


@thorough
@given(weights, samples, seeds, epochs, parameters())
def test_an_epoch_by_the_reference(weights, samples, seed, epoch, parameters):
    draws = WeightedDraws(begins_of(weights), samples)
    order = EpochOrder(draws, seed=seed, epoch=epoch, parameters=parameters)
    assert order.samples == samples
    run = {"seed": seed, "epoch": epoch}
    expected = weighted_epoch(weights, samples, **run, shape=Shape(**asdict(parameters)))
    assert sequence_of(order, draws, weights) == expected
    stored = EpochOrder(draws, **run, parameters=parameters, shuffle=False)
    drawn = drawn_rows(weights, samples, **run)
    assert sequence_of(stored, draws, weights) == [(s, row) for s, rows in enumerate(drawn) for row in rows]


@thorough
@given(weights, samples, seeds, epochs)
@example([[1 << 59], [(1 << 59) - 1]], (1 << 44) - 1, 1, 2)
@example([[(1 << 60) - 2, 1]], 1, 0, 0)
@example([[1], [1]], (1 << 43) + 1, 0, 1)
def test_every_row_comes_its_share_rounded_up_or_down(weights, samples, seed, epoch):
    total = sum(map(sum, weights))
    assume(total < 1 << 60)
    draws = WeightedDraws(begins_of(weights), samples)
    found = draws.epoch(seed=seed, epoch=epoch)
    assert found.counts.sum() == samples
    assert found.counts.min() >= 0
    begin = 0
    for shard, of_shard in enumerate(weights):
        times = draws.counts(begin, np.array(of_shard, np.int64), found.moved)
        assert times.sum() == found.counts[shard]
        for weight, often in zip(of_shard, times.tolist(), strict=True):
            share = Fraction(weight * samples, total)
            assert often in (math.floor(share), math.ceil(share))
        begin += sum(of_shard)


@thorough
@given(st.data())
def test_products_of_112_bits_are_divided_exactly(data):
    divisor = data.draw(st.integers(1, (1 << 60) - 1) | st.sampled_from([1, 2, (1 << 60) - 1, 1 << 59]))
    value = data.draw(st.integers(0, divisor) | st.sampled_from([0, 1, divisor - 1, divisor]))
    factor = data.draw(st.integers(1, (1 << 52) - 1) | st.sampled_from([1, (1 << 52) - 1, 1 << 51]))
    whole, rest = _scaled(np.array([value, 0]), factor, divisor)
    assert (int(whole[0]), int(rest[0])) == divmod(value * factor, divisor)
    assert (int(whole[1]), int(rest[1])) == (0, 0)


@thorough
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any), st.integers(1, 1 << 40), seeds, parameters())
def test_equal_weights_and_as_many_draws_are_the_plain_order(counts, weight, seed, parameters):
    counts = np.array(counts, np.int64)
    begins = np.concatenate([[0], np.cumsum(counts)]) * weight
    draws = WeightedDraws(begins, int(counts.sum()))
    for epoch in (0, 5):
        order = EpochOrder(draws, seed=seed, epoch=epoch, parameters=parameters)
        shards, places = order.locate(np.arange(order.samples))
        rows = draws.number(places) - (np.cumsum(counts) - counts)[shards]
        plain = EpochOrder(counts, seed=seed, epoch=epoch, parameters=parameters)
        assert np.stack([shards, rows], axis=1).tolist() == everything(plain).tolist()


def test_over_epochs_rounding_favours_no_row():
    """After any number of epochs no row is more than three draws from its share: drawn anew, they would drift apart."""
    rows = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 97, 93, 2, 38, 46])
    draws = WeightedDraws(np.array([0, rows.sum()]), samples=7)
    exact = rows * 7 / rows.sum()
    found = np.zeros(len(rows))
    for epoch in range(2000):
        found += draws.counts(0, rows, draws.epoch(seed=3, epoch=epoch).moved)
        assert np.abs(found - exact * (epoch + 1)).max() < 3


def test_windows_hold_the_places_that_lanes_come_to():
    weights = [[3, 0, 9, 4], [1] * 9, [50]]
    draws = WeightedDraws(begins_of(weights), samples=300)
    order = EpochOrder(draws, seed=2, epoch=3, parameters=OrderParameters(4, 2, 16))
    shard, place, first, last, lane, window = order.locate_windows(np.arange(300))
    left: dict[tuple[int, ...], set[int]] = {}
    columns = (one.tolist() for one in (shard, lane, window, first, last, place))
    for *key, at in zip(*columns, strict=True):
        left.setdefault(tuple(key), set(range(key[3], key[4], draws.spacing))).remove(at)
    assert not any(left.values())


@thorough
@given(weights, st.integers(1, 200), seeds, st.integers(0, 3), parameters())
def test_a_mixture_of_one_source_is_its_epochs(weights, samples, seed, epoch, parameters):
    assume(samples >= parameters.groups)  # fewer are an order of one group
    draws = WeightedDraws(begins_of(weights), samples)
    run = {"seed": seed, "epoch": epoch, "parameters": parameters}
    mixed = MixedOrder([draws], quotas=(1,), samples=samples, **run)
    _, shards, places = mixed.locate(np.arange(samples))
    plain = EpochOrder(draws, **run).locate(np.arange(samples))
    assert [shards.tolist(), places.tolist()] == [one.tolist() for one in plain]


@pytest.mark.full
@thorough
@given(weights, st.integers(1, 40), st.integers(1, 60), seeds, parameters())
def test_a_mixture_walks_through_the_epochs_of_draws(weights, samples, other, seed, parameters):
    """As those of a plain source: of the draws of its first epochs each comes once before the epochs after the next."""
    draws = WeightedDraws(begins_of(weights), samples)
    run = {"quotas": (2, 1), "samples": samples + other, "seed": seed, "parameters": parameters}
    found: list[int] = []
    for epoch in range(6):
        mixed = MixedOrder([np.array([other]), draws], epoch=epoch, **run)
        source, _, place = mixed.locate(np.arange(samples + other))
        found += place[source == 1].tolist()
    by_moved: dict[int, list[int]] = {}
    for place in found:
        by_moved.setdefault(place % draws.spacing, []).append(place // draws.spacing)
    for numbers in by_moved.values():
        assert len(set(numbers)) == len(numbers)
        assert set(numbers) <= set(range(samples))


def test_golden_weights_are_those_of_the_reference():
    stored = make_golden.load(make_golden.WEIGHTS_PATH)
    assert make_golden.merged(stored, {name: make() for name, make in make_golden.WEIGHTS.items()}) == stored


def test_the_distance_is_moved_by_a_keyed_part():
    draws = WeightedDraws(np.array([0, 10]), samples=1000)
    found = {(seed, epoch): draws.epoch(seed=seed, epoch=epoch).moved for seed in range(9) for epoch in range(9)}
    assert len(set(found.values())) == 81
    exact = {key: draws_moved(1000, seed=key[0], epoch=key[1]) for key in found}
    assert {key: Fraction(moved, draws.spacing) for key, moved in found.items()} == exact


def test_the_example_of_the_documents():
    draws = WeightedDraws(np.array([0, 4, 8]), samples=4)
    moved = draws.spacing // 4
    assert draws.counts(0, np.array([1, 3]), moved).tolist() == [1, 1]
    assert draws.counts(4, np.array([4]), moved).tolist() == [2]


@pytest.mark.parametrize(
    ("begins", "samples", "message"),
    [
        ([0, 0], 5, "got 0"),
        ([0], 5, "got 0"),
        ([0, 1 << 60], 5, r"2\*\*60"),
        ([0, 3], 0, "got 0"),
        ([0, 3], 1 << 44, "44"),
    ],
)
def test_arguments_out_of_range(begins, samples, message):
    with pytest.raises(UsageError, match=message):
        WeightedDraws(np.array(begins, np.int64), samples)


def test_ten_billion_draws_of_a_million_shards():
    begins = np.arange(1_000_001, dtype=np.int64) * 10_007
    draws = WeightedDraws(begins, samples=10**10)
    order = EpochOrder(draws, seed=1, epoch=2, parameters=OrderParameters(4096, 4, 128, 8, 32, 16))
    shards, places = order.locate(np.array([0, 10**9, 10**10 - 1]))
    inside = draws.number(places) - shards * 10**4  # of equal shards, each has 10,000 draws
    assert ((inside >= 0) & (inside <= 10**4)).all()
