"""One shard is one task: its samples, into what they become. It is not done twice, and does no harm if it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.errors import DecodeError
from shardstream.images.jpeg.transcode import restore
from shardstream.pack.execution.jobs import store_at
from shardstream.pack.export.contract import Sample, Target, receipt_of
from shardstream.pack.output.commits import Pending, creating
from shardstream.pack.output.stats import PackStats, Report, TaskStats
from shardstream.pack.sources.stored import opened_as
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.shards.framing import place_of_value
from shardstream.shards.index import ShardIndex
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
class Export:
    """What all tasks of an export have in common.

    Attributes:
        source: The data set, which every process opens for itself.
        fingerprint: Of what it holds.
        dest: Where the output goes.
        target: What it becomes.
        original: Whether addressable JPEG files become what they were before.
        again: Whether an earlier run was interrupted.
    """

    source: DatasetAddress
    fingerprint: str
    dest: Location
    target: Target
    original: bool
    again: bool


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Export one shard.

    Attributes:
        number: Which.
        samples: How many it has.
        export: What all tasks have in common.
    """

    number: int
    samples: int
    export: Export

    @property
    def name(self) -> str:
        """What is written."""
        return self.export.target.object_name(self.number)

    @property
    def dest(self) -> Location:
        """Where it is written."""
        return self.export.dest

    @property
    def _receipt(self) -> str:
        return receipt_of(self.number)

    def finished(self) -> ExportResult | None:
        """What an earlier run has done, where it is whole."""
        if not self.export.again:
            return None
        store = store_at(self.dest)
        whole = store.exists(self._receipt) and store.exists(self.name)
        return ExportResult(PackStats(self.samples), kept=True) if whole else None

    def write(self, report: Report | None = None) -> tuple[ExportResult, Pending]:
        """Do it; the commit is left to the caller."""
        store = store_at(self.dest)
        with creating(store, self.name) as out:
            stats = TaskStats(report)
            dataset = opened_as(self.export.source, self.export.fingerprint)
            samples = read_samples(dataset, self.number, original=self.export.original)
            about = self.export.target.write(store, out, _counted(samples, stats), again=self.export.again)
        return ExportResult(stats.total), Pending(out, store, {self._receipt: about})


def _counted(parts: Iterator[Sequence[Sample]], stats: TaskStats) -> Iterator[Sequence[Sample]]:
    for part in parts:
        yield part
        stats.add(PackStats(len(part), bytes=sum(_size(value) for one in part for value in one.values.values())))


def _size(value: Any) -> int:
    return len(value) if isinstance(value, bytes) else int(getattr(value, "nbytes", 0))


def read_samples(dataset: OpenedDataset, shard: int, *, original: bool) -> Iterator[Sequence[Sample]]:
    """All samples of a shard in stored order; every value is compared with its checksum.

    Args:
        dataset: Its data set.
        shard: Which.
        original: Whether addressable JPEG files become what they were before.

    Raises:
        DataError: It is damaged; names sample, key and field.
        StorageError: It cannot be read.
    """
    reader = DatasetRows(dataset)
    for batch in reader.read_shards([shard]):
        index = reader.index(shard)
        samples = []
        for i, (row, key) in enumerate(zip(batch.rows, batch.keys, strict=True)):
            found = ((name, batch.value(name, i)) for name in index.columns)
            present = ((name, value) for name, value in found if value is not None)
            values = {
                name: _as_exported(index, dataset.manifest.fields[name], name, row, value, original)
                for name, value in present
            }
            samples.append(Sample(key, values))
        yield samples


def _as_exported(index: ShardIndex, kind: FieldType, name: str, row: int, value: Any, original: bool) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    try:
        if isinstance(kind, ValuesType):
            return kind.decode(value)
        return restore(value) if original and kind.is_image else value
    except DecodeError as error:
        raise error.at(**place_of_value(index, name, row)) from error.__cause__
