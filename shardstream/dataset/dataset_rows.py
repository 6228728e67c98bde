"""``DatasetRows``: the rows of one opened data set, by number or a shard at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from shardstream.dataset.indexes import OpenShards
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.rows import Fetching, Integers, RowBatch, RowReader
from shardstream.dataset.shard import OpenShard
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.view import ViewSpec
from shardstream.shards.framing import MAX_VALUE
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import unknown_field
from shardstream.storage import Buffers, ReadQueue

_PART = 16 << 20  # bytes of samples at once, unless one is larger
_MOST = 4096  # samples


class DatasetRows(RowReader):
    """Reads rows of a data set where nobody knows what is read next. For one thread.

    Values are compared with their checksums. What a cache holds and is damaged is fetched anew; where a replica is
    damaged, the next place is read.

    Args:
        dataset: The data set.
        fields: Names of the fields to read. Default: all.
        verify: Compare checksums.
        max_value: Bytes that one value may have.

    Raises:
        FieldError: There is no such field.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        fields: Collection[str] | None = None,
        *,
        verify: bool = True,
        max_value: int = MAX_VALUE,
    ) -> None:
        types = dataset.manifest.fields
        for name in fields or ():
            if name not in types:
                raise unknown_field(name, types, url=dataset.url)
        chosen = {name: kind for name, kind in types.items() if fields is None or name in fields}
        source = DatasetSource([dataset], ViewSpec(), verify=verify)
        super().__init__(OpenShards([source], ReadQueue(), max_values=[max_value]), chosen, verify=verify)
        self.dataset = dataset

    def indexes(self, shards: Sequence[int]) -> list[ShardIndex]:
        """The indexes of some shards, at most 256, which come side by side.

        Raises:
            DataError, StorageError: As `read`.
        """
        for order, shard in enumerate(shards):
            self._shards.expect(0, shard, order=order)
        return [self.index(shard) for shard in shards]

    def read_ids(self, ids: ArrayLike, *, present: bool = False, fields: Collection[str] | None = None) -> RowBatch:
        """The stored values of samples by their numbers, read side by side.

        Args:
            ids: Numbers in stored order, integers (n,) in any order; negative ones count from the end.
            present: Read only fields that one of these samples has: the width of an array that they lack may be forged.
            fields: With ``present``, read only these.

        Raises:
            UsageError: There is no such sample.
            DataError, StorageError: As `read`.
        """
        shards, rows = self.dataset.locate(ids)
        reader = self._of_present(shards, rows, fields) if present else self
        return reader.read(None, shards, rows) if len(rows) else reader._one_by_one(shards, rows)

    def _of_present(self, shards: Integers, rows: Integers, chosen: Collection[str] | None) -> RowReader:
        """The same for the fields that these rows have; it shares the open indexes."""
        indexes = ((self.index(shard), row) for shard, row in zip(shards.tolist(), rows.tolist(), strict=True))
        found = {name for index, row in indexes for name, column in index.columns.items() if column.has(row)}
        wanted = found if chosen is None else found & set(chosen)
        fields = {name: kind for name, kind in self._types.items() if name in wanted}
        return RowReader(self._shards, fields, verify=self._verify)

    def read_shards(self, shards: Iterable[int]) -> Iterator[RowBatch]:
        """All rows of these shards in order, some at a time; the next ones are on their way.

        A batch has samples of one shard: at most 4096 of them, and 16 MB unless a single one is larger.

        Raises:
            DataError, StorageError: As `read`.
        """
        coming: deque[tuple[int, Integers, Callable[[], Buffers | None]]] = deque()
        with Fetching(self._shards, self._fields) as fetching:
            for shard in shards:
                for rows in self._parts(self._shards.open(0, shard)):
                    coming.append((shard, rows, fetching.begin(shard, rows)))
                    if len(coming) > 1:
                        yield self._part(*coming.popleft())
            while coming:
                yield self._part(*coming.popleft())

    def _part(self, shard: int, rows: Integers, buffers: Callable[[], Buffers | None]) -> RowBatch:
        ids = np.full(len(rows), shard)
        if time.monotonic() >= self._look_at:
            self._look()
        gathered = self._gatherer.read(ids, rows)
        return self._one_by_one(ids, rows, lambda _: buffers()) if gathered is None else RowBatch(*gathered)

    def _parts(self, opened: OpenShard) -> Iterator[Integers]:
        """Rows of a shard that are read at once."""
        index = opened.index
        sizes = np.zeros(index.samples, np.int64)
        for column in (index.columns[name] for name in opened.present(self._fields)):
            if column.type.kind == "fixed":
                sizes += column.type.width
            elif (stored := column.sizes) is not None:
                sizes += (stored if column.raw_lengths is None else column.raw_lengths).astype(np.int64)
        ends = np.cumsum(sizes)
        start = 0
        while start < index.samples:
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + _PART, side="right"))
            stop = min(max(stop, start + 1), start + _MOST, index.samples)
            yield np.arange(start, stop)
            start = stop
