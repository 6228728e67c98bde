"""The shuffle buffer: bounded, keyed a window, and the same however little of it is held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream import rng
from shardstream.order import OrderParameters
from shardstream.order.lanes import Lanes
from shardstream.order.windows import Windows

from .strategies import parameters


@given(st.integers(1, 600), parameters())
def test_spans_cut_the_line_and_every_lane_has_one(samples, parameters):
    lanes = Lanes(samples, parameters)
    numbers = np.arange(parameters.lanes)
    spans = lanes.span_of(numbers)
    assert sorted(spans.tolist()) == numbers.tolist()
    assert np.array_equal(lanes.lane_of(spans), numbers)
    edges = lanes.begin(np.arange(parameters.lanes + 1))
    assert edges[0] == 0
    assert edges[-1] == samples
    assert np.ptp(np.diff(edges)) <= 1


@given(st.integers(1, 600), parameters(), st.data())
def test_windows_permute_inside_themselves(samples, parameters, data):
    lanes = Lanes(samples, parameters)
    lane = data.draw(st.integers(0, parameters.lanes - 1))
    span = lanes.span_of(np.array([lane]))
    begin, end = int(lanes.begin(span)[0]), int(lanes.begin(span + 1)[0])
    windows = Windows(lanes, window=parameters.window, seed=1, epoch=1)
    places = windows.line_positions(np.full(end - begin, lane), np.arange(end - begin)) - begin
    assert sorted(places.tolist()) == list(range(end - begin))

    count = max(1, (end - begin + parameters.window // 2) // parameters.window)
    visited = np.minimum(places // parameters.window, count - 1)
    runs = visited[np.flatnonzero(np.diff(visited, prepend=-1))].tolist()
    if runs:
        assert runs == [(runs[0] + i) % count for i in range(count)]


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 65_536, 65_537])
def test_windows_of_any_width_hold_every_position_once(size):
    windows = Windows(Lanes(size, _parameters(lanes=1, window=size)), window=size, seed=0, epoch=0)
    places = windows.line_positions(np.zeros(size, np.int64), np.arange(size))
    assert np.array_equal(np.sort(places), np.arange(size))
    assert size < 3 or not np.array_equal(places, np.arange(size))


def test_lanes_begin_with_windows_of_their_own():
    lanes = Lanes(10_000, parameters=_parameters(lanes=10, window=50))
    windows = Windows(lanes, window=50, seed=0, epoch=0)
    first = windows.line_positions(np.arange(10), np.zeros(10, np.int64)) - 1000 * np.arange(10)
    assert len(set((first // 50).tolist())) >= 5
    again = Windows(lanes, window=50, seed=0, epoch=1)
    assert not np.array_equal(first, again.line_positions(np.arange(10), np.zeros(10, np.int64)) % 1000)


@given(st.integers(1, 600), parameters(), st.sampled_from([0, 300, 2000]))
def test_what_is_held_does_not_change_the_order(samples, parameters, cache_bytes):
    lanes = Lanes(samples, parameters)
    span_ends = lanes.begin(lanes.span_of(np.arange(parameters.lanes)) + 1)
    lengths = span_ends - lanes.begin(lanes.span_of(np.arange(parameters.lanes)))
    lane = np.repeat(np.arange(parameters.lanes), lengths)
    offset = np.concatenate([np.arange(n) for n in lengths])
    shuffled = np.random.default_rng(samples).permutation(samples)

    roomy = Windows(lanes, window=parameters.window, seed=3, epoch=0)
    tight = Windows(lanes, window=parameters.window, seed=3, epoch=0, cache_bytes=cache_bytes)
    expected = roomy.line_positions(lane, offset)
    for part in np.array_split(shuffled, 7):
        assert np.array_equal(tight.line_positions(lane[part], offset[part]), expected[part])


def test_permutations_held_are_bounded():
    lanes = Lanes(100_000, _parameters(lanes=100, window=100))
    windows = Windows(lanes, window=100, seed=0, epoch=0)
    for offset in range(0, 1000, 100):
        windows.line_positions(np.arange(100), np.full(100, offset))
    assert windows._held.bytes <= 2 * 2 * 2 * 100 * 150  # two windows a lane, grown by doubling, two bytes a sample

    tight = Windows(lanes, window=100, seed=0, epoch=0, cache_bytes=10_000)
    for offset in range(0, 1000, 100):
        tight.line_positions(np.arange(100), np.full(100, offset))
        assert tight._held.bytes <= 10_000


@pytest.fixture
def drawn(monkeypatch):
    """The (lane, window) of each permutation that was made."""
    drawn: list[tuple[int, int]] = []
    words = rng.words

    def counted(count: int, **key: int):
        if key["domain"] == rng.Domain.WINDOW:
            drawn.append((key["a"], key["b"]))
        return words(count, **key)

    monkeypatch.setattr(rng, "words", counted)
    return drawn


def test_open_windows_are_drawn_once(drawn):
    lanes = Lanes(64_000, _parameters(lanes=64, window=100))
    windows = Windows(lanes, window=100, seed=0, epoch=0)
    for offset in range(0, 1000, 4):  # as one worker reads: all lanes in turn, four samples at a time
        windows.line_positions(np.repeat(np.arange(64), 4), np.tile(np.arange(offset, offset + 4), 64))
    assert len(drawn) == len(set(drawn)) == 640


def test_reading_ahead_into_the_next_window_keeps_the_open_one(drawn):
    windows = Windows(Lanes(6400, _parameters(lanes=64, window=50)), window=50, seed=0, epoch=0)
    for offset in range(50):
        for ahead in (40, 0):
            windows.line_positions(np.arange(64), np.full(64, offset + ahead))
    assert len(drawn) == 128


def _parameters(*, lanes: int, window: int) -> OrderParameters:
    return OrderParameters(lanes, 1, window)
