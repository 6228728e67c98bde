"""What was done, counted: of a task, of all tasks of a run, and of the stages that the time went to."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class PackStats(NamedTuple):
    """Counts that are added up over samples, tasks and processes.

    Attributes:
        samples: Samples written.
        rejects: Samples that could not be packed.
        dropped: Samples that the transform left out.
        bytes: Bytes read from files.
        reading: Seconds that a worker waited for files.
        preparing: Seconds that it decoded, transformed and encoded.
        writing: Seconds that it wrote, or waited for what was being written.
    """

    samples: int = 0
    rejects: int = 0
    dropped: int = 0
    bytes: int = 0
    reading: float = 0.0
    preparing: float = 0.0
    writing: float = 0.0

    def plus(self, other: PackStats) -> PackStats:
        """The sum of both."""
        return PackStats(*map(operator.add, self, other))

    @property
    def done(self) -> int:
        """Samples of the source that are dealt with."""
        return self.samples + self.rejects + self.dropped

    @property
    def bottleneck(self) -> tuple[str, float] | None:
        """The stage that most of the workers' time went to, and its share; ``None`` before there is any."""
        stages = {"reading": self.reading, "preparing": self.preparing, "writing": self.writing}
        total = sum(stages.values())
        name = max(stages, key=lambda one: stages[one])
        return (name, stages[name] / total) if total else None


class Counts:
    """What one sample after another adds, until it is a `PackStats`, whose names it has."""

    def __init__(self) -> None:
        self.samples = self.rejects = self.dropped = self.bytes = 0
        self.reading = self.preparing = self.writing = 0.0

    @property
    def seconds(self) -> float:
        """Time spent."""
        return self.reading + self.preparing + self.writing

    def taken(self) -> PackStats:
        """The same, as it is now."""
        return PackStats(**vars(self))


Report: TypeAlias = Callable[[PackStats], None]
"""Called now and then, with what was added since."""


class TaskStats:
    """What a task has done so far.

    Args:
        report: Told of it as it grows, if anybody is.

    Attributes:
        total: The sum.
    """

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self.total = PackStats()

    def add(self, done: PackStats) -> None:
        """Add what was done since."""
        self.total = self.total.plus(done)
        if self._report is not None:
            self._report(done)


class Stopwatch:
    """Splits the time of a loop among its stages."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        since, self._since = self._since, now
        return now - since
