"""Ranges that are skipped: as sets of places."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.order import joined_ranges, ranges_in_epoch, ranges_of, uncovered
from shardstream.order.skipping import Gaps

SAMPLES = 9  # of an epoch
places = st.tuples(st.integers(0, 3), st.integers(0, SAMPLES))
ranges = st.lists(st.tuples(places, places).map(sorted).map(tuple).filter(lambda one: one[0] < one[1]), max_size=5)
ALL = [(epoch, position) for epoch in range(4) for position in range(SAMPLES)]


def covered(some: Any) -> set[tuple[int, int]]:
    return {place for place in ALL if any(begin <= place < end for begin, end in some)}


@given(ranges, ranges)
def test_ranges_are_sets_of_places(some: Any, others: Any) -> None:
    joined = joined_ranges(some, others)
    assert covered(joined) == covered(some) | covered(others)
    assert all(first[1] < second[0] for first, second in pairwise(joined))
    assert ranges_of([list(map(list, one)) for one in [*some, *others]]) == joined
    assert covered(uncovered(joined_ranges(some), joined_ranges(others))) == covered(some) - covered(others)
    for epoch in range(4):
        inside = ranges_in_epoch(joined, epoch, SAMPLES)
        positions = {position for begin, end in inside for position in range(begin, end)}
        assert positions == {position for at, position in covered(joined) if at == epoch}


@given(ranges, st.integers(0, SAMPLES))
def test_gaps_number_what_lies_around_them(some: Any, start: int) -> None:
    inside = ranges_in_epoch(joined_ranges(some), 0, SAMPLES)
    outside = [p for p in range(start, 3 * SAMPLES) if (0, p) not in covered(some)]
    gaps = Gaps(inside, start)
    assert gaps.count == 3 * SAMPLES - start - len(outside)
    assert gaps.positions(np.arange(start, start + len(outside))).tolist() == outside


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (5, "skip must be a list of ranges, got 5"),
        ("0-5", "skip must be a list of ranges, got '0-5'"),
        (((0, 5), (0, 9)), r"two places, each an epoch and a position, got \(0, 5\)"),
        ([(0, 5)], r"two places, each an epoch and a position, got \(0, 5\)"),
        ([((0, 5), (0, 9.0))], "each an epoch and a position"),
        ([((0, -5), (0, 9))], "each an epoch and a position"),
        ([((0, 5), (1 << 32, 9))], "each an epoch and a position"),
        ([((0, 5), (0, 1 << 62))], "each an epoch and a position"),
        ([((0, 5), (0, 5))], r"must end behind where it begins, got \(0, 5\) to \(0, 5\)"),
        ([((1, 0), (0, 5))], "must end behind where it begins"),
        ([((0, 2 * at), (0, 2 * at + 1)) for at in range(65)], "at most 64 ranges, got 65"),
    ],
)
def test_what_is_no_range(given: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        ranges_of(given)
