"""An object of the store as blocks of rows, and what is damaged of it.

A block are the rows that end in some MB of the object. Nothing is kept from one block to the next but where it ends.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.encodings import FROM_UTF16, is_utf16
from shardstream.errors import FormatError
from shardstream.formats.jsonl.broken import BrokenLine, broken_lines, line_at, without
from shardstream.formats.jsonl.forms import unescaped
from shardstream.formats.jsonl.structure import PARALLEL, Members, members
from shardstream.formats.jsonl.values import (
    BOOL,
    FLOAT,
    INEXACT,
    INT,
    NULL,
    OTHER,
    are_exact,
    floats,
    integers,
    kinds_of,
)
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.protobuf import Bytes, Malformed, Places
from shardstream.formats.scans.rows import Loss
from shardstream.pack.sources.lists.json_rows import NOT_UTF8
from shardstream.sizes import size as sized

_WINDOW = 2 << 20
LONGEST = 32 << 20
"""Bytes that a row may have."""
MOST_COLUMNS = 1024
_SHOWN = 60
_BLANKS = b" \t\r\n"
_TRUE, _BACKSLASH, _NEWLINE, _SPACE = b"t\\\n "


@dataclass(slots=True, eq=False)
class BlockColumn:
    """The values of a column in a block.

    Attributes:
        rows: The rows that have one, counted from the block's first.
        begin: Where each lies in the object.
        lengths: Its bytes.
        kinds: All kinds of values that there are, as bits.
        escaped: Which of them have backslashes; ``None``: none.
        numbers: What they are, where all are numbers, or all true or false; else ``None``.
        texts: Their stored bytes, of a column that may be the key.
    """

    rows: NDArray[np.int32]
    begin: Places
    lengths: NDArray[np.int32]
    kinds: int
    escaped: NDArray[np.bool_] | None = None
    numbers: NDArray[Any] | None = None
    texts: list[bytes] | None = None

    @property
    def size(self) -> int:
        """About the bytes that it takes."""
        held = self.rows.nbytes + self.begin.nbytes + self.lengths.nbytes
        return (
            held + sum(60 + len(one) for one in self.texts or ()) + (0 if self.numbers is None else 8 * len(self.rows))
        )


@dataclass(slots=True, eq=False)
class RowBlock:
    """Some rows.

    Attributes:
        count: How many.
        columns: What they have, by name as the object has it.
        broken: Lines among them that are not rows.
        damage: The error behind them, if nothing more can be read.
    """

    count: int
    columns: dict[str, BlockColumn] = field(default_factory=dict)
    broken: list[Loss] = field(default_factory=list)
    damage: FormatError | None = None


def is_list(data: ObjectBytes) -> bool:
    """Whether an object begins as a list, and not as lines."""
    start = bytes(data.get(0, min(4096, data.size))).removeprefix(codecs.BOM_UTF8).lstrip(_BLANKS)
    return start.startswith(b"[")


def blocks(data: ObjectBytes, keys: frozenset[str]) -> Iterator[RowBlock]:
    """All rows of an object.

    Of lines, each one that is not a row is in `RowBlock.broken`, and those behind it are read. A list ends where it is
    damaged.

    Args:
        data: The object.
        keys: Columns whose texts are needed.

    Raises:
        FormatError: A list is damaged or cut off, or rows have too many names: the rows before were given.
    """
    at, listed = _begin(data)
    names = _Names(keys)
    line = 1 + bytes(data.get(0, at)).count(b"\n")
    if listed:
        yield from _listed(data, at, line, names)
    else:
        yield from _lines(data, at, line, names)


def _begin(data: ObjectBytes) -> tuple[int, bool]:
    """Where the first row, or the blanks before it, begins, and whether rows are in a list."""
    listed = is_list(data)
    start = bytes(data.get(0, min(4096, data.size)))
    if is_utf16(start):
        raise data.unsupported("text in UTF-16", 0, hint=FROM_UTF16)
    mark = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    return (start.index(b"[") + 1 if listed else mark), listed


# ---------------------------------------------------------------------------------------------------- lines


def _lines(data: ObjectBytes, at: int, line: int, names: _Names) -> Iterator[RowBlock]:
    """The rows of an object that has one a line."""
    while at < data.size:
        raw = _whole_lines(data, at)
        if raw is None:
            what = f"line {line} is not a row: it has more than {sized(LONGEST)} (offset {at})"
            yield RowBlock(0, broken=[Loss(what, 1, line, "unsupported")])
            at, line = _next_line(data, at), line + 1
            continue
        block = _block_of_lines(data, raw, at, line, names)
        yield block
        if block.damage is not None:
            raise block.damage
        at += len(raw)
        line += int(np.count_nonzero(raw == _NEWLINE))


def _whole_lines(data: ObjectBytes, at: int) -> Bytes | None:
    """The lines that end in some MB from here on, one at least; ``None``: the first one is too long."""
    length = _WINDOW
    while True:
        length = min(length, data.size - at)
        raw = np.frombuffer(data.get(at, length), np.uint8)
        if at + length == data.size:
            return raw
        ends = np.flatnonzero(raw == _NEWLINE)
        if len(ends):
            return raw[: int(ends[-1]) + 1]
        if length > LONGEST:
            return None
        length *= 2


def _next_line(data: ObjectBytes, at: int) -> int:
    """Where the line after this one begins, or the object ends."""
    while at < data.size:
        length = min(_WINDOW, data.size - at)
        end = bytes(data.get(at, length)).find(b"\n")
        if end >= 0:
            return at + end + 1
        at += length
    return at


def _block_of_lines(data: ObjectBytes, raw: Bytes, at: int, line: int, names: _Names) -> RowBlock:
    """The rows of some whole lines, and those among them that are none.

    Lines do not reach into one another, so what is wrong with one is found by looking at each: by Python's reader, all
    at once, since a file may have any number of such lines, and then those that our own rules alone refuse.
    """
    broken: list[BrokenLine] = []
    rest, asked = raw, False
    while True:
        try:
            _check_text(rest, len(rest))
            found = members(rest, listed=False, first=True, last=True)
            block = _columns(rest, at, found, names)
        except TooManyNames as error:
            first = line_at(raw, error.at, "").begin
            block = _block_of_lines(data, raw[:first], at, line, names)
            block.damage = data.unsupported(str(error), at + error.at, hint="put values into lists or maps of a column")
            return block
        except Malformed as error:
            more = [] if asked else list(broken_lines(raw))
            asked = True
            refused = more or [line_at(rest, error.at, str(error))]
            if rest[refused[0].begin : refused[0].end].max(initial=0) <= _SPACE:  # nothing more would be found
                raise data.damaged(str(error), at + error.at) from None
            broken += refused
            rest = without(rest, refused)
            continue
        broken.sort()
        block.broken = [_loss(one, at, line) for one in broken]
        return block


def _loss(one: BrokenLine, at: int, line: int) -> Loss:
    number = line + one.number
    what = f"line {number} is not a row: {one.complaint.what} (offset {at + one.begin + one.complaint.at})"
    if one.complaint.cut:
        return Loss(f"{what}, inside of which the file ends")
    return Loss(what, 1, number, "unsupported" if one.complaint.what == NOT_UTF8 else "damaged")


def _check_text(raw: Bytes, end: int) -> None:
    raw = raw[:end]
    if len(raw) and int(raw.max()) > 127:
        try:
            str(raw.data, "utf-8")
        except UnicodeDecodeError as error:
            raise Malformed("this is not UTF-8", error.start) from None


# --------------------------------------------------------------------------------------------------- a list


def _listed(data: ObjectBytes, at: int, line: int, names: _Names) -> Iterator[RowBlock]:
    """The rows of an object that is one list of them, up to the first that is damaged."""
    first, closed = True, False
    while at < data.size and not closed:
        window = _Window(data, at, line, first=first)
        found, damage = window.found()
        if len(found.objects):
            block, damage = _block(window, found, names, damage)
            if block.count:
                yield block
            first = False
        if damage is not None:
            raise damage
        closed = found.closed
        if closed or window.last:
            break
        line += int(np.count_nonzero(window.raw[: found.consumed] == _NEWLINE))
        at += found.consumed
    if not closed:
        raise data.damaged("the list is cut off: no bracket closes it", data.size)


class _Window:
    """Some bytes of a list, from where an object begins or the one before ended.

    Attributes:
        raw: They.
        at: Where they begin in the object.
        last: Whether nothing follows them.
    """

    def __init__(self, data: ObjectBytes, at: int, line: int, *, first: bool) -> None:
        self.data = data
        self.at = at
        self.line = line
        self._first = first
        self._read(_WINDOW)

    def _read(self, length: int) -> None:
        length = min(length, self.data.size - self.at)
        self.raw = np.frombuffer(self.data.get(self.at, length), np.uint8)
        self.last = self.at + length == self.data.size

    def found(self) -> tuple[Members, FormatError | None]:
        """What is whole in it, one row at least, and what is wrong behind that."""
        damage: FormatError | None = None
        while True:
            try:
                found = members(self.raw, listed=True, first=self._first, last=self.last)
                _check_text(self.raw, found.consumed)
            except Malformed as error:
                damage = self.damage(error)
                self.raw, self.last = self.raw[: error.at], False
                continue
            if found.consumed or damage is not None or self.last:
                return found, damage
            if len(self.raw) > LONGEST:
                what = f"a row has more than {sized(LONGEST)}"
                return found, self.data.unsupported(what, self.at, hint="write such values to files of their own")
            self._read(2 * len(self.raw))

    def damage(self, error: Malformed) -> FormatError:
        """The error for what is wrong in here."""
        line = self.line + int(np.count_nonzero(self.raw[: error.at] == _NEWLINE))
        return self.data.damaged(f"line {line} is not a row: {error}", self.at + error.at)


def _block(
    window: _Window, found: Members, names: _Names, damage: FormatError | None
) -> tuple[RowBlock, FormatError | None]:
    """The rows of a window, up to the first whose values are wrong."""
    while True:
        try:
            return _columns(window.raw, window.at, found, names), damage
        except Malformed as error:
            damage = window.damage(error)
            good = int(np.searchsorted(found.objects, error.at, side="right")) - 1
            found = _before(found, good)


def _before(found: Members, rows: int) -> Members:
    """The first rows alone."""
    end = int(np.searchsorted(found.owner, rows))
    cut = {name: getattr(found, name)[:end] for name in PARALLEL}
    return found._replace(objects=found.objects[:rows], **cut)


# -------------------------------------------------------------------------------------------------- columns


class TooManyNames(Malformed):
    """Rows have more different names than a file may have: no fault of a single row."""


class _Names:
    """The names of columns, as the bytes of an object have them: most rows have those of the row before."""

    def __init__(self, keys: frozenset[str]) -> None:
        self.keys = keys
        self._known: dict[bytes, str] = {}
        self._row: tuple[bytes, ...] = ()

    def columns(self, raw: Bytes, found: Members) -> dict[str, Places]:
        """The members of each column, as indices.

        Raises:
            Malformed: There are too many names, or a row has one twice.
        """
        total, count = len(found.owner), len(found.objects)
        width = int(np.searchsorted(found.owner, 0, side="right"))
        row = tuple(self._text(raw, found, number) for number in range(width))
        if total == width * count and len(set(row)) == width and self._repeats(raw, found, row):
            return {self._name(name, 0): np.arange(column, total, width) for column, name in enumerate(row)}
        numbers: dict[str, list[int]] = {}
        for number in range(total):
            name = self._name(self._text(raw, found, number), int(found.name_begin[number]))
            numbers.setdefault(name, []).append(number)
        out = {name: np.array(one, np.int64) for name, one in numbers.items()}
        for name, one in out.items():
            twice = np.flatnonzero(np.diff(found.owner[one]) == 0)
            if len(twice):
                at = int(found.name_begin[one[int(twice[0]) + 1]])
                raise Malformed(f"it has two values of {name[:_SHOWN]!r}", at)
        return out

    def _text(self, raw: Bytes, found: Members, number: int) -> bytes:
        return raw[found.name_begin[number] : found.name_end[number]].tobytes()

    def _repeats(self, raw: Bytes, found: Members, row: tuple[bytes, ...]) -> bool:
        """Whether every row has these names in this order."""
        width, count = len(row), len(found.objects)
        if not width:
            return True
        lengths = np.array([len(name) for name in row])
        shape = (count, width)
        if (found.owner.reshape(shape) != np.arange(count)[:, None]).any():
            return False
        if ((found.name_end - found.name_begin).reshape(shape) != lengths).any():
            return False
        for column, name in enumerate(row):
            begins = found.name_begin.reshape(shape)[:, column]
            for place, letter in enumerate(name):
                if (raw[begins + place] != letter).any():
                    return False
        return True

    def _name(self, stored: bytes, at: int) -> str:
        name = self._known.get(stored)
        if name is None:
            if len(self._known) >= MOST_COLUMNS:
                raise TooManyNames(f"rows have more than {MOST_COLUMNS} different names", at)
            try:
                name = unescaped(b'"' + stored + b'"')
                name.encode()
            except ValueError:
                raise Malformed("a name is not text", at) from None
            self._known[stored] = name
        return name


def _columns(raw: Bytes, at: int, found: Members, names: _Names) -> RowBlock:
    """The values of some objects in bytes that begin at a place of the object; `Malformed`."""
    block = RowBlock(len(found.objects))
    if not len(found.owner):
        return block
    kinds, escaped = kinds_of(raw, found), _escaped(raw, found)
    for name, chosen in names.columns(raw, found).items():
        chosen = chosen[kinds[chosen] != NULL]
        if not len(chosen):
            continue
        begin, end = found.begin[chosen], found.end[chosen]
        column = BlockColumn(
            found.owner[chosen].astype(np.int32),
            begin + at,
            (end - begin).astype(np.int32),
            int(np.bitwise_or.reduce(kinds[chosen])),
            escaped[chosen] if escaped[chosen].any() else None,
        )
        if column.kinds == INT:
            column.numbers, beyond = integers(raw, begin, end)
            if beyond.any():
                column.kinds |= OTHER
            if not are_exact(column.numbers):
                column.kinds |= INEXACT
        elif column.kinds & ~(INT | FLOAT) == 0:
            whole = kinds[chosen] == INT
            values, beyond = integers(raw, begin[whole], end[whole])
            if beyond.any() or not are_exact(values):
                column.kinds |= INEXACT
            column.numbers = floats(raw, begin, end)
        elif column.kinds == BOOL:
            column.numbers = raw[begin] == _TRUE
        if name in names.keys:
            pairs = zip(begin.tolist(), end.tolist(), strict=True)
            column.texts = [raw[one:two].tobytes() for one, two in pairs]
        block.columns[name] = column
    return block


def _escaped(raw: Bytes, found: Members) -> NDArray[np.bool_]:
    """Which values have backslashes."""
    slashes = np.flatnonzero(raw[: found.consumed] == _BACKSLASH)
    more: NDArray[np.bool_] = np.searchsorted(slashes, found.begin) < np.searchsorted(slashes, found.end)
    return more
