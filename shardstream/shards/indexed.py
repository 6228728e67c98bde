"""What the two framings of our own share: the index lies at the end of the object and gives every value's place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import BatchError, ChecksumError, DataError, DecodeError, Place
from shardstream.shards.compression import decompress
from shardstream.shards.framing import (
    MAX_VALUE,
    FieldValues,
    Framing,
    Tail,
    oversized,
    place_of_value,
    requests_of,
    too_large,
    with_gaps,
)
from shardstream.shards.index import Column, ShardIndex
from shardstream.shards.layout import TRAILER_BYTES, checksum, checksums, index_length, parse_index
from shardstream.storage import Buffers, Request, Store
from shardstream.storage.base.ranges import closed_up

_TAIL_GUESS = 256 << 10


class IndexedFraming(Framing):
    """Framings whose objects end with our index: every value has an offset of its own.

    Attributes:
        end_bytes: Bytes of the object that follow the index.
    """

    end_bytes: int = 0
    addressed = True

    def tail_bytes(self, index_bytes: int) -> int:
        return max(index_bytes or _TAIL_GUESS, TRAILER_BYTES) + self.end_bytes

    def scan(
        self, store: Store, path: str, *, index_bytes: int | None = None, verify: bool = True, tail: Tail | None = None
    ) -> ShardIndex:
        data, size = tail or store.get_tail(path, self.tail_bytes(index_bytes or 0))
        size = max(0, size - self.end_bytes)
        data = data[: max(0, len(data) - self.end_bytes)]
        try:
            length = index_length(data, shard=path, size=size)
            if length > len(data):
                data = store.get_tail(path, length + self.end_bytes)[0][:length]
            data = data[len(data) - length :]
            return parse_index(data, path=path, url=store.url, framing=self.name, end=size - length, verify=verify)
        except DataError as error:
            raise error.at(url=store.url) from error.__cause__

    def plan(self, index: ShardIndex, rows: NDArray[np.int64], fields: Sequence[str]) -> list[Request]:
        def places(column: Column, rows: NDArray[np.int64]) -> Iterator[Request]:
            offsets, lengths = closed_up(*column.extents(rows))
            return map(Request, itertools.repeat(index.path), offsets.tolist(), lengths.tolist())

        return requests_of(index, rows, fields, places)

    def extract(
        self,
        index: ShardIndex,
        buffers: Buffers,
        rows: NDArray[np.int64],
        fields: Sequence[str],
        *,
        verify: bool = True,
        max_value: int = MAX_VALUE,
    ) -> dict[str, FieldValues]:
        out = {}
        for name in fields:
            column = index.column(name)
            for row, size in too_large(column, rows, max_value):
                raise oversized(index, name, row, size, max_value)
            try:
                out[name] = self._values(index, column, buffers, rows, verify, max_value)
            except MemoryError as error:
                raise BatchError(
                    f"{len(rows)} values do not fit into memory together",
                    url=index.url or None,
                    shard=index.path,
                    field=name,
                    hint="use a smaller batch_size or fewer workers, or leave the field out",
                ) from error
        return out

    def _values(
        self, index: ShardIndex, column: Column, buffers: Buffers, rows: NDArray[np.int64], verify: bool, max_value: int
    ) -> FieldValues:
        valid = column.valid_rows(rows)
        if column.type.kind == "scalar":
            assert column.values is not None
            return FieldValues(column.type, column.values[rows], valid)
        chosen = rows if valid is None else rows[valid]
        read = _fixed if column.type.kind == "fixed" else self._payloads
        found = read(index, column, buffers, chosen, verify)
        if isinstance(found, list):
            if column.codec not in ("none", "zstd"):  # a form makes them, and only now tells how large they are
                for row, value in zip(chosen.tolist(), found, strict=True):
                    if len(value) > max_value:
                        raise oversized(index, column.name, row, len(value), max_value)
            return FieldValues(column.type, with_gaps(found, valid), valid)
        if valid is None:
            return FieldValues(column.type, found, None)
        values = np.zeros((len(rows), *found.shape[1:]), found.dtype)
        values[valid] = found
        return FieldValues(column.type, values, valid)

    def _payloads(
        self, index: ShardIndex, column: Column, buffers: Buffers, rows: NDArray[np.int64], verify: bool
    ) -> list[memoryview]:
        views = buffers.views(index.path, *column.extents(rows))
        if verify:
            _verify(index, column, rows, views)
        return views if column.codec == "none" else self.decoded(index, column, rows, views)

    def decoded(
        self, index: ShardIndex, column: Column, rows: NDArray[np.int64], stored: list[memoryview]
    ) -> list[memoryview]:
        """The bytes of the column's type, of values that are stored in its codec.

        Raises:
            DecodeError: One is not; names its place.
        """
        return _decompressed(index, column, rows, stored)


def _fixed(index: ShardIndex, column: Column, buffers: Buffers, rows: NDArray[np.int64], verify: bool) -> NDArray[Any]:
    raw = buffers.gather(index.path, column.fixed_offsets(rows), column.type.width)
    if verify:
        _verify(index, column, rows, list(raw))
    assert column.type.shape is not None
    return np.ndarray((len(rows), *column.type.shape), column.type.dtype, raw)


def _verify(index: ShardIndex, column: Column, rows: NDArray[np.int64], stored: Sequence[Any]) -> None:
    if column.checksums is None:
        return
    expected = column.checksums[rows].tolist()
    if checksums(stored) != expected:
        row = next(
            row for row, one, other in zip(rows.tolist(), stored, expected, strict=True) if checksum(one) != other
        )
        raise ChecksumError(
            "stored bytes differ from those that were written",
            hint="restore the shard from its source; on_error='skip' goes on without the sample",
            **place_of_bytes(index, column, row),
        )


def _decompressed(
    index: ShardIndex, column: Column, rows: NDArray[np.int64], stored: list[memoryview]
) -> list[memoryview]:
    assert column.raw_lengths is not None
    out = []
    for row, data, size in zip(rows.tolist(), stored, column.raw_lengths[rows].tolist(), strict=True):
        try:
            out.append(decompress(data, size=size))
        except DecodeError as error:
            raise error.at(**place_of_bytes(index, column, row)) from error.__cause__
    return out


def place_of_bytes(index: ShardIndex, column: Column, row: int) -> Place:
    """The place of a stored value, for errors, with its offset."""
    offsets, _ = column.extents(np.array([row]))
    return place_of_value(index, column.name, row) | {"offset": int(offsets[0])}
