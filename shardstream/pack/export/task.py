"""One shard is one task: its samples, into what they become. It is not done twice, and does no harm if it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardstream.dataset.opened import DatasetAddress
from shardstream.pack.execution.jobs import store_at
from shardstream.pack.export.contract import FOLDER, Sample, Target
from shardstream.pack.export.reading import read_samples
from shardstream.pack.output.commits import Pending, creating
from shardstream.pack.output.stats import PackStats, Report, TaskStats
from shardstream.pack.sources.stored import opened_as
from shardstream.storage import Location


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What a task has done.

    Attributes:
        tally: Samples, and bytes of their values.
        kept: Whether an earlier run had done it.
    """

    tally: PackStats
    kept: bool = False


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Export one shard.

    Attributes:
        number: Which.
        samples: How many it has.
        source: The data set, which every process opens for itself.
        fingerprint: Of what it holds.
        dest: Where the output goes.
        target: What it becomes.
        original: Whether addressable JPEG files become what they were before.
        again: Whether an earlier run was interrupted.
    """

    number: int
    samples: int
    source: DatasetAddress
    fingerprint: str
    dest: Location
    target: Target
    original: bool
    again: bool

    @property
    def name(self) -> str:
        """What is written."""
        return self.target.object_name(self.number)

    @property
    def _receipt(self) -> str:
        return f"{FOLDER}/{self.number:06d}.done"

    def finished(self) -> ExportResult | None:
        """What an earlier run has done, where it is whole."""
        if not self.again:
            return None
        store = store_at(self.dest)
        whole = store.exists(self._receipt) and store.exists(self.name)
        return ExportResult(PackStats(self.samples), kept=True) if whole else None

    def write(self, report: Report | None = None) -> tuple[ExportResult, Pending]:
        """Do it; the commit is left to the caller."""
        store = store_at(self.dest)
        with creating(store, self.name) as out:
            stats = TaskStats(report)
            samples = read_samples(opened_as(self.source, self.fingerprint), self.number, original=self.original)
            self.target.write(store, out, _counted(samples, stats), again=self.again)
        return ExportResult(stats.total), Pending(out, store, {self._receipt: b""})


def _counted(parts: Iterator[Sequence[Sample]], stats: TaskStats) -> Iterator[Sequence[Sample]]:
    for part in parts:
        yield part
        stats.add(PackStats(len(part), bytes=sum(_size(value) for one in part for value in one.values.values())))


def _size(value: Any) -> int:
    return len(value) if isinstance(value, bytes) else int(getattr(value, "nbytes", 0))
