"""Steps: the three tails, blocks, and chains of stops with other ranks, workers and batch sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.order import BLOCK, EpochOrder, sample_count, step_count, step_positions

from ..examples import thorough
from . import reference
from .strategies import counts, epochs, everything, parameters, seeds, tails

runs = st.fixed_dictionaries(
    {
        "samples": st.one_of(st.integers(0, 60), st.integers(0, 2000)),
        "start": st.one_of(st.just(0), st.integers(0, 2100)),
        "world_size": st.integers(1, 7),
        "batch_size": st.one_of(st.none(), st.integers(1, 12), st.integers(1, 300)),
    }
)


def all_steps(**run) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Positions and validity of every step of every rank."""
    ranks = []
    for rank in range(run["world_size"]):
        steps = [step_positions(step, rank=rank, **run) for step in range(step_count(rank=rank, **run))]
        ranks.append([(p, np.ones(len(p), bool) if valid is None else valid) for p, valid in steps])
    return ranks


@thorough
@given(runs, tails)
def test_equals_the_reference(run, tail):
    for rank, steps in enumerate(all_steps(**run, tail=tail)):
        got = [(positions.tolist(), valid.tolist()) for positions, valid in steps]
        assert got == reference.steps(**run, rank=rank, tail=tail)
        assert sample_count(**run, rank=rank, tail=tail) == sum(len(positions) for positions, _ in got)


@thorough
@given(runs)
def test_drop_gives_every_rank_the_same_and_no_position_twice(run):
    ranks = all_steps(**run, tail="drop")
    assert len({tuple(len(p) for p, _ in steps) for steps in ranks}) == 1
    taken = sorted(p for steps in ranks for positions, _ in steps for p in positions.tolist())
    assert taken == list(range(run["start"], run["start"] + len(taken)))
    left_out = max(0, run["samples"] - run["start"]) - len(taken)
    assert 0 <= left_out < run["world_size"] * (run["batch_size"] or 1)
    assert all(valid.all() for steps in ranks for _, valid in steps)


@thorough
@given(runs)
def test_pad_gives_every_rank_the_same_and_each_sample_once_validly(run):
    ranks = all_steps(**run, tail="pad")
    assert len({len(steps) for steps in ranks}) == 1
    assert {len(p) for steps in ranks for p, _ in steps} <= {run["batch_size"] or BLOCK}
    valid = sorted(p for steps in ranks for positions, ok in steps for p in positions[ok].tolist())
    assert valid == list(range(run["start"], run["samples"]))
    for positions, _ in (step for steps in ranks for step in steps):
        assert positions.min() >= 0
        assert positions.max() < run["samples"]


@thorough
@given(runs)
def test_exact_gives_each_sample_once(run):
    ranks = all_steps(**run, tail="exact")
    taken = sorted(p for steps in ranks for positions, _ in steps for p in positions.tolist())
    assert taken == list(range(run["start"], run["samples"]))
    assert all(len(p) > 0 and valid.all() for steps in ranks for p, valid in steps)


def test_a_batch_larger_than_the_epoch():
    run = {"samples": 3, "rank": 0, "world_size": 1, "batch_size": 8}
    assert step_count(**run, tail="drop") == 0
    positions, valid = step_positions(0, **run, tail="pad")
    assert positions.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert valid is not None
    assert valid.tolist() == [True] * 3 + [False] * 5
    positions, valid = step_positions(0, **run, tail="exact")
    assert positions.tolist() == [0, 1, 2]
    assert valid is None


def test_padding_repeats_what_the_rank_took_a_step_earlier_or_goes_around():
    run = {"samples": 3, "start": 2, "rank": 0, "world_size": 1, "batch_size": 4, "tail": "pad"}
    positions, _ = step_positions(0, **run)
    assert positions.tolist() == [2, 3 % 3, 4 - 4, 5 - 4]


@pytest.mark.parametrize("tail", ["drop", "pad", "exact"])
@pytest.mark.parametrize("batch_size", [4, None])
def test_an_empty_epoch_has_no_steps(tail, batch_size):
    run = {"rank": 1, "world_size": 2, "batch_size": batch_size, "tail": tail}
    assert step_count(0, **run) == 0
    assert sample_count(0, **run) == 0
    assert step_count(10, start=10, **run) == 0
    assert step_count(10, start=12, **run) == 0


def test_the_last_blocks_leave_out_fewer_samples_than_ranks():
    run = {"samples": 2 * 3 * BLOCK + 50, "world_size": 3, "batch_size": None, "tail": "drop"}
    assert [sample_count(rank=rank, **run) for rank in range(3)] == [2 * BLOCK + 16] * 3
    assert [step_positions(2, rank=rank, **run)[0].tolist() for rank in range(3)] == [
        list(range(6 * BLOCK + 16 * rank, 6 * BLOCK + 16 * (rank + 1))) for rank in range(3)
    ]


@thorough
@given(counts(most=60), seeds, epochs, parameters(), st.data())
def test_chains_of_stops_give_the_uninterrupted_order(counts, seed, epoch, parameters, data):
    def make_order() -> EpochOrder:
        return EpochOrder(np.array(counts, np.int64), seed=seed, epoch=epoch, parameters=parameters)

    uninterrupted = everything(make_order())
    start, seen = 0, [np.empty((0, 2), np.int64)]
    for _ in range(data.draw(st.integers(1, 4), label="runs")):
        world_size, workers = data.draw(st.integers(1, 4), label="R"), data.draw(st.integers(1, 4), label="K")
        batch_size = data.draw(st.integers(1, 20), label="b")
        run = {"samples": len(uninterrupted), "start": start, "world_size": world_size, "batch_size": batch_size}
        stop = data.draw(st.integers(0, step_count(rank=0, **run, tail="drop")), label="stop")
        worker_orders = [[make_order() for _ in range(workers)] for _ in range(world_size)]
        for step in range(stop):
            for rank, orders in enumerate(worker_orders):
                positions, _ = step_positions(step, rank=rank, **run, tail="drop")
                seen.append(np.stack(orders[step % workers].locate(positions), axis=1))
        start += stop * world_size * batch_size
    consumed = np.concatenate(seen)
    assert len(consumed) == start
    assert np.array_equal(consumed, uninterrupted[:start])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"samples": -1}, "samples"),
        ({"start": -1}, "start"),
        ({"rank": 2}, "rank=2"),
        ({"rank": -1}, "rank=-1"),
        ({"world_size": 0}, "world_size=0"),
        ({"batch_size": 0}, "batch_size"),
        ({"tail": "keep"}, "drop, pad, exact"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    good = {"samples": 10, "start": 0, "rank": 0, "world_size": 2, "batch_size": 2, "tail": "drop"}
    with pytest.raises(UsageError, match=message):
        step_count(**{**good, **arguments})


@pytest.mark.parametrize("step", [-1, 2, 3])
def test_steps_out_of_range(step):
    with pytest.raises(UsageError, match=r"\[0, 2\)"):
        step_positions(step, samples=10, rank=0, world_size=2, batch_size=2, tail="drop")
