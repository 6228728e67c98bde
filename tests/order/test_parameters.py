"""Parameters and their defaults: the numbers of the design, and what they are for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.order import (
    ORDER_VERSIONS,
    EpochOrder,
    OrderParameters,
    default_parameters,
    step_count,
    step_positions,
)
from shardstream.order.lanes import epoch_lanes

from ..examples import thorough


def defaults(samples: int = 10**6, **changed) -> OrderParameters:
    run = {"batch_size": 128, "world_size": 1, "num_workers": 8, "mean_bytes": 1e5, "shuffle": True}
    return default_parameters(samples, **{**run, **changed})


@pytest.mark.parametrize("num_workers", [0, 1, 2, 4, 8])
def test_usual_workers_share_one_order(num_workers):
    assert defaults(num_workers=num_workers) == OrderParameters(
        lanes=256, chunk=4, window=2**31 // (2 * 256 * 100_000), virtual=8, sublanes=32
    )


@pytest.mark.parametrize(
    ("largest_block", "sublanes", "window"),
    [(1 << 20, 32, 83), (4 << 20, 32, 83), (5 << 20, 16, 128), (64 << 20, 2, 1342), (256 << 20, 1, 2684)],
)
def test_fewer_lanes_have_wide_windows_where_each_has_a_block_open(largest_block, sublanes, window):
    for workers in (0, 1, 2, 4, 8):
        found = defaults(largest_block=largest_block, mean_bytes=5e4, num_workers=workers)
        assert (found.virtual, found.sublanes, found.lanes) == (8, sublanes, 8 * sublanes)
        assert found.chunk == 128 // sublanes
        assert found.window == window
    assert defaults(largest_block=largest_block, lanes=64).lanes == 64


@pytest.mark.parametrize(("num_workers", "virtual"), [(3, 9), (5, 10), (6, 12), (7, 14), (9, 9), (16, 16), (20, 20)])
def test_other_workers_get_the_least_multiple_from_eight_on(num_workers, virtual):
    assert defaults(num_workers=num_workers).virtual == virtual


@pytest.mark.parametrize(
    ("batch_size", "sublanes", "chunk"),
    [
        (1, 1, 1),
        (7, 7, 1),
        (32, 32, 1),
        (37, 1, 37),
        (48, 24, 2),
        (256, 32, 8),
        (100, 25, 4),
        (1000, 25, 40),
        (None, 32, 2),
    ],
)
def test_a_batch_is_of_as_many_places_as_divide_it(batch_size, sublanes, chunk):
    made = defaults(batch_size=batch_size)
    assert (made.sublanes, made.chunk) == (sublanes, chunk)


def test_fewer_places_where_each_has_a_block_open_divide_the_batch_too():
    found = [defaults(batch_size=100, largest_block=mb << 20).sublanes for mb in (5, 6, 7, 13, 40, 100)]
    assert found == [25, 20, 10, 5, 2, 1]


@pytest.mark.parametrize(
    ("mean_bytes", "window"), [(0, 128), (1, 128), (32_768, 128), (110_000, 38), (1e6, 4), (1e9, 4), (524_287.5, 8)]
)
def test_windows_fit_memory(mean_bytes, window):
    assert defaults(mean_bytes=mean_bytes).window == window


def test_a_window_is_at_least_a_chunk():
    assert defaults(batch_size=7 * 1024, mean_bytes=10).window == 224
    assert defaults(batch_size=7 * 1024, mean_bytes=1e8).window == 224


@pytest.mark.parametrize(
    ("samples", "num_workers", "virtual"),
    [
        (8 * 4 * 256, 8, 8),
        (8 * 4 * 256 - 1, 8, 4),
        (8 * 4 * 128 - 1, 8, 2),
        (8 * 4 * 32, 8, 1),
        (8 * 4 * 32 * 9, 3, 9),
        (8 * 4 * 32 * 9 - 1, 3, 1),  # odd
        (8 * 4 * 32 * 12 - 1, 6, 6),
        (8 * 4 * 32 * 6 - 1, 6, 3),
        (8 * 4 * 32 * 3 - 1, 6, 1),
    ],
)
def test_short_lanes_halve_the_virtual_workers(samples, num_workers, virtual):
    made = defaults(samples, num_workers=num_workers)
    assert (made.virtual, made.sublanes, made.lanes, made.chunk) == (virtual, 32, 32 * virtual, 4)


@pytest.mark.parametrize(("samples", "window"), [(0, 128), (100, 128), (1000, 1000), (8 * 4 * 32 - 1, 1023)])
def test_small_data_sets_have_one_lane(samples, window):
    assert defaults(samples) == OrderParameters(lanes=1, chunk=128, window=window)


def test_one_lane_has_at_most_4096_samples_in_a_window_or_a_batch():
    assert defaults(10**5, world_size=10**3).window == 4096
    assert defaults(10**5, world_size=10**3, batch_size=10**4) == OrderParameters(1, 10**4, 10**4)


def test_stored_order_has_one_lane():
    assert defaults(shuffle=False, lanes=64) == OrderParameters(lanes=1, chunk=128, window=4096)


def test_ranks_and_groups():
    made = defaults(10**8, world_size=16, groups=2)
    assert (made.lanes, made.ranks, made.groups) == (16 * 256, 16, 2)
    assert defaults(10**8, world_size=16, groups=3).groups == 1
    assert defaults(1000, world_size=16, groups=2).groups == 1


def test_explicit_values_replace_no_others():
    plain = defaults()
    made = defaults(chunk=5, window=77)
    assert made == OrderParameters(256, 5, 77, plain.virtual, plain.sublanes, plain.ranks)
    made = defaults(10**8, world_size=2, groups=2, lanes=100)
    assert (made.lanes, made.chunk, made.virtual, made.ranks, made.groups) == (100, 4, 8, 2, 1)
    assert defaults(1000, lanes=3) == OrderParameters(lanes=3, chunk=128, window=1000)


@pytest.mark.parametrize("lanes", [64, 256])
def test_explicit_lanes_read_the_line_in_order(lanes):
    """Lane l reads span l, also where the number of lanes is the default one."""
    made = replace(defaults(lanes=lanes, window=1), version=1)
    order = EpochOrder(np.array([10**6]), seed=0, epoch=0, parameters=made)
    lane, _ = order.lanes_of(np.arange(10_000))
    _, row = order.locate(np.arange(10_000))
    begin, end = lane * 10**6 // lanes, (lane + 1) * 10**6 // lanes
    assert np.array_equal(np.clip(row, begin, end - 1), row)


@pytest.mark.parametrize("lanes", [64, 256])
def test_explicit_lanes_are_dealt_as_one_sub_lane(lanes):
    """Each epoch gives each of them another span of all there are."""
    made = defaults(lanes=lanes, window=1)
    spans = [epoch_lanes(10**6, made, seed=0, epoch=epoch).span_of(np.arange(lanes)).tolist() for epoch in range(3)]
    assert all(sorted(one) == list(range(lanes)) for one in spans)
    assert all(np.mean(np.equal(one, other)) < 0.1 for one, other in pairwise(spans))


def test_one_sublane_is_the_same_as_explicit_lanes():
    counts = np.array([100, 50, 70])
    shapes = [OrderParameters(12, 2, 5, virtual=4, sublanes=1, ranks=3), OrderParameters(12, 2, 5, virtual=8)]
    located = [EpochOrder(counts, seed=0, epoch=0, parameters=p).locate(np.arange(220)) for p in shapes]
    assert np.array_equal(*located)


@thorough
@given(st.integers(0, 9), st.integers(1, 4), st.sampled_from([4, 6, 32, 40]), st.sampled_from(ORDER_VERSIONS))
def test_a_worker_reads_whole_lanes_of_its_own_and_a_batch_mixes_far_places(
    num_workers, world_size, batch_size, version
):
    samples = 50_000
    made = defaults(samples, num_workers=num_workers, world_size=world_size, batch_size=batch_size)
    made = replace(made, version=version)
    order = EpochOrder(np.full(50, 1000), seed=0, epoch=0, parameters=made)
    run = {"samples": samples, "world_size": world_size, "batch_size": batch_size, "tail": "drop"}
    owners: dict[int, tuple[int, int]] = {}
    for rank in range(world_size):
        for step in range(min(30, step_count(rank=rank, **run))):
            lanes = set(order.lanes_of(step_positions(step, rank=rank, **run)[0])[0].tolist())
            assert len(lanes) == made.sublanes
            for lane in lanes:
                assert owners.setdefault(lane, (rank, step % max(num_workers, 1))) == (rank, step % max(num_workers, 1))
    spans = sorted(range(made.lanes), key=lambda lane: _row(order, lane))
    place = {lane: index for index, lane in enumerate(spans)}
    first_batch = sorted(place[lane] for lane in range(made.sublanes))
    apart = made.lanes // made.sublanes
    if version == 1:
        assert all(b - a == apart for a, b in pairwise(first_batch))
    assert [at // apart for at in first_batch] == list(range(made.sublanes))  # one place of each sub-lane


def _row(order: EpochOrder, lane: int) -> int:
    """Where on the line the span of a lane begins."""
    lanes = order._windows._lanes  # type: ignore[union-attr]
    return int(lanes.begin(lanes.span_of(np.array([lane])))[0])


@pytest.mark.parametrize("name", ["lanes", "chunk", "window", "virtual", "sublanes", "ranks", "groups", "version"])
@pytest.mark.parametrize("value", [0, -1, 2**62 + 1])
def test_parameters_out_of_range(name, value):
    with pytest.raises(UsageError, match=f"{name} must be at least 1"):
        OrderParameters(**{"lanes": 1, "chunk": 1, "window": 1, name: value})


def test_an_unknown_version_is_refused():
    with pytest.raises(UsageError, match="version must be one of 1, 2, 3, got 4"):
        OrderParameters(1, 1, 1, version=4)


def test_groups_must_fit():
    with pytest.raises(UsageError, match="divide ranks"):
        OrderParameters(12, 1, 1, virtual=2, sublanes=2, ranks=3, groups=2)
    with pytest.raises(UsageError, match="lanes must be ranks"):
        OrderParameters(10, 1, 1, virtual=2, sublanes=2, ranks=2, groups=2)


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_size": 0}, {"world_size": 0}, {"num_workers": -1}, {"mean_bytes": -1.0}, {"mean_bytes": float("nan")},
        {"groups": 0}, {"lanes": 0}, {"chunk": 0}, {"window": 0}, {"samples": -1},
    ],
)  # fmt: skip
def test_arguments_out_of_range(changed):
    with pytest.raises(UsageError, match=next(iter(changed))):
        defaults(**changed)
