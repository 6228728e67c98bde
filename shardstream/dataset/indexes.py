"""``OpenShards``: the shards whose index is at hand, in one process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.shard import OpenShard, Shard
from shardstream.dataset.source import DatasetSource
from shardstream.errors import ShardStreamError
from shardstream.shards.framing import MAX_VALUE
from shardstream.storage import Read, ReadQueue

# Open indexes a process: as many as a local store maps files, and more than a rank has lanes by default.
OPEN_INDEXES = 320
_SEEN = 4096  # indexes that are known again: as many as a store remembers versions


class OpenShards:
    """The shards of some sources. Holds a bounded number of indexes, nothing a sample.

    Args:
        sources: The sources.
        queue: Where reads go; ``None`` to have nothing read ahead.
        max_values: Bytes that one value may have, for each source. Default: `MAX_VALUE` for all.

    Attributes:
        excludes: Whether any source has rows that are treated as damaged, see `excluded`.
    """

    def __init__(
        self, sources: Sequence[DatasetSource], queue: ReadQueue | None = None, *, max_values: Sequence[int] = ()
    ) -> None:
        self._sources = sources
        self.excludes = any(one.excluded is not None for one in sources)
        self._queue = queue
        self._max_values = max_values or [MAX_VALUE] * len(sources)
        self._open: OrderedDict[tuple[int, int], OpenShard] = OrderedDict()
        self._coming: dict[tuple[int, int], tuple[Shard, Read]] = {}
        self._seen: OrderedDict[tuple[int, int], int] = OrderedDict()  # checksums of indexes

    def expect(self, source: int, shard: int, order: int) -> bool:
        """Have the index of a shard on its way before it is opened.

        Args:
            source: The source.
            shard: Its number there.
            order: Smaller numbers come first.

        Returns:
            Whether `open` will not have to wait.
        """
        if self._queue is None:
            return True
        key = source, shard
        if key in self._open:
            self._open.move_to_end(key)
            return True
        known = self._coming.get(key)
        if known is not None:
            return known[1].done
        dataset, number = self._sources[source].dataset_of(shard)
        where = dataset.shard(number)
        index = dataset.index_bytes(number, where)
        if index is None or index.store.mapped:
            return True
        read = Read(index.store, index.request, order=order, size=index.size)
        self._coming[key] = where, read
        self._queue.submit([read])
        return False

    def open(self, source: int, shard: int) -> OpenShard:
        """A shard, read now if nobody expected it.

        Raises:
            DataError: Its index is damaged, or the shard does not belong to the data set.
            StorageError: It cannot be read.
        """
        key = source, shard
        found = self._open.get(key)
        if found is not None:
            self._open.move_to_end(key)
            return found
        dataset, number = self._sources[source].dataset_of(shard)
        coming = None
        if self._queue is not None and key in self._coming:
            where, read = self._coming.pop(key)
            self._queue.wait([read])
            coming = where, lambda: read.data
        return self._keep(key, dataset.open(number, verify=self._sources[source].verify, coming=coming))

    def excluded(self, source: int, shard: int, rows: NDArray[np.int64]) -> tuple[OpenShard, NDArray[np.int64]] | None:
        """Which of these rows of a view `DatasetSource.excluded` has, with the shard; ``None`` where it has none there.

        Raises:
            DataError, StorageError: As `open`.
        """
        excluded = self._sources[source].excluded
        if excluded is None or not excluded.any(shard):
            return None
        opened = self.open(source, shard)
        return opened, np.flatnonzero(excluded.has(shard, opened.stored_rows(rows)))

    def open_elsewhere(self, source: int, shard: int, error: ShardStreamError) -> OpenShard | None:
        """A shard whose values are damaged, or gone, from the next place that has it, from now on; ``None``: nobody."""
        origin = self._sources[source]
        dataset, number = origin.dataset_of(shard)
        known = self._open[source, shard].shard if (source, shard) in self._open else dataset.shard(number)
        found = dataset.open_elsewhere(number, known, error, verify=origin.verify)
        return None if found is None else self._keep((source, shard), found)

    @property
    def opened(self) -> dict[tuple[int, int], OpenShard]:
        """The open shards, by source and number."""
        return dict(self._open)

    def check_unchanged(self, source: int, shard: int, opened: OpenShard) -> None:
        """Refuse a shard whose file was written to in place; ChangedError, as `OpenedDataset.check_unchanged`."""
        dataset, number = self._sources[source].dataset_of(shard)
        dataset.check_unchanged(number, opened, verify=self._sources[source].verify)

    def _keep(self, key: tuple[int, int], opened: OpenShard) -> OpenShard:
        known = self._seen[key] = self._seen.pop(key, opened.index.checksum)
        if known != opened.index.checksum:
            raise opened.shard.replaced()
        if len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        source, shard = key
        origin, index = self._sources[source], opened.index
        batches = origin.batches(shard, index)
        rows = origin.rows(shard, index) if batches is None else batches.rows
        found = self._open[key] = replace(opened, rows=rows, batches=batches, max_value=self._max_values[source])
        if len(self._open) > OPEN_INDEXES:
            self._open.popitem(last=False)
        return found

    def forget(self) -> None:
        """Give up the indexes that are on their way."""
        if self._queue is not None:
            self._queue.cancel(read for _, read in self._coming.values())
        self._coming.clear()
