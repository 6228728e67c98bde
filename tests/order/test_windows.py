"""The shuffle buffer: bounded, keyed a window, and the same however little of it is held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream import rng
from shardstream.order import OrderParameters
from shardstream.order.lanes import DealtLanes, HandedLanes, Lanes, epoch_lanes
from shardstream.order.windows import TurnedWindows, Windows

from ..examples import thorough
from .strategies import parameters

kinds = st.sampled_from([Windows, TurnedWindows])


@thorough
@given(st.integers(1, 600), parameters(), st.booleans())
def test_spans_cut_the_line_and_every_lane_has_one(samples, parameters, together):
    lanes = epoch_lanes(samples, parameters, seed=3, epoch=2, together=together)
    numbers = np.arange(parameters.lanes)
    spans = lanes.span_of(numbers)
    assert sorted(spans.tolist()) == numbers.tolist()
    assert np.array_equal(lanes.lane_of(spans), numbers)
    edges = lanes.begin(np.arange(parameters.lanes + 1))
    assert edges[0] == 0
    assert edges[-1] == samples
    assert np.ptp(np.diff(edges)) <= 1


@thorough
@given(parameters(), st.booleans())
def test_spans_are_dealt_inside_their_sub_lane(parameters, together):
    """So the lanes of a batch stay far apart, and a group reads what it always reads."""
    lane = np.arange(parameters.lanes)
    fixed = Lanes(1, parameters).span_of(lane)
    dealt = (HandedLanes if together else DealtLanes)(1, parameters, seed=1, epoch=4).span_of(lane)
    sublanes = parameters.sublanes if parameters.spread else 1
    width = parameters.lanes // (parameters.groups * sublanes)
    assert np.array_equal(fixed // width, dealt // width)
    if together:  # the lanes of a virtual worker are those that another one has in epoch 0
        first = DealtLanes(1, parameters, seed=1, epoch=0).span_of(lane).reshape(-1, sublanes)
        assert sorted(dealt.reshape(-1, sublanes).tolist()) == sorted(first.tolist())


def test_each_epoch_group_and_sub_lane_deals_anew():
    parameters = OrderParameters(2 * 4 * 40, 1, 1, virtual=40, sublanes=4, ranks=2, groups=2)
    dealt = [DealtLanes(320, parameters, seed=0, epoch=epoch).span_of(np.arange(320)) for epoch in (0, 1)]
    places = [one[np.argsort(Lanes(320, parameters).span_of(np.arange(320)))].reshape(8, 40) % 40 for one in dealt]
    assert len({tuple(deal) for deal in np.concatenate(places).tolist()}) == 16


@thorough
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


@pytest.mark.parametrize("kind", [Windows, TurnedWindows])
@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 65_536, 65_537])
def test_windows_of_any_width_hold_every_position_once(size, kind):
    windows = kind(Lanes(size, _parameters(lanes=1, window=size)), window=size, seed=0, epoch=0)
    places = windows.line_positions(np.zeros(size, np.int64), np.arange(size))
    assert np.array_equal(np.sort(places), np.arange(size))
    assert size < 3 or not np.array_equal(places, np.arange(size))


@thorough
@given(st.integers(1, 600), parameters(), st.data())
def test_turned_windows_are_two_stretches_cut_from_the_ends_of_the_span(samples, parameters, data):
    w, lanes = parameters.window, Lanes(samples, parameters)
    lane = data.draw(st.integers(0, parameters.lanes - 1))
    span = lanes.span_of(np.array([lane]))
    begin, end = int(lanes.begin(span)[0]), int(lanes.begin(span + 1)[0])
    windows = TurnedWindows(lanes, window=w, seed=1, epoch=1)
    places, first, after = windows.find(np.full(end - begin, lane), np.arange(end - begin))
    assert sorted(places.tolist()) == list(range(begin, end))
    read = list(dict.fromkeys(zip(first.tolist(), after.tolist(), strict=True)))
    sizes = [after - first for first, after in read]
    assert [size for (first, after), size in zip(read, sizes, strict=True) for _ in range(size)] == (
        after - first
    ).tolist()
    for number, (low, high) in enumerate(read):
        assert sorted(places[sum(sizes[:number]) : sum(sizes[: number + 1])].tolist()) == list(range(low, high))
    if end - begin < 1.5 * w:
        assert len(read) <= 1
        return
    last_of_head = [number for number, (_, high) in enumerate(read) if high == end]
    assert len(last_of_head) == 1
    head, late = read[: last_of_head[0] + 1], read[last_of_head[0] + 1 :]
    assert head == sorted(head)
    assert late == sorted(late)
    assert all(high - low == w for low, high in [*head[1:], *late[:-1]])
    assert head[0][1] - head[0][0] <= w
    assert all(w // 2 <= high - low < 1.5 * w for low, high in late)


@pytest.mark.parametrize(("kind", "most"), [(Windows, 64), (TurnedWindows, 8)])
def test_lanes_do_not_all_come_to_their_next_window_in_one_row(kind, most):
    """64 lanes of ten windows of 50: how many of them begin a window in one row, after the first."""
    lanes = Lanes(64 * 500, _parameters(lanes=64, window=50))
    windows = kind(lanes, window=50, seed=0, epoch=0)
    lane, row = np.repeat(np.arange(64), 500), np.tile(np.arange(500), 64)
    first = windows.find(lane, row)[1].reshape(64, 500)
    begun = (np.diff(first) != 0).sum(axis=0)
    assert begun.max() == most if kind is Windows else begun.max() <= most
    assert abs(begun.sum() - 64 * 9) < 64
    read_at_once = sum(int((one == one[0]).sum()) for one in first)  # what all lanes begin with
    assert read_at_once == 64 * 50 if kind is Windows else 0.3 < read_at_once / (64 * 50) < 0.7


def test_lanes_begin_with_windows_of_their_own():
    lanes = Lanes(10_000, parameters=_parameters(lanes=10, window=50))
    windows = Windows(lanes, window=50, seed=0, epoch=0)
    first = windows.line_positions(np.arange(10), np.zeros(10, np.int64)) - 1000 * np.arange(10)
    assert len(set((first // 50).tolist())) >= 5
    again = Windows(lanes, window=50, seed=0, epoch=1)
    assert not np.array_equal(first, again.line_positions(np.arange(10), np.zeros(10, np.int64)) % 1000)


@thorough
@given(st.integers(1, 600), parameters(), st.sampled_from([0, 300, 2000]), kinds)
def test_what_is_held_does_not_change_the_order(samples, parameters, cache_bytes, kind):
    lanes = Lanes(samples, parameters)
    span_ends = lanes.begin(lanes.span_of(np.arange(parameters.lanes)) + 1)
    lengths = span_ends - lanes.begin(lanes.span_of(np.arange(parameters.lanes)))
    lane = np.repeat(np.arange(parameters.lanes), lengths)
    offset = np.concatenate([np.arange(n) for n in lengths])
    shuffled = np.random.default_rng(samples).permutation(samples)

    roomy = kind(lanes, window=parameters.window, seed=3, epoch=0)
    tight = kind(lanes, window=parameters.window, seed=3, epoch=0, cache_bytes=cache_bytes)
    expected = roomy.line_positions(lane, offset)
    for part in np.array_split(shuffled, 7):
        assert np.array_equal(tight.line_positions(lane[part], offset[part]), expected[part])


@pytest.mark.parametrize("kind", [Windows, TurnedWindows])
def test_permutations_held_are_bounded(kind):
    lanes = Lanes(100_000, _parameters(lanes=100, window=100))
    windows = kind(lanes, window=100, seed=0, epoch=0)
    for offset in range(0, 1000, 100):
        windows.line_positions(np.arange(100), np.full(100, offset))
    assert windows._held.bytes <= 2 * 2 * 2 * 100 * 150  # two windows a lane, grown by doubling, two bytes a sample

    tight = kind(lanes, window=100, seed=0, epoch=0, cache_bytes=10_000)
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


def test_turned_windows_are_drawn_once_as_well(drawn):
    lanes = Lanes(64_000, _parameters(lanes=64, window=100))
    windows = TurnedWindows(lanes, window=100, seed=0, epoch=0)
    for offset in range(0, 1000, 4):
        windows.line_positions(np.repeat(np.arange(64), 4), np.tile(np.arange(offset, offset + 4), 64))
    assert len(drawn) == len(set(drawn))
    assert abs(len(drawn) - 640) <= 64


def test_reading_ahead_into_the_next_window_keeps_the_open_one(drawn):
    windows = Windows(Lanes(6400, _parameters(lanes=64, window=50)), window=50, seed=0, epoch=0)
    for offset in range(50):
        for ahead in (40, 0):
            windows.line_positions(np.arange(64), np.full(64, offset + ahead))
    assert len(drawn) == 128


def _parameters(*, lanes: int, window: int) -> OrderParameters:
    return OrderParameters(lanes, 1, window)
