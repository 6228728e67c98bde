"""Exact copies, found by content before anything is packed: ``--dedup``.

A first pass reads every sample, in tasks of their own, and leaves 16 bytes of each: the XXH3-128 of its files' contents
(of all its values, where it has no files; of documents that go into bins, of the text or the tokens alone). Labels do
not count: one photograph with two labels is a copy. Of samples with one hash the first in the order of the source
stays. What is compared at once is bounded: 64 bits of each hash go through sorted runs, and only those that repeat are
looked at in full.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import NotFoundError
from shardstream.pack.encode.files import Files, Unreadable
from shardstream.pack.encode.reading import Contents, read_all
from shardstream.pack.execution.jobs import Jobs, run_job, store_at
from shardstream.pack.output.commits import Pending, creating
from shardstream.pack.output.receipts import FOLDER, ShardResult, read_receipt, receipt_name, to_bytes
from shardstream.pack.output.stats import PackStats, Report, Stopwatch, TaskStats
from shardstream.pack.plan.first_pass import Run
from shardstream.pack.plan.layout import PackLayout
from shardstream.pack.sources import Item, Reject, Source, SourcePart
from shardstream.pack.sources.base import DerivedSource
from shardstream.pack.sources.duplicates import HashRuns
from shardstream.shards.layout import checksum
from shardstream.shards.writing import ShardSummary
from shardstream.storage import Location, Store, open_store

_HASH = np.dtype([("low", "<u8"), ("high", "<u8"), ("line", "<i8")])
_NOWHERE = np.empty(0, np.int64)
_NONE = (0, 0)  # of what cannot be read; it will be rejected


@dataclass(frozen=True, slots=True)
class HashTask:
    """Hash some samples.

    Attributes:
        number, name, dest, part, files: As of `ShardTask`.
        field: The field that alone is looked at, of samples that have it; ``None`` for all.
    """

    number: int
    name: str
    dest: Location
    part: SourcePart
    files: Files
    field: str | None = None

    def run(self) -> ShardResult:
        """Read the samples and leave their hashes; or find that they are there."""
        return run_job(self)

    def finished(self) -> ShardResult | None:
        """What an earlier run left, if it is whole."""
        store = store_at(self.dest)
        result = read_receipt(store, self.name)
        try:
            return result if result is not None and store.size(self.name) == result.summary.bytes else None
        except NotFoundError:
            return None

    def write(self, report: Report | None = None) -> tuple[ShardResult, Pending]:
        """Hash all samples; the commit is left to the caller."""
        store = store_at(self.dest)
        stats, watch = TaskStats(report), Stopwatch()
        found: list[tuple[int, int, int]] = []
        for item, contents in read_all(self.part, self.files.read):
            reading = watch.lap()
            found.append((*_hash_of(item, contents, self.field), item.line))
            size = 0 if isinstance(contents, Unreadable) else sum(map(len, contents.values()))
            stats.add(PackStats(samples=1, bytes=size, reading=reading, preparing=watch.lap()))
        data = np.array(found, _HASH).tobytes()
        summary = ShardSummary(len(found), len(data), checksum(data), 0, {})
        result = ShardResult(self.number, summary, {}, stats.total, {})
        with creating(store, self.name) as out:
            out.write(data)
        return result, Pending(out, store, {receipt_name(self.name): to_bytes(result)})


def _hash_of(item: Item | Reject, contents: Contents | Unreadable, field: str | None = None) -> tuple[int, int]:
    if isinstance(item, Reject) or isinstance(contents, Unreadable):
        return _NONE
    found: Mapping[str, Any] = contents or item.values
    if field is not None and field in item.values:  # else a transform makes it
        found = {field: contents[field] if field in contents else item.values[field]}
    hasher = xxhash.xxh3_128()
    for name in sorted(found):
        plain = found[name]
        is_bytes = isinstance(plain, bytes | bytearray | memoryview)
        _add(hasher, name, bytes(plain) if is_bytes else repr(plain).encode("utf-8", "surrogatepass"))
    value = hasher.intdigest()
    return value & 0xFFFF_FFFF_FFFF_FFFF, value >> 64


def _add(hasher: xxhash.xxh3_128, name: str, data: bytes) -> None:
    hasher.update(f"{name} {len(data)}\n".encode())
    hasher.update(data)


class Distinct(DerivedSource):
    """A source without some of its samples.

    Args:
        source: All of them.
        copies: Numbers of those that are left out, in order.
    """

    def __init__(self, source: Source, copies: NDArray[np.int64]) -> None:
        super().__init__(source)
        # How many samples stay before each copy.
        self._before = copies - np.arange(len(copies))

    def __len__(self) -> int:
        return len(self._source) - len(self._before)

    def part(self, numbers: NDArray[np.int64]) -> SourcePart:
        return self._source.part(numbers + np.searchsorted(self._before, numbers, side="right"))


def without_copies(layout: PackLayout, dest: Location, run: Run) -> tuple[PackLayout, bytes]:
    """The same plan without exact copies, and the content of ``duplicates.jsonl``.

    Args:
        layout: The plan, of all samples.
        dest: Place of the data set; hashes wait there beside the receipts.
        run: Runs tasks.
    """
    store = open_store(dest)
    tasks = _Tasks(layout, dest)
    run(tasks)
    copies, lines, firsts = _copies(store, list(map(tasks.name, range(len(tasks)))), layout.samples)
    pairs = zip(lines.tolist(), firsts.tolist(), strict=True)
    found = (json.dumps({"line": line, "same_as": first}) for line, first in pairs)
    listed = "".join(f"{line}\n" for line in found).encode()
    return replace(layout, source=Distinct(layout.source, copies)), listed


class _Tasks(Jobs[HashTask]):
    """As many as there are shards."""

    def __init__(self, layout: PackLayout, dest: Location) -> None:
        self._layout = layout
        self._dest = dest
        self.lendable = layout.source.lendable

    def __len__(self) -> int:
        return self._layout.shards

    def name(self, number: int) -> str:
        return f"{FOLDER}/hashes-{self._layout.fingerprint[:8]}-{number:06d}"

    def make(self, number: int) -> HashTask:
        layout = self._layout
        part = layout.source.part(layout.numbers(number))
        return HashTask(number, self.name(number), self._dest, part, layout.files, layout.options.document_field)


def _hashes(store: Store, names: Iterable[str]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Number of the first sample, and hashes, of each task."""
    start = 0
    for name in names:
        found = np.frombuffer(store.get(name), _HASH)
        yield start, found
        start += len(found)


def _copies(
    store: Store, names: Sequence[str], samples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the samples that are copies, in order; their lines, and the line that each is a copy of."""
    runs = HashRuns(samples)
    try:
        for _, found in _hashes(store, names):
            runs.add(found["low"][found["low"] != 0])
        suspects = runs.repeated()
    finally:
        runs.close()
    pairs, numbers = [np.empty(0, _HASH)], [np.empty(0, np.int64)]
    for start, found in _hashes(store, names):
        at = np.flatnonzero(np.isin(found["low"], suspects, assume_unique=False)) if len(suspects) else _NOWHERE
        pairs.append(found[at])
        numbers.append(at + start)
    pair, number = np.concatenate(pairs), np.concatenate(numbers)
    order = np.lexsort((number, pair["high"], pair["low"]))
    pair, number = pair[order], number[order]
    is_copy = np.zeros(len(number), np.bool_)
    is_copy[1:] = (pair["low"][1:] == pair["low"][:-1]) & (pair["high"][1:] == pair["high"][:-1])
    # Of each group the first stands at the last place that begins one.
    first = np.maximum.accumulate(np.where(is_copy, 0, np.arange(len(number))))
    at = np.flatnonzero(is_copy)
    at = at[np.argsort(number[at])]
    return number[at], pair["line"][at], pair["line"][first[at]]
