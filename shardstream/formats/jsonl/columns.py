"""What the members of all rows of an object become: fields of our types, and keys.

No row alone says what a column is, so all are looked at before the first is given. What is found of them is kept as
long as it is small; of a large object the rows are read again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import xxhash

from shardstream.errors import FormatError, UnsupportedError
from shardstream.formats.jsonl.blocks import RowBlock, blocks
from shardstream.formats.jsonl.forms import unescaped
from shardstream.formats.jsonl.values import (
    BOOL,
    FLOAT,
    FLOATS,
    INEXACT,
    INT,
    INTS,
    NONE_OF_THEM,
    TEXT,
)
from shardstream.formats.scans.object_bytes import FETCH_AGAIN, ObjectBytes
from shardstream.formats.scans.rows import Loss, ScannedRows, numbered_keys, pieces, usable_key
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, bitmap_of

KEY = "__key__"
LABEL, LABEL_COLUMN = "cls", "label"
_PLAIN = "write it again as UTF-8, in lines that are not as long"
_KEYS = (KEY, "key", "id")
_MOST_BROKEN = 10_000  # lines of an object that are named one by one: a catalogue has them in its head
_HELD = 64 << 20  # bytes of what was found that are kept until it is known what they are


class _Field(NamedTuple):
    """A field of ours."""

    name: str
    column: str
    kind: FieldType
    codec: str


class _Key:
    """A column whose values may be the keys: all different, and there in each row."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._seen = array("Q")
        self._fits = True

    def look(self, block: RowBlock) -> None:
        """Take a block into account."""
        column = block.columns.get(self.name)
        if not self._fits or column is None or column.texts is None or len(column.rows) != block.count:
            self._fits = False
            self._seen = array("Q")
            return
        if column.kinds & ~INEXACT not in (TEXT, INT) or not all(map(_is_key, column.texts)):
            self._fits = False
            return
        self._seen.extend(map(xxhash.xxh3_64_intdigest, column.texts))

    def fits(self, count: int) -> bool:
        """Whether it is one, of that many rows."""
        return self._fits and count > 0 and len(np.unique(np.frombuffer(self._seen, np.uint64))) == count


class JsonRows:
    """The rows of an object.

    Args:
        data: The object.
        format: The name that codecs begin with.
        about: ``json``, names of columns that stay JSON; ``float``, of those whose numbers are floats; ``key``, of the
            one with the keys.
    """

    def __init__(self, data: ObjectBytes, format: str, about: Mapping[str, Any]) -> None:
        self._data = data
        self._format = format
        self._json = frozenset(about.get("json", ()))
        self._floats = frozenset(about.get("float", ()))
        self._key = about.get("key")
        self._keys = [_Key(name) for name in ((self._key,) if self._key else _KEYS)]
        self._kinds: dict[str, int] = {}
        self._count = 0
        self._held: list[RowBlock] | None = []
        self._broken: list[Loss] = []

    def scanned(self) -> Iterator[ScannedRows]:
        """All rows, in pieces; the last has the lines that are broken, and what is lost behind it.

        Raises:
            FormatError: None of them is whole, or two columns have the same name here.
            StorageError: They cannot be read.
        """
        damage = self._survey()
        if not self._count:
            if self._broken:
                first, more = self._broken[0], len(self._broken) - 1
                what = f"{first.what}, and so are {more:,} more, which is all of them" if more else first.what
                lost = None if self._broken[-1].samples is None else more + 1
                if all(one.kind == "unsupported" for one in self._broken):
                    error: FormatError = UnsupportedError(what, url=self._data.url, hint=_PLAIN)
                else:
                    error = FormatError(what, url=self._data.url, hint=FETCH_AGAIN)
                yield ScannedRows([], (), error, lost=lost)
            return
        key, fields = self._key_column(), self._fields()
        found = iter(self._held) if self._held is not None else self._again(key)
        cut = _Cut(found)
        for begin, end in pieces(self._count):
            held = cut.to(begin, end)
            keys = self._keys_of(held, key, begin, end)
            columns = (_column(one, held, begin, end) for one in fields)
            rows = ScannedRows(keys, tuple(column for column in columns if column is not None))
            last = end == self._count
            yield replace(rows, damage=damage, broken=self._losses()) if last else rows

    def _survey(self) -> FormatError | None:
        """Look at all rows; what is wrong behind them."""
        size = 0
        try:
            for block in blocks(self._data, frozenset(one.name for one in self._keys)):
                self._broken += block.broken
                if not block.count:
                    continue
                self._count += block.count
                for name, column in block.columns.items():
                    self._kinds[name] = self._kinds.get(name, 0) | column.kinds
                for key in self._keys:
                    key.look(block)
                size += sum(column.size for column in block.columns.values())
                if self._held is not None:
                    self._held.append(block)
                    self._held = self._held if size <= _HELD else None
        except FormatError as error:
            if not self._count:
                raise
            return error
        return None

    def _losses(self) -> tuple[Loss, ...]:
        """The lines that are not rows; the rest of very many as one."""
        lost, more = self._broken[:_MOST_BROKEN], self._broken[_MOST_BROKEN:]
        if more:
            samples = None if more[-1].samples is None else len(more)
            lost = [*lost, Loss(f"{len(more):,} more lines are not rows, the first of them: {more[0].what}", samples)]
        return tuple(lost)

    def _again(self, key: str | None) -> Iterator[RowBlock]:
        """The rows once more, of a large object; as far as they are whole."""
        count = 0
        for block in blocks(self._data, frozenset([key] if key else [])):
            if block.count:
                yield block
            count += block.count
            if count == self._count:
                return

    def _key_column(self) -> str | None:
        for key in self._keys:
            if key.fits(self._count):
                return key.name
        if self._key and self._count:
            what = (
                f"column {self._key!r} cannot be the key: it is missing in a row, repeats, or is not text or integers"
            )
            raise UnsupportedError(
                what, url=self._data.url, hint="choose another column: option key=COLUMN, or leave it out"
            )
        return None

    def _keys_of(self, held: Sequence[tuple[int, RowBlock]], key: str | None, begin: int, end: int) -> Sequence[str]:
        if key is None:
            return numbered_keys(self._data.path, begin, end - begin)
        out: list[str] = []
        for first, block in held:
            texts = block.columns[key].texts
            assert texts is not None
            out += map(_key, texts[max(begin - first, 0) : end - first])
        return out

    def _fields(self) -> list[_Field]:
        found: dict[str, _Field] = {}
        for column, kinds in sorted(self._kinds.items()):
            if column == KEY:
                continue
            kind, codec = self._type(column, kinds)
            name = usable_field(column)
            if name in found:
                what = f"columns {found[name].column!r} and {column!r} are both called {name!r} here"
                raise UnsupportedError(what, url=self._data.url, hint="rename one of them")
            found[name] = _Field(name, column, FieldType.parse(kind), codec)
        label = found.get(LABEL_COLUMN)
        if LABEL not in found and label is not None and label.kind.name == "int64":
            found[LABEL] = found.pop(LABEL_COLUMN)._replace(name=LABEL)
        return [one for _, one in sorted(found.items())]

    def _type(self, column: str, kinds: int) -> tuple[str, str]:
        """The type that a column of these kinds of values becomes, and how it is stored."""
        if column in self._floats:
            kinds = kinds | FLOAT if kinds & INT else kinds | FLOATS if kinds & (INTS | NONE_OF_THEM) else kinds
        if column in self._json:
            return "json", "none"
        exact, kinds = not kinds & INEXACT, kinds & ~INEXACT
        if kinds & (FLOAT | FLOATS) and not exact:
            if column in self._floats:
                what = f"column {column!r} has integers that float64 does not hold with all their digits"
                hint = (
                    f"--format-option json={column} (SourceOptions(options={{'json': {column!r}}})) keeps them as JSON"
                )
                raise UnsupportedError(what, url=self._data.url, hint=hint)
            return "json", "none"
        if kinds == NONE_OF_THEM:
            return "json", f"{self._format}.empty"
        if kinds == TEXT:
            return "str", f"{self._format}.text"
        if kinds == BOOL:
            return "bool", "none"
        if kinds & ~(INT | FLOAT) == 0:
            return ("float64" if kinds & FLOAT else "int64"), "none"
        if kinds & ~(INTS | FLOATS | NONE_OF_THEM) == 0 and kinds != NONE_OF_THEM:
            dtype = "float64" if kinds & FLOATS else "int64"
            return f"values:{dtype}", f"{self._format}.numbers:{dtype}"
        return "json", "none"


def _key(stored: bytes) -> str:
    return usable_key(unescaped(stored) if stored[:1] == b'"' else stored.decode())


def _is_key(stored: bytes) -> bool:
    if b"\\" not in stored and b"/" not in stored:
        return stored != b'""'
    try:
        return bool(_key(stored).encode())
    except ValueError:
        return False


class _Cut:
    """Blocks one after another, those that some rows need at a time."""

    def __init__(self, found: Iterator[RowBlock]) -> None:
        self._found = found
        self._held: list[tuple[int, RowBlock]] = []
        self._end = 0

    def to(self, begin: int, end: int) -> list[tuple[int, RowBlock]]:
        """The blocks with these rows, each with the number of its first; those before are forgotten."""
        self._held = [(first, block) for first, block in self._held if first + block.count > begin]
        while self._end < end:
            block = next(self._found)
            self._held.append((self._end, block))
            self._end += block.count
        return list(self._held)


def _column(field: _Field, held: Sequence[tuple[int, RowBlock]], begin: int, end: int) -> Column | None:
    """A field of some rows; ``None`` where none of them has a value."""
    count = end - begin
    has = np.zeros(count, np.bool_)
    scalar = field.kind.kind == "scalar"
    values = np.zeros(count, field.kind.dtype if scalar else np.uint64)
    lengths = np.zeros(count, np.uint64)
    plain = field.kind.name == "str"
    for first, block in held:
        column = block.columns.get(field.column)
        if column is None:
            continue
        low, high = np.searchsorted(column.rows, [begin - first, end - first])
        rows = column.rows[low:high] + (first - begin)
        has[rows] = True
        if scalar:
            assert column.numbers is not None
            values[rows] = column.numbers[low:high]
        else:
            values[rows] = column.begin[low:high]
            lengths[rows] = column.lengths[low:high]
            plain = plain and (column.escaped is None or not column.escaped[low:high].any())
    if not has.any():
        return None
    if scalar:
        return Column(field.name, field.kind, valid=bitmap_of(has), values=values)
    if plain:  # nothing has to be unescaped
        values[has] += 1
        lengths[has] -= 2
    codec = "none" if plain else field.codec
    return Column(field.name, field.kind, codec=codec, valid=bitmap_of(has), offsets=values, lengths=lengths)
