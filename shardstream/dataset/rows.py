"""Stored values by (shard, row), whatever shards they lie in, put together in the order asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.gathered_rows import Memory, RowGatherer
from shardstream.dataset.indexes import OPEN_INDEXES, OpenShards
from shardstream.dataset.read_ahead import ReadAhead
from shardstream.dataset.shard import OpenShard
from shardstream.dataset.shared import WorkerStatus, shard_ids, source_and_shard
from shardstream.dataset.step import groups
from shardstream.errors import BatchError, ChangedError, DataError, NotFoundError, ShardStreamError
from shardstream.shards.fields import FieldType
from shardstream.shards.framing import FieldValues, oversized
from shardstream.shards.index import ShardIndex
from shardstream.storage import Buffers, FetchedBuffers, Read, ReadQueue
from shardstream.storage.base.verified import next_look
from shardstream.storage.transfer.readahead import parts_of

_TOGETHER = 256  # shards that are read side by side: fewer than indexes are kept open

Integers = NDArray[np.int64]
T = TypeVar("T")


class RowBatch:
    """Some samples' stored values. All sequences are of length n and in the order asked for.

    Args:
        keys: Their keys, or what finds them: batches of tuples have none.
        shards: Object names of their shards.
        rows: Their numbers in these shards.
        columns: Values by field.
    """

    def __init__(
        self,
        keys: list[str] | Callable[[], list[str]],
        shards: list[str],
        rows: list[int],
        columns: dict[str, FieldValues],
    ) -> None:
        self._keys = keys
        self.shards = shards
        self.rows = rows
        self.columns = columns

    @cached_property
    def keys(self) -> list[str]:
        """Their keys."""
        return self._keys if isinstance(self._keys, list) else self._keys()

    def part(self, those: slice | Sequence[int]) -> RowBatch:
        """These of the samples."""
        columns = {name: values.part(those) for name, values in self.columns.items()}
        return RowBatch(lambda: _part(self.keys, those), _part(self.shards, those), _part(self.rows, those), columns)

    def value(self, name: str, i: int) -> Any:  # a stored value as its framing gives it
        """The stored value of a field of sample i; ``None`` if it has none."""
        values = self.columns[name]
        if values.valid is not None and not values.valid[i]:
            return None
        return values.data[i]

    def values(self, i: int) -> dict[str, Any]:
        """The stored values that sample i has, by field."""
        found = ((name, self.value(name, i)) for name in self.columns)
        return {name: value for name, value in found if value is not None}


def _part(values: list[T], those: slice | Sequence[int]) -> list[T]:
    return values[those] if isinstance(those, slice) else [values[i] for i in those]


def location_in(rows: RowBatch, i: int) -> dict[str, str | int]:
    """Where sample i of some rows lies, for an error."""
    return {"shard": rows.shards[i], "sample": rows.rows[i], "key": rows.keys[i]}


class RowReader:
    """Reads rows of one source or several; of a data set by itself, see `DatasetRows`.

    Args:
        shards: The open shards of the sources.
        fields: The fields to read, with the types that the sources hold them with.
        verify: Compare checksums.
        status: Where to say which shard is being read, or ``None``.
        ahead: What is read before it is asked for, or ``None``.
    """

    def __init__(
        self,
        shards: OpenShards,
        fields: Mapping[str, FieldType],
        *,
        verify: bool,
        status: WorkerStatus | None = None,
        ahead: ReadAhead | None = None,
    ) -> None:
        self._shards = shards
        self._types = dict(fields)
        self._fields = list(fields)
        self._verify = verify
        self._status = status
        self._ahead = None if ahead is None else ahead.buffers
        self._look_at = 0.0  # when to look at files
        self._gatherer = RowGatherer(shards, self._types, verify=verify, ahead=ahead)

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard of the first source, by its number."""
        return self._shards.open(0, shard).index

    def check_unchanged(self, shard: int) -> None:
        """Refuse a shard of the first source whose file was written to in place since it was opened; ChangedError."""
        self._shards.check_unchanged(0, shard, self._shards.open(0, shard))

    def read(
        self,
        sources: Integers | None,
        shards: Integers,
        rows: Integers,
        into: Mapping[str, Memory] = MappingProxyType({}),
    ) -> RowBatch:
        """The stored values of samples (sources[i], shards[i], rows[i]); ``None`` where all are of the first source.

        Args:
            sources: (n,), or ``None``.
            shards: (n,).
            rows: (n,).
            into: By field, of payloads that are best copied to one memory, what gives it: `FieldValues.joined` are then
                those that were.

        Raises:
            DataError: A value or a whole shard is damaged, or a value is larger than ``max_value``; names it.
            BatchError: There is no memory for so many values.
            StorageError: Reading failed. ChangedError: The file of a shard was written to in place.
        """
        ids = shard_ids(sources, shards)
        if time.monotonic() >= self._look_at:
            self._look()
        if self._status is not None:
            self._status.lists(ids)
        gathered = self._gatherer.read(ids, rows, into)
        if gathered is not None:
            return RowBatch(*gathered)
        return self._one_by_one(ids, rows, self._ahead)

    def gather(self, sources: Integers | None, shards: Integers, rows: Integers) -> RowBatch | None:
        """The same where all is in memory, sound, and of no more shards than stay open; ``None``: ask `read`."""
        ids = shard_ids(sources, shards)
        if len(np.unique(ids)) > OPEN_INDEXES // 2:
            return None
        if time.monotonic() >= self._look_at:
            self._look()
        if self._status is not None:
            self._status.lists(ids)
        gathered = self._gatherer.read(ids, rows)
        return None if gathered is None else RowBatch(*gathered)

    @property
    def excludes(self) -> bool:
        """Whether `excluded` may find any."""
        return self._shards.excludes

    def excluded(self, sources: Integers | None, shards: Integers, rows: Integers) -> dict[int, str]:
        """Which of these samples are to be treated as damaged though nobody reads them, with the reason.

        Raises:
            StorageError: An index cannot be read; where it is damaged, whoever reads the sample says so.
        """
        found: dict[int, str] = {}
        for here, slots in groups(shard_ids(sources, shards)):
            with suppress(DataError):
                one = self._shards.excluded(*source_and_shard(here), rows[slots])
                if one is not None:
                    opened, those = one
                    stored = opened.stored_rows(rows[slots][those])
                    for slot, row in zip(slots[those].tolist(), stored.tolist(), strict=True):
                        place = {"url": opened.index.url or None, "shard": opened.index.path, "sample": row}
                        key = opened.index.keys[row]
                        found[slot] = str(DataError("the sample is left out by exclude_keys", key=key, **place))
        return dict(sorted(found.items()))

    def _look(self) -> None:
        """See that the files of all open shards are what was verified, and say when to do so again; ChangedError."""
        begun = time.monotonic()
        for place, opened in (self._shards.opened | self._gatherer.opened).items():
            try:
                self._shards.check_unchanged(*place, opened)
            except ChangedError as error:
                if self._shards.open_elsewhere(*place, error) is None:
                    raise
                self._gatherer.leave(*place)
        self._look_at = next_look(begun)

    def _one_by_one(
        self, ids: Integers, rows: Integers, ahead: Callable[[int], Buffers | None] | None = None
    ) -> RowBatch:
        """Shard by shard; what nobody has read ahead comes side by side, where it comes over a network."""
        names = np.empty(len(rows), object)
        keys = np.empty(len(rows), object)
        stored = rows.copy()
        columns = {name: _Growing(name, self._types[name], len(rows)) for name in self._fields}

        def put(here: int, slots: Integers, buffers: Callable[[], Buffers | None]) -> None:
            if self._status is not None:
                self._status.waits(here)
            opened, chosen, found = self._extract(here, rows[slots], buffers)
            stored[slots] = chosen
            names[slots] = opened.index.path
            keys[slots] = opened.index.keys.take(chosen)
            for name, values in found.items():
                columns[name].put(slots, values)

        parts = list(groups(ids))
        for start in range(0, len(parts), _TOGETHER):
            together = parts[start : start + _TOGETHER]
            if ahead is not None:
                for here, slots in together:
                    put(here, slots, partial(ahead, here))
                continue
            with Fetching(self._shards, self._fields) as fetching:
                for order, (here, _) in enumerate(together):
                    self._shards.expect(*source_and_shard(here), order=order)
                coming = [fetching.begin(here, rows[slots]) for here, slots in together]
                for (here, slots), buffers in zip(together, coming, strict=True):
                    put(here, slots, buffers)
        finished = {name: column.finish() for name, column in columns.items()}
        return RowBatch(keys.tolist(), names.tolist(), stored.tolist(), finished)

    def _extract(
        self, here: int, rows: Integers, buffers: Callable[[], Buffers | None]
    ) -> tuple[OpenShard, Integers, dict[str, FieldValues]]:
        """The shard, its rows that these rows of the view are, and their values."""
        source, shard = source_and_shard(here)
        opened = self._shards.open(source, shard)
        chosen = opened.stored_rows(rows)
        self._check_widths(opened, chosen)
        if (refused := opened.refused(chosen, self._fields)) is not None:
            raise refused
        try:
            return opened, chosen, opened.extract(buffers, chosen, self._fields, verify=self._verify)
        except (DataError, NotFoundError) as error:
            problem: ShardStreamError = error
            try:  # what looks like damage may be another file
                self._shards.check_unchanged(source, shard, opened)
            except ChangedError as changed:
                problem = changed
            other = self._shards.open_elsewhere(source, shard, problem)
            if other is None:
                if problem is error:
                    raise
                raise problem from error
        return other, chosen, other.extract(lambda: None, chosen, self._fields, verify=self._verify)

    def _check_widths(self, opened: OpenShard, rows: Integers) -> None:
        """Refuse arrays of a field that the shard does not have: they would be zeros of the size that was announced."""
        index, limit = opened.index, opened.max_value
        for name, kind in ((name, self._types[name]) for name in self._fields if name not in index.columns):
            if kind.kind == "fixed" and kind.width > limit:
                raise oversized(index, name, int(rows[0]), kind.width, limit)


class Fetching:
    """Bytes of rows that are on their way side by side, where they come over a network; a context manager.

    Args:
        shards: The open shards.
        fields: What is read of each row.
    """

    def __init__(self, shards: OpenShards, fields: Sequence[str]) -> None:
        self._shards = shards
        self._fields = fields
        self._reads: list[Read] = []
        self._queue = ReadQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.cancel(self._reads)
        self._shards.forget()

    def begin(self, here: int, rows: Integers) -> Callable[[], Buffers | None]:
        """Have these rows of a shard on their way; what gives their bytes, ``None`` where they are read in place."""
        opened = self._shards.open(*source_and_shard(here))
        if opened.at_hand:
            return lambda: None
        reads = opened.reads(opened.stored_rows(rows), self._fields, order=len(self._reads))
        self._reads = [one for one in self._reads if not one.done] + reads
        self._queue.submit(reads)
        return partial(self._buffers, reads)

    def _buffers(self, reads: list[Read]) -> Buffers:
        self._queue.wait(reads)
        return FetchedBuffers(*parts_of(reads))


class _Growing:
    """One field of the rows, filled shard by shard."""

    def __init__(self, name: str, kind: FieldType, count: int) -> None:
        self._name = name
        self._type = kind
        self._data: list[memoryview | None] | NDArray[Any] = [None] * count
        self._valid = np.zeros(count, np.bool_)

    def put(self, slots: Integers, values: FieldValues) -> None:
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
