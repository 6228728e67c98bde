"""Stored values by (shard, row), whatever shards they lie in, put together in the order asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.shards.framing import FieldValues
from shardstream.shards.index import ShardIndex
from shardstream.shards.manifest import Manifest
from shardstream.storage import Store, fetch, open_store

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


class RowReader:
    """Reads rows of a data set. Holds a bounded number of open indexes, nothing a sample.

    Args:
        manifest: The data set.
        fields: The fields to read.
        verify: Compare checksums.
    """

    def __init__(self, manifest: Manifest, fields: Sequence[str], *, verify: bool) -> None:
        self._manifest = manifest
        self._store: Store = open_store(manifest.url)
        self._fields = list(fields)
        self._verify = verify
        self._indexes: OrderedDict[int, ShardIndex] = OrderedDict()

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard, by its number."""
        found = self._indexes.get(shard)
        if found is not None:
            self._indexes.move_to_end(shard)
            return found
        name = self._manifest.shard_name(shard)
        found = self._manifest.reader.scan(
            self._store, name, index_bytes=self._manifest.index_bytes, verify=self._verify
        )
        self._check(found, shard)
        self._indexes[shard] = found
        if len(self._indexes) > _OPEN_INDEXES:
            self._indexes.popitem(last=False)
        return found

    def _check(self, index: ShardIndex, shard: int) -> None:
        expected = int(self._manifest.table.samples[shard])
        if index.samples != expected:
            raise FormatError(
                f"the shard holds {index.samples} samples, the manifest says {expected}",
                url=index.url,
                shard=index.path,
                hint="`shardstream verify` lists every shard that does not belong",
            )
        for name in self._fields:
            column = index.columns.get(name)
            if column is not None and column.type != self._manifest.fields[name]:
                raise FormatError(
                    f"the shard holds {column.type}, the manifest says {self._manifest.fields[name]}",
                    url=index.url,
                    shard=index.path,
                    field=name,
                    hint="`shardstream verify` lists every shard that does not belong",
                )

    def read(self, shards: NDArray[np.int64], rows: NDArray[np.int64]) -> Rows:
        """The stored values of samples (shards[i], rows[i]).

        Raises:
            DataError: A value or a whole shard is damaged; names it.
            StorageError: Reading failed.
        """
        names = [""] * len(rows)
        keys = [""] * len(rows)
        columns = {name: _Growing(self._manifest, name, len(rows)) for name in self._fields}
        order = np.argsort(shards, kind="stable")
        ends = np.flatnonzero(np.diff(shards[order], append=-1)) + 1
        start = 0
        for end in ends.tolist():
            slots = order[start:end]
            start = end
            index = self.index(int(shards[slots[0]]))
            chosen = rows[slots]
            for slot, row in zip(slots.tolist(), chosen.tolist(), strict=True):
                names[slot] = index.path
                keys[slot] = index.keys[row]
            for name, values in self._extract(index, chosen).items():
                columns[name].put(slots, values)
        finished = {name: column.finish() for name, column in columns.items()}
        return Rows(keys, names, rows.tolist(), finished)

    def _extract(self, index: ShardIndex, rows: NDArray[np.int64]) -> dict[str, FieldValues]:
        framing = self._manifest.reader
        present = [name for name in self._fields if name in index.columns]
        buffers = fetch(self._store, partial(framing.plan, index, rows, present))
        return framing.extract(index, buffers, rows, present, verify=self._verify)


class _Growing:
    """One field of the rows, filled shard by shard."""

    def __init__(self, manifest: Manifest, name: str, count: int) -> None:
        self._type = kind = manifest.fields[name]
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
