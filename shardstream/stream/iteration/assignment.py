"""``Assignment``: what a `Loader` tells its workers: what to read in the iteration that begins now."""

from __future__ import annotations

from shardstream.dataset.shared import SharedRecord, WorkerStatus, WorkerStatuses
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.epoch_run import EpochRun, WorkerSteps
from shardstream.stream.iteration.ranks import Rank
from shardstream.stream.iteration.settings import StreamOptions
from shardstream.stream.iteration.state import ResumePoint


class Assignment:
    """Written by the loader before each iteration, read by every worker at its start.

    Args:
        num_workers: Of the loader.
        workers_stay: Whether its processes read one epoch after another.
    """

    def __init__(self, num_workers: int, *, workers_stay: bool) -> None:
        self._stay = workers_stay
        self._record = SharedRecord()
        self._statuses = WorkerStatuses(max(num_workers, 1))

    def give(self, begin: ResumePoint, rank: Rank) -> None:
        """Say what the next iteration reads."""
        self._record.write([begin.as_json(), [rank.rank, rank.world_size, rank.source]])

    def run(self, content: Content, settings: StreamOptions, num_workers: int) -> EpochRun:
        """What was said last."""
        begin, rank = self._record.read()
        return EpochRun(content, settings, Rank(*rank), ResumePoint.from_json(begin), num_workers)

    def steps(self, run: EpochRun, worker: int, num_workers: int) -> WorkerSteps:
        """The steps of one worker."""
        numbers = range(worker, run.steps, max(num_workers, 1))
        return WorkerSteps(run, numbers, num_workers, goes_on=self._stay)

    def status(self, worker: int) -> WorkerStatus:
        """Where worker ``worker`` reports what it is at."""
        return self._statuses.of(worker)

    def reading(self, process: int) -> tuple[int, int, int] | None:
        """Worker, place and row that the process of this id is at; or ``None``; see `WorkerStatuses`."""
        return self._statuses.find(process)
