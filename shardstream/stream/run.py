"""One epoch of one rank as steps: where each of their samples lies."""

from __future__ import annotations

import numpy as np

from shardstream.errors import UsageError
from shardstream.order import EpochOrder, Tail, default_parameters, sample_count, step_count, step_positions
from shardstream.shards.manifest import Manifest
from shardstream.stream.ranks import Rank
from shardstream.stream.samples import Step
from shardstream.stream.settings import Settings


def effective_tail(settings: Settings) -> Tail:
    """The tail in force: ``None`` means ``"drop"`` when shuffling and ``"exact"`` otherwise."""
    return settings.tail or ("drop" if settings.shuffle else "exact")


def count_steps(manifest: Manifest, settings: Settings, rank: Rank) -> int:
    """Steps of this rank in an epoch.

    Raises:
        UsageError: There is data, but not one step of it under ``tail="drop"``.
    """
    samples, tail = manifest.samples, effective_tail(settings)
    steps = step_count(samples, rank=rank.rank, world_size=rank.world_size, batch_size=settings.batch_size, tail=tail)
    if not steps and samples and tail == "drop":
        batch = f"a batch of {settings.batch_size}" if settings.batch_size else "one sample"
        raise UsageError(
            f"{batch} on each of {rank.world_size} ranks needs more than the {samples} samples there are, "
            'and tail="drop" leaves out what does not fill a batch on every rank',
            url=manifest.url,
            hint='use a smaller batch_size, or tail="pad" or "exact"',
        )
    return steps


def count_items(manifest: Manifest, settings: Settings, rank: Rank) -> int:
    """What ``len`` says: batches, or samples where there is no batch size."""
    steps = count_steps(manifest, settings, rank)
    if settings.batch_size is not None:
        return steps
    tail = effective_tail(settings)
    return sample_count(manifest.samples, rank=rank.rank, world_size=rank.world_size, batch_size=None, tail=tail)


class EpochRun:
    """The steps of one rank in one epoch; costs O(shards) to make and O(b) a step.

    Args:
        manifest: The data set.
        settings: Of the `ShardDataset`.
        rank: This rank.
        epoch: The epoch.
        num_workers: DataLoader workers of this rank, 0 for none.
    """

    def __init__(self, manifest: Manifest, settings: Settings, rank: Rank, *, epoch: int, num_workers: int) -> None:
        self.epoch = epoch
        self.steps = count_steps(manifest, settings, rank)
        self._rank = rank
        self._batch_size = settings.batch_size
        self._tail = effective_tail(settings)
        samples = manifest.samples
        parameters = default_parameters(
            samples,
            batch_size=settings.batch_size,
            world_size=rank.world_size,
            num_workers=num_workers,
            mean_bytes=manifest.bytes / max(samples, 1),
            shuffle=settings.shuffle,
            lanes=settings.lanes,
            chunk=settings.chunk,
            window=settings.window,
        )
        counts = manifest.table.samples.astype(np.int64)
        self._order = EpochOrder(
            counts, seed=settings.seed, epoch=epoch, parameters=parameters, shuffle=settings.shuffle
        )

    def step(self, number: int) -> Step:
        """Step ``number`` in [0, steps)."""
        positions, valid = step_positions(
            number,
            samples=self._order.samples,
            rank=self._rank.rank,
            world_size=self._rank.world_size,
            batch_size=self._batch_size,
            tail=self._tail,
        )
        shards, rows = self._order.locate(positions)
        return Step(self.epoch, positions, shards, rows, valid)
