"""What whoever reads ahead is told: the rows around each sample that its lane reads before it comes to others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from shardstream.order import EpochOrder, MixedOrder, OrderParameters, SizedOrder

from ..examples import thorough
from .strategies import counts, epochs, parameters, seeds


@thorough
@given(counts(), seeds, epochs, parameters())
def test_windows_are_read_one_after_another_and_hold_exactly_what_is_read(counts, seed, epoch, parameters) -> None:
    counts = np.array(counts, np.int64)
    order = EpochOrder(counts, seed=seed, epoch=epoch, parameters=parameters)
    positions = np.arange(order.samples)
    shard, row, first, last, lane, _ = order.locate_windows(positions)
    assert [shard.tolist(), row.tolist()] == [one.tolist() for one in order.locate(positions)]
    assert ((first <= row) & (row < last) & (last <= counts[shard])).all()
    read: dict[tuple[int, ...], set[int]] = {}
    for *part, at in zip(lane.tolist(), shard.tolist(), first.tolist(), last.tolist(), row.tolist(), strict=True):
        read.setdefault(tuple(part), set()).add(at)
    # a part is what is read of it, whole; and no row belongs to two parts
    assert all(rows == set(range(begin, end)) for (_, _, begin, end), rows in read.items())
    assert sum(len(rows) for rows in read.values()) == order.samples


@thorough
@given(counts(), seeds, epochs, parameters())
def test_the_parts_of_a_window_are_done_before_the_lane_goes_on(counts, seed, epoch, parameters) -> None:
    counts = np.array(counts, np.int64)
    order = EpochOrder(counts, seed=seed, epoch=epoch, parameters=parameters)
    columns = order.locate_windows(np.arange(order.samples))
    longest = parameters.window + parameters.window // 2
    by_lane: dict[int, list[tuple[int, ...]]] = {}
    for shard, _, first, last, lane, window in zip(*(one.tolist() for one in columns), strict=True):
        by_lane.setdefault(lane, []).append((window, shard, first, last))
    for parts in by_lane.values():
        windows = [part[0] for part in parts]
        for window in set(windows):
            uses = [number for number, other in enumerate(windows) if other == window]
            assert uses[-1] - uses[0] == len(uses) - 1 < max(longest, 1)


def test_the_stored_order_is_one_window_a_shard() -> None:
    order = EpochOrder(
        np.array([3, 0, 2]), seed=0, epoch=0, parameters=OrderParameters(lanes=1, chunk=1, window=1), shuffle=False
    )
    shard, row, first, last, lane, window = order.locate_windows(np.arange(5))
    assert shard.tolist() == [0, 0, 0, 2, 2]
    assert row.tolist() == [0, 1, 2, 0, 1]
    assert first.tolist() == [0] * 5
    assert last.tolist() == [3, 3, 3, 2, 2]
    assert lane.tolist() == window.tolist() == [0] * 5


@pytest.mark.parametrize("positions", [np.arange(40), np.arange(0), np.array([39, 3, 17])], ids=["all", "none", "some"])
def test_sized_and_mixed_orders_tell_the_same_as_they_locate(positions) -> None:
    parameters = OrderParameters(lanes=4, chunk=2, window=3)
    counts = [np.array([7, 5, 9]), np.array([4, 6])]
    sized = SizedOrder(counts[0], samples=40, seed=1, epoch=2, parameters=parameters)
    mixed = MixedOrder(counts, quotas=(2, 1), samples=40, seed=1, epoch=2, parameters=parameters)
    found = sized.locate_windows(positions)
    assert [one.tolist() for one in found[:2]] == [one.tolist() for one in sized.locate(positions)]
    assert ((found[2] <= found[1]) & (found[1] < found[3])).all()
    found = mixed.locate_windows(positions)
    assert [one.tolist() for one in found[:3]] == [one.tolist() for one in mixed.locate(positions)]
    assert ((found[3] <= found[2]) & (found[2] < found[4])).all()
