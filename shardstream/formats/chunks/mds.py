"""MosaicML Streaming (MDS), version 2: an ``index.json``, and shards of records with an offset each.

Source: the formats' description and code in https://github.com/mosaicml/streaming, ``streaming/base/format``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from shardstream.errors import FieldError, FormatError, UnsupportedError, UsageError
from shardstream.formats.blocks.found_blocks import FoundBlocks, one_block
from shardstream.formats.chunks.encoded_values import (
    msgpack_of_jpegs,
    msgpack_of_list,
    npy_of,
    npy_of_pil,
)
from shardstream.formats.chunks.hashes import compare, known
from shardstream.formats.chunks.index_files import (
    INDEX,
    IndexEntry,
    check_names,
    json_object,
    notes_on_others,
    shown,
    sized_object,
    without_index,
)
from shardstream.formats.chunks.records import Part, offset_table, scan_records
from shardstream.formats.contract import Form, ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows
from shardstream.pack.export.mds_dtypes import CODES, DTYPES
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import SCALAR_TYPES, FieldType

_SHARD = re.compile(r".+\.mds(\.(zstd|gz|br|bz2|snappy))?")
_CODECS = {"zstd": "zstd", "gz": "gzip", "br": "brotli", "bz2": "bz2", "snappy": "snappy"}
_VERSION = 2
_LARGEST_VALUE = (1 << 32) - 1
_NUMBERS = {"int": "int64"} | {name: name for name in SCALAR_TYPES if name != "bool"}
_DIGITS = {"str_int": "int64", "str_float": "float64"}
# Type, form, and whether values are images where they begin as such.
_PAYLOADS = {
    "bytes": ("bytes", "", True),
    "jpeg": ("image", "", True),
    "png": ("image", "", True),
    "str": ("str", "", False),
    "str_decimal": ("str", "", False),
    "json": ("json", "", False),
    "pil": ("array", "pil", False),
    "jpeg_array": ("msgpack", "jpeg_array", False),
    "jpegarray": ("msgpack", "jpeg_array", False),
    "list[jpeg]": ("msgpack", "list", False),
    "list[png]": ("msgpack", "list", False),
    "list[pil]": ("msgpack", "list:pil", False),
}


def npy_of_ndarray(stored: memoryview, dtype: str) -> bytes:
    """An array whose shape, and dtype unless it is given, stand before its elements, as an NPY file."""
    position = 0
    if not dtype:
        dtype = DTYPES.get(stored[0], "") if len(stored) else ""
        position = 1
    if not dtype or len(stored) <= position:
        raise ValueError(f"{len(stored)} bytes are not an array")
    dimensions, width = stored[position] >> 2, 1 << (stored[position] & 3)
    position += 1
    if len(stored) < position + dimensions * width:
        raise ValueError(f"{len(stored)} bytes hold no shape of {dimensions} dimensions")
    shape = np.frombuffer(stored, f"<u{width}", dimensions, position).tolist()
    return npy_of(stored[position + dimensions * width :], np.dtype(dtype).newbyteorder("<"), tuple(shape))


class Mds(SourceFormat):
    """Folders that ``MDSWriter`` wrote, merged ones too."""

    name: ClassVar[str] = "mds"
    title: ClassVar[str] = "MosaicML MDS"
    options: ClassVar[Mapping[str, str]] = {
        "text": "columns of str_int and str_float to take as text, with commas between: what fits no number of 64 bits"
    }

    forms: ClassVar[Mapping[str, Form]] = {
        "ndarray": npy_of_ndarray,
        "pil": npy_of_pil,
        "jpeg_array": msgpack_of_jpegs,
        "list": msgpack_of_list,
    }

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        if INDEX not in listing:
            without_index(listing, _SHARD, self.title)
            return None
        found = json_object(listing.read(INDEX))
        url = listing.store.locate(INDEX)
        if found is None and listing.ending(".mds"):
            raise FormatError(
                f"the {INDEX} of MDS shards is not a JSON object", url=url, hint="fetch it again, or merge it anew"
            )
        if found is None or not isinstance(found.get("shards"), list) or "version" not in found:
            return None
        if found["version"] != _VERSION:
            raise UnsupportedError(
                f"MDS of version {shown(found['version'])} cannot be read",
                url=url,
                hint=f"only version {_VERSION} can; write it again with mosaicml-streaming",
            )
        shards = [_Shard(IndexEntry(one, f"shard {number}", url)) for number, one in enumerate(found["shards"])]
        if not shards:
            raise FormatError("no shards are listed", url=url, hint="let MDSWriter finish, or merge the indexes")
        check_names([one.path for one in shards], url)
        columns = _Columns(_names(options.get("text", "")))
        objects = tuple(one.located(listing, columns) for one in shards)
        columns.check_options()
        return Recognized(objects, notes=notes_on_others(listing, _SHARD, {one.path for one in objects}))

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        packed = about.get("packed")
        if packed is None:
            return None
        compare(data, packed["stored_hashes"], data.get(0, data.size))
        found = one_block(data, packed["codec"], packed["bytes"])
        assert found.first is not None, "it was inflated"
        compare(data, packed["hashes"], found.first)
        return found

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        parts = parts_of(about["columns"], data.url)
        return scan_records(data, parts, offset_table(data, about["samples"], data.size))

    def announced(self, data: ObjectBytes, about: Mapping[str, Any]) -> int | None:
        samples: int = about["samples"]
        return samples

    def checksums(self, one: SourceObject) -> str:
        names = known(one.about.get("packed", one.about).get("hashes", {}))
        return f"{', '.join(names)} of shards" if names else ""

    def differences(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[FormatError]:
        try:
            compare(data, about.get("hashes", {}), data.get(0, data.size))
        except FormatError as error:
            yield error


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


class _Shard:
    """A shard as ``index.json`` describes it."""

    def __init__(self, found: IndexEntry) -> None:
        format, version = found.get("format"), found.get("version")
        if (format, version) != ("mds", _VERSION):
            what = f"a shard of format {shown(format)}, version {shown(version)} cannot be read"
            hint = f"only mds of version {_VERSION} can; write the data set again with MDSWriter"
            if format is None:
                found.refuse(what, hint=hint)
            found.refuse_unsupported(what, hint=hint)
        raw = found.entry("raw_data")
        self.path = raw.path("basename")
        self._bytes = raw.count("bytes")
        self._samples = found.count("samples")
        self._index = found
        self._hashes = _hashes(raw)
        self._packed = found.entry("zip_data") if found.get("zip_data") else None

    def located(self, listing: ObjectListing, columns: _Columns) -> SourceObject:
        """It as an object of the listing, of the size that is announced; compressed if it is there only so."""
        about = {"samples": self._samples, "columns": columns.of(self._index, listing)}
        if self.path in listing or self._packed is None:
            about |= {"hashes": self._hashes} if self._hashes else {}
            return sized_object(listing, self.path, self._bytes, about, what="shard")
        packed = self._packed.path("basename")
        how = self._index.get("compression")
        codec = _CODECS.get(how.partition(":")[0]) if isinstance(how, str) else None
        if codec is None and packed in listing:
            raise UnsupportedError(
                f"the shard is compressed by {shown(how)}, which is not known",
                url=listing.store.locate(packed),
                hint="decompress the shards first, each beside its own under the name of raw_data in index.json",
            )
        about["packed"] = {
            "codec": codec,
            "bytes": self._bytes,
            "hashes": self._hashes,
            "stored_hashes": _hashes(self._packed),
        }
        return sized_object(listing, packed, self._packed.count("bytes"), about, what="shard")


def _hashes(found: IndexEntry) -> dict[str, str]:
    """Hashes of an object by the names of their algorithms; none where nothing says them."""
    hashes = found.get("hashes") or {}
    if not isinstance(hashes, dict) or not all(isinstance(one, str) for one in hashes.values()):
        found.refuse("hashes are not texts by name")
    return dict(hashes)


class _Columns:
    """What the columns of shards are called and how they are encoded; most often the same in all shards.

    Args:
        as_text: Columns of digits that are taken as text.
    """

    def __init__(self, as_text: frozenset[str]) -> None:
        self._as_text = as_text
        self._seen: dict[tuple[tuple[Any, ...], ...], list[list[Any]]] = {}
        self._changed: set[str] = set()

    def of(self, shard: IndexEntry, listing: ObjectListing) -> list[list[Any]]:
        """Field, encoding and common size of each column, for `SourceObject.about`; one list for equal shards."""
        columns = self._checked(shard)
        known = self._seen.setdefault(tuple(map(tuple, columns)), columns)
        if known is columns:
            parts_of(columns, listing.store.locate(INDEX))
        return known

    def _checked(self, shard: IndexEntry) -> list[list[Any]]:
        names, encodings, sizes = (
            shard.texts("column_names"),
            shard.texts("column_encodings"),
            shard.get("column_sizes"),
        )
        if not isinstance(sizes, list) or not len(names) == len(encodings) == len(sizes) or not names:
            shard.refuse("column_names, column_encodings and column_sizes are not as many as each other, or none")
        if not all(one is None or (type(one) is int and 0 <= one <= _LARGEST_VALUE) for one in sizes):
            shard.refuse("column_sizes are numbers of bytes, or null")
        columns = []
        for name, encoding, size in zip(names, encodings, sizes, strict=True):
            text = name in self._as_text and encoding in _DIGITS
            self._changed |= {name} if text else set()
            columns.append([usable_field(name), "str" if text else encoding, size or None])
        return columns

    def check_options(self) -> None:
        """Refuse names that are of no column of digits."""
        missing = sorted(self._as_text - self._changed)
        if missing:
            raise UsageError(f"no column of str_int or str_float is called {missing[0]!r}", hint="see option text")


def parts_of(columns: Sequence[Sequence[Any]], url: str) -> list[Part]:
    """What records of these columns have: field, encoding and common size each, in order.

    Raises:
        FormatError: One cannot be read; names its encoding.
    """
    parts = [_part(field, encoding, size, url) for field, encoding, size in columns]
    fields: set[str] = set()
    for part in parts:
        if part.field in fields:
            raise _refused(f"two columns become the field {part.field!r}", url)
        fields.add(part.field)
    return parts


def _part(field: str, encoding: str, size: int | None, url: str) -> Part:
    sized = size is None
    if encoding in _NUMBERS:
        kind = FieldType.parse(_NUMBERS[encoding])
        _check_size(field, encoding, size, kind.width, url)
        return Part(field, kind, kind.width, sized)
    if encoding in _DIGITS:
        return Part(field, FieldType.parse(_DIGITS[encoding]), size, sized, meaning="digits")
    if encoding in _PAYLOADS:
        stored, form, image = _PAYLOADS[encoding]
        codec = f"mds.{form}" if form else "none"
        meaning = "sniffed" if image else "stored"
        return Part(field, FieldType.parse(stored), size, sized, codec, meaning)  # type: ignore[arg-type]
    family, _, text = encoding.partition(":")
    if family == "ndarray":
        return _array_part(field, encoding, text, size, url)
    if encoding == "pkl":
        raise _refused(
            f"column {field!r} is of encoding 'pkl', a pickle, which could run any code",
            url,
            hint="write the data set again with another encoding, such as json or ndarray",
        )
    raise _refused(f"column {field!r} is of encoding {encoding!r}, which is not known", url)


def _array_part(field: str, encoding: str, text: str, size: int | None, url: str) -> Part:
    dtype, _, shape = text.partition(":")
    if (dtype or shape) and dtype not in CODES:
        raise _refused(f"column {field!r} is of encoding {encoding!r}, whose dtype is not known", url)
    if not shape:
        codec = f"mds.ndarray:{dtype}" if dtype else "mds.ndarray"
        return Part(field, FieldType.parse("array"), size, size is None, codec)
    try:
        kind = FieldType.parse(f"array:{dtype}:{shape}")
    except FieldError as error:
        raise _refused(f"column {field!r} is of encoding {encoding!r}: {error.what}", url) from error
    _check_size(field, encoding, size, kind.width, url)
    return Part(field, kind, kind.width, size is None)


def _check_size(field: str, encoding: str, size: int | None, width: int, url: str) -> None:
    if size is not None and size != width:
        raise _refused(f"column {field!r} is of encoding {encoding!r}: values have {width} bytes, not {size}", url)


def _refused(
    what: str, url: str, *, hint: str = "write the data set again, or leave the column out of it"
) -> UnsupportedError:
    return UnsupportedError(what, url=url, hint=hint)
