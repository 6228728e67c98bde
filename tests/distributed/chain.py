"""Runs that are ended and go on from their checkpoint: no repeats, no gaps, one order.

After a kill the truth is the last checkpoint. What a run consumed after it is consumed again by the next run, and must
then be the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import shardstream as ss

from .launching import Job

SEED = 6


def uninterrupted(
    folder: Path, epoch: int, *, samples: int, ranks: int, batch_size: int, field: str = "id"
) -> list[int]:
    """The ids of a whole epoch in the order of consumption, for a run of this shape that nobody stops."""
    streams = []
    for rank in range(ranks):
        dataset = ss.ShardDataset(
            folder, fields=[field], shuffle=True, seed=SEED, tail="exact", batch_size=batch_size, ranks=(rank, ranks)
        )
        dataset.set_epoch(epoch)
        streams.append([batch[field].tolist() for batch in dataset])
    ids = [i for step in itertools.zip_longest(*streams, fillvalue=[]) for batch in step for i in batch]
    assert sorted(ids) == list(range(samples))
    return ids


class Chain(ExitStack):
    """Runs after one another that share a checkpoint, and what they consumed by the last checkpoint.

    What is left of a run that was killed stays as it is until the chain ends.

    Args:
        folder: The data set.
        work: Where the runs have their folders.
        samples: How many it has, with ids that count from 0.
        epochs: Epochs that the last run completes.
        first: Ranks and batch size of the first run, which fix the order.
        field: The field of the ids.
        url: Where the runs read it; default: the folder.
        options: What they give ``ShardDataset`` besides.
    """

    def __init__(
        self,
        folder: Path,
        work: Path,
        *,
        samples: int,
        epochs: int,
        first: tuple[int, int],
        field: str = "id",
        url: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        ranks, batch_size = first
        shape: dict[str, Any] = {"samples": samples, "ranks": ranks, "batch_size": batch_size, "field": field}
        self._expected = [uninterrupted(folder, epoch, **shape) for epoch in range(epochs)]
        self._field = field
        self._samples = samples
        self._data = url or str(folder)
        self._options = dict(options or {})
        self._work = work
        self._runs = 0
        self._epoch = 0
        self._position = 0
        self._jobs: list[Job] = []

    def start(self, *, ranks: int, batch_size: int, workers: int, pause: float) -> Job:
        job = Job(
            self._work / f"run-{self._runs}",
            self._data,
            ranks=ranks,
            run=self._runs,
            checkpoint=self._work / "checkpoint.json",
            dataset={"seed": SEED, "batch_size": batch_size, **self._options},
            workers=workers,
            epochs=len(self._expected),
            pause=pause,
            field=self._field,
        )
        self._runs += 1
        self._jobs.append(job)
        return self.enter_context(job)

    def check(self, job: Job, *, batch_size: int, complete: bool = False) -> None:
        """Every step of the run is what comes next in the uninterrupted order; then go on from its checkpoint."""
        row = job.ranks * batch_size
        epoch, position = self._epoch, self._position
        places = [(epoch, position)]
        for number, ids in job.steps():
            if number != epoch:
                assert number == epoch + 1
                left = self._samples - position
                assert left < row, f"epoch {epoch} ended with {left} samples left"
                epoch, position = number, 0
            assert ids == self._expected[epoch][position : position + row]
            position += row
            places.append((epoch, position))
        self._epoch, self._position = (epoch, position) if complete else places[job.saved_steps()]
        if complete:
            assert epoch == len(self._expected) - 1
            assert self._samples - position < row

    def wait_for_orphans(self) -> None:
        for job in self._jobs:
            job.wait_for_orphans()
