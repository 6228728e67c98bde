"""An object of the store as blocks of rows, and what is damaged of it.

A block are the rows that end in some MB of the object. Nothing is kept from one block to the next but where it ends.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.shards.foreign.formats.jsonl.forms import unescaped
from shardstream.shards.foreign.formats.jsonl.structure import CUT_OFF, PARALLEL, Members, members
from shardstream.shards.foreign.formats.jsonl.values import BOOL, FLOAT, INT, NULL, OTHER, floats, integers, kinds_of
from shardstream.shards.foreign.object_bytes import ObjectBytes
from shardstream.shards.foreign.protobuf import Bytes, Malformed, Places
from shardstream.sizes import size as sized

_WINDOW = 2 << 20
LONGEST = 32 << 20
"""Bytes that a row may have."""
MOST_COLUMNS = 1024
_SHOWN = 60
_BLANKS = b" \t\r\n"
_TRUE, _BACKSLASH = b"t\\"


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
    """

    count: int
    columns: dict[str, BlockColumn] = field(default_factory=dict)


def is_list(data: ObjectBytes) -> bool:
    """Whether an object begins as a list, and not as lines."""
    start = bytes(data.get(0, min(4096, data.size))).removeprefix(codecs.BOM_UTF8).lstrip(_BLANKS)
    return start.startswith(b"[")


def blocks(data: ObjectBytes, keys: frozenset[str]) -> Iterator[RowBlock]:
    """All rows of an object.

    Args:
        data: The object.
        keys: Columns whose texts are needed.

    Raises:
        FormatError: It is damaged, or ends inside of a row: the rows before were given.
    """
    at, listed = _begin(data)
    line, first, closed = 1 + bytes(data.get(0, at)).count(b"\n"), True, False
    names = _Names(keys)
    while at < data.size and not closed:
        window = _Window(data, at, line, listed=listed, first=first)
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
        line += int(np.count_nonzero(window.raw[: found.consumed] == 10))
        at += found.consumed
    if listed and not closed:
        raise data.damaged("the list is cut off: no bracket closes it", data.size)


def _begin(data: ObjectBytes) -> tuple[int, bool]:
    """Where the first row, or the blanks before it, begins, and whether rows are in a list."""
    listed = is_list(data)
    start = bytes(data.get(0, min(4096, data.size)))
    mark = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    return (start.index(b"[") + 1 if listed else mark), listed


class _Window:
    """Some bytes of an object, from where an object begins or the one before ended.

    Attributes:
        raw: They.
        at: Where they begin in the object.
        last: Whether nothing follows them.
    """

    def __init__(self, data: ObjectBytes, at: int, line: int, *, listed: bool, first: bool) -> None:
        self.data = data
        self.at = at
        self.line = line
        self._listed = listed
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
                found = members(self.raw, listed=self._listed, first=self._first, last=self.last)
                self._check_text(found.consumed)
            except Malformed as error:
                damage = self.damage(error)
                self._cut(error.at)
                continue
            if found.consumed or damage is not None or self.last:
                return found, damage
            if len(self.raw) > LONGEST:
                what = f"a row has more than {sized(LONGEST)}"
                return found, self.data.damaged(what, self.at, hint="write such values to files of their own")
            self._read(2 * len(self.raw))

    def _check_text(self, end: int) -> None:
        raw = self.raw[:end]
        if len(raw) and int(raw.max()) > 127:
            try:
                str(raw.data, "utf-8")
            except UnicodeDecodeError as error:
                raise Malformed("this is not UTF-8", error.start) from None

    def _cut(self, end: int) -> None:
        """Keep what is before a place that is wrong: of lines, whole ones."""
        if not self._listed:
            end = int(self._line_begin(end))
        self.raw, self.last = self.raw[:end], False

    def _line_begin(self, at: int) -> int:
        return bytes(self.raw[:at]).rfind(b"\n") + 1

    def damage(self, error: Malformed) -> FormatError:
        """The error for what is wrong in here."""
        begin = self._line_begin(error.at)
        line = self.line + int(np.count_nonzero(self.raw[:begin] == 10))
        what = str(error)
        text = bytes(self.raw[begin:])
        if not self._listed and (b"\n" in text or (self.last and what != CUT_OFF)):
            what = _complaint(text.partition(b"\n")[0]) or what
        return self.data.damaged(f"line {line} is not a row: {what}", self.at + error.at)


def _complaint(line: bytes) -> str | None:
    """What Python's reader says of a line, which knows more words."""
    try:
        found = json.loads(line)
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except json.JSONDecodeError as error:
        return f"{error.msg} at column {error.colno}"
    except (ValueError, RecursionError):
        return None
    return None if isinstance(found, dict) else "it is not an object"


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
                raise Malformed(f"rows have more than {MOST_COLUMNS} different names", at)
            try:
                name = unescaped(b'"' + stored + b'"')
                name.encode()
            except ValueError:
                raise Malformed("a name is not text", at) from None
            self._known[stored] = name
        return name


def _block(
    window: _Window, found: Members, names: _Names, damage: FormatError | None
) -> tuple[RowBlock, FormatError | None]:
    """The rows of a window, up to the first whose values are wrong."""
    while True:
        try:
            return _columns(window, found, names), damage
        except Malformed as error:
            damage = window.damage(error)
            good = int(np.searchsorted(found.objects, error.at, side="right")) - 1
            found = _before(found, good)


def _before(found: Members, rows: int) -> Members:
    """The first rows alone."""
    end = int(np.searchsorted(found.owner, rows))
    cut = {name: getattr(found, name)[:end] for name in PARALLEL}
    return found._replace(objects=found.objects[:rows], **cut)


def _columns(window: _Window, found: Members, names: _Names) -> RowBlock:
    raw = window.raw
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
            begin + window.at,
            (end - begin).astype(np.int32),
            int(np.bitwise_or.reduce(kinds[chosen])),
            escaped[chosen] if escaped[chosen].any() else None,
        )
        if column.kinds == INT:
            column.numbers, beyond = integers(raw, begin, end)
            if beyond.any():
                column.kinds |= OTHER
        elif column.kinds & ~(INT | FLOAT) == 0:
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
