"""``Assignment``: what a `Loader` tells its workers: what to read in the iteration that begins now."""

from __future__ import annotations

from shardstream.stream.coming import WorkerSteps
from shardstream.stream.content import Content
from shardstream.stream.ranks import Rank
from shardstream.stream.run import EpochRun
from shardstream.stream.settings import Settings
from shardstream.stream.shared import Desk, SharedRecord, WorkerDesk
from shardstream.stream.state import Begin


class Assignment:
    """Written by the loader before each iteration, read by every worker at its start.

    Args:
        num_workers: Of the loader.
        workers_stay: Whether its processes read one epoch after another.
    """

    def __init__(self, num_workers: int, *, workers_stay: bool) -> None:
        self._stay = workers_stay
        self._record = SharedRecord()
        self._desks = WorkerDesk(max(num_workers, 1))

    def give(self, begin: Begin, rank: Rank) -> None:
        """Say what the next iteration reads."""
        self._record.write([begin.as_json(), [rank.rank, rank.world_size, rank.source]])

    def run(self, content: Content, settings: Settings, num_workers: int) -> EpochRun:
        """What was said last."""
        begin, rank = self._record.read()
        return EpochRun(content, settings, Rank(*rank), Begin.from_json(begin), num_workers)

    def steps(self, run: EpochRun, worker: int, num_workers: int) -> WorkerSteps:
        """The steps of one worker."""
        numbers = range(worker, run.steps, max(num_workers, 1))
        return WorkerSteps(run, numbers, num_workers, goes_on=self._stay)

    def desk(self, worker: int) -> Desk:
        """Where worker ``worker`` says what it is at."""
        return self._desks.place(worker)

    def reading(self, process: int) -> tuple[int, int, int] | None:
        """Worker, place and row that the process of this id is at, see `WorkerDesk`; ``None`` if it is no worker."""
        return self._desks.find(process)
