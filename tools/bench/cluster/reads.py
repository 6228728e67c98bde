"""What every worker reads in an epoch, exactly: the spans of its lanes, cut into stretches of shards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream import rng
from shardstream.order import EpochOrder, OrderParameters, default_parameters, step_positions
from shardstream.order.lanes import epoch_lanes
from shardstream.order.line import Line, epoch_line

Integers: TypeAlias = NDArray[np.int64]
SEED = 0
CHECKED = 200  # batches that are located sample by sample, to check the spans


@dataclass(frozen=True)
class Cluster:
    """A run on many nodes.

    Attributes:
        nodes: Number of nodes.
        ranks: Ranks a node.
        workers: Workers a rank.
        batch: Samples a batch of a rank.
        shards: Number of shards.
        shard_bytes: Their mean size.
        sample_bytes: Size of a sample.
    """

    nodes: int = 128
    ranks: int = 8
    workers: int = 8
    batch: int = 128
    shards: int = 1_000_000
    shard_bytes: int = 256_000_000
    sample_bytes: int = 55_000

    @property
    def world(self) -> int:
        """Ranks of all nodes."""
        return self.nodes * self.ranks

    @cached_property
    def counts(self) -> Integers:
        """Samples of each shard: within a tenth of the mean."""
        mean = self.shard_bytes // self.sample_bytes
        words = rng.words(self.shards, seed=SEED, domain=rng.Domain.PACK)
        return mean - mean // 10 + rng.below(words, 2 * (mean // 10) + 1).astype(np.int64)

    @cached_property
    def starts(self) -> Integers:
        """Samples before each shard."""
        return np.cumsum(self.counts) - self.counts

    @property
    def samples(self) -> int:
        """Samples of all shards."""
        return int(self.counts.sum())

    def parameters(self, groups: int) -> OrderParameters:
        """The order's defaults."""
        return default_parameters(
            self.samples,
            batch_size=self.batch,
            world_size=self.world,
            num_workers=self.workers,
            mean_bytes=self.sample_bytes,
            shuffle=True,
            groups=groups,
        )


@dataclass(frozen=True)
class Stretches:
    """What is read in an epoch: one entry a stretch of a shard inside one lane; int64, shape (stretches,) each.

    Attributes:
        rank: The rank that reads it.
        worker: That rank's worker.
        shard: The shard.
        row: Its first row.
        rows: Number of rows.
        turn: How far inside its lane it lies: lanes go on in step, so this is the order in time.
    """

    rank: Integers
    worker: Integers
    shard: Integers
    row: Integers
    rows: Integers
    turn: Integers


def stretches(cluster: Cluster, *, epoch: int, groups: int) -> Stretches:
    """What all workers of the cluster read in an epoch.

    A lane is read by one worker but for its last few samples, which are dealt with those of all lanes in the ragged
    last row of the epoch; they are counted as their lane's.

    Raises:
        ValueError: Batches located one by one are not among the stretches.
    """
    parameters = cluster.parameters(groups)
    line = epoch_line(cluster.counts, parameters, seed=SEED, epoch=epoch)
    lanes = epoch_lanes(line.samples, parameters, seed=SEED, epoch=epoch)
    lane = np.arange(parameters.lanes)
    span = lanes.span_of(lane)
    begin, end = lanes.begin(span), lanes.begin(span + 1)
    unfinished, position, found = lane, begin, []
    while len(unfinished):
        shard, row, rows = _run_of(line, cluster.counts, position, end[unfinished])
        found.append((unfinished, shard, row, rows, position - begin[unfinished]))
        position = position + rows
        unfinished, position = unfinished[position < end[unfinished]], position[position < end[unfinished]]
    of_lane, shard, row, rows, turn = (np.concatenate(parts) for parts in zip(*found, strict=True))
    virtual, rank = divmod(of_lane // parameters.sublanes, parameters.ranks)
    read = Stretches(rank, virtual % cluster.workers, shard, row, rows, turn)
    _check(cluster, read, parameters, epoch)
    return read


def _run_of(line: Line, counts: Integers, position: Integers, end: Integers) -> tuple[Integers, Integers, Integers]:
    """Shard and row at each position, and how many positions before ``end`` go on in that shard."""
    shard, row = line.find(position)
    low = np.ones_like(position)
    high = np.minimum(counts[shard] - row, end - position)  # all of it, unless a group's end or its turn cuts it
    while True:
        there, at = line.find(position + high - 1)
        cut = (there != shard) | (at != row + high - 1)
        if not cut.any():
            return shard, row, high
        middle = (low + high) // 2
        there, at = line.find(position + middle - 1)
        inside = (there == shard) & (at == row + middle - 1)
        low = np.where(cut & inside, middle, low)
        high = np.where(cut, np.where(inside, high - 1, middle), high)


def _check(cluster: Cluster, read: Stretches, parameters: OrderParameters, epoch: int) -> None:
    """Locate some batches sample by sample: each must lie in a stretch of the worker that builds it."""
    order = EpochOrder(cluster.counts, seed=SEED, epoch=epoch, parameters=parameters)
    step_samples = cluster.world * cluster.batch
    worker_of = read.rank * cluster.workers + read.worker
    by_worker = np.argsort(worker_of, kind="stable")
    edges = np.searchsorted(worker_of[by_worker], np.arange(cluster.world * cluster.workers + 1))
    words = rng.words(2 * CHECKED, seed=SEED, domain=rng.Domain.TRANSFORM, epoch=epoch)
    full_rows = order.samples // (parameters.lanes * parameters.chunk) * (parameters.lanes * parameters.chunk)
    for one, two in zip(words[:CHECKED].tolist(), words[CHECKED:].tolist(), strict=True):
        rank, step = one % cluster.world, two % (full_rows // step_samples)
        shape = {"rank": rank, "world_size": cluster.world, "batch_size": cluster.batch}
        positions, _ = step_positions(step, samples=order.samples, **shape, tail="drop")
        shard, row = order.locate(positions)
        number = rank * cluster.workers + step % cluster.workers
        mine = by_worker[edges[number] : edges[number + 1]]
        inside = (
            (read.shard[mine] == shard[:, None])
            & (read.row[mine] <= row[:, None])
            & (row[:, None] < (read.row + read.rows)[mine])
        )
        if not (inside.sum(axis=1) == 1).all():
            raise ValueError(f"step {step} of rank {rank} reads what is not its worker's")
