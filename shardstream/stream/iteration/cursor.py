"""``Cursor``: how far an iteration in one process has come, where that process itself hands out what it makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardstream.dataset.step import Step
from shardstream.stream.iteration.coming_steps import WorkerSteps
from shardstream.stream.iteration.epoch_run import EpochRun


class Cursor:
    """How far one iteration in one process has come.

    Args:
        run: The epoch.
        worker: This worker.
        workers: Workers, 0 for none.
        mark: Of the iteration, from the data set's clock.

    Attributes:
        numbers: The steps that were left when it began.
        before: Positions of this worker's stream that were handed out when it began.
        taken: The same now.
        finished: Whether it has handed out all.
    """

    def __init__(self, run: EpochRun, worker: int, workers: int, mark: int) -> None:
        self.run = run
        self.mark = mark
        self.worker = worker
        self.workers = workers
        self.before = self.taken = run.begin.taken
        self.finished = False
        first, self._inside = run.first_step(worker, workers)
        self.numbers = range(first, run.steps, max(workers, 1))
        if self._inside and self.numbers and self._inside >= len(run.step(first).rows):  # all of it was handed out
            self.numbers, self._inside = self.numbers[1:], 0
        self._made = 0

    @property
    def steps(self) -> WorkerSteps:
        """The steps that are left."""
        return WorkerSteps(self.run, self.numbers, self.workers, goes_on=not self.workers)

    def begin(self, step: Step) -> Step:
        """What is left of the next step: of the first one, a part may have been handed out."""
        if self._inside:
            step, self._inside = step.only(np.arange(self._inside, len(step.rows))), 0
        self._made += len(step.rows)
        return step

    def finish(self) -> None:
        """All that was made was handed out, or dropped."""
        self.finished = True
        self.taken = self.before + self._made

    def worker_state(self, batch_size: int | None) -> dict[str, Any]:
        """Where the iteration began, and how far this worker alone has come from there."""
        return self.run.state_at(self.run.begin) | {
            "worker": self.worker,
            "num_workers": self.workers,
            "world_size": self.run.rank.world_size,
            "batch_size": batch_size,
            "taken": self.taken,
        }
