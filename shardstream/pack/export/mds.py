"""Shards of MosaicML Streaming (MDS), version 2: records behind a table of offsets, and an ``index.json`` of all.

Source: the formats' description and code in https://github.com/mosaicml/streaming, ``streaming/base/format``.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.extras import require
from shardstream.pack.export.contract import KEY, Compression, Sample, Target, receipt_of
from shardstream.pack.export.mds_dtypes import CODES
from shardstream.shards.arrays import npy_array
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.shards.manifest import Manifest
from shardstream.storage import ObjectWriter, Store
from shardstream.storage.base.sorting import no_room

_VERSION = 2
_LARGEST = (1 << 32) - 1  # offsets and sizes are uint32
_SPOOL = 32 << 20
_COPY = 1 << 20
_HASH = "xxh64"
_LEVEL = 3  # their own default
_SCALARS = {"bool": "uint8", "int64": "int"}  # all others keep their names
_PAYLOADS = {"jpg": "jpeg", "png": "png", "str": "str", "json": "json"}  # all others are bytes


class _Column(NamedTuple):
    """A column of all records.

    Attributes:
        name: Its name.
        encoding: As ``index.json`` names it.
        size: Bytes of each value, ``None`` where they differ.
        kind: The type of the field that it holds.
    """

    name: str
    encoding: str
    size: int | None
    kind: FieldType


class MdsTarget(Target):
    """A shard of each shard, compressed or not, and the index of all.

    Fields are columns, and so is the key. Records have all columns: a sample that lacks a field is refused.
    """

    def __init__(self, manifest: Manifest, *, compression: Compression | None = None) -> None:
        super().__init__(manifest)
        if KEY in self.fields:
            raise UsageError(f"keys become the column {KEY}, and there is such a field", field=KEY)
        if compression is not None:
            _zstandard()
        self._compression = compression
        columns = [_column(name, kind) for name, kind in self.fields.items()]
        self._columns = sorted([_Column(KEY, "str", None, FieldType.parse("str")), *columns])

    def object_name(self, shard: int) -> str:
        return self._raw_name(shard) + ("" if self._compression is None else f".{self._compression}")

    def _raw_name(self, shard: int) -> str:
        return f"shard.{shard:05d}.mds"

    def write(self, store: Store, out: ObjectWriter, samples: Iterator[Sequence[Sample]], *, again: bool) -> bytes:
        config = json.dumps(self._config(), sort_keys=True).encode()
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as records:
            sizes = [self._append(records, sample) for part in samples for sample in part]
            head = _head(sizes, config)
            total = len(head) + sum(sizes)
            if total > _LARGEST:
                raise UsageError(
                    f"a shard becomes {total} bytes of MDS, whose offsets end at 4 GiB",
                    hint="shardstream repack URL DEST --shard-size 256MB, and export that",
                )
            records.seek(0)
            raw, stored = xxhash.xxh64(), xxhash.xxh64()
            for piece in self._stored(_pieces(head, records), raw, total):
                stored.update(piece)
                out.write(piece)
        about = {"samples": len(sizes), "raw": [total, raw.hexdigest()], "stored": [out.tell(), stored.hexdigest()]}
        return json.dumps(about).encode()

    def _append(self, records: IO[bytes], sample: Sample) -> int:
        """Write a record; its bytes."""
        values = []
        for column in self._columns:
            value = sample.key.encode() if column.name == KEY else sample.values.get(column.name)
            if value is None:
                raise UsageError(
                    f"a sample has no {column.name}, and MDS has no samples that lack a column",
                    key=sample.key,
                    field=column.name,
                    hint="leave such samples or the field out, or give it a value: repack with transform=, export that",
                )
            values.append(_encoded(column, value, sample.key))
        sizes = [len(value) for column, value in zip(self._columns, values, strict=True) if column.size is None]
        if max(sizes) > _LARGEST:
            raise UsageError(f"a value of {max(sizes)} bytes is too large for MDS", key=sample.key)
        record = b"".join([struct.pack(f"<{len(sizes)}I", *sizes), *values])
        try:
            records.write(record)
        except OSError as error:
            raise no_room(error) from error
        return len(record)

    def _stored(self, pieces: Iterator[bytes], raw: Any, total: int) -> Iterator[bytes]:
        """What is written of a shard of so many bytes; its own bytes are added to ``raw``."""
        packer = None if self._compression is None else _zstandard().ZstdCompressor(_LEVEL).compressobj(size=total)
        for piece in pieces:
            raw.update(piece)
            yield piece if packer is None else packer.compress(piece)
        if packer is not None:
            yield packer.flush()

    def _config(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "format": "mds",
            "compression": self._compression,
            "hashes": [_HASH],
            "size_limit": None,
            "column_names": [one.name for one in self._columns],
            "column_encodings": [one.encoding for one in self._columns],
            "column_sizes": [one.size for one in self._columns],
        }

    def finish(self, store: Store) -> None:
        super().finish(store)
        shards = [self._entry(store, shard) for shard in range(self.shards)]
        store.put("index.json", json.dumps({"version": _VERSION, "shards": shards}, sort_keys=True).encode())

    def _entry(self, store: Store, shard: int) -> dict[str, Any]:
        about = json.loads(bytes(store.get(receipt_of(shard))))
        raw = _file(self._raw_name(shard), *about["raw"])
        packed = None if self._compression is None else _file(self.object_name(shard), *about["stored"])
        return {**self._config(), "samples": about["samples"], "raw_data": raw, "zip_data": packed}


def _file(name: str, size: int, digest: str) -> dict[str, Any]:
    return {"basename": name, "bytes": size, "hashes": {_HASH: digest}}


def _zstandard() -> Any:
    return require("zstandard", extra="zstd", purpose="to compress shards of MDS")


def _head(sizes: Sequence[int], config: bytes) -> bytes:
    """What stands before the records: their number, offsets, and what the shard is."""
    start = 4 + 4 * (len(sizes) + 1) + len(config)
    offsets = np.cumsum([start, *sizes], dtype=np.uint64).astype("<u4")
    return struct.pack("<I", len(sizes)) + offsets.tobytes() + config


def _pieces(head: bytes, records: IO[bytes]) -> Iterator[bytes]:
    yield head
    while piece := records.read(_COPY):
        yield piece


def _column(name: str, kind: FieldType) -> _Column:
    if kind.kind == "scalar":
        return _Column(name, _SCALARS.get(kind.name, kind.name), kind.width, kind)
    if isinstance(kind, ValuesType):
        return _Column(name, f"ndarray:{_array_dtype(kind.elements, name)}", None, kind)
    if kind.kind == "fixed":
        assert kind.dtype is not None
        assert kind.shape is not None
        encoding = f"ndarray:{_array_dtype(kind.dtype, name)}"
        if not all(kind.shape):  # their encoding has no shapes without elements
            return _Column(name, encoding, None, kind)
        return _Column(name, f"{encoding}:{','.join(map(str, kind.shape))}", kind.width, kind)
    if kind.name == "array":
        return _Column(name, "ndarray", None, kind)
    return _Column(name, _PAYLOADS.get(kind.name, "bytes"), None, kind)


def _array_dtype(dtype: np.dtype[Any], name: str) -> str:
    """The dtype under which an array is written; truth values are bytes."""
    found = "uint8" if dtype.kind == "b" else dtype.name
    if found not in CODES:
        raise UsageError(f"MDS has no arrays of {dtype.name}", field=name, hint="export to parquet or webdataset")
    return found


def _encoded(column: _Column, value: Any, key: str) -> bytes:
    """A value as its column's encoding has it."""
    kind = column.kind
    if kind.kind == "scalar":
        return np.asarray(value, kind.dtype).tobytes()
    if kind.name != "array" and not isinstance(value, np.ndarray):
        return bytes(value)
    array = npy_array(memoryview(value)) if kind.name == "array" else value
    try:
        dtype = _array_dtype(array.dtype, column.name)
    except UsageError as error:
        raise error.at(key=key) from None
    body = array.astype(np.dtype(dtype).newbyteorder("<"), order="C", copy=False).tobytes()
    if column.size is not None:
        return body
    if not array.ndim:
        raise UsageError(
            "a sample has an array without dimensions, which MDS cannot hold",
            key=key,
            field=column.name,
            hint="export to parquet or webdataset, or make it a number: repack with transform=",
        )
    named = b"" if kind.name != "array" else bytes([CODES[dtype]])
    return named + _shape(array.shape) + body


def _shape(shape: tuple[int, ...]) -> bytes:
    """A byte that says how many numbers of which width follow, and these."""
    width = next(width for width in range(4) if max(shape) < 1 << (8 << width))
    sizes: NDArray[Any] = np.array(shape, f"<u{1 << width}")
    return bytes([len(shape) << 2 | width]) + sizes.tobytes()
