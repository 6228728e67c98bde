"""The framing contract, and what the two framings of our own share.

A framing turns an object into samples in three steps, none of which does more input or output than it says::

    scan(store, path) -> ShardIndex                 reads the index, never a payload
    plan(index, rows, fields) -> [Request]          pure: which bytes these values need
    extract(index, buffers, rows, fields) -> values pure: values from bytes that are at hand

Who plans may fetch the ranges in any way and order, join or split them. Framings that cannot address a value plan a
whole object or group, and name its length ``None`` where it is not known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import ChecksumError, DecodeError, ShardStreamError
from shardstream.extras import require
from shardstream.shards.checksum import checksum
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, ShardIndex
from shardstream.shards.layout import index_length, parse_index
from shardstream.storage import Buffers, Request, Store

_TAIL_GUESS = 256 << 10


@dataclass(frozen=True, slots=True)
class FieldValues:
    """The values of one field for some rows.

    Attributes:
        type: The field's type.
        data: Payloads: a list of read-only buffers, ``None`` where there is no value. Scalars: an array (n,). Fixed
            arrays: an own, writable array (n, *shape), zeros where there is no value.
        valid: Whether each row has a value, bool (n,); ``None`` if all have.
    """

    type: FieldType
    data: list[memoryview | None] | NDArray[Any]
    valid: NDArray[np.bool_] | None


class Framing(ABC):
    """How samples lie in objects. Every framing passes ``tests/shards/contract.py``.

    Attributes:
        name: The name in ``dataset.json``.
        suffix: Of object names, with dot.
    """

    name: str
    suffix: str

    @abstractmethod
    def scan(self, store: Store, path: str, *, index_bytes: int | None = None, verify: bool = True) -> ShardIndex:
        """The index of a shard.

        Args:
            store: Where it lies.
            path: Its name there.
            index_bytes: Bytes at the end of the object that surely hold the index, so that one read is enough.
            verify: Check the index against its checksum.

        Raises:
            DataError: The object is damaged, foreign, or newer than this version.
            StorageError: It could not be read.
        """

    @abstractmethod
    def plan(self, index: ShardIndex, rows: NDArray[np.int64], fields: Sequence[str]) -> list[Request]:
        """The byte ranges that hold these fields of these rows. Scalars need none."""

    @abstractmethod
    def extract(
        self,
        index: ShardIndex,
        buffers: Buffers,
        rows: NDArray[np.int64],
        fields: Sequence[str],
        *,
        verify: bool = True,
    ) -> dict[str, FieldValues]:
        """These fields of these rows, out of buffers that hold what `plan` asked for.

        Raises:
            ChecksumError: A value differs from what was written; names shard, sample, key, field and offset.
            FieldError: The shard has no such field.
        """


class IndexedFraming(Framing):
    """Framings whose objects end with our index: every value has an offset of its own.

    Attributes:
        end_bytes: Bytes of the object that follow the index.
    """

    end_bytes: int = 0

    def scan(self, store: Store, path: str, *, index_bytes: int | None = None, verify: bool = True) -> ShardIndex:
        shard = store.locate(path)
        wanted = self.end_bytes + (index_bytes or _TAIL_GUESS)
        tail, size = store.get_tail(path, wanted)
        length = index_length(tail[: len(tail) - self.end_bytes], shard=shard, size=size - self.end_bytes)
        if length + self.end_bytes > len(tail):
            tail, size = store.get_tail(path, length + self.end_bytes)
        data = tail[len(tail) - self.end_bytes - length : len(tail) - self.end_bytes]
        try:
            return parse_index(data, path=path, framing=self.name, end=size - self.end_bytes - length, verify=verify)
        except ShardStreamError as error:
            error.place["shard"] = shard
            raise

    def plan(self, index: ShardIndex, rows: NDArray[np.int64], fields: Sequence[str]) -> list[Request]:
        requests = []
        for name in fields:
            column = index.column(name)
            if column.type.kind == "scalar":
                continue
            valid = column.valid_rows(rows)
            chosen = rows if valid is None else rows[valid]
            for offset, length in _extents(column, chosen):
                requests.append(Request(index.path, offset, length))
        return requests

    def extract(
        self,
        index: ShardIndex,
        buffers: Buffers,
        rows: NDArray[np.int64],
        fields: Sequence[str],
        *,
        verify: bool = True,
    ) -> dict[str, FieldValues]:
        readers = {"scalar": _scalars, "fixed": _fixed, "payload": _payloads}
        out = {}
        for name in fields:
            column = index.column(name)
            valid = column.valid_rows(rows)
            out[name] = FieldValues(
                column.type, readers[column.type.kind](index, column, buffers, rows, valid, verify), valid
            )
        return out


def _extents(column: Column, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    if column.type.kind == "fixed":
        width = column.type.width
        return [(offset, width) for offset in column.fixed_offsets(rows).tolist()]
    assert column.offsets is not None
    assert column.lengths is not None
    return list(zip(column.offsets[rows].tolist(), column.lengths[rows].tolist(), strict=True))


def _scalars(
    _index: ShardIndex, column: Column, _buffers: Buffers, rows: NDArray[np.int64], _valid: object, _verify: bool
) -> NDArray[Any]:
    assert column.values is not None
    return column.values[rows]


def _fixed(
    index: ShardIndex,
    column: Column,
    buffers: Buffers,
    rows: NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
    verify: bool,
) -> NDArray[Any]:
    kind = column.type
    assert kind.shape is not None
    chosen = rows if valid is None else rows[valid]
    raw = buffers.gather(index.path, column.fixed_offsets(chosen), kind.width)
    if verify and column.checksums is not None:
        bytes_ = memoryview(raw.view(np.uint8)) if kind.width else memoryview(b"")
        expected = column.checksums[chosen].tolist()
        for i, (row, value) in enumerate(zip(chosen.tolist(), expected, strict=True)):
            if checksum(bytes_[i * kind.width : (i + 1) * kind.width]) != value:
                raise _damaged(index, column, row)
    values = raw.view(kind.dtype).reshape(len(chosen), *kind.shape)
    if valid is None:
        return values
    out = np.zeros((len(rows), *kind.shape), kind.dtype)
    out[valid] = values
    return out


def _payloads(
    index: ShardIndex,
    column: Column,
    buffers: Buffers,
    rows: NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
    verify: bool,
) -> list[memoryview | None]:
    chosen = rows if valid is None else rows[valid]
    views = buffers.views(index.path, _extents(column, chosen))
    if verify and column.checksums is not None:
        for row, data, expected in zip(chosen.tolist(), views, column.checksums[chosen].tolist(), strict=True):
            if checksum(data) != expected:
                raise _damaged(index, column, row)
    if column.codec == "zstd":
        views = _decompressed(index, column, chosen, views)
    if valid is None:
        return list(views)
    found = iter(views)
    return [next(found) if has else None for has in valid.tolist()]


def _decompressed(
    index: ShardIndex, column: Column, rows: NDArray[np.int64], views: list[memoryview]
) -> list[memoryview]:
    zstandard = require("zstandard", extra="zstd", purpose="to read compressed fields")
    decompressor = _decompressor()
    assert column.raw_lengths is not None
    out = []
    for row, data, size in zip(rows.tolist(), views, column.raw_lengths[rows].tolist(), strict=True):
        try:
            # The frame's own size is compared before anything is allocated for it.
            if zstandard.frame_content_size(data) != size:
                raise DecodeError(
                    "a compressed value announces another size than the index", **_place(index, column, row)
                )
            out.append(memoryview(decompressor.decompress(data, max_output_size=size)))
        except zstandard.ZstdError as error:
            raise DecodeError(f"a value does not decompress: {error}", **_place(index, column, row)) from error
    return out


@lru_cache(maxsize=1)
def _decompressor() -> Any:
    return require("zstandard", extra="zstd", purpose="to read compressed fields").ZstdDecompressor()


def _damaged(index: ShardIndex, column: Column, row: int) -> ChecksumError:
    return ChecksumError(
        "stored bytes differ from those that were written",
        hint="restore the shard from its source; on_error='skip' goes on without the sample",
        **_place(index, column, row),
    )


def _place(index: ShardIndex, column: Column, row: int) -> dict[str, Any]:
    offset = None
    if column.type.kind != "scalar":
        offset = _extents(column, np.array([row]))[0][0]
    return {"shard": index.path, "sample": row, "key": index.keys[row], "field": column.name, "offset": offset}
