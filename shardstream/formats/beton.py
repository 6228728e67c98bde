"""FFCV's ``.beton``: a table of rows in front, pages of bytes, and a table of what lies in them at the end.

A head of 24 bytes (version, fields, size of a page, samples, where the last table begins), for each field its type,
name and 1,024 bytes of arguments, then a row a sample, laid out as a C structure. The last table has sample, place and
size of each piece of bytes: for images this is the only place that says their size.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError, FormatError
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows, numbered_keys, pieces, sniffed_type
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import SCALAR_TYPES, FieldType
from shardstream.shards.index import Column

_HEAD = struct.Struct("<HHIQQ")
_FIELD = struct.Struct("<B16s1024s")
_ARRAY = struct.Struct("<32QQ")
_VERSION = 2
_FLOAT, _INT, _IMAGE, _BYTES, _ARRAYS, _JSON, _TENSORS, _CUSTOM = 0, 1, 2, 3, 4, 5, 6, 255
_PLACE = np.dtype([("ptr", "<u8"), ("size", "<u8")])
_ROW = {
    _FLOAT: np.dtype("<f8"),
    _INT: np.dtype("<i8"),
    _IMAGE: np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("ptr", "<u8")]),
    _BYTES: _PLACE,
    _ARRAYS: np.dtype("<u8"),
    _JSON: _PLACE,
    _TENSORS: np.dtype("<u8"),
}
_ALLOCATION = np.dtype([("sample", "<u8"), ("ptr", "<u8"), ("size", "<u8")])
_JPG, _RAW = 0, 1
_LOOKED_AT = 16  # values of a field of bytes, spread over the object, by which images are told


class Beton(SourceFormat):
    """``*.beton``, version 2."""

    name: ClassVar[str] = "beton"
    title: ClassVar[str] = "an FFCV data set (.beton)"
    window: ClassVar[int] = 64 << 10

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        found = listing.only(".beton")
        if not found:
            return None
        if len(found) > 1:
            names = ", ".join(one.path for one in found[:5])
            raise FormatError(
                f"each .beton is a data set, and there are {len(found)}: {names}",
                url=listing.url,
                hint="give the URL of one of them",
            )
        return Recognized((SourceObject(found[0].path, found[0].size),))

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        beton = _Beton.of(data)
        columns = [_COLUMNS[one.kind](beton, one) for one in beton.fields]
        for begin, end in pieces(len(beton.rows)):
            part = tuple(_part(column, begin, end) for column in columns)
            yield ScannedRows(numbered_keys(data.path, begin, end - begin), part)


class _Field(NamedTuple):
    """A field: its type, name, and arguments; the name of its part of the rows; where it is described."""

    kind: int
    name: str
    arguments: bytes
    part: str
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class _Beton:
    """The tables of an object. Bytes of values lie from ``start`` to ``end``."""

    data: ObjectBytes
    fields: Sequence[_Field]
    rows: NDArray[Any]
    start: int
    end: int

    @staticmethod
    def of(data: ObjectBytes) -> _Beton:
        version, count, _, samples, end = _HEAD.unpack(data.get(0, _HEAD.size))
        if version != _VERSION:
            raise data.unsupported(
                f"version {version} of the .beton format; version {_VERSION} is read",
                0,
                hint="write the data again with FFCV 1.0",
            )
        if not end:
            raise data.damaged("its writer did not finish: there is no table of allocations", 16, hint="write it again")
        fields = [_field(data, number) for number in range(count)]
        if not fields or len({one.name for one in fields}) < count:
            raise data.damaged("it has no fields, or two of one name", _HEAD.size)
        row = np.dtype([(one.part, _ROW[one.kind]) for one in fields], align=True)
        at = _HEAD.size + count * _FIELD.size
        start = at + samples * row.itemsize
        if not start <= end <= data.size:
            raise data.damaged(
                f"{samples} samples are a table up to {start}, allocations should be at {end}, and it has {data.size} "
                "bytes",
                8,
            )
        return _Beton(data, fields, np.frombuffer(data.get(at, start - at), row), start, end)

    def column(self, field: _Field, kind: FieldType, places: NDArray[Any], sizes: NDArray[Any]) -> Column:
        """A column of values in pages, all of them inside of these."""
        wrong = (places < self.start) | (places > self.end) | (sizes > self.end - np.minimum(places, self.end))
        if wrong.any():
            row = int(wrong.argmax())
            raise self.data.damaged(
                f"{field.name!r} of sample {row} should be {sizes[row]} bytes from {places[row]} on, outside of the "
                f"pages [{self.start}, {self.end})",
                field.place,
            )
        lengths = None if kind.kind == "fixed" else sizes.astype(np.uint64)
        return Column(field.name, kind, offsets=places.astype(np.uint64), lengths=lengths)

    def sizes(self, field: _Field, places: NDArray[Any]) -> NDArray[np.uint64]:
        """How many bytes lie at these places, one a sample, as the table of allocations says."""
        room = self.data.size - self.end
        if room % _ALLOCATION.itemsize or room < len(places) * _ALLOCATION.itemsize:
            raise self.data.damaged("the table of allocations was cut off", self.end)
        table = np.frombuffer(self.data.get(self.end, room), _ALLOCATION)
        # Empty values have the place of what follows them: of those of one place, the last here is the largest.
        order = np.lexsort((table["size"], table["ptr"]))
        found = order[np.searchsorted(table["ptr"], places, side="right", sorter=order).clip(1) - 1]
        chosen = table[found]
        wrong = (chosen["ptr"] != places) | (chosen["sample"] != np.arange(len(places), dtype=np.uint64))
        if wrong.any():
            row = int(wrong.argmax())
            raise self.data.damaged(
                f"the table of allocations has no entry for {field.name!r} of sample {row}, at {places[row]}", self.end
            )
        sizes: NDArray[np.uint64] = chosen["size"]
        return sizes


def _field(data: ObjectBytes, number: int) -> _Field:
    place = _HEAD.size + number * _FIELD.size
    kind, name, arguments = _FIELD.unpack(data.get(place, _FIELD.size))
    text = name.partition(b"\0")[0].decode("latin1")
    if kind not in _ROW:
        what = "a field of a class of its own (custom)" if kind == _CUSTOM else f"of an unknown type ({kind})"
        raise data.unsupported(f"{text!r} is {what}", place, hint="write the data again, with fields of FFCV's own")
    return _Field(kind, usable_field(text), arguments, f"f{number}", place)


def _numbers(beton: _Beton, field: _Field) -> Column:
    values = beton.rows[field.part]
    return Column(field.name, FieldType.parse("int64" if field.kind == _INT else "float64"), values=values)


def _bytes(beton: _Beton, field: _Field) -> Column:
    places, sizes = beton.rows[field.part]["ptr"], beton.rows[field.part]["size"]
    column = beton.column(field, FieldType.parse("bytes"), places, sizes)
    some = np.unique(np.linspace(0, max(0, len(places) - 1), _LOOKED_AT).astype(np.int64))[: len(places)]
    return replace(column, type=sniffed_type(beton.data, places[some], sizes[some], "bytes"))


def _json(beton: _Beton, field: _Field) -> Column:
    sizes = beton.rows[field.part]["size"]
    if not sizes.all():
        raise beton.data.damaged(f"{field.name!r} of a sample lacks the zero byte that ends JSON", field.place)
    return beton.column(field, FieldType.parse("json"), beton.rows[field.part]["ptr"], sizes - np.uint64(1))


def _arrays(beton: _Beton, field: _Field) -> Column:
    """Arrays of one dtype and shape, which stand in the arguments: 32 axes, and the dtype as JSON, as numpy says it."""
    *axes, length = _ARRAY.unpack_from(field.arguments)
    text = field.arguments[_ARRAY.size :][:length]
    while axes and not axes[-1]:
        axes.pop()
    try:
        ((_, dtype),) = json.loads(text)
        kind = FieldType.parse(f"array:{_element(dtype)}:{','.join(map(str, axes))}")
    except (ValueError, TypeError, RecursionError, FieldError) as error:
        shape = f"{text[:60].decode('latin1')} of shape {axes}"
        raise beton.data.unsupported(
            f"{field.name!r} is an array of {shape}, which cannot be read",
            field.place,
            hint="arrays of little-endian integers, floats and bools are read",
        ) from error
    places = beton.rows[field.part]
    return beton.column(field, kind, places, np.full(len(places), kind.width, np.uint64))


def _element(text: object) -> str:
    """The name of a dtype as numpy abbreviates it; ValueError where it cannot be that of a field."""
    names = {np.dtype(name).newbyteorder("<").str: name for name in SCALAR_TYPES}
    if not isinstance(text, str) or text not in names:
        raise ValueError(f"no dtype {text!r}")
    return names[text]


def _images(beton: _Beton, field: _Field) -> Column:
    rows = beton.rows[field.part]
    modes = np.unique(rows["mode"]).tolist()
    if modes in ([], [_JPG]):
        return beton.column(field, FieldType.parse("jpg"), rows["ptr"], beton.sizes(field, rows["ptr"]))
    shapes = np.unique(np.stack([rows["height"], rows["width"]]), axis=1).T.tolist()
    if modes != [_RAW] or len(shapes) > 1:
        what = f"pixels of {len(shapes)} sizes" if modes == [_RAW] else "both JPEG files and pixels"
        raise beton.data.unsupported(
            f"{field.name!r} holds {what}, and no field can",
            field.place,
            hint="write the data again with RGBImageField(write_mode='jpg'), or with images of one size",
        )
    ((height, width),) = shapes
    kind = FieldType.parse(f"array:uint8:{height},{width},3")
    return beton.column(field, kind, rows["ptr"], np.full(len(rows), kind.width, np.uint64))


_COLUMNS = {
    _FLOAT: _numbers,
    _INT: _numbers,
    _IMAGE: _images,
    _BYTES: _bytes,
    _ARRAYS: _arrays,
    _JSON: _json,
    _TENSORS: _arrays,
}


def _part(column: Column, begin: int, end: int) -> Column:
    """Some rows of a column, as copies that do not keep the tables."""

    def some(array: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if array is None else array[begin:end].copy()

    return replace(column, values=some(column.values), offsets=some(column.offsets), lengths=some(column.lengths))
