"""The vectorised order against the reference, the golden vectors, and the promises of the design."""

from __future__ import annotations

import pickle
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.order import ORDER_VERSIONS, EpochOrder, OrderParameters
from shardstream.order.epoch import HeldEpochs

from ..examples import thorough
from . import make_golden
from .reference import Epoch, Position, Shape
from .strategies import counts, epochs, everything, parameters, seeds


@thorough
@given(counts(), seeds, epochs, parameters())
@example([12] * 8, 1, 5, OrderParameters(16, 1, 2, 2, 2, 4, 2))  # equally long shards, in groups and without
@example([12] * 8, 1, 5, OrderParameters(16, 1, 2, 2, 2, 4))
@example([11, 0, 7], 0, 1, OrderParameters(4, 1, 2, 1, 1, 4, 4, 1))  # a shard across a group's end begins inside
def test_equals_the_reference(counts, seed, epoch, parameters):
    order = EpochOrder(np.array(counts, np.int64), seed=seed, epoch=epoch, parameters=parameters)
    reference = Epoch(counts, seed=seed, epoch=epoch, shape=Shape(**asdict(parameters)))
    assert everything(order).tolist() == list(map(list, reference.sequence))
    lanes = np.stack(order.lanes_of(np.arange(order.samples)), axis=1)
    assert lanes.tolist() == list(map(list, reference.dealt))


@thorough
@given(counts(), seeds, epochs, parameters(), st.data())
def test_any_positions_in_any_order_give_the_same(counts, seed, epoch, parameters, data):
    order = EpochOrder(np.array(counts, np.int64), seed=seed, epoch=epoch, parameters=parameters)
    whole = everything(order)
    asked = data.draw(st.lists(st.integers(0, order.samples - 1), max_size=30) if order.samples else st.just([]))
    fresh = EpochOrder(np.array(counts, np.int64), seed=seed, epoch=epoch, parameters=parameters)
    for one_order in (order, fresh):
        assert np.array_equal(np.stack(one_order.locate(np.array(asked, np.int64)), axis=1), whole[asked])


@thorough
@given(counts(most=200), seeds, epochs, parameters(most_window=150))
def test_every_sample_comes_exactly_once(counts, seed, epoch, parameters):
    order = EpochOrder(np.array(counts, np.int64), seed=seed, epoch=epoch, parameters=parameters)
    assert order.samples == sum(counts)
    assert sorted(map(tuple, everything(order).tolist())) == [
        (shard, row) for shard, count in enumerate(counts) for row in range(count)
    ]


@thorough
@given(counts(), seeds, epochs, parameters())
def test_without_shuffle_it_is_the_stored_order(counts, seed, epoch, parameters):
    order = EpochOrder(np.array(counts, np.int64), seed=seed, epoch=epoch, parameters=parameters, shuffle=False)
    assert everything(order).tolist() == [[shard, row] for shard, n in enumerate(counts) for row in range(n)]


@thorough
@given(counts(most=40), parameters())
def test_lanes_are_read_in_order_and_end_in_a_ragged_row(counts, parameters):
    order = EpochOrder(np.array(counts, np.int64), seed=0, epoch=0, parameters=parameters)
    lane, offset = order.lanes_of(np.arange(order.samples))
    lanes, chunk = parameters.lanes, parameters.chunk
    rows = order.samples // lanes // chunk
    body = rows * chunk * lanes
    for number in range(lanes):
        assert offset[lane == number].tolist() == list(range(np.count_nonzero(lane == number)))
        assert np.count_nonzero(lane[:body] == number) == rows * chunk
    in_last_row = np.bincount(lane[body:], minlength=lanes)
    assert in_last_row.max(initial=0) - in_last_row.min() <= 1
    assert in_last_row.max(initial=0) <= chunk


@pytest.mark.parametrize("version", make_golden.VERSIONS)
@pytest.mark.parametrize("name", make_golden.CASES)
def test_golden_vectors(name, version):
    case = make_golden.load(make_golden.PATHS[version])[name]
    order = EpochOrder(
        np.array(make_golden.counts_of(case), np.int64),
        seed=case["seed"],
        epoch=case["epoch"],
        parameters=OrderParameters(**{"version": 1, **case["shape"]}),
    )
    shards, rows = order.locate(np.array(case["positions"], np.int64))
    assert shards.tolist() == case["shards"]
    assert rows.tolist() == case["rows"]


@pytest.mark.parametrize("version", make_golden.VERSIONS)
def test_golden_vectors_are_those_of_the_reference(version):
    stored = make_golden.load(make_golden.PATHS[version])
    assert make_golden.merged(stored, {name: make(version) for name, make in make_golden.CASES.items()}) == stored


def test_golden_vectors_are_never_rewritten():
    with pytest.raises(make_golden.GoldenChangedError, match="one-lane"):
        make_golden.merged({"one-lane": {"rows": [1]}}, {"one-lane": {"rows": [2]}})


@thorough
@given(counts(most=40), seeds, epochs, parameters().filter(lambda p: p.groups == 1), st.data())
def test_single_positions_by_the_formulas(counts, seed, epoch, parameters, data):
    counts = [*counts, 1]
    reference = Position(counts, seed=seed, epoch=epoch, shape=Shape(**asdict(parameters)))
    position = data.draw(st.integers(0, sum(counts) - 1))
    order = EpochOrder(np.array(counts, np.int64), seed=seed, epoch=epoch, parameters=parameters)
    shards, rows = order.locate(np.array([position]))
    assert (shards[0], rows[0]) == reference.locate(position)


def test_seed_and_epoch_do_not_add_up():
    def order(seed: int, epoch: int) -> list[list[int]]:
        parameters = OrderParameters(lanes=4, chunk=2, window=16)
        return everything(EpochOrder(np.full(10, 20), seed=seed, epoch=epoch, parameters=parameters)).tolist()

    distinct = {str(order(seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(distinct) == 9
    assert order(1, 0) == order(1 + 2**64, 0)


@pytest.mark.parametrize("version", ORDER_VERSIONS)
@pytest.mark.parametrize("groups", [2, 3, 6])
@pytest.mark.parametrize("counts", [[50, 3, 0, 120, 77, 9, 64, 31, 88, 5], [36] * 12], ids=["unlike", "alike"])
def test_a_group_reads_the_same_samples_in_every_epoch(counts, groups, version):
    counts = np.array(counts, np.int64)
    parameters = OrderParameters(6 * 2 * 2, 2, 8, virtual=2, sublanes=2, ranks=6, groups=groups, version=version)

    def read_by_groups(epoch: int) -> list[set[tuple[int, ...]]]:
        order = EpochOrder(counts, seed=8, epoch=epoch, parameters=parameters)
        lane, _ = order.lanes_of(np.arange(order.samples))
        group = lane // 2 % 6 * groups // 6
        return [set(map(tuple, everything(order)[group == g].tolist())) for g in range(groups)]

    first, later = read_by_groups(0), read_by_groups(5)
    assert first == later
    assert max(map(len, first)) - min(map(len, first)) <= 1
    orders = [everything(EpochOrder(counts, seed=8, epoch=e, parameters=parameters)) for e in (0, 5)]
    assert not np.array_equal(*orders)


@pytest.mark.parametrize("counts", [[], [0], [0, 0, 0]])
@pytest.mark.parametrize("groups", [1, 2])
def test_an_empty_epoch(counts, groups):
    parameters = OrderParameters(8, 2, 4, virtual=2, sublanes=2, ranks=2, groups=groups)
    order = EpochOrder(np.array(counts, np.int64), seed=0, epoch=0, parameters=parameters)
    assert order.samples == 0
    assert [part.shape for part in order.locate(np.empty(0, np.int64))] == [(0,), (0,)]
    with pytest.raises(UsageError, match="position"):
        order.locate(np.array([0]))


def test_survives_pickling():
    order = EpochOrder(np.array([40, 50]), seed=1, epoch=2, parameters=OrderParameters(4, 2, 8))
    before = everything(order)
    assert np.array_equal(everything(pickle.loads(pickle.dumps(order))), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epoch": -1}, "epoch"),
        ({"epoch": 2**32}, "epoch"),
        ({"counts": np.array([3, -1])}, "negative, got -1 at 1"),
        ({"counts": np.array([[3, 1]])}, "one integer a shard"),
        ({"counts": np.array([0.5])}, "one integer a shard"),
        ({"counts": np.array([2**62, 2**62])}, "more than 2"),
        ({"counts": np.array([2**61]), "parameters": OrderParameters(64, 1, 1)}, "lanes are too many"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    good = {"counts": np.array([3]), "seed": 0, "epoch": 0, "parameters": OrderParameters(1, 1, 1)}
    with pytest.raises(UsageError, match=message):
        EpochOrder(**{**good, **arguments})


@pytest.mark.parametrize("position", [-1, 3, 2**40])
def test_positions_out_of_range(position):
    order = EpochOrder(np.array([3]), seed=0, epoch=0, parameters=OrderParameters(1, 1, 1))
    with pytest.raises(UsageError, match=str(position)):
        order.locate(np.array([0, position]))


def test_epochs_that_were_read_of_late_are_held():
    parameters = OrderParameters(lanes=2, window=16, chunk=1)
    held = HeldEpochs(np.array([50, 50], np.int64), 4, seed=0, parameters=parameters, shuffle=True)
    early = [held[number] for number in range(3)]
    assert [held[number] for number in range(3)] == early  # the same objects: an order has no equality of its own
    for _ in range(1100):
        assert held[2] is early[2]
    _, again = held[3], held[0]  # what was not read for so long went when the next one was made
    assert again is not early[0]
    assert held[2] is early[2]


def test_no_more_epochs_are_held_than_are_asked_for():
    held = HeldEpochs(
        np.array([50], np.int64), 2, seed=0, parameters=OrderParameters(lanes=1, window=16, chunk=1), shuffle=True
    )
    first, second, _ = held[0], held[1], held[2]
    assert held[1] is second
    assert held[0] is not first
