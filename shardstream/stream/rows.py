"""Stored values by (shard, row), whatever shards they lie in, put together in the order asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.shards.fields import FieldType
from shardstream.shards.framing import FieldValues
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.storage import Store, fetch, open_store
from shardstream.stream.shared import Desk, place_of, source_and_shard
from shardstream.stream.source import Source

# Open indexes a worker: as many as a local store maps files, and more than a rank has lanes by default.
_OPEN_INDEXES = 320


@dataclass(frozen=True, slots=True)
class Rows:
    """Some samples' stored values. All sequences are of length n and in the order asked for.

    Attributes:
        keys: Their keys.
        shards: Object names of their shards.
        rows: Their numbers in these shards.
        columns: Values by field.
    """

    keys: list[str]
    shards: list[str]
    rows: list[int]
    columns: dict[str, FieldValues]

    def value(self, name: str, i: int) -> Any:  # a stored value as its framing gives it
        """The stored value of a field of sample i; ``None`` if it has none."""
        values = self.columns[name]
        if values.valid is not None and not values.valid[i]:
            return None
        return values.data[i]


@dataclass(frozen=True, slots=True)
class _OpenShard:
    """A shard whose index is at hand."""

    index: ShardIndex
    manifest: Manifest
    store: Store
    rows: NDArray[np.int64] | int

    def stored_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the shard that these rows of the view are."""
        return rows + self.rows if isinstance(self.rows, int) else self.rows[rows]


class RowReader:
    """Reads rows of one source or several. Holds a bounded number of open indexes, nothing a sample.

    Args:
        sources: The sources, which hold ``fields`` with the same types.
        fields: The fields to read.
        verify: Compare checksums.
        desk: Where to say which shard is being read, or ``None``.
    """

    def __init__(
        self, sources: Sequence[Source], fields: Sequence[str], *, verify: bool, desk: Desk | None = None
    ) -> None:
        self._sources = sources
        self._types = {name: kind for source in reversed(sources) for name, kind in source.fields.items()}
        self._fields = list(fields)
        self._verify = verify
        self._desk = desk
        self._stores: dict[str, Store] = {}
        self._open: OrderedDict[tuple[int, int], _OpenShard] = OrderedDict()

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard of the first source, by its number."""
        return self._opened(0, shard).index

    def _opened(self, source: int, shard: int) -> _OpenShard:
        found = self._open.get((source, shard))
        if found is not None:
            self._open.move_to_end((source, shard))
            return found
        origin = self._sources[source]
        manifest, _ = origin.manifest_of(shard)
        store = self._stores.get(manifest.url)
        if store is None:
            store = self._stores[manifest.url] = open_store(manifest.url)
        index = origin.scan(shard, store)
        found = _OpenShard(index, manifest, store, origin.rows(shard, index))
        self._open[source, shard] = found
        if len(self._open) > _OPEN_INDEXES:
            self._open.popitem(last=False)
        return found

    def read(self, sources: NDArray[np.int64] | None, shards: NDArray[np.int64], rows: NDArray[np.int64]) -> Rows:
        """The stored values of samples (sources[i], shards[i], rows[i]); ``None`` where all are of the first source.

        Raises:
            DataError: A value or a whole shard is damaged; names it.
            StorageError: Reading failed.
        """
        names = [""] * len(rows)
        keys = [""] * len(rows)
        stored = rows.copy()
        columns = {name: _Growing(self._types[name], len(rows)) for name in self._fields}
        place = place_of(sources, shards)
        order = np.argsort(place, kind="stable")
        ends = np.flatnonzero(np.diff(place[order], append=-1)) + 1
        start = 0
        for end in ends.tolist():
            slots = order[start:end]
            start = end
            here = int(place[slots[0]])
            if self._desk is not None:
                self._desk.at(here)
            opened = self._opened(*source_and_shard(here))
            index = opened.index
            chosen = stored[slots] = opened.stored_rows(rows[slots])
            for slot, row in zip(slots.tolist(), chosen.tolist(), strict=True):
                names[slot] = index.path
                keys[slot] = index.keys[row]
            for name, values in self._extract(opened, chosen).items():
                columns[name].put(slots, values)
        finished = {name: column.finish() for name, column in columns.items()}
        return Rows(keys, names, stored.tolist(), finished)

    def _extract(self, opened: _OpenShard, rows: NDArray[np.int64]) -> dict[str, FieldValues]:
        framing, index = opened.manifest.reader, opened.index
        present = [name for name in self._fields if name in index.columns]
        buffers = fetch(opened.store, partial(framing.plan, index, rows, present))
        return framing.extract(index, buffers, rows, present, verify=self._verify)


class _Growing:
    """One field of the rows, filled shard by shard."""

    def __init__(self, kind: FieldType, count: int) -> None:
        self._type = kind
        self._data: list[memoryview | None] | NDArray[Any]
        if kind.kind == "payload":
            self._data = [None] * count
        else:
            assert kind.shape is not None
            self._data = np.zeros((count, *kind.shape), kind.dtype)
        self._valid = np.zeros(count, np.bool_)

    def put(self, slots: NDArray[np.int64], values: FieldValues) -> None:
        self._valid[slots] = True if values.valid is None else values.valid
        if isinstance(self._data, list):
            for slot, value in zip(slots.tolist(), values.data, strict=True):
                self._data[slot] = value
        else:
            self._data[slots] = values.data

    def finish(self) -> FieldValues:
        return FieldValues(self._type, self._data, None if self._valid.all() else self._valid)
