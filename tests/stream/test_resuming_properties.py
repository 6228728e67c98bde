"""Stops anywhere, resumed in any shape: nothing is repeated, nothing is lost, and the order is that of one run.

Runs of many ranks, workers and kinds of loader follow one another, in this process; the order they have to keep is
computed from the order's own arithmetic, without any state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import shardstream as ss
from shardstream.order import ORDER_VERSION, ORDER_VERSIONS, EpochOrder, OrderParameters
from tests.grouped import grouped

from ..examples import thorough
from .making import numbered, write_dataset
from .resuming import flat, ids_and_padding, ids_of, in_turn, through_json
from .simulated import SimulatedDataLoader, SimulatedStatefulDataLoader

Kind = Literal["loader", "plain", "stateful"]
PARAMETERS = ("lanes", "chunk", "window", "virtual", "sublanes", "ranks", "groups")


@dataclass(frozen=True)
class Stage:
    """A run that is stopped.

    Attributes:
        kind: `ss.Loader`, torch's ``DataLoader`` or torchdata's ``StatefulDataLoader``.
        ranks: Ranks.
        workers: Workers a rank; `ss.Loader` has none here.
        size: Batch size of the data set, ``None`` for single samples.
        outer: Items that the ``DataLoader`` puts into a batch itself, where there is no ``size``.
        steps: Steps that each rank makes, if there are as many.
        tail: How its epoch would end.
        ahead: Steps that workers fetch ahead.
        every: Steps between snapshots of the ``StatefulDataLoader``.
    """

    kind: Kind = "loader"
    ranks: int = 1
    workers: int = 0
    size: int | None = None
    outer: int | None = None
    steps: int = 0
    tail: str = "drop"
    ahead: int = 0
    every: int = 1

    @property
    def item(self) -> int | None:
        return None if self.size else self.outer


stages = st.builds(
    Stage,
    kind=st.sampled_from(["loader", "plain", "stateful"]),
    ranks=st.integers(1, 4),
    workers=st.integers(0, 5),
    size=st.none() | st.integers(1, 20),
    outer=st.none() | st.integers(1, 9),
    steps=st.integers(0, 90) | st.just(10_000),
    tail=st.sampled_from(["drop", "pad", "exact"]),
    ahead=st.integers(0, 3),
    every=st.integers(0, 6),
)
sizes = st.lists(st.integers(0, 5) | st.integers(0, 130), max_size=6)
orders = st.fixed_dictionaries(
    {"seed": st.integers(0, 3), "shuffle": st.booleans()},
    optional={"lanes": st.integers(1, 30), "chunk": st.integers(1, 7), "window": st.integers(1, 200)},
)
versions = st.sampled_from(ORDER_VERSIONS)
# each in an epoch behind the first, from a position on, over so many
skips = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 300), st.integers(1, 90) | st.just(1000)), max_size=3)

epochs = st.integers(0, 5)
shapes = st.tuples(st.integers(1, 4), st.none() | st.integers(1, 30))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Data sets by the sizes of their shards."""
    known: dict[tuple[int, ...], Path] = {}

    def made(sizes: list[int]) -> Path:
        place = tuple(sizes)
        if place not in known:
            known[place] = write_dataset(tmp_path_factory.mktemp("data"), numbered(sizes), types={"id": "int64"})
        return known[place]

    return made


class RankRun:
    """One rank of a stage."""

    def __init__(self, folder: Path, order: dict[str, Any], stage: Stage, rank: int, epoch: int, state: Any) -> None:
        shape = {"batch_size": stage.size, "tail": stage.tail, "rank": rank, "world_size": stage.ranks}
        self.stage = stage
        self.dataset = ss.ShardDataset(folder, fields=["id"], **grouped(order), **grouped(shape))
        self.dataset.set_epoch(epoch)
        if stage.kind == "loader":
            self.loader: Any = ss.Loader(self.dataset, num_workers=0)
            if state is not None:
                self.loader.load_state_dict(state)
            items = iter(self.loader)
            self.step = lambda: [item] if (item := next(items, None)) is not None else None
            return
        arguments = {"num_workers": stage.workers, "batch_size": stage.item, "ahead": stage.ahead}
        if state is not None:
            self.dataset.load_state_dict(state)
        if stage.kind == "plain":
            self.loader = SimulatedDataLoader(self.dataset, **arguments)
        else:
            self.loader = SimulatedStatefulDataLoader(self.dataset, every=stage.every, **arguments)
        self.loader.begin()
        self.step = self.loader.step

    def state(self) -> Any:
        if self.stage.kind == "loader":
            return self.loader.state_dict()
        if self.stage.kind == "plain":
            size = None if self.stage.size else self.stage.item or 1
            return self.dataset.state_dict(batches=self.loader.steps, num_workers=self.stage.workers, batch_size=size)
        return ss.convert_state(through_json(self.loader.state_dict()), batch_size=self.stage.item)


def run_stage(
    folder: Path, order: dict[str, Any], stage: Stage, epoch: int, state: Any
) -> tuple[list[list[list[int]]], list[Any]]:
    """Steps by rank, as lists of ids, and the states of all ranks; where an epoch ends, before its end was noticed."""
    ranks = [RankRun(folder, order, stage, rank, epoch, state) for rank in range(stage.ranks)]
    steps: list[list[list[int]]] = [[] for _ in ranks]
    for number in range(stage.steps):
        made = [rank.step() for rank in ranks]
        if None in made:
            # in training, all ranks make as many steps
            assert stage.tail == "exact" or made == [None] * stage.ranks
            return run_stage(folder, order, replace(stage, steps=number), epoch, state)
        for rank, items in enumerate(made):
            steps[rank].append(ids_and_padding(items)[0])
    return steps, [rank.state() for rank in ranks]


def line_of(sizes: list[int], order: dict[str, Any], state: dict[str, Any], epoch: int) -> list[int]:
    """The ids of an epoch by position, without those that are skipped."""
    arithmetic = EpochOrder(
        np.array(sizes, np.int64),
        seed=order["seed"],
        epoch=epoch,
        parameters=OrderParameters(**{name: state[name] for name in PARAMETERS}, version=state["order_version"]),
        shuffle=order["shuffle"],
    )
    shards, rows = arithmetic.locate(np.arange(sum(sizes)))
    ids = (np.array([0, *accumulate(sizes)])[shards] + rows).tolist()
    skips = order.get("skip", ())
    return [one for p, one in enumerate(ids) if not any(begin <= (epoch, p) < end for begin, end in skips)]


def possible(stage: Stage, samples: int) -> Stage:
    """The stage, or one that promises something.

    Under "drop" an epoch without a single step is refused from the start. Under "exact", ranks have not taken alike
    when torch's loaders take single samples from workers of which some have come to their end on one rank only.
    """
    if stage.tail == "drop" and stage.ranks * (stage.size or 1) > samples:
        stage = replace(stage, tail="exact")
    alike = stage.tail != "exact" or stage.size or stage.kind == "loader" or stage.workers < 2 or stage.ranks == 1
    return stage if alike else replace(stage, tail="pad")


def begin_of(folder: Path, order: dict[str, Any], stage: Stage, epoch: int) -> dict[str, Any]:
    """The state of a stage before its first step: with the parameters that its shape gives the order."""
    first = replace(stage, kind="plain", workers=0 if stage.kind == "loader" else stage.workers)
    return RankRun(folder, order, first, 0, epoch, None).state()


def check_chain(
    data: Any,
    sizes: list[int],
    order: dict[str, Any],
    epoch: int,
    chain: list[Stage],
    last: tuple[int, int | None],
    version: int = ORDER_VERSION,
    skips: Sequence[tuple[int, int, int]] = (),
) -> None:
    """Run the stages one after another, and what is left at last with (ranks, batch size)."""
    folder, samples, state = data(sizes), sum(sizes), None
    ranges = [((epoch + later, at), (epoch + later, min(at + count, samples))) for later, at, count in skips]
    order = order | {"skip": [(begin, end) for begin, end in ranges if begin < end]}
    begin = begin_of(folder, order, possible(chain[0], samples), epoch)
    if begin["epoch"] != epoch:  # all of it is skipped, so no state of it can have another version
        version = ORDER_VERSION
    if version != ORDER_VERSION:  # only resumed runs have another one
        state = begin = begin | {"order_version": version}
    line, seen = line_of(sizes, order, begin, epoch), []
    for stage in (possible(stage, samples) for stage in chain):
        steps, states = run_stage(folder, order, stage, epoch, state)
        for rank, one in enumerate(states):  # under "exact", ranks after the first may have less, or nothing at all
            short = len(flat(steps[rank])) < len(flat(steps[0])) or one["epoch"] > epoch
            assert one == states[0] or (stage.tail == "exact" and short)
        state = through_json(states[0])
        assert state["order_version"] == version
        assert len(json.dumps(state)) < 1024
        new, left = flat(in_turn(steps)), without(line, seen)
        seen += new
        assert len(set(seen)) == len(seen)
        in_order = stage.size or (stage.kind, stage.ranks) == ("loader", 1)  # else ranks have blocks of 64 in turn
        if in_order:
            assert new == left[: len(new)]
        if state["epoch"] > epoch:  # nothing was left, and so the epoch was over before a loop noticed
            assert stage.tail == "drop" or (new == left if in_order else sorted(new) == sorted(left))
            return
    for tail in ("exact", "pad", "drop"):
        check_rest(folder, order, state, without(line, seen), *last, tail)
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=7, tail="exact", **grouped(order))
    for loader in (dataset, ss.Loader(dataset, num_workers=0)):
        loader.load_state_dict(state)
        list(loader)
        assert loader.epoch == epoch + 1
        assert flat(map(ids_of, loader)) == line_of(sizes, order, begin, epoch + 1)  # the order stays the same


def check_rest(
    folder: Path, order: dict[str, Any], state: Any, left: list[int], ranks: int, size: int | None, tail: str
) -> None:
    """What is left of an epoch, to its end, on so many ranks."""
    row, block = ranks * (size or 1), size or 64
    if tail == "drop" and row > len(left) and not state["position"] and "stops" not in state:
        return  # refused, since it is a whole epoch
    streams, padding = [], []
    for rank in range(ranks):
        shape = {"batch_size": size, "tail": tail, "rank": rank, "world_size": ranks}
        loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], **grouped(order), **grouped(shape)), num_workers=0)
        loader.load_state_dict(state)
        items = [ids_and_padding([item]) for item in loader]
        streams.append([counted for counted, _ in items])
        padding.append([extra for _, extra in items])
    found, filled = flat(in_turn(streams)), flat(in_turn(padding))
    if tail != "exact":  # all ranks deliver as much, in whole batches or blocks
        steps = len(left) // row if tail == "drop" else -(-len(left) // (ranks * block)) * (1 if size else block)
        assert [len(one) for one in streams] == [steps] * ranks
        assert len(found) + len(filled) == steps * row
    assert tail == "pad" or not filled
    kept = len(left) // row * row if tail == "drop" else len(left)
    if size:
        assert found == left[:kept]
    else:
        assert len(set(found)) == len(found) == kept
        assert set(found) <= set(left)


def without(line: list[int], seen: list[int]) -> list[int]:
    gone = set(seen)
    return [number for number in line if number not in gone]


# -------------------------------------------------------------------------------------------------------- properties

quick = settings(thorough, suppress_health_check=[HealthCheck.too_slow])


PLAIN = {"seed": 1, "shuffle": True, "lanes": 7, "chunk": 2, "window": 9}


@quick
@given(sizes, orders, epochs, st.lists(stages, min_size=1, max_size=4), shapes, versions, skips | st.just([]))
# single samples of workers that stopped inside blocks: what is left of those is not one stretch
@example([500, 0, 500], PLAIN, 0, [Stage("plain", 1, 3, None, 5, 9), Stage("plain", 2, 2, None, 7, 12)], (2, 4), 2, [])
@example([500, 0, 500], PLAIN, 3, [Stage("stateful", 3, 4, None, 9, 20, "exact", 2, 6)], (1, None), 1, [])
# ranks of single samples to the end of the epoch, where they have blocks in turn
@example([130, 1, 0, 70], PLAIN, 1, [Stage("plain", 3, 2, None, 4, 10_000, "exact")], (2, 3), 2, [])
@example([65, 64], PLAIN, 0, [Stage("loader", 2, 0, None, None, 10_000, "drop")], (1, 5), 2, [])
# equally long shards, in batches, whose ranks change
@example([32] * 8, PLAIN, 2, [Stage("loader", 4, 0, 4, None, 3), Stage("loader", 3, 0, 5, None, 4)], (2, 7), 2, [])
# single samples around a range that is skipped, whose blocks close up over it
@example(
    [300], PLAIN, 0, [Stage("plain", 2, 3, None, 5, 9), Stage("loader", 1, 0, 7, None, 3)], (2, 4), 2, [(0, 70, 90)]
)
# the whole epoch, and the beginning of the next one
@example([130], PLAIN, 1, [Stage("loader", 2, 0, 4, None, 3)], (1, 3), 2, [(0, 0, 1000), (1, 0, 20)])
@example([1], PLAIN, 0, [Stage("loader", 1, 0, None, None, 10_000, "drop")], (1, None), 1, [(0, 0, 1000)])
def test_any_chain_of_runs_is_one_run(data, sizes, order, epoch, chain, last, version, skips) -> None:
    check_chain(data, sizes, order, epoch, chain, last, version, skips)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("sizes", [[], [0], [0, 0], [1], [2], [0, 3, 0], [64], [65], [0, 1, 200, 0], [1] * 30], ids=str)
@pytest.mark.parametrize("kind", ["loader", "plain", "stateful"])
def test_odd_data_sets(data, sizes, kind) -> None:
    """No shard, empty ones, one, fewer than workers, one sample, batches larger than a lane; stops after the last."""
    order = {"seed": 1, "shuffle": True, "lanes": 7}
    for size, steps in ((None, 10_000), (4, 1), (50, 10_000)):
        for ranks, workers in ((1, 5), (2, 3)):
            stage = Stage(kind=kind, ranks=ranks, workers=workers, size=size, steps=steps, tail="pad", every=2)
            check_chain(data, sizes, order, 3, [stage, replace(stage, steps=1, ranks=1)], (3, 2))


@thorough
@given(sizes, orders, epochs, stages)
def test_a_state_at_the_end_of_an_epoch_is_the_beginning_of_the_next(data, sizes, order, epoch, stage) -> None:
    folder, stage = data(sizes), possible(stage, sum(sizes))
    begin = begin_of(folder, order, stage, epoch)
    for rank in range(stage.ranks):
        run = RankRun(folder, order, stage, rank, epoch, None)
        while run.step() is not None:
            pass
        assert run.dataset.epoch == epoch + 1
        if stage.kind == "plain" and stage.workers:  # only its loop knows that it is over
            with pytest.raises(ss.errors.UsageError, match="fetch ahead"):
                run.dataset.state_dict()
            continue
        state = run.dataset.state_dict() if stage.kind == "plain" else run.state()
        assert (state["epoch"], state["position"], "stops" in state) == (epoch + 1, 0, False)
        following = ss.Loader(
            ss.ShardDataset(folder, fields=["id"], batch_size=7, tail="exact", **grouped(order)), num_workers=0
        )
        following.load_state_dict(state)
        assert flat(map(ids_of, following)) == line_of(sizes, order, begin, epoch + 1)  # the order stays the same
