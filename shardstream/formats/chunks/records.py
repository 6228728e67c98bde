"""Samples as MDS and LitData lay them out: a table of offsets, then records that begin with the sizes of their values.

An object begins with a uint32 n and n + 1 uint32 offsets of records from its own start, the last one being its size. A
record is the uint32 sizes of those values that have none in common, then the values. All is little-endian. Records are
taken apart with numpy, a few MB at a time: the work a sample is some array elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import SNIFFED, START, ScannedRows, common_type, image_type, numbered_keys, pieces
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column

Bytes: TypeAlias = "NDArray[np.uint8]"
_SPAN = 4 << 20  # bytes of records that are taken apart at once
_MAX_DIGITS = 400  # of a number written as text; the longest float64 has 327


@dataclass(frozen=True, slots=True)
class Part:
    """A value that every record has.

    Attributes:
        field: The field that it becomes.
        type: Its type; of sniffed ones where they are not images.
        width: Bytes of every value; ``None``: they differ.
        sized: Whether records begin with its size; must be so where ``width`` is ``None``.
        codec: The form that it is stored in.
        meaning: ``sniffed``: an image by its first bytes, else of ``type``. ``digits``: a number as text.
    """

    field: str
    type: FieldType
    width: int | None
    sized: bool
    codec: str = "none"
    meaning: Literal["stored", "sniffed", "digits"] = "stored"


def offset_table(data: ObjectBytes, samples: int, end: int) -> NDArray[np.uint32]:
    """The n + 1 offsets of an object's records, as a view; they ascend.

    Args:
        data: The object.
        samples: How many records the index announces.
        end: Where the last one ends.

    Raises:
        FormatError: The table contradicts the object's size, or ``samples``, which its index announces.
    """
    (count,) = data.array("<u4", 1, 0).tolist()
    if count != samples:
        raise data.damaged(f"it holds {count} samples, and its index.json says {samples}", 0)
    table = data.array("<u4", count + 1, 4)
    first, last = int(table[0]), int(table[-1])
    if first < 8 + 4 * count:
        raise data.damaged(f"the first sample begins at {first}, inside of the table of offsets", 4)
    descends = table[1:] < table[:-1]
    if descends.any() or last != end:
        row = int(descends.argmax()) if descends.any() else count
        what = f"offset {row} of its table is {int(table[row])}, which does not fit records that end at {end}"
        if data.size >= 1 << 32:
            raise data.damaged(
                f"{what}: offsets have 32 bits", 4 + 4 * row, hint="write it again, in shards below 4 GiB"
            )
        raise data.damaged(what, 4 + 4 * row)
    return table


def scan_records(
    data: ObjectBytes, parts: Sequence[Part], table: NDArray[np.uint32 | np.int64]
) -> Iterator[ScannedRows]:
    """Where the values of all records lie, and the numbers among them; as `SourceFormat.scan`.

    Args:
        data: The object.
        parts: What each record has, in the order in which the values lie there.
        table: Where they begin, and where the last one ends, see `offset_table`.

    Raises:
        FormatError: The object contradicts its index or itself.
    """
    for begin, stop in pieces(len(table) - 1):
        piece = _Piece(data, parts, begin, table[begin : stop + 1].astype(np.int64))
        yield piece.rows()
        if piece.damage is not None:
            return


class _Piece:
    """Some records in a row.

    Attributes:
        whole: How many of them are sound, from the first one on.
        damage: What is wrong with the next one.
    """

    def __init__(self, data: ObjectBytes, parts: Sequence[Part], first: int, offsets: NDArray[np.int64]) -> None:
        self._data = data
        self._parts = parts
        self._first = first
        self._starts, self._ends = offsets[:-1], offsets[1:]
        self._sized = [number for number, part in enumerate(parts) if part.sized]
        self._head = 4 * len(self._sized)
        count = len(self._starts)
        self._places = np.zeros((len(parts), count), np.int64)
        self._lengths = np.zeros((len(parts), count), np.int64)
        self._numbers = {n: np.zeros(count, part.type.dtype) for n, part in enumerate(parts) if _is_number(part)}
        self._images: dict[int, set[str | None]] = {n: set() for n, part in enumerate(parts) if _is_sniffed(part)}
        self.whole = count
        self.damage: FormatError | None = None

    def rows(self) -> ScannedRows:
        """What was found in them, up to the first damaged one."""
        self._stop_at(self._ends - self._starts < self._least(), 0)
        begin = 0
        while begin < self.whole:
            # A read of many records together, or of one that is larger than a read.
            end = int(np.searchsorted(self._ends, self._starts[begin] + _SPAN, "right"))
            end = min(max(end, begin + 1), self.whole)
            self._measure(_Window.over(self._data, int(self._starts[begin]), int(self._ends[end - 1])), begin, end)
            begin = end
        if not self.whole:
            return ScannedRows((), (), self.damage)
        keys = numbered_keys(self._data.path, self._first, self.whole)
        return ScannedRows(keys, tuple(self._column(n) for n in range(len(self._parts))), self.damage)

    def _least(self) -> int:
        return self._head + sum(part.width or 0 for part in self._parts)

    def _stop_at(self, bad: NDArray[np.bool_], begin: int, what: str | None = None, hint: str | None = None) -> None:
        """Note the first record that is damaged, if any is; the first one of all makes the object worthless."""
        if not bad.any():
            return
        self.whole = begin + int(bad.argmax())
        offset = int(self._starts[self.whole])
        size = int(self._ends[self.whole]) - offset
        row = self._first + self.whole
        what = what or f"the sizes of its values do not add up to the {size} bytes that it has"
        error = self._data.damaged(f"sample {row}: {what}", offset)
        self.damage = FormatError(error.what, hint=hint or error.hint, **error.place)
        if row == 0:
            raise self.damage

    def _measure(self, window: _Window, begin: int, end: int) -> None:
        """Take the records ``[begin, end)`` apart."""
        starts = self._starts[begin:end]
        sizes = window.take(starts, self._head).view("<u4").astype(np.int64)
        lengths = self._lengths[:, begin:end]
        bad = np.zeros(end - begin, np.bool_)
        for column, number in enumerate(self._sized):
            lengths[number] = sizes[:, column]
        for number, part in enumerate(self._parts):
            if part.width is not None and part.sized:
                bad |= lengths[number] != part.width
            elif part.width is not None:
                lengths[number] = part.width
        behind = np.cumsum(lengths, axis=0)
        bad |= behind[-1] + self._head != self._ends[begin:end] - starts
        self._places[:, begin:end] = behind - lengths + (starts + self._head)
        self._stop_at(bad, begin)
        for number in self._numbers:
            self._read_numbers(window, number, begin, min(end, self.whole))
        for number, found in self._images.items():
            found.update(self._sniff(window, number, begin, min(end, self.whole)))

    def _read_numbers(self, window: _Window, number: int, begin: int, end: int) -> None:
        part = self._parts[number]
        if part.meaning == "digits":
            self._read_digits(window, number, begin, end)
        elif begin < end:
            stored = window.take(self._places[number, begin:end], part.type.width)
            kind = part.type.dtype
            assert kind is not None
            self._numbers[number][begin:end] = stored.any(axis=1) if kind.kind == "b" else stored.view(kind)[:, 0]

    def _read_digits(self, window: _Window, number: int, begin: int, end: int) -> None:
        part, whole = self._parts[number], self._parts[number].type.name == "int64"
        for row in range(begin, end):
            place, length = int(self._places[number, row]), int(self._lengths[number, row])
            text = window.bytes_at(place, min(length, _MAX_DIGITS + 1))
            try:
                if length > _MAX_DIGITS:
                    raise OverflowError
                self._numbers[number][row] = int(text) if whole else float(text)
            except (ValueError, OverflowError) as error:
                short = str(text[:40], "utf-8", "backslashreplace")
                what = f"{short!r} ({part.field}) is not {'an integer of 64 bits' if whole else 'a number'}"
                large = isinstance(error, OverflowError)
                hint = f"take it as text: option text={part.field}" if large else None
                self._stop_at(np.array([True]), row, what, hint)
                return

    def _sniff(self, window: _Window, number: int, begin: int, end: int) -> Iterator[str | None]:
        first = range(begin, min(end, SNIFFED))
        others = range(max(-(-begin // 64) * 64, 64), end, 64)
        for row in chain(first, others):
            length = int(self._lengths[number, row])
            if length:  # an empty value says nothing of the others
                yield image_type(window.bytes_at(int(self._places[number, row]), min(length, START)))

    def _column(self, number: int) -> Column:
        part, end = self._parts[number], self.whole
        if number in self._numbers:
            return Column(part.field, part.type, values=self._numbers[number][:end])
        kind = common_type(self._images[number], part.type.name) if number in self._images else part.type
        offsets = self._places[number, :end].astype(np.uint64)
        lengths = None if kind.kind == "fixed" else self._lengths[number, :end].astype(np.uint64)
        return Column(part.field, kind, codec=part.codec, offsets=offsets, lengths=lengths)


def _is_number(part: Part) -> bool:
    return part.type.kind == "scalar"


def _is_sniffed(part: Part) -> bool:
    return part.meaning == "sniffed"


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """Bytes around some records: all of theirs, or none where there are too many for one read."""

    data: ObjectBytes
    start: int
    held: Bytes | None

    @classmethod
    def over(cls, data: ObjectBytes, start: int, end: int) -> _Window:
        if end - start > _SPAN:
            return cls(data, start, None)
        return cls(data, start, np.frombuffer(data.get(start, end - start), np.uint8))

    def take(self, places: NDArray[np.int64], width: int) -> Bytes:
        """So many bytes at each place: (places, width)."""
        if self.held is None:
            views = [np.frombuffer(self.data.get(place, width), np.uint8) for place in places.tolist()]
            return np.stack(views)
        found: Bytes = self.held[(places - self.start)[:, None] + np.arange(width)]
        return found

    def bytes_at(self, place: int, length: int) -> bytes:
        """The bytes at one place."""
        if self.held is None:
            return bytes(self.data.get(place, length))
        return self.held[place - self.start : place - self.start + length].tobytes()


def rows_of(
    data: ObjectBytes, table: NDArray[np.uint32 | np.int64], field: str, kind: FieldType, codec: str
) -> Iterator[ScannedRows]:
    """Records of an `offset_table` that are one value each, without its size before it."""
    for begin, end in pieces(len(table) - 1):
        offsets = table[begin : end + 1].astype(np.uint64)
        column = Column(field, kind, codec=codec, offsets=offsets[:-1], lengths=np.diff(offsets))
        yield ScannedRows(numbered_keys(data.path, begin, end - begin), (column,))


def windows_of(
    data: ObjectBytes, table: NDArray[np.uint32 | np.int64], field: str, kind: FieldType
) -> Iterator[ScannedRows]:
    """The numbers of all records one after another, cut into windows of one length; what is left over is not given."""
    start = int(table[0])
    for begin, end in pieces((int(table[-1]) - start) // kind.width):
        offsets = start + np.arange(begin, end, dtype=np.uint64) * np.uint64(kind.width)
        yield ScannedRows(numbered_keys(data.path, begin, end - begin), (Column(field, kind, offsets=offsets),))
