"""``Arrow``: which objects are Arrow's, and where their values lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from shardstream.errors import FormatError, UnsupportedError
from shardstream.formats.arrow.blocks import find_blocks
from shardstream.formats.arrow.columns import (
    NUMBERED,
    TableField,
    as_json,
    check_json,
    classes_of,
    features_of,
    fields_of,
)
from shardstream.formats.arrow.flatbuffers import Inconsistent
from shardstream.formats.arrow.folders import find_objects
from shardstream.formats.arrow.messages import AS_ITS_KIND, first_batch, read_schema
from shardstream.formats.arrow.places import BatchReader
from shardstream.formats.arrow.rows import scan_rows
from shardstream.formats.blocks.found_blocks import FoundBlocks
from shardstream.formats.chunks.encoded_values import npy_of
from shardstream.formats.contract import Form, ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows
from shardstream.storage import Store

_LEAVE_OUT = "leave it out: `shardstream index --field NAME=COLUMN` names those to take"


def npy_of_rows(stored: memoryview, text: str) -> bytes:
    """Rows of numbers as an NPY file; the text says the dtype, and how many there are along the other axes."""
    dtype, _, sizes = text.partition(":")
    kind = np.dtype(dtype).newbyteorder("<")
    shape = tuple(int(one) for one in sizes.split(","))
    width = kind.itemsize * int(np.prod(shape))
    if width <= 0:
        raise ValueError(f"rows of {width} bytes")
    return npy_of(stored, kind, (len(stored) // width, *shape))


class Arrow(SourceFormat):
    """IPC files and streams, Feather of version 2, and what ``datasets`` saves and keeps."""

    name: ClassVar[str] = "arrow"
    title: ClassVar[str] = "Arrow (IPC, Feather, datasets)"
    options: ClassVar[Mapping[str, str]] = {
        "json": "columns to take as JSON, with commas between: structs, and lists of numbers of which some are missing",
        "indices": "the name of a file of row numbers, such as filter and shuffle of datasets keep: only these rows",
    }
    window: ClassVar[int] = 64 << 10
    forms: ClassVar[Mapping[str, Form]] = {"rows": npy_of_rows}

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        found = find_objects(listing, options.get("indices"))
        if found is None:
            return None
        names = [one.strip() for one in options.get("json", "").split(",") if one.strip()]
        chosen = [text.partition(":")[0] for text in listing.chosen.values()]
        about: dict[str, Any] = {"chosen": chosen} if chosen else {}
        about |= {"json": names} if names else {}
        data, fields = self._first(listing.store, found.objects, about)
        check_json(fields, names, listing.url)
        _refuse_paths(data, fields)
        beside = [one for one in _all(data, {}) if one.beside]
        notes = (*found.notes, NUMBERED.format(beside[0].name)) if beside else found.notes
        objects = tuple(replace(one, about={**one.about, **about}) for one in found.objects)
        return Recognized(objects, classes_of(fields), notes)

    def _first(
        self, store: Store, objects: Sequence[SourceObject], about: Mapping[str, Any]
    ) -> tuple[ObjectBytes, tuple[TableField, ...]]:
        """The first object whose schema can be read, and the fields that are wanted; an error where none can."""
        failed = None
        for one in objects:
            try:
                data = self.open(store, one)
                return data, _fields(data, about)
            except UnsupportedError:
                raise
            except FormatError as error:
                failed = failed or error
        assert failed is not None
        raise failed

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        fields = _fields(data, about)
        first = first_batch(data)
        compressed = first is not None and first.head.codec is not None
        return find_blocks(data, fields) if compressed or any(one.how == "converted" for one in fields) else None

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        return scan_rows(data, _fields(data, about), about.get("rows"))


def _all(data: ObjectBytes, about: Mapping[str, Any]) -> tuple[TableField, ...]:
    schema = read_schema(data)
    chosen, whole = about.get("chosen", ()), about.get("json", ())
    return fields_of(schema.columns, features_of(schema.metadata), chosen=chosen, whole=whole)


def _fields(data: ObjectBytes, about: Mapping[str, Any]) -> tuple[TableField, ...]:
    """The fields of an object that are wanted.

    Raises:
        FormatError: One of them cannot be read; or there is none.
    """
    chosen, names = about.get("chosen", ()), about.get("json", ())
    found = [one for one in _all(data, about) if (one.name in chosen if chosen else not one.beside)]
    found = [as_json(one) if one.name in names else one for one in found]
    for one in found:
        if one.how == "refused":
            what = f"column {'.'.join(one.source)!r}: {one.why}"
            raise UnsupportedError(what, url=data.url, field=one.name, hint=_LEAVE_OUT)
    if not any(one.how != "nothing" for one in found) and not chosen:
        raise UnsupportedError("it has no column with values", url=data.url, hint=AS_ITS_KIND)
    return tuple(found)


def _refuse_paths(data: ObjectBytes, fields: Sequence[TableField]) -> None:
    """Refuse images and the like of which only the paths are stored, by the first batch."""
    batch = first_batch(data)
    if batch is None or batch.head.codec is not None or not batch.head.rows:
        return
    reader = BatchReader.of(data, read_schema(data), batch)
    for one in _all(data, {}):
        name = one.name.removesuffix(".path")
        told = next((field for field in fields if field.name == name), None)
        if not one.beside or one.how == "nothing" or told is None:
            continue
        try:
            without = told.how == "nothing" or not reader.has(told).any()
            if without and reader.has(one).any():
                what = f"column {one.source[0]!r} has only the paths of files, and not what is in them"
                hint = f"save_to_disk of datasets puts them in; or {_LEAVE_OUT}"
                raise UnsupportedError(what, url=data.url, field=name, hint=hint)
        except Inconsistent:
            return  # whoever reads on says so
