"""Equally long shards, where an order that only permutes shards gives each rank the same rows for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean
from typing import Any

import numpy as np

from bench.report import MISSED, markdown
from bench.shuffle.measures import Floats, Integers, co_batch_ratio
from bench.shuffle.orders import SEED
from bench.shuffle.settings import BATCH, WORKERS
from shardstream.order import ORDER_VERSION, EpochOrder, OrderParameters, default_parameters, step_positions

SHARDS, ROWS = 128, 1_000
SAMPLE_BYTES = 55_000
RANKS = (2, 4, 6, 8, 12, 16, 32, 64)
PAIRS = 20
RATIO_BAR = 1.7
TOGETHER = 8  # steps: in so many, the workers of a rank come to each of its lanes


@dataclass(frozen=True)
class Exchange:
    """How ranks exchange samples from epoch to epoch.

    Attributes:
        ranks: Number of ranks.
        lane: Samples of a lane.
        kept: Of each pair of successive epochs, the share of samples that keep their rank.
        co_batch: Mean co-batch ratio of the pairs.
    """

    ranks: int
    lane: float
    kept: tuple[float, ...]
    co_batch: float

    @property
    def off(self) -> float:
        """How far the mean share is from chance."""
        return abs(mean(self.kept) - 1 / self.ranks)

    @property
    def farthest(self) -> float:
        """How far the share of any pair is from chance."""
        return max(abs(share - 1 / self.ranks) for share in self.kept)

    @property
    def reached(self) -> bool:
        """Whether shares are those of chance, and batches new ones."""
        by_chance = self.off <= 0.01 and self.farthest <= 0.1 / self.ranks + 0.03
        return by_chance and self.co_batch <= RATIO_BAR


def exchange(ranks: int, version: int, pairs: int = PAIRS) -> Exchange:
    """Measure one number of ranks."""
    parameters = _parameters(ranks, version)
    run = [_order(parameters, epoch) for epoch in range(pairs + 1)]
    rank_of = [_rank_of(order, ranks) for order in run]
    kept = tuple(float((one == other)[(one >= 0) & (other >= 0)].mean()) for one, other in pairwise(rank_of))
    ratio = mean(co_batch_ratio(one, other, BATCH) for one, other in pairwise(run))
    return Exchange(ranks, SHARDS * ROWS / parameters.lanes, kept, ratio)


def begun(version: int) -> Floats:
    """Bytes of the windows that one rank begins in each `TOGETHER` steps of an epoch."""
    parameters = _parameters(1, version)
    order = EpochOrder(np.full(SHARDS, ROWS), seed=SEED, epoch=0, parameters=parameters)
    run: dict[str, Any] = {"samples": order.samples, "rank": 0, "world_size": 1, "batch_size": BATCH, "tail": "drop"}
    known: set[tuple[int, ...]] = set()
    found = []
    for step in range(order.samples // BATCH):
        shard, _, first, last, lane, window = order.locate_windows(step_positions(step, **run)[0])
        parts = set(zip(lane.tolist(), window.tolist(), shard.tolist(), first.tolist(), last.tolist(), strict=True))
        found.append(sum(part[-1] - part[-2] for part in parts - known) * SAMPLE_BYTES)
        known |= parts
    steps = len(found) // TOGETHER * TOGETHER
    together: Floats = np.array(found[:steps], np.float64).reshape(-1, TOGETHER).sum(axis=1)
    return together


def section() -> tuple[str, list[str], dict[str, Any]]:
    """The table, what to note beside it, and all figures."""
    earlier = {ranks: exchange(ranks, 1, pairs=2) for ranks in RANKS}
    reached = []
    for ranks in RANKS:
        reached.append(exchange(ranks, ORDER_VERSION))
        print(f"  equal shards, {ranks} ranks: co-batch ratio {reached[-1].co_batch:.2f}", flush=True)
    bursts = {version: begun(version)[1:].max() for version in (1, ORDER_VERSION)}
    content = {"exchange": [vars(one) for one in reached], "earlier": [vars(one) for one in earlier.values()]}
    return _table(reached, earlier), list(_notes(reached, bursts)), content | {"bursts": bursts}


def _parameters(ranks: int, version: int) -> OrderParameters:
    made = default_parameters(
        SHARDS * ROWS,
        batch_size=BATCH,
        world_size=ranks,
        num_workers=WORKERS,
        mean_bytes=SAMPLE_BYTES,
        shuffle=True,
    )
    return replace(made, version=version)


def _order(parameters: OrderParameters, epoch: int) -> Integers:
    order = EpochOrder(np.full(SHARDS, ROWS), seed=SEED, epoch=epoch, parameters=parameters)
    shard, row = order.locate(np.arange(order.samples))
    return shard * ROWS + row


def _rank_of(order: Integers, ranks: int) -> Integers:
    """The rank of each stored sample; -1 for those that fill no batch on every rank."""
    whole = len(order) // (ranks * BATCH) * ranks * BATCH
    rank = np.full(len(order), -1, np.int64)
    rank[order[:whole]] = np.arange(whole) // BATCH % ranks
    return rank


def _table(reached: Sequence[Exchange], earlier: dict[int, Exchange]) -> str:
    heads = ("ranks", "samples a lane", "keep their rank", "by chance", "farthest of 20 pairs", "co-batch ratio")
    lines: list[Sequence[str]] = [(*heads, "in version 1: keep", "co-batch ratio")]
    for one in reached:
        before = earlier[one.ranks]
        lines.append(
            (
                f"{one.ranks}",
                f"{one.lane:.0f}",
                f"{mean(one.kept):.1%}",
                f"{1 / one.ranks:.1%}",
                f"{one.farthest:.1%} off",
                f"{one.co_batch:.2f}",
                f"{mean(before.kept):.0%}",
                f"{before.co_batch:.1f}",
            )
        )
    return markdown(lines)


def _notes(reached: Sequence[Exchange], bursts: dict[int, float]) -> Iterator[str]:
    missed = ", ".join(f"{one.ranks} ({one.lane:.0f} samples a lane)" for one in reached if not one.reached)
    verdict = f"{MISSED} on so many ranks: {missed}" if missed else "reached"
    yield (
        "Bar: on equally long shards, the mean share of samples that keep their rank within 0.01 of chance (1/R), each "
        f"of {PAIRS} pairs of epochs within 0.1/R + 0.03, and a co-batch ratio of {RATIO_BAR}; {verdict}."
    )
    before, now = (bursts[version] / 1e6 for version in (1, ORDER_VERSION))
    yield (
        f"After the first {TOGETHER} steps of an epoch, one rank begins windows of at most {now:,.0f} MB in {TOGETHER} "
        f"steps; in version 1, whose lanes come to their next windows together, of {before:,.0f} MB."
    )
