r"""An index as bytes. ``docs/format.md`` specifies them; both framings carry the same ones, at the end of the object.

::

    head       magic "SSINDEX\n", uint32 version, uint32 length of the map
    map        msgpack: framing, samples, end, fields, arrays (name, role, dtype, offset, count)
    arrays     each at a multiple of 64 bytes from the end of the map, rounded up
    padding    zeros, up to a multiple of 512 less 32
    trailer    magic "SSTRAIL\n", uint32 version, uint32 zero, uint64 length of all this, uint64 XXH3-64 of the rest

The last 32 bytes say where the index begins, so that one read from the end of an object finds it. Bytes are taken for
hostile: nothing is allocated for what they announce, and every bound is checked whatever the checksum says.

The one checksum is XXH3-64: it runs at memory speed (tens of GB/s) where CRC32C in Python packages reaches a few and
SHA-256 under two, it is one small wheel on every platform, and a public specification fixes its value. It guards
against damage, not against an adversary. https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from typing import Any

import msgpack
import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import ChecksumError, FieldError, FormatError, VersionError
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import meant_type
from shardstream.shards.index import Column, Keys, ShardIndex

FORMAT_VERSION = 1
LOOSE = "files"
"""Framing of values that are objects of their own, which only catalogues know."""
ALIGNMENT = 64
BLOCK = 512
TRAILER_BYTES = 32
_HEAD = struct.Struct("<8sII")
_TRAILER = struct.Struct("<8sIIQQ")
_CHECKSUM_BYTES = 8
_HEAD_MAGIC = b"SSINDEX\n"
_TRAILER_MAGIC = b"SSTRAIL\n"
_MAX_MAP = 16 << 20  # some hundred bytes a field
# Roles of the arrays of a column, each an attribute of `Column`, with the dtypes that a reader accepts.
_UNSIGNED = ("<u4", "<u8")
_ROLES: dict[str, tuple[str, ...] | None] = {
    "valid": ("|u1",),
    "values": None,  # the field type's own
    "offsets": _UNSIGNED,
    "lengths": _UNSIGNED,
    "raw_lengths": _UNSIGNED,
    "checksums": ("<u8",),
    "names": ("|u1",),
    "name_ends": _UNSIGNED,
    "held": ("|u1",),
    "held_ends": _UNSIGNED,
}
Hasher = xxhash.xxh3_64
_SLASH = ord("/")
_TWO_SLASHES = re.compile(b"//")
_NARROWED = ("offsets", "lengths", "raw_lengths", "name_ends", "held_ends")


def _no_form(codec: str) -> bool:
    return False


def checksum(data: bytes | bytearray | memoryview) -> int:
    """XXH3-64 with seed 0 of ``data``, as an unsigned integer.

    >>> hex(checksum(b"abc"))
    '0x78af5f94892f3950'
    """
    return xxhash.xxh3_64_intdigest(data)


def checksums(values: Iterable[Any]) -> list[int]:
    """The checksum of each of some buffers. At 4 KB a call costs as much as the sum, so nothing stands between."""
    return list(map(xxhash.xxh3_64_intdigest, values))


def padding(position: int, multiple: int) -> int:
    """Bytes from ``position`` to the next multiple."""
    return -position % multiple


def pack_index(framing: str, keys: tuple[NDArray[np.uint64], bytes], columns: Iterable[Column], *, end: int) -> bytes:
    """The bytes of an index: a multiple of 512, the trailer last. The same columns give the same bytes.

    Args:
        framing: Name of the framing.
        keys: Ends of the keys (n,), and their blob.
        columns: The fields.
        end: Bytes of the object before these.
    """
    ends, blob = keys
    arrays: list[tuple[str, str, NDArray[Any]]] = [
        ("", "key_ends", _narrow(ends)),
        ("", "key_blob", np.frombuffer(blob, np.uint8)),
    ]
    fields = []
    for column in columns:
        kind = column.type
        entry = {"name": column.name, "type": kind.stored, "codec": column.codec, "base": column.base}
        fields.append(entry if kind.stored == kind.name else {**entry, "as": kind.name})
        for role in _ROLES:
            values = getattr(column, role)
            if values is not None:
                arrays.append((column.name, role, _narrow(values) if role in _NARROWED else values))
    table, body_bytes = _place(arrays)
    head = msgpack.packb({"framing": framing, "samples": len(ends), "end": end, "fields": fields, "arrays": table})
    if len(head) > _MAX_MAP:
        raise FieldError(f"{len(fields)} fields are too many for one shard", hint="put them into one json or msgpack")
    start = _HEAD.size + len(head)
    start += padding(start, ALIGNMENT)
    out = bytearray(start + body_bytes)
    _HEAD.pack_into(out, 0, _HEAD_MAGIC, FORMAT_VERSION, len(head))
    out[_HEAD.size : _HEAD.size + len(head)] = head
    for (_, _, values), (_, _, _, offset, _) in zip(arrays, table, strict=True):
        out[start + offset : start + offset + values.nbytes] = values.tobytes()
    out += bytes(padding(len(out) + TRAILER_BYTES, BLOCK))
    out += _TRAILER.pack(_TRAILER_MAGIC, FORMAT_VERSION, 0, len(out) + TRAILER_BYTES, 0)[:-_CHECKSUM_BYTES]
    out += checksum(out).to_bytes(_CHECKSUM_BYTES, "little")
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

    Args:
        tail: The last bytes of the object, or of what precedes `IndexedFraming.end_bytes`.
        shard: The shard, for messages.
        size: Bytes of the object up to there.

    Raises:
        FormatError: No trailer there, or one that contradicts the object's size.
        VersionError: Written by a newer version.
    """
    offset = max(0, size - TRAILER_BYTES)
    if len(tail) < TRAILER_BYTES or bytes(tail[-TRAILER_BYTES:][: len(_TRAILER_MAGIC)]) != _TRAILER_MAGIC:
        raise FormatError(
            "the shard does not end with an index",
            shard=shard,
            offset=offset,
            hint="it is truncated, or another program wrote it: fetch or write the shard again",
        )
    _, version, _, length, _ = _TRAILER.unpack_from(tail, len(tail) - TRAILER_BYTES)
    check_version(version, shard=shard, offset=offset)
    if not TRAILER_BYTES + _HEAD.size <= length <= size:
        raise FormatError(
            f"an index of {length} bytes in {size}", shard=shard, offset=offset, hint="fetch or write the shard again"
        )
    return int(length)


def check_version(version: object, **place: str | int | None) -> None:
    """Refuse what a newer version wrote, and what is not a version at all.

    Raises:
        VersionError: Newer than `FORMAT_VERSION`; says which.
        FormatError: No positive integer.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FormatError(
            f"the format version must be a positive integer, got {version!r}",
            hint="restore it from its source, or write it again",
            **place,
        )
    if version > FORMAT_VERSION:
        raise VersionError(
            f"format version {version} is newer than {FORMAT_VERSION}, the newest that this shardstream reads",
            hint="upgrade shardstream",
            **place,
        )


def parse_index(
    data: memoryview,
    *,
    path: str,
    framing: str,
    end: int,
    url: str = "",
    verify: bool = True,
    is_form: Callable[[str], bool] = _no_form,
) -> ShardIndex:
    """The index in ``data`` (head to trailer), as views of it.

    Args:
        data: The bytes of the index.
        path: The shard, for messages.
        framing: What the map must say.
        end: Bytes of the object that precede the index; every value must lie in them.
        url: The store's root, for messages.
        verify: Compare the checksum. Bounds are checked in any case.
        is_form: Whether a codec is a form that foreign values are stored in. Default: none is.

    Raises:
        ChecksumError: The bytes differ from those written.
        FormatError: The bytes are not an index, or values lie outside of the object.
    """
    stored = int.from_bytes(data[-_CHECKSUM_BYTES:], "little")
    if verify and checksum(data[:-_CHECKSUM_BYTES]) != stored:
        raise ChecksumError("the index is damaged", shard=path, offset=end, hint="fetch or write the shard again")
    try:
        return _parse(data, path, framing, end, url, is_form)
    except FormatError:
        raise
    except (struct.error, ValueError, TypeError, KeyError, msgpack.UnpackException, RecursionError) as error:
        raise FormatError(
            f"the index is malformed: {error}", shard=path, offset=end, hint="write the shard again"
        ) from error


def _parse(data: memoryview, path: str, framing: str, end: int, url: str, is_form: Callable[[str], bool]) -> ShardIndex:
    magic, version, length = _HEAD.unpack_from(data)
    if magic != _HEAD_MAGIC:
        raise ValueError("none begins where the trailer says")
    check_version(version, shard=path, offset=end)
    if length > min(_MAX_MAP, len(data) - TRAILER_BYTES - _HEAD.size):
        raise ValueError(f"a map of {length} bytes")
    head = msgpack.unpackb(data[_HEAD.size : _HEAD.size + length], raw=False)
    if head["framing"] != framing:
        raise ValueError(f"its framing is {head['framing']!r}, not {framing!r}")
    if head["end"] != end:
        raise ValueError(f"it belongs at byte {head['end']}, not {end}: the shard is truncated or was spliced")
    start = _HEAD.size + length
    body = data[start + padding(start, ALIGNMENT) : len(data) - TRAILER_BYTES]
    samples = head["samples"]
    tables: dict[str, dict[str, tuple[str, int, int]]] = {}
    for name, role, dtype, offset, count in head["arrays"]:
        tables.setdefault(name, {})[role] = (dtype, offset, count)
    keys = _keys(body, tables[""], samples, path)
    columns = {}
    for entry in head["fields"]:
        name = entry["name"]
        if not isinstance(name, str) or name in columns:
            raise ValueError(f"a field is called {name!r}, or there are two of that name")
        check_field_name(name)
        columns[name] = column = _column(body, entry, tables.get(name, {}))
        _check_column(column, samples, end, is_form)
        loose = framing == LOOSE and column.type.kind != "scalar"
        if loose != ((column.names is None) != (column.held is None)):
            raise ValueError(f"{name!r} {'lacks' if loose else 'has'} names of objects, or values in the index")
    stored = int.from_bytes(data[-_CHECKSUM_BYTES:], "little")
    return ShardIndex(path, framing, samples, keys, columns, end, url=url, checksum=stored)


def _keys(body: memoryview, table: dict[str, tuple[str, int, int]], samples: object, path: str) -> Keys:
    ends = _array(body, *table["key_ends"], _UNSIGNED)
    blob = _array(body, *table["key_blob"], ("|u1",))
    # Equal to the length of an array that lies in these bytes: so this bounds the number of samples.
    if type(samples) is not int or len(ends) != samples:
        raise ValueError(f"{len(ends)} keys for {samples!r} samples")
    if (int(ends[-1]) if samples else 0) != len(blob) or np.any(ends[1:] < ends[:-1]):
        raise ValueError("its keys do not follow one another")
    _check_keys(ends, blob)
    return Keys(ends, blob.data, shard=path)


def _check_keys(ends: NDArray[Any], blob: NDArray[np.uint8]) -> None:
    """What `check_key` asks of each, of all at once: keys become paths, and none may be absolute."""
    if not len(ends):
        return
    starts = np.concatenate((np.zeros(1, ends.dtype), ends[:-1]))
    if np.any(starts == ends):
        raise ValueError("one of its keys is empty")
    if np.any(blob[starts] == _SLASH) or np.any(blob[ends - 1] == _SLASH) or _TWO_SLASHES.search(blob.data):
        raise ValueError("one of its keys begins or ends with '/', or holds '//'")


def _column(body: memoryview, entry: dict[str, Any], table: dict[str, tuple[str, int, int]]) -> Column:
    kind = meant_type(entry["type"], entry.get("as"))
    parts = {}
    for role, allowed in _ROLES.items():
        if role in table:
            parts[role] = _array(body, *table[role], allowed or (kind.dtype.str if kind.dtype is not None else "",))
    return Column(entry["name"], kind, codec=entry["codec"], base=entry["base"], **parts)


def _array(body: memoryview, dtype: str, offset: int, count: int, allowed: tuple[str, ...]) -> NDArray[Any]:
    if dtype not in allowed:
        raise ValueError(f"an array of {dtype!r}, not {' or '.join(allowed)}")
    kind = np.dtype(dtype)
    if offset < 0 or count < 0 or offset + count * kind.itemsize > len(body):
        raise ValueError("an array reaches past it")
    return np.frombuffer(body, kind, count, offset)


def _check_column(column: Column, samples: int, end: int, is_form: Callable[[str], bool]) -> None:
    name, kind = column.name, column.type.kind
    for role in _ROLES:
        values = getattr(column, role)
        wanted = -(-samples // 8) if role == "valid" else samples
        if values is not None and len(values) != wanted and role not in ("names", "held"):
            raise ValueError(f"{role} of {name!r} are {len(values)}, not {wanted}")
    ours = column.codec in ("none", "zstd")
    if not (ours or is_form(column.codec)) or (column.codec == "zstd") != (column.raw_lengths is not None):
        raise ValueError(f"codec {column.codec!r} of {name!r}")
    if column.codec != "none" and kind != "payload":
        raise ValueError(f"{name!r} is compressed, but no payload")
    if kind == "scalar":
        if column.values is None:
            raise ValueError(f"{name!r} has no values")
        if column.type.name == "bool" and np.any(column.values.view(np.uint8) > 1):
            raise ValueError(f"{name!r} holds bytes that are neither true nor false")
    elif column.name_ends is not None or column.names is not None:
        _check_parts(column, column.names, column.name_ends)
    elif column.held_ends is not None or column.held is not None:
        _check_parts(column, column.held, column.held_ends)
    elif not _inside(column, samples, end):
        raise ValueError(f"values of {name!r} lie outside of the object")


def _check_parts(column: Column, blob: NDArray[Any] | None, ends: NDArray[Any] | None) -> None:
    """Check names of objects, or values that the index holds."""
    if ends is None or blob is None or column.offsets is not None or column.type.kind != "payload":
        raise ValueError(f"{column.name!r} has names of objects, or values, and is not a column of such")
    if np.any(ends[1:] < ends[:-1]) or (int(ends[-1]) if len(ends) else 0) != len(blob):
        raise ValueError(f"the names or values of {column.name!r} do not follow one another")


def _inside(column: Column, samples: int, end: int) -> bool:
    width = column.type.width if column.type.kind == "fixed" else None
    if width is not None and column.base is not None:
        return type(column.base) is int and 0 <= column.base <= end - samples * width
    if column.offsets is None or (width is None and column.lengths is None):
        return False
    offsets, lengths = column.offsets, column.lengths
    if column.valid is not None:
        valid = np.unpackbits(column.valid, count=samples, bitorder="little").astype(np.bool_)
        offsets, lengths = offsets[valid], None if lengths is None else lengths[valid]
    if not len(offsets):
        return True
    sizes = np.array([width], np.uint64) if lengths is None else lengths.astype(np.uint64)
    # Each is compared by itself first, so that no sum wraps.
    if int(offsets.max()) > end or int(sizes.max()) > end:
        return False
    return bool(np.all(offsets.astype(np.uint64) + sizes <= end))
