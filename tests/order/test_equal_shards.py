"""Equally long shards: ranks must not see the same rows in every epoch, nor batches the same samples together."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from shardstream.order import EpochOrder, MixBy, MixedOrder, OrderParameters, default_parameters

SHARDS, ROWS, BATCH = 128, 1000, 128
Integers = NDArray[np.int64]


def parameters_for(ranks: int, version: int = 2) -> OrderParameters:
    shape = {"batch_size": BATCH, "world_size": ranks, "num_workers": 2, "mean_bytes": 55_000}
    return replace(default_parameters(SHARDS * ROWS, **shape, shuffle=True), version=version)


def batch_of_samples(order: EpochOrder | MixedOrder) -> Integers:
    """The batch, over all ranks, that each stored sample is in."""
    *_, shard, row = order.locate(np.arange(order.samples))
    batch = np.empty(SHARDS * ROWS, np.int64)
    batch[shard * ROWS + row] = np.arange(order.samples) // BATCH
    return batch


def epochs(ranks: int, count: int, version: int = 2) -> list[Integers]:
    run = {"seed": 9176, "parameters": parameters_for(ranks, version)}
    return [batch_of_samples(EpochOrder(np.full(SHARDS, ROWS), epoch=epoch, **run)) for epoch in range(count)]


def kept_ranks(run: list[Integers], ranks: int) -> list[float]:
    """The share of samples that keep their rank from each epoch to the next."""
    return [float((one % ranks == other % ranks).mean()) for one, other in pairwise(run)]


def co_batch_ratio(run: list[Integers]) -> float:
    """How often samples of one batch share the next epoch's as well, over how often they would by chance."""
    ratios = []
    for one, other in pairwise(run):
        _, met = np.unique(one * (SHARDS * ROWS) + other, return_counts=True)
        pairs, again = SHARDS * ROWS * (BATCH - 1) / 2, float((met * (met - 1) / 2).sum())
        ratios.append(again / pairs * (SHARDS * ROWS - 1) / (BATCH - 1))
    return float(np.mean(ratios))


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_ranks_exchange_their_samples_as_by_chance(ranks):
    run = epochs(ranks, 21)
    kept = kept_ranks(run, ranks)
    assert abs(np.mean(kept) - 1 / ranks) < 0.01
    assert max(abs(one - 1 / ranks) for one in kept) < 0.1 / ranks + 0.03
    assert co_batch_ratio(run) < 1.7


def test_version_1_lets_each_rank_keep_its_rows():
    run = epochs(2, 3, version=1)
    assert min(kept_ranks(run, 2)) > 0.99
    assert co_batch_ratio(run) > 4


@pytest.mark.full
@pytest.mark.parametrize("by", ["samples", "batches"])
def test_ranks_of_a_mixture_exchange_the_samples_of_a_source(by: MixBy):
    """Two sources of which each has as many samples as an epoch takes from it."""
    counts, ranks = np.full(SHARDS // 2, ROWS), 2
    run = {"quotas": (1, 1), "samples": SHARDS * ROWS, "seed": 9176, "parameters": parameters_for(ranks), "by": by}
    found = []
    for epoch in range(3):
        order = MixedOrder([counts, counts], epoch=epoch, **run)
        parts = [order.locate(positions) for positions in np.array_split(np.arange(order.samples), 50)]
        source, shard, row = np.concatenate(parts, axis=1)
        rank = np.full(SHARDS * ROWS, -1)
        rank[(source * len(counts) + shard) * ROWS + row] = np.arange(order.samples) // BATCH % ranks
        found.append(rank)
    kept = [float((one == other)[(one >= 0) & (other >= 0)].mean()) for one, other in pairwise(found)]
    assert abs(np.mean(kept) - 0.5) < 0.05
    assert max(abs(one - 0.5) for one in kept) < (0.1 if by == "samples" else 0.25)
