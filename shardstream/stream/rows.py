"""Stored values by (shard, row), whatever shards they lie in, put together in the order asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.shards.fields import FieldType
from shardstream.shards.framing import FieldValues
from shardstream.shards.index import ShardIndex
from shardstream.storage import Buffers
from shardstream.stream.ahead import ReadAhead, groups
from shardstream.stream.gather import Gatherer
from shardstream.stream.opened import OpenShards
from shardstream.stream.shared import Desk, place_of, source_and_shard
from shardstream.stream.source import Source
from shardstream.stream.stored import Rows


class RowReader:
    """Reads rows of one source or several.

    Args:
        sources: The sources, which hold ``fields`` with the same types.
        shards: Their open shards.
        fields: The fields to read.
        verify: Compare checksums.
        desk: Where to say which shard is being read, or ``None``.
        ahead: What is read before it is asked for, or ``None``.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        shards: OpenShards,
        fields: Sequence[str],
        *,
        verify: bool,
        desk: Desk | None = None,
        ahead: ReadAhead | None = None,
    ) -> None:
        self._shards = shards
        self._types = {name: kind for source in reversed(sources) for name, kind in source.fields.items()}
        self._fields = list(fields)
        self._verify = verify
        self._desk = desk
        self._ahead = ahead
        self._gatherer: Gatherer | None = None
        if ahead is None:
            self._gatherer = Gatherer(shards, {name: self._types[name] for name in self._fields}, verify=verify)

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard of the first source, by its number."""
        return self._shards.open(0, shard).index

    def read(self, sources: NDArray[np.int64] | None, shards: NDArray[np.int64], rows: NDArray[np.int64]) -> Rows:
        """The stored values of samples (sources[i], shards[i], rows[i]); ``None`` where all are of the first source.

        Raises:
            DataError: A value or a whole shard is damaged; names it.
            StorageError: Reading failed.
        """
        places = place_of(sources, shards)
        if self._gatherer is not None:
            if self._desk is not None:  # of several shards, none can be named
                self._desk.at(int(places[0]) if (places == places[0]).all() else -1)
            gathered = self._gatherer.read(places, rows)
            if gathered is not None:
                return gathered
        return self._one_by_one(places, rows)

    def _one_by_one(self, places: NDArray[np.int64], rows: NDArray[np.int64]) -> Rows:
        """Shard by shard."""
        names = np.empty(len(rows), object)
        keys = np.empty(len(rows), object)
        stored = rows.copy()
        columns = {name: _Growing(self._types[name], len(rows)) for name in self._fields}
        for here, slots in groups(places):
            if self._desk is not None:
                self._desk.at(here)
            opened = self._shards.open(*source_and_shard(here))
            index = opened.index
            chosen = stored[slots] = opened.stored_rows(rows[slots])
            names[slots] = index.path
            keys[slots] = index.keys.take(chosen)
            ahead = partial(self._read_ahead, here)
            for name, values in opened.extract(ahead, chosen, self._fields, verify=self._verify).items():
                columns[name].put(slots, values)
        finished = {name: column.finish() for name, column in columns.items()}
        return Rows(keys.tolist(), names.tolist(), stored.tolist(), finished)

    def _read_ahead(self, here: int) -> Buffers | None:
        return None if self._ahead is None else self._ahead.buffers(here)


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
