"""One shard is one task: independent of all others, picklable, and the same bytes wherever it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from shardstream.errors import ShardStreamError
from shardstream.pack.commits import named
from shardstream.pack.images import ImageOptions
from shardstream.pack.sample import Unreadable, load
from shardstream.pack.sources import Part, Reject
from shardstream.pack.sources.base import printable
from shardstream.shards.framings import Format, writer_of
from shardstream.shards.writing import OneShard, ShardSummary
from shardstream.storage import Location, ObjectWriter, Store

Report: TypeAlias = Callable[[int, int, int], None]
"""Called once a sample with what was added: samples, rejects, bytes read."""


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A shard that was written.

    Attributes:
        number: Which.
        summary: What the manifest keeps of it.
        rejects: The samples it lacks.
        kinds: By JPEG field, how many files were made addressable, and of each kind that was kept.
    """

    number: int
    summary: ShardSummary
    rejects: tuple[Reject, ...]
    kinds: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Write one shard.

    Attributes:
        number: Which shard.
        name: Its object name.
        dest: Place of the data set. It holds credentials, so tasks travel through pipes, never in a command line.
        part: Its samples, in stored order.
        format: Framing.
        zstd: Fields to compress.
        checksums: Whether the index holds a checksum of each value.
        images: What becomes of image files.
    """

    number: int
    name: str
    dest: Location
    part: Part
    format: Format
    zstd: frozenset[str]
    checksums: bool
    images: ImageOptions

    def run(self, report: Report | None = None) -> ShardResult:
        """Read the samples and write the shard, atomically.

        Raises:
            SourceError: The source changed since it was planned.
            StorageError: The destination cannot be written.
        """
        result, out = self.write(report)
        try:
            out.commit()
        except ShardStreamError as error:
            named(error, self.name)
            raise
        return result

    def write(self, report: Report | None = None) -> tuple[ShardResult, ObjectWriter]:
        """`run` up to the commit of the object, which is left to the caller."""
        try:
            out = _store_at(self.dest).create(self.name)
            try:
                with closing(writer_of(self.format)(out, zstd=self.zstd, checksums=self.checksums)) as shard:
                    rejects, kinds = self._fill(shard, report)
                    return ShardResult(self.number, shard.finish(), tuple(rejects), kinds), out
            except BaseException:
                out.discard()
                raise
        except ShardStreamError as error:
            named(error, self.name)
            raise

    def _fill(self, shard: OneShard, report: Report | None) -> tuple[list[Reject], dict[str, Counter[str]]]:
        rejects = []
        kinds: dict[str, Counter[str]] = {}
        for item in self.part:
            size = 0
            if isinstance(item, Reject):
                rejects.append(item)
            else:
                try:
                    loaded = load(item, self.images)
                    shard.write(item.key, loaded.fields)
                    size = loaded.size
                    for name, kind in loaded.kinds.items():
                        kinds.setdefault(name, Counter())[kind] += 1
                except Unreadable as error:
                    rejects.append(Reject(item.line, printable(item.path), str(error)))
            if report is not None:
                report(int(size > 0), int(size == 0), size)
        return rejects, kinds


@lru_cache(maxsize=1)
def _store_at(dest: Location) -> Store:
    """One store for all tasks of a run: its connections and tokens outlive a shard."""
    return dest.open()
