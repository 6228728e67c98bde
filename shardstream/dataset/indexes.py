"""``OpenShards``: the shards whose index is at hand, in one process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.opened import Shard
from shardstream.dataset.source import DatasetSource
from shardstream.errors import ChangedError, DataError
from shardstream.shards.framing import FieldValues, Framing
from shardstream.shards.index import ShardIndex
from shardstream.storage import Buffers, Read, ReadQueue, Request, fetch

# Open indexes a process: as many as a local store maps files, and more than a rank has lanes by default.
OPEN_INDEXES = 320
_SEEN = 4096  # indexes that are known again: as many as a store remembers versions


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard whose index is at hand.

    Attributes:
        index: The index.
        framing: What reads it.
        place: Where its bytes are.
        rows: The rows that the view's rows are; a number where they just begin later.
    """

    index: ShardIndex
    framing: Framing
    place: Shard
    rows: NDArray[np.int64] | int

    def stored_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the shard that these rows of the view are."""
        return rows + self.rows if isinstance(self.rows, int) else self.rows[rows]

    def present(self, fields: Sequence[str]) -> list[str]:
        """Those of the fields that this shard has."""
        return [name for name in fields if name in self.index.columns]

    def has_bytes(self, fields: Sequence[str]) -> bool:
        """Whether reading any of these fields takes bytes besides the index."""
        return any(self.index.columns[name].type.kind != "scalar" for name in self.present(fields))

    def bytes_of(self, rows: NDArray[np.int64] | slice, fields: Sequence[str]) -> int:
        """Stored bytes of these fields of these stored rows, besides the index."""
        total = 0
        for name in self.present(fields):
            column = self.index.columns[name]
            if column.lengths is not None:
                total += int(column.lengths[rows].sum(dtype=np.int64))
            elif column.type.kind == "fixed":
                count = self.index.samples if isinstance(rows, slice) else len(rows)
                total += column.type.width * count
        return total

    def mean_bytes(self, fields: Sequence[str]) -> float:
        """Mean stored bytes of these fields of a sample, besides the index."""
        return self.bytes_of(slice(None), fields) / max(self.index.samples, 1)

    def plan(self, rows: NDArray[np.int64], fields: Sequence[str]) -> list[Request]:
        """The byte ranges of these fields of these stored rows."""
        return self.framing.plan(self.index, rows, self.present(fields))

    def extract(
        self,
        ahead: Callable[[], Buffers | None],
        rows: NDArray[np.int64],
        fields: Sequence[str],
        *,
        verify: bool,
        max_value: int,
    ) -> dict[str, FieldValues]:
        """These fields of these stored rows.

        Bytes that came over a network, or out of a cache, and are not what was written, are read once more. So is an
        object that was replaced meanwhile, where its values have checksums: it may hold the same bytes again.

        Args:
            ahead: Gives what was read ahead; ``None`` to read now.
            rows: Stored rows.
            fields: Names of fields.
            verify: Compare checksums.
            max_value: Bytes that one value may have.

        Raises:
            DataError: They are damaged where they come from, or too large.
            StorageError: They cannot be read. ChangedError: The object was replaced, and holds other bytes, or no
                checksum tells.
        """
        present = self.present(fields)
        options: dict[str, Any] = {"verify": verify, "max_value": max_value}
        try:
            buffers = ahead()
            if buffers is None:
                buffers = self._read(rows, present)
            return self.framing.extract(self.index, buffers, rows, present, **options)
        except DataError:
            if self.place.store.mapped:
                raise
            repair(self.place, self.framing.plan(self.index, rows, present))
        except ChangedError:
            if not (verify and self._has_checksums(present)):
                raise
            self.place.store.renew(self.place.name)  # whoever reads it compares it with what it was
        try:
            return self.framing.extract(self.index, self._read(rows, present), rows, present, **options)
        except DataError as error:
            if self.place.store.renewed(self.place.name):
                raise replaced(self.place) from error
            raise

    def _has_checksums(self, present: Sequence[str]) -> bool:
        columns = [self.index.columns[name] for name in present]
        return all(column.checksums is not None for column in columns if column.type.kind != "scalar")

    def _read(self, rows: NDArray[np.int64], present: Sequence[str]) -> Buffers:
        return fetch(self.place.store, lambda: self.framing.plan(self.index, rows, present))


def repair(place: Shard, requests: Sequence[Request]) -> None:
    """Have what a cache holds of these ranges looked at, and dropped where it is damaged."""
    for path, offset, length in requests:
        place.store.repair(path, offset, length or 0)


def replaced(place: Shard) -> ChangedError:
    """The error for an object that is not what it was."""
    return ChangedError(
        "the object was replaced by another one while it was being read",
        url=place.store.locate(place.name),
        hint="open the data set anew",
    )


class OpenShards:
    """The shards of some sources. Holds a bounded number of indexes, nothing a sample.

    Args:
        sources: The sources.
        queue: Where reads go; ``None`` to have nothing read ahead.
    """

    def __init__(self, sources: Sequence[DatasetSource], queue: ReadQueue | None = None) -> None:
        self._sources = sources
        self._queue = queue
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
        key = source, shard
        if key in self._open:
            self._open.move_to_end(key)
            return True
        known = self._coming.get(key)
        if known is not None:
            return known[1].done
        origin = self._sources[source]
        place = origin.place_of(shard)
        request = origin.tail_request(shard, place)
        if self._queue is None or request is None or place.store.mapped:
            return True
        read = Read(place.store, request, order=order, size=place.size)
        self._coming[key] = place, read
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
        origin = self._sources[source]
        place, index = self._scan(origin, shard, self._coming.pop(key, None))
        known = self._seen[key] = self._seen.pop(key, index.checksum)
        if known != index.checksum:
            raise replaced(place)
        if len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        manifest, _ = origin.manifest_of(shard)
        found = OpenShard(index, manifest.reader, place, origin.rows(shard, index))
        self._open[key] = found
        if len(self._open) > OPEN_INDEXES:
            self._open.popitem(last=False)
        return found

    def _scan(self, origin: DatasetSource, shard: int, coming: tuple[Shard, Read] | None) -> tuple[Shard, ShardIndex]:
        if coming is None:
            place = origin.place_of(shard)
        else:
            place, read = coming
            assert self._queue is not None
            self._queue.wait([read])
        try:
            return place, origin.scan(shard, place, None if coming is None else read.data)
        except ChangedError:
            if not origin.verifies:
                raise
            place.store.renew(place.name)
        except DataError:
            request = origin.tail_request(shard, place)
            if place.store.mapped or request is None:
                raise
            repair(place, [request])
        return place, origin.scan(shard, place)

    def forget(self) -> None:
        """Give up the indexes that are on their way."""
        if self._queue is not None:
            self._queue.cancel(read for _, read in self._coming.values())
        self._coming.clear()
