"""A field over the rows of a row group: where its values lie, or the numbers themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UnsupportedError
from shardstream.formats.arrow.columns import TableField
from shardstream.formats.arrow.schema import LISTS
from shardstream.formats.blocks.parquet.columns import OpenPage, numbers, opened, split_dictionary
from shardstream.formats.blocks.parquet.encodings import AS_JSON, dictionary_numbers, wrong
from shardstream.formats.blocks.parquet.pages import PLAIN, Levels, Page, inflated
from shardstream.formats.blocks.parquet.values import BYTES, LeafShape, byte_values, places
from shardstream.formats.parquet.footer import ColumnChunk
from shardstream.formats.parquet.parts import (
    LARGEST_PART,
    check_encodings,
    is_plain,
    parts_of_bytes,
    parts_of_lists,
)
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import SNIFFED, START, common_type, image_type
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, bitmap_of

Places = NDArray[np.int64]


@dataclass(slots=True)
class ColumnValues:
    """A field over some rows.

    Attributes:
        has: Which of the rows have a value.
        numbers: Of scalars, the values of those that have one.
        offsets: Of others, where those lie.
        lengths: How long they are.
        kinds: Kinds of images that some of them are, of bytes: see `image_type`.
    """

    has: NDArray[np.bool_]
    numbers: NDArray[Any] | None = None
    offsets: Places | None = None
    lengths: Places | None = None
    kinds: set[str | None] = field(default_factory=set)


def joined(found: Sequence[ColumnValues]) -> ColumnValues:
    """The same of the rows of several row groups, one after another."""
    if len(found) == 1:
        return found[0]

    def whole(parts: list[NDArray[Any] | None]) -> NDArray[Any] | None:
        return None if parts[0] is None else np.concatenate([one for one in parts if one is not None])

    return ColumnValues(
        np.concatenate([one.has for one in found]),
        whole([one.numbers for one in found]),
        whole([one.offsets for one in found]),
        whole([one.lengths for one in found]),
        set().union(*(one.kinds for one in found)),
    )


def column_of(one: TableField, codec: str, found: ColumnValues, begin: int, end: int) -> Column | None:
    """Rows ``[begin, end)`` of a field; ``None`` where none of them has a value."""
    has = found.has[begin:end]
    low = int(np.count_nonzero(found.has[:begin]))
    high = low + int(np.count_nonzero(has))
    if low == high:
        return None
    valid = bitmap_of(has)
    if found.numbers is not None:
        return Column(one.name, one.type, valid=valid, values=_spread(has, found.numbers[low:high]))
    assert found.offsets is not None
    assert found.lengths is not None
    kind = one.type
    if one.how == "bytes":
        kind = common_type(found.kinds, str(one.type))
    return Column(
        one.name,
        kind,
        codec=codec,
        valid=valid,
        offsets=_spread(has, found.offsets[low:high].astype(np.uint64)),
        lengths=None if kind.kind == "fixed" else _spread(has, found.lengths[low:high].astype(np.uint64)),
    )


def _spread(has: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[Any]:
    if len(values) == len(has):
        return values
    out = np.zeros(len(has), values.dtype)
    out[has] = values
    return out


# ------------------------------------------------------------------------------------------------------------- numbers


def read_numbers(data: ObjectBytes, chunk: ColumnChunk, leaf: LeafShape, kind: FieldType) -> ColumnValues:
    """Numbers, which become scalars.

    Raises:
        DecodeError: A page is damaged.
        MissingExtraError: A package is not installed that it takes.
        StorageError: It cannot be read.
    """
    pages = chunk.pages(data)
    check_encodings(pages, leaf)
    has, out = [np.zeros(0, np.bool_)], [np.zeros(0, kind.dtype)]
    for one, values in numbers(data.get, pages, chunk.compression, leaf):
        assert kind.dtype is not None
        there = one.levels.definition
        has.append(np.ones(one.page.values, np.bool_) if there is None else there == leaf.definition)
        out.append(values.view(kind.dtype) if values.dtype.kind == "V" else values.astype(kind.dtype))
    return ColumnValues(np.concatenate(has), numbers=np.concatenate(out))


# --------------------------------------------------------------------------------------------------------------- bytes


class _Bytes:
    """Collects the values of pages of bytes or text.

    Args:
        data: The object.
        chunk: The values.
        leaf: How they are stored.
        pages: The pages.
    """

    def __init__(self, data: ObjectBytes, chunk: ColumnChunk, leaf: LeafShape, pages: Sequence[Page]) -> None:
        self._data, self._chunk, self._leaf = data, chunk, leaf
        self._pages = pages
        self._has = [np.zeros(0, np.bool_)]
        self._offsets, self._lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        self._count = 0
        self._kinds: set[str | None] = set()

    def values(self, base: int) -> tuple[ColumnValues, int]:
        """All values, and where the next block is shown, if the first one of the column is shown at ``base``."""
        shown: dict[int, int] = {}  # where the bytes of a page begin in the object as it is shown, by its place
        for part in parts_of_bytes(self._data, self._chunk, self._leaf, self._pages):
            at = base
            for page in part.pages:
                shown[page.at] = at if part.setting else page.body
                at += page.size
            if part.rewritten:
                shown |= dict.fromkeys((page.at for page in part.pages), base)
            base += part.size
        dictionary, rest = split_dictionary(self._pages)
        entries = None if dictionary is None else self._entries(dictionary, shown[dictionary.at])
        rewritten: dict[int, int] = {}
        for page in rest:
            one = opened(self._data.get, page, self._chunk.compression, self._leaf)
            there = one.levels.definition
            self._has.append(
                np.ones(page.values, np.bool_) if there is None else np.equal(there, self._leaf.definition)
            )
            if page.of_dictionary:
                self._add_entries(one, entries)
            elif is_plain(page, self._leaf):
                begins, lengths = self._places(one)
                self._sniff(one.values, begins, lengths)
                self._add(begins + (shown[page.at] + one.levels.begin), lengths)
            else:
                before = rewritten.get(shown[page.at], 0)
                lengths = self._lengths_of(one)
                self._add(np.cumsum(lengths) - lengths + (shown[page.at] + before), lengths)
                rewritten[shown[page.at]] = before + int(lengths.sum())
        found = ColumnValues(
            np.concatenate(self._has),
            offsets=np.concatenate(self._offsets),
            lengths=np.concatenate(self._lengths),
            kinds=self._kinds,
        )
        return found, base

    def _add(self, offsets: Places, lengths: Places) -> None:
        self._offsets.append(offsets)
        self._lengths.append(lengths)
        self._count += len(offsets)

    def _places(self, one: OpenPage) -> tuple[Places, Places]:
        if self._leaf.physical == BYTES:
            return places(one.page.encoding, one.values, one.there)
        if len(one.values) < one.there * self._leaf.width:
            raise wrong(f"{one.there} values of {self._leaf.width} bytes are not in {len(one.values)} bytes")
        return np.arange(one.there) * self._leaf.width, np.full(one.there, self._leaf.width)

    def _lengths_of(self, one: OpenPage) -> Places:
        """Lengths of values that are not written in one piece."""
        if self._leaf.physical != BYTES:
            return np.full(one.there, self._leaf.width)
        values = byte_values(one.page.encoding, one.values, one.there, LARGEST_PART)
        return np.fromiter(map(len, values), np.int64, one.there)

    def _entries(self, dictionary: Page, shown: int) -> tuple[memoryview, Places, Places, int]:
        """The bytes of the dictionary, where its entries begin in it and how long they are, and where it is shown."""
        body = inflated(dictionary, self._chunk.compression, self._data.get(dictionary.body, dictionary.stored))
        one = OpenPage(dictionary._replace(encoding=PLAIN), body, Levels(None, None, 0), dictionary.values)
        return body, *self._places(one), shown

    def _add_entries(self, one: OpenPage, entries: tuple[memoryview, Places, Places, int] | None) -> None:
        if entries is None:
            raise wrong("entries of a dictionary that is not there")
        body, begins, lengths, shown = entries
        chosen = dictionary_numbers(one.values, one.there, len(begins))
        self._sniff(body, begins[chosen], lengths[chosen])
        self._add(begins[chosen] + shown, lengths[chosen])

    def _sniff(self, body: memoryview, begins: Places, lengths: Places) -> None:
        """Look at some values; the next ones are these."""
        rows = np.arange(self._count, self._count + len(begins))
        for row in np.flatnonzero((rows < SNIFFED) | (rows % 64 == 0)).tolist():
            begin = int(begins[row])
            self._kinds.add(image_type(body[begin : begin + min(int(lengths[row]), START)]))


def read_bytes(data: ObjectBytes, chunk: ColumnChunk, leaf: LeafShape, base: int) -> tuple[ColumnValues, int]:
    """Bytes or text, and where the next block is shown.

    Args:
        data: The object.
        chunk: The values.
        leaf: How they are stored.
        base: Where the first block of the column is shown.

    Raises:
        DecodeError: A page is damaged.
        MissingExtraError: A package is not installed that it takes.
        StorageError: It cannot be read.
    """
    pages = chunk.pages(data)
    check_encodings(pages, leaf)
    return _Bytes(data, chunk, leaf, pages).values(base)


# --------------------------------------------------------------------------------------------------------------- lists


def read_lists(
    data: ObjectBytes, chunk: ColumnChunk, leaf: LeafShape, one: TableField, there: int, base: int
) -> tuple[ColumnValues, int]:
    """Lists of numbers, and where the next block is shown.

    Args:
        data: The object.
        chunk: The elements.
        leaf: How they are stored.
        one: The field.
        there: Level of definition from which on a row has a list, be it empty.
        base: Where the first block of the column is shown.

    Raises:
        DecodeError: A page is damaged, or lists are not of the shape that the field has.
        MissingExtraError: A package is not installed that it takes.
        StorageError: It cannot be read.
    """
    pages = chunk.pages(data)
    check_encodings(pages, leaf)
    dtype, nested = element_dtype(one), leaf.repetition == len(one.shape)
    has, offsets, lengths = [np.zeros(0, np.bool_)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for part in parts_of_lists(data, chunk, leaf, dtype, pages):
        shown = base
        if not part.setting:
            shown = part.open[0].page.body + part.open[0].levels.begin
        found = _rows_of(part.open, leaf, there, one.shape if nested else (math.prod(one.shape),))
        has.append(found.has)
        offsets.append((found.begins * dtype.itemsize + shown)[found.has])
        lengths.append((found.counts * dtype.itemsize)[found.has])
        base += part.size
    return ColumnValues(np.concatenate(has), offsets=np.concatenate(offsets), lengths=np.concatenate(lengths)), base


class _Lists(NamedTuple):
    """Which rows have a list, where it begins among the elements, and how many those are."""

    has: NDArray[np.bool_]
    begins: Places
    counts: Places


def _rows_of(run: Sequence[OpenPage], leaf: LeafShape, there: int, shape: Sequence[int]) -> _Lists:
    repetition = _joined([one.levels.repetition for one in run], run)
    definition = _joined([one.levels.definition for one in run], run)
    if len(repetition) and repetition[0]:
        raise wrong("a list begins before its row")
    starts = np.flatnonzero(repetition == 0)
    exist = definition >= leaf.element
    empty = np.searchsorted(starts, np.flatnonzero(~exist), "right") - 1
    counts = np.diff(np.append(starts, len(exist))) - np.bincount(empty, minlength=len(starts))
    begins = np.cumsum(counts) - counts
    has = definition[starts] >= there
    if len(repetition) - int(counts.sum()) != int((counts == 0).sum()):
        raise UnsupportedError("empty lists within lists", hint=AS_JSON)
    _check_shape(repetition, exist, begins[has], counts[has], shape)
    return _Lists(has, begins, counts)


def _joined(levels: Sequence[NDArray[Any] | None], run: Sequence[OpenPage]) -> NDArray[Any]:
    """The levels of all pages; 0 where a page has none."""
    found = [
        np.zeros(page.page.values, np.uint8) if one is None else one for one, page in zip(levels, run, strict=True)
    ]
    return found[0] if len(found) == 1 else np.concatenate(found)


def _check_shape(
    repetition: NDArray[Any], exist: NDArray[np.bool_], begins: Places, counts: Places, shape: Sequence[int]
) -> None:
    """Refuse lists within lists that are not of these lengths; the first may be any where that is negative."""
    whole = math.prod(shape)
    if shape[0] >= 0 and (counts != whole).any():
        what = f"a list of {int(counts[counts != whole][0])} elements, in a column of arrays of {list(shape)}"
        raise UnsupportedError(what, hint=AS_JSON)
    if len(shape) == 1:
        return
    levels = repetition[exist]
    place = np.arange(len(levels)) - np.repeat(begins, counts)
    for depth in range(1, len(shape)):
        inner = math.prod(shape[depth:])
        if not inner or ((levels <= depth) != (place % inner == 0)).any():
            what = f"lists of several lengths within a list, in a column of arrays of {list(shape)}"
            raise UnsupportedError(what, hint=AS_JSON)


def element_dtype(one: TableField) -> np.dtype[Any]:
    """The dtype of the elements of a field of lists."""
    kind = one.column.type
    while kind.kind in LISTS:
        kind = kind.children[0].type
    return np.dtype(kind.kind).newbyteorder("<")
