"""``Cursor``: how far one iteration in one process has come; what is said where it begins, or drops a single sample."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from shardstream.dataset.step import Step
from shardstream.errors import UsageError
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.epoch_run import WAYS_OUT, EpochRun, WorkerSteps
from shardstream.stream.iteration.epoch_state import SharedEpochState

logger = logging.getLogger(__name__)


class StreamPlace:
    """How far somebody has come in the stream of one rank.

    Args:
        run: What is read.
        shared: Remembers that this was warned about once.
        taken: Positions of this stream that were handed out before.

    Attributes:
        run: What is read.
        taken: Positions of this stream that were handed out.
        watched: Whether a single sample that is dropped matters: `advance` has to be told of each item.
        unequal: Whether a single sample was dropped among them, while other ranks take samples, too.
    """

    def __init__(self, run: EpochRun, shared: SharedEpochState, taken: int = 0) -> None:
        self.run = run
        self.taken = taken
        self.watched = run.batch_size is None and run.rank.world_size > 1
        self.unequal = False
        self._shared = shared

    def advance(self, taken: int) -> None:
        """An item was handed out, with which so many positions were; those since the last item had no sample."""
        if self.watched and taken - self.taken > 1 and not self.unequal:
            self.unequal = True
            self.warn("a sample was dropped")
        self.taken = taken

    def warn(self, why: str) -> None:
        """Warn, once for all copies and epochs, that ranks take unequally many single samples."""
        if self._shared.first_warning():
            logger.warning(
                "single samples: %s; ranks now take unequally many, and state_dict() raises until the epoch ends: %s",
                why,
                WAYS_OUT,
            )

    def state(self) -> dict[str, Any]:
        """The state after what was handed out.

        Raises:
            UsageError: Ranks have taken unequally many single samples, so no state fits all of them.
        """
        resume_point = self.run.after((self.taken,))
        if self.unequal and resume_point.epoch == self.run.resume_point.epoch:
            raise UsageError(
                f"single samples were dropped in epoch {resume_point.epoch}, so the {self.run.rank.world_size} ranks "
                "are at different places, and no state fits all of them until the epoch ends",
                hint=WAYS_OUT,
            )
        return self.run.state_at(resume_point)


def say_beginning(place: StreamPlace, content: Content, workers: int, *, resumed: bool) -> None:
    """Say at the beginning of an iteration what it costs, or cannot do.

    Args:
        place: Where it begins.
        content: What is read.
        workers: DataLoader workers, 0 for none.
        resumed: Whether a state says where it begins.
    """
    if resumed:
        _say_shape(place.run, workers)
    if place.watched and content.excludes:
        place.warn("exclude_keys= leaves samples out")


def _say_shape(run: EpochRun, num_workers: int) -> None:
    """Say, where a resumed run has another shape than its order was made for, what that costs."""
    order, rank = run.resume_point.parameters, run.rank
    if order is None or order.lanes == 1:
        return
    if order.ranks != rank.world_size or (num_workers and order.virtual % num_workers):
        logger.info(
            "resumed an order made for %d ranks of %d virtual workers with %d ranks of %d workers: the samples are "
            "exactly those that were left, but workers share lanes, and so read some shards more than once",
            order.ranks,
            order.virtual,
            rank.world_size,
            num_workers,
        )


class Cursor(StreamPlace):
    """The same of one iteration in one process.

    Args:
        run: The epoch.
        shared: As of `StreamPlace`.
        worker: This worker.
        workers: Workers, 0 for none.
        mark: Of the iteration, from the data set's clock.

    Attributes:
        numbers: The steps that were left when it began.
        before: Positions of this worker's stream that were handed out when it began.
        finished: Whether it has handed out all.
    """

    def __init__(self, run: EpochRun, shared: SharedEpochState, worker: int, workers: int, mark: int) -> None:
        super().__init__(run, shared, run.resume_point.taken)
        self.unequal = run.resume_point.unequal
        self.mark = mark
        self.worker = worker
        self.workers = workers
        self.before = self.taken
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
        """Where the iteration began, and how far this worker alone has come from there.

        It is right for this rank even after a sample was dropped, and then says that it is of this rank alone.
        """
        rank = self.run.rank
        return self.run.state_where_it_began() | {
            "worker": self.worker,
            "num_workers": self.workers,
            "world_size": rank.world_size,
            "batch_size": batch_size,
            "taken": self.taken,
            **({"of_rank": rank.rank} if self.unequal else {}),
        }
