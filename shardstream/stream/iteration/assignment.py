"""``Assignment``: what a `Loader` tells its workers: what to read in the iteration that begins now."""

from __future__ import annotations

from shardstream.dataset.shared import SharedRecord, WorkerState, WorkerStatus, WorkerStatuses
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.epoch_run import EpochRun, WorkerSteps
from shardstream.stream.iteration.ranks import Rank
from shardstream.stream.iteration.settings import StreamOptions
from shardstream.stream.iteration.state import ResumePoint
from shardstream.stream.iteration.worker_logs import WorkerLogs


class Assignment:
    """Written by the loader before each iteration, read by every worker at its start.

    Args:
        num_workers: Of the loader.
        workers_stay: Whether its processes read one epoch after another.
        samples: Of a step.
        content: What is read.

    Attributes:
        logs: What its workers log.
    """

    def __init__(self, num_workers: int, *, workers_stay: bool, samples: int, content: Content) -> None:
        self._workers = num_workers
        self._stay = workers_stay
        self._record = SharedRecord()
        self._statuses = WorkerStatuses(max(num_workers, 1), samples, content.shard_names())
        self.logs = WorkerLogs(max(num_workers, 1))

    def as_plain(self) -> tuple[int, bool]:
        """What it is made from."""
        return self._workers, self._stay

    @classmethod
    def of_plain(cls, plain: tuple[int, bool], *, samples: int, content: Content) -> Assignment:
        """Another one for as many workers."""
        return cls(plain[0], workers_stay=plain[1], samples=samples, content=content)

    def give(self, resume_point: ResumePoint, rank: Rank) -> None:
        """Say what the next iteration reads."""
        self.logs.levels()
        self._statuses.begin(rank.rank, rank.world_size)
        self._record.write([resume_point.as_json(), [rank.rank, rank.world_size, rank.source]])

    def steps(self, content: Content, settings: StreamOptions, worker: int, num_workers: int) -> WorkerSteps:
        """The steps of one worker in what was said last."""
        resume_point, rank = self._record.read()
        run = EpochRun(content, settings, Rank(*rank), ResumePoint.from_json(resume_point), num_workers)
        numbers = range(worker, run.steps, max(num_workers, 1))
        return WorkerSteps(run, numbers, num_workers, goes_on=self._stay)

    def status(self, worker: int) -> WorkerStatus:
        """Where worker ``worker`` reports what it is at."""
        return self._statuses.of(worker)

    def reading(self, process: int) -> tuple[int, int, int] | None:
        """Worker, shard and row that the process of this id is at; or ``None``; see `WorkerStatuses`."""
        return self._statuses.find(process)

    def trace(self, since: int) -> None:
        """Have workers record what takes how long, see `WorkerStatuses.trace`."""
        self._statuses.trace(since)

    def states(self) -> list[WorkerState]:
        """What all workers that have begun are at."""
        return self._statuses.states()
