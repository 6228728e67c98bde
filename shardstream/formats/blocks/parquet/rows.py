"""Columns of lists, structs and maps put together to rows, as JSON, or as msgpack where bytes are among them.

A row is written behind its length; one that is not there is a length that no row has.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np
from numpy.typing import NDArray

from shardstream.formats.blocks.json_values import json_bytes
from shardstream.formats.blocks.parquet.columns import OpenPage, numbers, texts
from shardstream.formats.blocks.parquet.encodings import unsupported, wrong
from shardstream.formats.blocks.parquet.pages import Get, Page
from shardstream.formats.blocks.parquet.values import BYTES, FIXED, LeafShape

MISSING = (1 << 32) - 1
"""The length of a row that is not there."""


class RowNode(NamedTuple):
    """A column, or what is within one, as rows are put together of it.

    Attributes:
        kind: ``leaf``, ``struct``, ``list``, or ``map``: a list of keys with values.
        optional: Whether it may be missing.
        repetition: Of what a list or map repeats, the level at which it does.
        definition: The level of definition from which on it is there; of a list or map, from which on it has something.
        leaf: The number of the first leaf that is in it.
        leaves: How many there are.
        children: Of a struct its fields, of a list the one of the elements, of a map those of key and value.
        names: Of the fields of a struct.
    """

    kind: str
    optional: bool
    repetition: int
    definition: int
    leaf: int
    leaves: int
    children: tuple[RowNode, ...] = ()
    names: tuple[str, ...] = ()

    def packed(self) -> list[Any]:
        """The same as JSON."""
        return [*self[:6], [one.packed() for one in self.children], list(self.names)]

    @classmethod
    def unpacked(cls, found: Sequence[Any]) -> RowNode:
        """The same of `packed`."""
        kind, optional, repetition, definition, leaf, leaves, children, names = found
        inner = tuple(cls.unpacked(one) for one in children)
        return cls(kind, optional, repetition, definition, leaf, leaves, inner, tuple(names))


class LeafColumn(NamedTuple):
    """A leaf, and the pages that hold its values.

    Attributes:
        leaf: How values are stored.
        meaning: What they are: ``number``, ``bool``, ``text``, ``bytes``, ``decimal:SCALE``, ``date``, ``time:UNIT``,
            ``timestamp:UNIT``, ``timestamp:UNIT,ZONE``, ``float16`` or ``unsigned``.
        compression: Of its chunk.
        pages: Its pages, the dictionary first if there is one.
    """

    leaf: LeafShape
    meaning: str
    compression: str
    pages: Sequence[Page]


def rows(get: Get, node: RowNode, columns: Sequence[LeafColumn], form: str, most: int) -> memoryview:
    """The rows of some columns: the length of each, then all one after another.

    Args:
        get: Reads bytes.
        node: How they are put together.
        columns: The leaves, in order.
        form: ``json`` or ``msgpack``.
        most: Bytes that all rows may have.

    Raises:
        UnsupportedError: A number is infinite, which JSON has no word for.
        DecodeError: A page is damaged, leaves contradict each other, or there are more bytes.
        MissingExtraError: A package is not installed that it takes.
    """
    write: Callable[[Any], bytes] = _msgpack if form == "msgpack" else json_bytes
    cursors = [_Cursor(get, one, most) for one in columns]
    first, lengths, out, size = cursors[0], array("I"), [], 0
    try:
        while first.at < len(first.definition):
            value = _optional(node, cursors)
            data = b"" if value is None else write(value)
            lengths.append(MISSING if value is None else len(data))
            out.append(data)
            size += len(data)
            if size > most:
                raise unsupported(f"its rows have more than {most} bytes")
    except IndexError:
        raise wrong("the columns of a struct are of different lengths") from None
    if any(one.at < len(one.definition) for one in cursors):
        raise wrong("the columns of a struct are of different lengths")
    return memoryview(b"".join([np.array(lengths, "<u4").tobytes(), *out]))


def row_places(data: memoryview, count: int) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Of what `rows` gives: which rows are there, where each begins, and how long it is.

    Raises:
        DecodeError: There are not as many.
    """
    if len(data) < 4 * count:
        raise wrong(f"{count} rows are not in {len(data)} bytes")
    lengths = np.frombuffer(data, "<u4", count).astype(np.int64)
    has = lengths != MISSING
    lengths[~has] = 0
    ends = np.cumsum(lengths) + 4 * count
    if (int(ends[-1]) if count else 0) != len(data):
        raise wrong(f"{count} rows are not {len(data)} bytes")
    return has, ends - lengths, lengths


def _msgpack(value: Any) -> bytes:
    return bytes(msgpack.packb(value))


# ---------------------------------------------------------------------------------------------------- putting together


class _Cursor:
    """The values of a leaf, and how far they were taken."""

    def __init__(self, get: Get, column: LeafColumn, most: int) -> None:
        self.at = 0
        self._next = 0
        self.repetition: list[int] = []
        self.definition: list[int] = []
        self._deepest = column.leaf.definition
        self._values: list[Any] = []
        for page, values in _converted(get, column, most):
            found = page.levels
            count = page.page.values
            self.repetition += [0] * count if found.repetition is None else found.repetition.tolist()
            self.definition += [self._deepest] * count if found.definition is None else found.definition.tolist()
            self._values += values

    def take(self) -> Any:
        """The next value; ``None`` for one that is missing."""
        there = self.definition[self.at] == self._deepest
        self.at += 1
        if not there:
            return None
        self._next += 1
        return self._values[self._next - 1]

    def goes_on(self, repetition: int) -> bool:
        """Whether what comes next is one more of a list that repeats at this level."""
        return self.at < len(self.repetition) and self.repetition[self.at] == repetition


def _optional(node: RowNode, cursors: Sequence[_Cursor]) -> Any:
    """What comes next of a node; ``None`` where it is missing."""
    first = cursors[node.leaf]
    if node.kind == "leaf":
        return first.take()
    there = first.definition[first.at]
    if node.kind == "struct":
        if node.optional and there < node.definition:
            _missing(node, cursors)
            return None
        return {name: _optional(child, cursors) for name, child in zip(node.names, node.children, strict=True)}
    if there < node.definition:
        _missing(node, cursors)
        # One level less is an empty list, where it may be missing itself.
        if node.optional and there < node.definition - 1:
            return None
        return [] if node.kind == "list" else {}
    found = [_element(node, cursors)]
    while first.goes_on(node.repetition):
        found.append(_element(node, cursors))
    return found if node.kind == "list" else _mapping(found)


def _element(node: RowNode, cursors: Sequence[_Cursor]) -> Any:
    if node.kind == "list":
        return _optional(node.children[0], cursors)
    return _optional(node.children[0], cursors), _optional(node.children[1], cursors)


def _missing(node: RowNode, cursors: Sequence[_Cursor]) -> None:
    for number in range(node.leaf, node.leaf + node.leaves):
        cursors[number].take()


def _mapping(pairs: Sequence[tuple[Any, Any]]) -> Any:
    """An object where all keys are texts, as JSON wants them, and none comes twice; else the pairs."""
    found = dict(pairs) if all(isinstance(key, str) for key, _ in pairs) else {}
    return found if len(found) == len(pairs) else [list(pair) for pair in pairs]


# ------------------------------------------------------------------------------------------------------------ meanings


def _converted(get: Get, column: LeafColumn, most: int) -> Iterator[tuple[OpenPage, list[Any]]]:
    """The pages of a leaf, and their values as they stand in rows."""
    leaf, meaning = column.leaf, column.meaning
    kind, _, text = meaning.partition(":")
    if leaf.physical in (BYTES, FIXED) and kind != "float16":
        make = _OF_BYTES[kind](text)
        for page, values in texts(get, column.pages, column.compression, leaf, most):
            yield page, list(map(make, values))
        return
    for page, found in numbers(get, column.pages, column.compression, leaf):
        yield page, _OF_NUMBERS[kind](found, text)


def _text(stored: bytes) -> str:
    try:
        return stored.decode()
    except UnicodeDecodeError as error:
        raise unsupported(f"a text is not UTF-8: {error}") from None


def _decimal(scale: str) -> Callable[[bytes], str]:
    return lambda stored: decimal_text(int.from_bytes(stored, "big", signed=True), int(scale))


def decimal_text(unscaled: int, scale: int) -> str:
    """A decimal of so many digits behind the point.

    >>> decimal_text(-12345, 2), decimal_text(5, 3), decimal_text(7, 0)
    ('-123.45', '0.005', '7')
    """
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else f"{sign}{digits}"


def _floats(found: NDArray[Any], _: str) -> list[Any]:
    """Floats, and nothing for NaN: JSON has no word for it."""
    values: list[Any] = found.tolist()
    for place in np.flatnonzero(np.isnan(found)).tolist():
        values[place] = None
    return values


def _numbers(found: NDArray[Any], text: str) -> list[Any]:
    return _floats(found, text) if found.dtype.kind == "f" else found.tolist()


def _times(found: NDArray[Any], unit: str) -> list[str]:
    """Times of a day, as ISO 8601 has them."""
    stamps = np.datetime_as_string(found.astype(np.int64).view(f"M8[{unit}]"))
    return [one.rpartition("T")[2] for one in stamps.tolist()]


def _stamps(found: NDArray[Any], text: str) -> list[str]:
    """Times as ISO 8601 has them; those of a time zone are UTC."""
    unit, _, zone = text.partition(",")
    stamps: list[str] = np.datetime_as_string(found.astype(np.int64).view(f"M8[{unit}]")).tolist()
    return [f"{one}Z" for one in stamps] if zone else stamps


_OF_BYTES: dict[str, Callable[[str], Callable[[bytes], Any]]] = {
    "text": lambda _: _text,
    "bytes": lambda _: bytes,
    "decimal": _decimal,
}
_OF_NUMBERS: dict[str, Callable[[NDArray[Any], str], list[Any]]] = {
    "number": _numbers,
    "bool": lambda found, _: found.tolist(),
    "unsigned": lambda found, _: found.view(f"<u{found.dtype.itemsize}").tolist(),
    "float16": lambda found, _: _floats(found.view("<f2"), ""),
    "decimal": lambda found, scale: [decimal_text(one, int(scale)) for one in found.tolist()],
    "date": lambda found, _: np.datetime_as_string(found.astype(np.int64).view("M8[D]")).tolist(),
    "time": _times,
    "timestamp": _stamps,
}
