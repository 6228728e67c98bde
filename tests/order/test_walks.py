"""Walks: every span of every epoch on exactly one of them, and none ahead of the others."""

from __future__ import annotations

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardstream.order.lanes import Lanes
from shardstream.order.walks import Walks

from ..examples import thorough
from . import reference
from .strategies import parameters


@thorough
@given(st.integers(1, 300), parameters(), st.integers(0, 5), st.integers(0, 10**6))
def test_find_goes_back_where_enter_came_from(samples, parameters, epochs, first_epoch):
    lanes = Lanes(max(samples, parameters.groups), parameters)
    walks = Walks(lanes, parameters.groups)
    spans = np.arange(parameters.lanes)
    lengths = lanes.begin(spans + 1) - lanes.begin(spans)
    span, offset = np.repeat(spans, lengths), np.concatenate([np.arange(n) for n in lengths])
    for epoch in range(first_epoch, first_epoch + epochs):
        walk, place = walks.enter(epoch, span, offset)
        assert place.min() >= 0
        found = walks.find(walk, place)
        assert np.all(found[0] == epoch)
        assert np.array_equal(found[1:], (span, offset))


@thorough
@given(st.integers(1, 200), parameters(), st.integers(1, 6))
def test_a_walk_goes_through_the_spans_of_its_group_one_an_epoch(samples, parameters, epochs):
    lanes = Lanes(max(samples, parameters.groups), parameters)
    walks = Walks(lanes, parameters.groups)
    for walk in range(parameters.lanes):
        expected = [
            (epoch, span, offset)
            for epoch, span in enumerate(
                islice(reference.spans_walked(walk, parameters, parameters.groups), epochs)  # type: ignore[arg-type]
            )
            for offset in range(int(lanes.begin(span + 1) - lanes.begin(span)))
        ]
        places = np.arange(len(expected))
        found = walks.find(np.full(len(expected), walk), places)
        assert list(zip(*(part.tolist() for part in found), strict=True)) == expected


@thorough
@given(st.integers(1, 10**6), parameters(), st.integers(1, 2**31))
def test_no_walk_runs_ahead(samples, parameters, epoch):
    """However many epochs there were, all walks have come as far as the others of their group, to a sample or two."""
    lanes = Lanes(samples, parameters)
    walks = Walks(lanes, parameters.groups)
    _, length = walks.enter(epoch, np.arange(parameters.lanes), np.zeros(parameters.lanes, np.int64))
    apart = np.ptp(length.reshape(parameters.groups, -1), axis=1)
    assert apart.max() <= (1 if parameters.groups == 1 else 2)
