"""One foreign object to the indexes of its samples: `scan_object`, and what that returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import (
    ChangedError,
    FormatError,
    MissingExtraError,
    PlaceholderError,
    UnsupportedError,
    UsageError,
)
from shardstream.faults import fault_kind
from shardstream.formats.catalog.catalog import Reading
from shardstream.formats.contract import SourceObject, shown
from shardstream.formats.framing import FRAMING
from shardstream.formats.scans.choosing import choose
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import Loss, Remark, ScannedRows
from shardstream.shards.field_names import check_field_name
from shardstream.shards.index import Column, Keys, ShardIndex, check_key
from shardstream.shards.layout import checksums, pack_index
from shardstream.storage import Store, fetch
from shardstream.storage.base.placeholders import placeholder_in
from shardstream.storage.base.store import ObjectMeta

_PART = 64 << 20  # bytes of values whose checksums are made at once


@dataclass(frozen=True, slots=True)
class Piece:
    """One shard of an object: its samples, and their index.

    Kept in the journal: who changes what is in it gives that another version.

    Attributes:
        samples: How many.
        fields: Types by name; ``"image"`` where all are image files of several formats, `EMPTY` for empty lists.
        index: The bytes of the index.
        covered: Bytes of the object that its values take, about, for estimates.
        lost: Samples that cannot be read among these, or after them.
        blocks: Of a compressed object, its `ObjectBlocks`, packed; with its first samples.
        classes: Names of the classes, where its object says them.
        remarks: What a user should know of these samples.
    """

    samples: int
    fields: Mapping[str, str]
    index: bytes
    covered: int
    lost: tuple[Loss, ...] = ()
    blocks: bytes | None = None
    classes: tuple[str, ...] | None = None
    remarks: tuple[Remark, ...] = ()


EMPTY = "empty"
"""Kind of a field all of whose values are empty lists: of the type of lists elsewhere."""


def kind_of(column: Column, reading: Reading) -> str:
    """The type of a column as `Piece.fields` has it."""
    empty = reading.format.empty
    return EMPTY if empty and column.codec.partition(":")[0] == empty else str(column.type)


def about_digest(one: SourceObject) -> int:
    """Of what the scan of an object has to know from elsewhere."""
    if not one.about:  # mostly
        return 0
    return xxhash.xxh3_64_intdigest(json.dumps(one.about, sort_keys=True).encode())


def scan_object(
    store: Store, one: SourceObject, meta: ObjectMeta, reading: Reading, reached: Callable[[float], object] = float
) -> Iterator[Piece]:
    """The shards of an object, in order; if it is damaged, they say what is lost.

    Args:
        store: Where it lies.
        one: The object.
        meta: What the listing said of it.
        reading: How it is read.
        reached: As `ObjectBytes.reached`.

    Raises:
        FormatError: It is of a kind that cannot be read.
        FieldError, UsageError: It has no such fields as were chosen.
        ChangedError: It was replaced while it was scanned.
        StorageError: It cannot be read.
    """
    count = 0

    def rest(damage: FormatError, samples: int | None = None) -> Loss:
        announced = _announced(store, one, reading) if samples is None else None
        return Loss(_told(damage), samples if announced is None else max(announced - count, 0), 0, fault_kind(damage))

    try:
        inflated, data, found = shown(reading.format, store, one, reached)
        packed = None if found is None else found.blocks.pack()
        cut = None if found is None else found.damage
        for rows in reading.format.scan(data, one.about):
            count += len(rows.keys)
            if cut is not None and rows.damage is not None:  # of which it is a consequence
                rows, cut = replace(rows, damage=cut, lost=None), None
            # A last line that ends too early is a consequence, too.
            lost = tuple(one for one in rows.broken if cut is None or one.samples is not None)
            lost = lost if rows.damage is None else (*lost, rest(rows.damage, rows.lost))
            if lost and not count:
                _refuse_placeholder(store, one, reading)
            if rows.keys or lost or rows.remarks:
                yield replace(_piece(inflated, one, data, rows, reading), blocks=packed, lost=lost)
                packed = None if rows.keys else packed  # once is enough: those of parts of gzip files are large
        if cut is not None:
            yield Piece(0, {}, b"", 0, (rest(cut),))
    except FormatError as error:
        placeholder = error if isinstance(error, PlaceholderError) else _placeholder(store, one, reading)
        if isinstance(error, UnsupportedError) and placeholder is None:
            raise
        yield Piece(0, {}, b"", 0, (rest(placeholder or error),))
    now = store.meta(one.path)
    if (now.size, now.version) != (meta.size, meta.version):
        raise ChangedError(
            "the object was replaced while it was being indexed", url=store.locate(one.path), hint="index it again"
        )


def _placeholder(store: Store, one: SourceObject, reading: Reading) -> PlaceholderError | None:
    """The error for an object that is a placeholder, which no format understands."""
    if reading.format.loose:  # an object may stand for many files then
        return None
    return placeholder_in(store, one.path, one.size, offset=0)


def _refuse_placeholder(store: Store, one: SourceObject, reading: Reading) -> None:
    placeholder = _placeholder(store, one, reading)
    if placeholder is not None:
        raise placeholder


def _announced(store: Store, one: SourceObject, reading: Reading) -> int | None:
    """The number of samples that a damaged object should have, if anything says so."""
    try:
        return reading.format.announced(reading.format.open(store, one), one.about)
    except (FormatError, MissingExtraError):
        return None


def _piece(store: Store, one: SourceObject, data: ObjectBytes, rows: ScannedRows, reading: Reading) -> Piece:
    place = {"url": data.url}
    end = one.size if reading.format.loose else data.size
    columns = rows.columns if reading.format.chooses else choose(rows.columns, reading.chosen, place["url"])
    for column in columns:
        check_field_name(column.name)
    keys = rows.keys
    ends, blob = _encoded(keys, place["url"])
    if reading.checked:
        if reading.format.loose:
            what = "values that are files of their own have no checksums"
            raise UsageError(what, url=store.url, hint="leave checksums out, or pack them")
        index = ShardIndex(
            one.path, reading.framing.name, len(keys), Keys(ends, memoryview(blob)), {}, end, url=store.url
        )
        columns = tuple(_with_checksums(store, index, column) for column in columns)
    covered = sum(_covered(column, len(keys)) for column in columns)
    return Piece(
        len(keys),
        {column.name: kind_of(column, reading) for column in columns},
        pack_index(reading.framing.name, (ends, blob), columns, end=end) if keys else b"",
        covered * one.size // max(end, 1),  # of a compressed object the values are more
        classes=_checked_classes(rows.classes, place["url"]),
        remarks=rows.remarks,
    )


def _checked_classes(classes: tuple[str, ...] | None, url: str) -> tuple[str, ...] | None:
    for name in classes or ():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            what = f"a class is called {name!r}, which is not text that can be written as UTF-8"
            raise UnsupportedError(what, url=url, hint="name the class otherwise") from error
    return classes


def _told(damage: FormatError) -> str:
    offset = damage.place.get("offset")
    return damage.what if offset is None else f"{damage.what} (offset {offset})"


def _encoded(keys: Sequence[str], url: str) -> tuple[NDArray[np.uint64], bytes]:
    """Where each key ends, and all of them; FormatError for one that is none."""
    lines = "\n".join(("", *keys, ""))
    usual = lines.isascii() and lines.count("\n") == len(keys) + 1
    if usual and not any(odd in lines for odd in ("\n\n", "\n/", "/\n", "//")):  # so `check_key` takes them all
        lengths, blob = map(len, keys), "".join(keys).encode()
    else:
        encoded = [_checked(key, row, url) for row, key in enumerate(keys)]
        lengths, blob = map(len, encoded), b"".join(encoded)
    return np.cumsum(np.fromiter(lengths, np.uint64, len(keys)), dtype=np.uint64), blob


def _checked(key: str, row: int, url: str) -> bytes:
    try:
        return check_key(key).encode()
    except UsageError as error:
        raise UnsupportedError(
            f"{error.what}: {key!r}", url=url, sample=row, hint="name the samples otherwise"
        ) from error


def _covered(column: Column, samples: int) -> int:
    if column.lengths is not None:
        return int(column.lengths.sum(dtype=np.int64))
    if column.values is not None:
        return column.values.nbytes
    return column.type.width * samples if column.type.kind == "fixed" else 0


def _with_checksums(store: Store, index: ShardIndex, column: Column) -> Column:
    if column.type.kind == "scalar":
        return column
    index = replace(index, columns={column.name: column})
    sums = np.zeros(index.samples, np.uint64)
    rows = np.arange(index.samples)
    valid = column.valid_rows(rows)
    chosen = rows if valid is None else rows[valid]
    offsets, lengths = column.extents(chosen)
    ends = np.cumsum(lengths)
    start = 0
    while start < len(chosen):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _PART, side="right")))
        part = chosen[start:stop]
        buffers = fetch(store, _planner(index, part, column.name))
        sums[part] = checksums(buffers.views(index.path, offsets[start:stop], lengths[start:stop]))
        start = stop
    return replace(column, checksums=sums)


def _planner(index: ShardIndex, rows: Any, field: str) -> Callable[[], Any]:
    return lambda: FRAMING.plan(index, rows, [field])
