r"""An index as bytes. ``docs/format.md`` specifies them; both framings carry the same ones, at the end of the object.

::

    head       magic "SSINDEX\n", uint32 version, uint32 length of the map
    map        msgpack: framing, samples, fields, arrays (name, role, dtype, offset, count)
    arrays     each at a multiple of 64 bytes from the start
    padding    zeros, up to a multiple of 512 less 32
    trailer    magic "SSTRAIL\n", uint32 version, uint32 zero, uint64 length of all this, uint64 XXH3-64 of the rest

The last 32 bytes say where the index begins, so that one read from the end of an object finds it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from shardstream.errors import ChecksumError, FieldError, FormatError, VersionError
from shardstream.shards.checksum import checksum
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, Keys, ShardIndex

FORMAT_VERSION = 1
ALIGNMENT = 64
BLOCK = 512
TRAILER_BYTES = 32
_HEAD = struct.Struct("<8sII")
_TRAILER = struct.Struct("<8sIIQQ")
_HEAD_MAGIC = b"SSINDEX\n"
_TRAILER_MAGIC = b"SSTRAIL\n"
# Roles of the arrays of a column, with the attribute of Column that holds each.
_ROLES = ("valid", "values", "offsets", "lengths", "raw_lengths", "checksums")


def padding(position: int, multiple: int) -> int:
    """Bytes from ``position`` to the next multiple."""
    return -position % multiple


def pack_index(
    framing: str, keys: tuple[NDArray[np.uint64], bytes], columns: Iterable[Column], *, version: int = FORMAT_VERSION
) -> bytes:
    """The bytes of an index: a multiple of 512, the trailer last. The same columns give the same bytes."""
    ends, blob = keys
    arrays: list[tuple[str, str, NDArray[Any]]] = [
        ("", "key_ends", _narrow(ends)),
        ("", "key_blob", np.frombuffer(blob, np.uint8)),
    ]
    fields = []
    for column in columns:
        fields.append({"name": column.name, "type": column.type.name, "codec": column.codec, "base": column.base})
        for role in _ROLES:
            values = getattr(column, role)
            if values is not None:
                arrays.append((column.name, role, _narrow(values) if role.endswith(("offsets", "lengths")) else values))
    table, body_bytes = _place(arrays)
    head = msgpack.packb({"framing": framing, "samples": len(ends), "fields": fields, "arrays": table})
    start = _HEAD.size + len(head)
    start += padding(start, ALIGNMENT)
    out = bytearray(start + body_bytes)
    _HEAD.pack_into(out, 0, _HEAD_MAGIC, version, len(head))
    out[_HEAD.size : _HEAD.size + len(head)] = head
    for (_, _, values), (_, _, _, offset, _) in zip(arrays, table, strict=True):
        out[start + offset : start + offset + values.nbytes] = values.tobytes()
    out += bytes(padding(len(out) + TRAILER_BYTES, BLOCK))
    out += _TRAILER.pack(_TRAILER_MAGIC, version, 0, len(out) + TRAILER_BYTES, checksum(out))
    return bytes(out)


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Unsigned integers in 32 bits where all of them fit."""
    return values.astype("<u4") if not len(values) or int(values.max()) < 1 << 32 else values.astype("<u8")


def _place(arrays: list[tuple[str, str, NDArray[Any]]]) -> tuple[list[tuple[str, str, str, int, int]], int]:
    table, position = [], 0
    for name, role, values in arrays:
        position += padding(position, ALIGNMENT)
        table.append((name, role, values.dtype.newbyteorder("<").str, position, len(values)))
        position += values.nbytes
    return table, position


def index_length(tail: memoryview, *, shard: str, size: int) -> int:
    """Bytes of the index whose trailer ends ``tail``.

    Raises:
        FormatError: No trailer there, or one that contradicts the object's size.
        VersionError: Written by a newer version.
    """
    if len(tail) < TRAILER_BYTES:
        raise FormatError(f"{size} bytes are no shard", shard=shard, hint="it is truncated, or no shard at all")
    offset = size - TRAILER_BYTES
    magic, version, _, length, _ = _TRAILER.unpack_from(tail, len(tail) - TRAILER_BYTES)
    if magic != _TRAILER_MAGIC:
        raise FormatError(
            "the shard does not end with an index",
            shard=shard,
            offset=offset,
            hint="it is truncated, or another program wrote it",
        )
    check_version(version, shard=shard, offset=offset)
    if not TRAILER_BYTES + _HEAD.size <= length <= size:
        raise FormatError(
            f"an index of {length} bytes in {size}", shard=shard, offset=offset, hint="the shard is damaged"
        )
    return int(length)


def check_version(version: int, *, shard: str, offset: int | None = None) -> None:
    """Refuse what a newer version wrote; VersionError says which."""
    if version > FORMAT_VERSION:
        raise VersionError(
            f"format version {version} is newer than {FORMAT_VERSION}, the newest that this shardstream reads",
            shard=shard,
            offset=offset,
            hint="upgrade shardstream",
        )


def parse_index(data: memoryview, *, path: str, framing: str, end: int, verify: bool = True) -> ShardIndex:
    """The index in ``data`` (head to trailer), as views of it.

    Args:
        data: The bytes of the index.
        path: The shard, for messages.
        framing: What the map must say.
        end: Bytes of the object that precede the index; every value must lie in them.
        verify: Compare the checksum. Bounds are checked in any case.

    Raises:
        ChecksumError: The bytes differ from those written.
        FormatError: The bytes are no index, or values lie outside of the object.
    """
    if verify and checksum(data[:-TRAILER_BYTES]) != _TRAILER.unpack(data[-TRAILER_BYTES:])[4]:
        raise ChecksumError("the index is damaged", shard=path, offset=end, hint="fetch or write the shard again")
    try:
        return _parse(data, path, framing, end)
    except (struct.error, ValueError, TypeError, KeyError, msgpack.UnpackException, FieldError) as error:
        raise FormatError(
            f"the index is malformed: {error}", shard=path, offset=end, hint="write the shard again"
        ) from error


def _parse(data: memoryview, path: str, framing: str, end: int) -> ShardIndex:
    magic, version, length = _HEAD.unpack_from(data)
    if magic != _HEAD_MAGIC or _HEAD.size + length > len(data):
        raise ValueError("no index begins where the trailer says")
    check_version(version, shard=path, offset=end)
    head = msgpack.unpackb(data[_HEAD.size : _HEAD.size + length], raw=False)
    if head["framing"] != framing:
        raise ValueError(f"its framing is {head['framing']!r}, not {framing!r}")
    start = _HEAD.size + length
    body = data[start + padding(start, ALIGNMENT) : len(data) - TRAILER_BYTES]
    samples = int(head["samples"])
    arrays = {(name, role): _array(body, dtype, offset, count) for name, role, dtype, offset, count in head["arrays"]}
    ends, blob = arrays["", "key_ends"], arrays["", "key_blob"]
    if len(ends) != samples or (samples and int(ends[-1]) != len(blob)) or np.any(ends[1:] < ends[:-1]):
        raise ValueError("keys do not match the number of samples")
    columns = {}
    for entry in head["fields"]:
        kind = FieldType.parse(entry["type"])
        parts = {role: arrays[entry["name"], role] for role in _ROLES if (entry["name"], role) in arrays}
        column = Column(entry["name"], kind, codec=entry["codec"], base=entry["base"], **parts)
        _check_column(column, samples, end)
        columns[column.name] = column
    return ShardIndex(path, framing, samples, Keys(ends, memoryview(blob)), columns, end)


def _array(body: memoryview, dtype: str, offset: int, count: int) -> NDArray[Any]:
    kind = np.dtype(dtype)
    if kind.hasobject or offset < 0 or count < 0 or offset + count * kind.itemsize > len(body):
        raise ValueError("an array reaches past the index")
    return np.frombuffer(body, kind, count, offset)


def _check_column(column: Column, samples: int, end: int) -> None:
    for role in _ROLES[1:]:
        values = getattr(column, role)
        if values is not None and len(values) != samples:
            raise ValueError(f"{role} of {column.name!r} are {len(values)}, not {samples}")
    if column.valid is not None and len(column.valid) != -(-samples // 8):
        raise ValueError(f"the validity of {column.name!r} has {len(column.valid)} bytes")
    if column.codec not in ("none", "zstd") or (column.codec == "zstd") != (column.raw_lengths is not None):
        raise ValueError(f"codec {column.codec!r} of {column.name!r}")
    if column.type.kind == "scalar":
        if column.values is None or column.values.dtype != column.type.dtype:
            raise ValueError(f"values of {column.name!r} are missing or of another type")
    elif not _inside(column, samples, end):
        raise ValueError(f"values of {column.name!r} lie outside of the object")


def _inside(column: Column, samples: int, end: int) -> bool:
    if column.type.kind == "fixed" and column.base is not None:
        return bool(0 <= column.base <= end - samples * column.type.width)
    if column.offsets is None or (column.type.kind == "payload" and column.lengths is None):
        return False
    if not samples:
        return True
    # Each is compared by itself first, so that no sum wraps.
    lengths = column.lengths if column.lengths is not None else np.uint64(column.type.width)
    if int(np.max(column.offsets)) > end or int(np.max(lengths)) > end:
        return False
    valid = None if column.valid is None else np.unpackbits(column.valid, count=samples, bitorder="little").astype(bool)
    ends = column.offsets.astype(np.uint64) + np.asarray(lengths, np.uint64)
    return bool(np.all(ends <= end) if valid is None else np.all(ends[valid] <= end))
