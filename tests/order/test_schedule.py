"""Mixtures by schedule: each item of a source once, counts in closed form, shares as they were asked for."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from shardstream import rng
from shardstream.errors import UsageError
from shardstream.order import MixedOrder, OrderParameters, Schedule, plain_knots
from shardstream.order.scheduled import ScheduledLabels

from ..examples import at_most


def schedules(most: int = 6, *, span: int = 3000) -> st.SearchStrategy[Schedule]:
    """Schedules with ramps, jumps, zeros and unequal denominators."""

    def made(sources: int) -> st.SearchStrategy[Schedule]:
        weights = st.lists(st.integers(0, 9), min_size=sources, max_size=sources).filter(any)
        positions = st.lists(st.integers(1, span), max_size=5).map(sorted)
        knots = positions.flatmap(lambda at: st.tuples(*(st.tuples(st.just(p), weights) for p in [0, *at])))
        return knots.map(Schedule.of)

    return st.integers(1, most).flatmap(made)


def labels(schedule: Schedule, lanes: int, places: int, row: int, seed: int = 7) -> tuple[Any, Any, ScheduledLabels]:
    """Sources and numbers of the first places of all lanes, (lanes, places) each."""
    made = ScheduledLabels(schedule, seed, lanes, row)
    key, place = np.repeat(np.arange(lanes), places), np.tile(np.arange(places), lanes)
    source, before = made.find(key, place)
    return source.reshape(lanes, places), before.reshape(lanes, places), made


@given(schedules(), st.integers(1, 40), st.integers(0, 9))
@at_most(150)
def test_each_lane_has_the_places_of_each_source_one_after_another(schedule: Schedule, lanes: int, seed: int) -> None:
    places = 3500 // lanes + 5
    source, before, made = labels(schedule, lanes, places, lanes, seed)
    for number in range(len(schedule.knots[0].shares)):
        for lane in range(lanes):
            own = before[lane][source[lane] == number]
            assert own.tolist() == list(range(len(own)))
    lane = np.arange(lanes)
    for stops in (0 * lane, places // 2 + lane % 3, lane * places // lanes, places + 0 * lane):
        counts = made.counts(lane, stops)
        expected = [np.bincount(one[:stop], minlength=counts.shape[1]) for one, stop in zip(source, stops, strict=True)]
        assert counts.tolist() == np.array(expected).tolist()


@given(schedules(), st.integers(1, 40), st.data())
@at_most(100)
def test_any_place_is_found_by_itself(schedule: Schedule, lanes: int, data: st.DataObject) -> None:
    places = 3500 // lanes + 5
    source, before, _ = labels(schedule, lanes, places, lanes)
    lane = np.array(data.draw(st.lists(st.integers(0, lanes - 1), min_size=1, max_size=20)))
    place = np.array(data.draw(st.lists(st.integers(0, places - 1), min_size=len(lane), max_size=len(lane))))
    found = ScheduledLabels(schedule, 7, lanes, lanes).find(lane, place)
    assert found[0].tolist() == source[lane, place].tolist()
    assert found[1].tolist() == before[lane, place].tolist()


@given(schedules(), st.integers(1, 40), st.integers(0, 4000))
@at_most(100)
def test_what_comes_behind_a_position_changes_nothing_before_it(schedule: Schedule, lanes: int, position: int) -> None:
    places = position // lanes
    passed = schedule.past(position)
    last = passed[-1] if passed else schedule.knots[0]
    begin, weights = max(last.position, position), [1] * len(last.shares)
    future = [(begin, last.shares), (begin, weights), (begin + 500, [*weights[1:], 3])]
    other = Schedule.of([*plain_knots(passed), *future])
    assert other.past(position) == passed
    for one, then in zip(labels(schedule, lanes, places, lanes), labels(other, lanes, places, lanes), strict=True):
        if isinstance(one, np.ndarray):
            assert one.tolist() == then.tolist()


class EraByThePage:
    """Between two knots, as docs/order.md has it, one item after another."""

    def __init__(self, begin: Any, end: Any, rows: int, lanes: int, seed: int) -> None:
        total = math.lcm(*(share.denominator for share in (*begin, *end)))
        self.a, self.b = ([int(share * total) for share in shares] for shares in (begin, end))
        self.h = rows if self.a == self.b else max(1, rows // 1024)
        self.n = rows // self.h
        self.unit = 2 * self.n * total
        self.lanes, self.seed = lanes, seed

    def amount(self, of: list[int], k: int) -> int:
        a, b = sum(self.a[one] for one in of), sum(self.b[one] for one in of)
        return self.h * (a * (2 * self.n * k - k * k) + b * k * k)

    def share(self, of: list[int], k: int) -> int:
        a, b = sum(self.a[one] for one in of), sum(self.b[one] for one in of)
        return a * max(2 * (self.n - k) - 1, 0) + b * min(2 * k + 1, 2 * self.n)

    def left(self, of: list[int], part: list[int], name: int, lane: int, m: int) -> int:
        k = max(k for k in range(self.n + 1) if self.amount(of, k) <= m * self.unit)
        k -= self.share(of, k) == 0
        r, t = divmod(m * self.unit - self.amount(of, k), self.share(of, k))
        prime, x, y, rest = (2, 3, 5, 7)[name.bit_length() - 1], 0, 1, lane
        while y < self.lanes:
            rest, digit = divmod(rest, prime)
            x, y = x * prime + digit, y * prime
        z = int(rng.words(1, seed=self.seed, domain=rng.Domain.SCHEDULE, a=name)[0]) // 2
        phase = ((2 * x + 1) * self.unit // (2 * y) + z % self.unit) % self.unit
        own = self.amount(part, k) + r * self.share(part, k) + t * self.share(part, k) // self.share(of, k)
        return (own + phase) // self.unit

    def find(self, lane: int, place: int) -> tuple[int, int]:
        of, name, m = [one for one in range(len(self.a)) if self.a[one] + self.b[one]], 1, place
        while len(of) > 1:
            halves = of[: (len(of) + 1) // 2], of[(len(of) + 1) // 2 :]
            now, after = (self.left(of, halves[0], name, lane, items) for items in (m, m + 1))
            side = int(after == now)
            of, name, m = halves[side], 2 * name + side, m - now if side else now
        return of[0], m


def by_the_page(schedule: Schedule, lanes: int, places: int, seed: int) -> list[list[tuple[int, int]]]:
    """Source and number of each place of each lane."""
    done = np.zeros((lanes, len(schedule.knots[0].shares)), int)
    found: list[list[tuple[int, int]]] = [[] for _ in range(lanes)]
    for (first, begin), (then, end) in pairwise([*schedule.knots, (1 << 43, schedule.knots[-1].shares)]):
        start, stop = -(-first // lanes), -(-then // lanes)
        if start >= min(stop, places):
            continue
        era = EraByThePage(begin, end, stop - start, lanes, seed)
        for lane in range(lanes):
            before = done[lane].copy()
            for place in range(min(stop, places) - start):
                source, number = era.find(lane, place)
                found[lane].append((source, int(before[source]) + number))
                done[lane, source] += 1
    return found


@given(schedules(5, span=60), st.sampled_from([1, 3, 5]), st.integers(0, 3))
@example(Schedule.of([(0, (0, 0, 0, 1, 1)), (1, (0, 0, 1, 0, 0))]), 1, 1)  # a ramp of one place
@at_most(25)
def test_the_page_says_what_is_done(schedule: Schedule, lanes: int, seed: int) -> None:
    places = 80 // lanes
    source, before, _ = labels(schedule, lanes, places, lanes, seed)
    done = [list(zip(*lane, strict=True)) for lane in zip(source.tolist(), before.tolist(), strict=True)]
    assert done == by_the_page(schedule, lanes, places, seed)


def ideal(schedule: Schedule, lanes: int, places: int) -> Any:
    """What each source should have had before each row of lanes, (places + 1, sources)."""
    rows = np.array([[float(one) for one in schedule.shares_at(row * lanes)] for row in range(places)])
    return np.concatenate((np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)))


@given(schedules(), st.integers(1, 40))
@at_most(100)
def test_no_lane_is_far_from_what_a_source_is_due(schedule: Schedule, lanes: int) -> None:
    places = 3500 // lanes + 5
    source, _, _ = labels(schedule, lanes, places, lanes)
    due = ideal(schedule, lanes, places)
    eras = len(list(schedule.eras(lanes)))
    sources = due.shape[1]
    for number in range(sources):
        got = np.concatenate((np.zeros((lanes, 1)), np.cumsum(source == number, axis=1)), axis=1)
        # a level of the tree and a knot move an item each, and a ramp's stretches are of constant shares
        assert np.abs(got - due[:, number]).max() <= eras * (sources.bit_length() + 2)


@given(schedules(), st.integers(1, 40))
@at_most(60)
def test_a_source_without_a_share_does_not_come(schedule: Schedule, lanes: int) -> None:
    places = 3500 // lanes + 5
    source, _, _ = labels(schedule, lanes, places, lanes)
    for era in schedule.eras(lanes):
        for number, (begin, end) in enumerate(zip(era.begin, era.end, strict=True)):
            if not begin and not end:
                assert not (source[:, era.row : era.row + era.rows] == number).any()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("sources", [2, 4, 9])
@pytest.mark.parametrize(("lanes", "chunk"), [(64, 1), (256, 4), (2048, 1), (2048, 8)])
def test_shares_over_any_hundred_thousand_positions(sources: int, lanes: int, chunk: int) -> None:
    draws, window, positions = np.random.default_rng(sources), 100_000, 500_000
    knots = [(at, draws.integers(10, 100, sources).tolist()) for at in (0, 0, 2_000_000, 2_000_000)]
    schedule = Schedule.of(knots)
    places = positions // lanes // chunk * chunk
    source, _, _ = labels(schedule, lanes, places, lanes)
    order = source.reshape(lanes, places // chunk, chunk).transpose(1, 0, 2).reshape(-1)
    clock = np.broadcast_to(np.arange(places) * lanes, (lanes, places))
    clock = clock.reshape(lanes, places // chunk, chunk).transpose(1, 0, 2).reshape(-1)
    first, last = (np.array([float(one) for one in schedule.shares_at(at)]) for at in (0, 1_999_999))
    for number in range(sources):
        due = first[number] + (last[number] - first[number]) * (clock + lanes / 2) / 2_000_000
        off = np.concatenate(([0], np.cumsum((order == number) - due)))
        assert np.abs(off[window:] - off[:-window]).max() <= 0.001 * window


@pytest.mark.parametrize("by", ["samples", "batches"])
def test_epochs_of_an_order_go_on_where_the_last_one_stopped(by: Any) -> None:
    parameters = OrderParameters(lanes=8, chunk=4, window=16, sublanes=4, ranks=2)
    schedule = Schedule.of([(0, (3, 1, 0)), (400, (1, 1, 1)), (400, (0, 1, 1))])
    counts = [np.array([100, 60]), np.array([40]), np.array([7])]

    def epoch(number: int, samples: int) -> list[tuple[int, int, int]]:
        order = MixedOrder(counts, quotas=schedule, samples=samples, seed=3, epoch=number, parameters=parameters, by=by)
        return list(zip(*(one.tolist() for one in order.locate(np.arange(order.samples))), strict=True))

    whole = epoch(0, 960)
    sources = [source for source, _, _ in whole]
    assert sources[:320].count(0) > 160
    assert 0 not in sources[448:]
    if by == "batches":
        assert all(len(set(sources[at : at + 16])) == 1 for at in range(0, 960, 16))
    for number in range(3):
        uses = np.unique(
            [(shard, row) for source, shard, row in whole if source == number], axis=0, return_counts=True
        )[1]
        assert uses.max() - uses.min() <= 2 + uses.max() // 10
    parts = [one for number in range(3) for one in epoch(number, 320)]
    assert sorted(parts) == sorted(whole), "the same samples, by other lanes in later epochs"


@pytest.mark.parametrize(
    ("knots", "what"),
    [
        ([], "1 to 4096 knots"),
        ([(5, (1, 1))], "the first knot is at position 5, not at 0"),
        ([(0, (1, 1)), (9, (1, 1)), (3, (1, 2))], "a knot at position 3 follows one at 9"),
        ([(0, (1, -1))], "none may be negative, nor all 0"),
        ([(0, (0, 0))], "none may be negative, nor all 0"),
        ([(0, (1, "many"))], "weight 1 at position 0 must be a finite number"),
        ([(0.5, (1, 1))], "whole positions from 0 to 2\\*\\*43, got 0.5"),
        ([(0, (1, 1)), (1 << 50, (1, 2))], "whole positions"),
        ([(0, (1_000_003, 7))], "too small to mix to 1 %"),
    ],
)
def test_what_is_no_schedule(knots: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Schedule.of(knots)


def test_knots_that_change_nothing_are_left_out() -> None:
    half = (Fraction(1, 2),) * 2
    found = Schedule.of(
        [(0, (1, 1)), (10, (2, 2)), (20, (3, 3)), (20, (9, 1)), (20, (1, 3)), (50, (2, 6)), (90, (1, 3))]
    )
    assert found.knots == ((0, half), (20, half), (20, (Fraction(1, 4), Fraction(3, 4))))
    assert found.shares_at(19) == half
    assert found.shares_at(20) == (Fraction(1, 4), Fraction(3, 4))


def test_the_past_of_a_ramp_has_both_of_its_ends() -> None:
    schedule = Schedule.of([(0, (1, 0)), (100, (1, 0)), (200, (0, 1)), (300, (0, 1)), (300, (1, 1))])
    assert [len(schedule.past(position)) for position in (0, 1, 100, 101, 200, 201, 300, 301)] == [
        0,
        1,
        1,
        3,
        3,
        3,
        3,
        5,
    ]


@pytest.mark.full
@pytest.mark.parametrize("sources", [2, 4, 16])
def test_shares_over_any_million_positions_of_very_many_lanes(sources: int) -> None:
    lanes, window, draws = 262_144, 1_000_000, np.random.default_rng(sources)
    schedule = Schedule.of([(0, draws.integers(10, 100, sources).tolist())])
    made = ScheduledLabels(schedule, 7, lanes, lanes)
    rows = [made.find(np.arange(lanes), np.full(lanes, row))[0].astype(np.int8) for row in range(1000, 1016)]
    order = np.concatenate(rows)
    for number, share in enumerate(schedule.knots[0].shares):
        off = np.concatenate(([0], np.cumsum((order == number) - float(share))))
        assert np.abs(off[window:] - off[:-window]).max() <= 0.001 * window


@pytest.mark.parametrize(
    ("by", "digest"), [("samples", "ac173930c5ccd6b0dc3fc332437dffc5"), ("batches", "ce242323be5c809ae8e942b6aa56b7a8")]
)
def test_the_order_is_that_of_the_first_day(by: Any, digest: str) -> None:
    parameters = OrderParameters(lanes=32, chunk=4, window=16, virtual=4, sublanes=4, ranks=2)
    schedule = Schedule.of([(0, (3, 1, 0)), (1000, (1, 1, 1)), (1000, (0, 1, 1)), (1500, ("0.12345678", 1, 2))])
    counts = [np.array([100, 60]), np.array([40]), np.array([700])]
    found = [
        MixedOrder(counts, quotas=schedule, samples=1920, seed=3, epoch=epoch, parameters=parameters, by=by).locate(
            np.arange(1920)
        )
        for epoch in (0, 1)
    ]
    assert xxhash.xxh3_128_hexdigest(np.concatenate([np.concatenate(one) for one in found]).tobytes()) == digest
