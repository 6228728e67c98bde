"""Stored values by (shard, row), whatever shards they lie in, put together in the order asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.indexes import OpenShards
from shardstream.dataset.mapped_rows import MappedRowReader
from shardstream.dataset.read_ahead import ReadAhead, groups
from shardstream.dataset.row_batch import RowBatch
from shardstream.dataset.shared import WorkerStatus, place_of, source_and_shard
from shardstream.errors import BatchError
from shardstream.shards.fields import FieldType
from shardstream.shards.framing import MAX_VALUE, FieldValues, oversized
from shardstream.shards.index import ShardIndex
from shardstream.storage import Buffers


class RowReader:
    """Reads rows of one source or several.

    Args:
        shards: The open shards of the sources.
        fields: The fields to read, with the types that the sources hold them with.
        verify: Compare checksums.
        max_value: Bytes that one value may have.
        desk: Where to say which shard is being read, or ``None``.
        ahead: What is read before it is asked for, or ``None``.
    """

    def __init__(
        self,
        shards: OpenShards,
        fields: Mapping[str, FieldType],
        *,
        verify: bool,
        max_value: int = MAX_VALUE,
        desk: WorkerStatus | None = None,
        ahead: ReadAhead | None = None,
    ) -> None:
        self._shards = shards
        self._types = dict(fields)
        self._fields = list(fields)
        self._verify = verify
        self._max_value = max_value
        self._desk = desk
        self._ahead = ahead
        self._gatherer: MappedRowReader | None = None
        if ahead is None:
            self._gatherer = MappedRowReader(shards, self._types, verify=verify, max_value=max_value)

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard of the first source, by its number."""
        return self._shards.open(0, shard).index

    def read(self, sources: NDArray[np.int64] | None, shards: NDArray[np.int64], rows: NDArray[np.int64]) -> RowBatch:
        """The stored values of samples (sources[i], shards[i], rows[i]); ``None`` where all are of the first source.

        Raises:
            DataError: A value or a whole shard is damaged, or a value is larger than ``max_value``; names it.
            BatchError: There is no memory for so many values.
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

    def _one_by_one(self, places: NDArray[np.int64], rows: NDArray[np.int64]) -> RowBatch:
        """Shard by shard."""
        names = np.empty(len(rows), object)
        keys = np.empty(len(rows), object)
        stored = rows.copy()
        columns = {name: _Growing(name, self._types[name], len(rows)) for name in self._fields}
        for here, slots in groups(places):
            if self._desk is not None:
                self._desk.at(here)
            opened = self._shards.open(*source_and_shard(here))
            index = opened.index
            chosen = stored[slots] = opened.stored_rows(rows[slots])
            names[slots] = index.path
            keys[slots] = index.keys.take(chosen)
            self._check_widths(index, chosen)
            ahead = partial(self._read_ahead, here)
            found = opened.extract(ahead, chosen, self._fields, verify=self._verify, max_value=self._max_value)
            for name, values in found.items():
                columns[name].put(slots, values)
        finished = {name: column.finish() for name, column in columns.items()}
        return RowBatch(keys.tolist(), names.tolist(), stored.tolist(), finished)

    def _check_widths(self, index: ShardIndex, rows: NDArray[np.int64]) -> None:
        """Refuse arrays of a field that the shard does not have: they would be zeros of the size that was announced."""
        for name, kind in ((name, self._types[name]) for name in self._fields if name not in index.columns):
            if kind.kind == "fixed" and kind.width > self._max_value:
                raise oversized(index, name, int(rows[0]), kind.width, self._max_value)

    def _read_ahead(self, here: int) -> Buffers | None:
        return None if self._ahead is None else self._ahead.buffers(here)


class _Growing:
    """One field of the rows, filled shard by shard."""

    def __init__(self, name: str, kind: FieldType, count: int) -> None:
        self._name = name
        self._type = kind
        self._data: list[memoryview | None] | NDArray[Any] = [None] * count
        self._valid = np.zeros(count, np.bool_)

    def put(self, slots: NDArray[np.int64], values: FieldValues) -> None:
        if isinstance(values.data, list):
            for slot, value in zip(slots.tolist(), values.data, strict=True):
                self._data[slot] = value
        elif values.valid is None:
            self._array()[slots] = values.data
        else:  # zeros that nobody touches take no memory
            self._array()[slots[values.valid]] = values.data[values.valid]
        self._valid[slots] = True if values.valid is None else values.valid

    def _array(self) -> NDArray[Any]:
        if isinstance(self._data, list):
            assert self._type.shape is not None
            try:
                self._data = np.zeros((len(self._data), *self._type.shape), self._type.dtype)
            except MemoryError as error:
                raise BatchError(
                    f"{len(self._data)} values of {self._type.width} bytes do not fit into memory together",
                    field=self._name,
                    hint="use a smaller batch_size or fewer workers, or leave the field out",
                ) from error
        return self._data

    def finish(self) -> FieldValues:
        if self._type.kind != "payload":
            self._array()
        return FieldValues(self._type, self._data, None if self._valid.all() else self._valid)
