"""``Progress``: how far an iteration in one process has come, where that process itself hands out what it makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardstream.stream.coming import WorkerSteps
from shardstream.stream.run import EpochRun
from shardstream.stream.step import Step


class Progress:
    """How far one iteration in one process has come.

    Args:
        run: The epoch.
        worker: This worker.
        workers: Workers, 0 for none.
        mark: Of the iteration, from the data set's clock.
    """

    def __init__(self, run: EpochRun, worker: int, workers: int, mark: int) -> None:
        self.run = run
        self.mark = mark
        self.worker = worker
        self.workers = workers
        self.taken = run.begin.taken
        self.finished = False
        self._next, self._inside = run.first_step(worker, workers)
        self._skip_empty()

    @property
    def ended(self) -> bool:
        """Whether there is no further step."""
        return self._next >= self.run.steps

    @property
    def worker_ends(self) -> bool:
        """Whether the step that was made last is the last one of a worker."""
        return self.workers > 0 and self.ended

    def _skip_empty(self) -> None:
        """A step of which all was handed out is over."""
        if self._inside and not self.ended and self._inside >= len(self.run.step(self._next).rows):
            self._next += max(self.workers, 1)
            self._inside = 0

    @property
    def steps(self) -> WorkerSteps:
        """The steps that are left."""
        numbers = range(self._next, self.run.steps, max(self.workers, 1))
        return WorkerSteps(self.run, numbers, self.workers, goes_on=not self.workers)

    def begin(self, step: Step) -> Step:
        """What is left of the first of the coming steps; moves on."""
        if self._inside:
            step = step.only(np.arange(self._inside, len(step.rows)))
        self._next += max(self.workers, 1)
        self._inside = 0
        return step

    def hand(self, positions: int) -> None:
        """So many positions more were handed out."""
        self.taken += positions

    def worker_state(self, batch_size: int | None) -> dict[str, Any]:
        """Where the iteration began, and how far this worker alone has come from there."""
        return self.run.state_at(self.run.begin) | {
            "worker": self.worker,
            "num_workers": self.workers,
            "world_size": self.run.rank.world_size,
            "batch_size": batch_size,
            "taken": self.taken,
        }
