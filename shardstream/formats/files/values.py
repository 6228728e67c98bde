"""What becomes of the cells of a column: each is seen once, so that it is known what all are, and then taken."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from shardstream.errors import FieldError
from shardstream.formats.files.columns import ANY, LABEL, ListField
from shardstream.formats.files.names import file_column, kind_of
from shardstream.formats.scans.held import held_column
from shardstream.pack.sources.lists.chosen import FILE, filled
from shardstream.pack.sources.lists.records import (
    Broken,
    label_name,
    parse_label,
    parse_number,
    shown,
    text_of,
)
from shardstream.pack.sources.media import suffix_of
from shardstream.pack.sources.paths import common_folder
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, bitmap_of
from shardstream.shards.scalars import to_scalar

_PLAIN_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_PLAIN_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|nan", re.IGNORECASE)
_MOST_NAMES = 1_000_000
_MOST_SUFFIXES = 100


class CellValues(ABC):
    """The values of a field."""

    @abstractmethod
    def see(self, cell: Any) -> None:
        """Take a cell into account; `Broken` where it cannot be a value."""

    @abstractmethod
    def take(self, cell: Any) -> None:
        """The value of the next sample; `Broken`."""

    @abstractmethod
    def taken(self) -> Column:
        """What was taken; then there is nothing."""


def values_of(
    field: ListField, url: str, place: Callable[[str], str], labels: str | None, *, typed: bool = False
) -> CellValues:
    """What takes the cells of a field.

    Args:
        field: The field.
        url: The list, for messages.
        place: Gives the object that a list names; `Broken` where it may not.
        labels: What labels are: ``"int"``, ``"name"``, or ``None`` to find it out.
        typed: Whether text is a number where all cells of its column are numbers, or empty.
    """
    if field.kind == FILE:
        return FileValues(field, url, place)
    if field.kind == LABEL:
        return LabelValues(field, labels)
    if field.kind == ANY:
        return TextValues(field) if typed else AnyValues(field)
    return HeldValues(field, field.kind) if field.kind in ("str", "json") else NumberValues(field, field.kind)


class FileValues(CellValues):
    """Files that cells name.

    Attributes:
        paths: Their names, of the samples that were taken.
        common: The folder that all share.
    """

    def __init__(self, field: ListField, url: str, place: Callable[[str], str]) -> None:
        self._field = field
        self._template = field.template
        self._url = url
        self._place = place
        self._suffixes: set[str] = set()
        self.common: str | None = None
        self.paths: list[str] = []

    def see(self, cell: Any) -> None:
        path = self._path(cell)
        self._suffixes.add(suffix_of(path))
        if len(self._suffixes) > _MOST_SUFFIXES:
            raise Broken("the files have too many different suffixes", hint="is this a list of files?")
        if self.common is None or not path.startswith(self.common):
            self.common = common_folder(path if self.common is None else self.common, path)

    def _path(self, cell: Any) -> str:
        if cell is None or cell == "":
            raise Broken("the line has no path")
        if self._template is None and isinstance(cell, str):
            return self._place(cell)
        return self._place(filled(self._template, text_of(cell, "path")))

    def take(self, cell: Any) -> None:
        self.paths.append(self._path(cell))

    def taken(self) -> Column:
        kind = kind_of(self._suffixes, url=self._url)
        paths, self.paths = self.paths, []
        return file_column(self._field.name or kind.field, kind.type, paths)


class LabelValues(CellValues):
    """Labels: numbers, or names of classes.

    Attributes:
        classes: Names of the classes, once all labels were seen; ``None`` where they are numbers.
    """

    def __init__(self, field: ListField, labels: str | None) -> None:
        self._field = field
        self._labels = labels
        self._seen: set[str] = set()
        self._numbers = True
        self._integer: str | None = None
        self._other: str | None = None
        self._word = False
        self._found: list[int] = []
        self._known: dict[str, int] | None = None
        self.classes: tuple[str, ...] | None = None

    def see(self, cell: Any) -> None:
        if isinstance(cell, str) and cell in self._seen:
            return
        label = self._text(cell)
        if label in self._seen or (self._numbers and len(self._seen) >= _MOST_NAMES and _is_integer(label)):
            return
        self._seen.add(label)
        if _is_integer(label):
            self._integer = self._integer or label
        else:
            self._numbers, self._other = False, self._other or label
            self._word = self._word or not _is_number(label)
        if not self._numbers and len(self._seen) > _MOST_NAMES:
            raise Broken(f"the labels have more than {_MOST_NAMES:,} names", hint="choose another column")

    def _text(self, cell: Any) -> str:
        label = "" if cell is None else label_name(text_of(cell, "label"))
        if not label:
            raise Broken("the label is missing")
        return label

    def settle(self) -> None:
        """All labels were seen; `Broken` if some are integers, some not, and nobody said what they are."""
        if self._labels is None and self._other is not None and (self._integer is not None or not self._word):
            others = "some are integers" if self._integer is not None else "they are numbers"
            raise Broken(
                f"the label {shown(self._other)} is not a 64-bit integer, and {others}",
                hint="labels='name' (--format-option labels=name) takes all labels as names of classes; "
                "or correct those that are not integers",
            )
        if self._labels == "name" or (self._labels is None and not self._numbers):
            self.classes = tuple(sorted(self._seen))
            self._known = {name: number for number, name in enumerate(self.classes)}

    def take(self, cell: Any) -> None:
        known = self._known.get(cell) if self._known is not None and isinstance(cell, str) else None
        if known is not None:
            self._found.append(known)
            return
        label = self._text(cell)
        try:
            self._found.append(parse_label(label) if self._known is None else self._known[label])
        except (ValueError, KeyError):
            raise Broken(
                f"the label {shown(label)} is not a 64-bit integer",
                hint="labels='name' (--format-option labels=name) takes labels as names of classes",
            ) from None

    def taken(self) -> Column:
        found, self._found = self._found, []
        return Column(self._field.name, FieldType.parse("int64"), values=np.array(found, np.int64))


def _is_integer(label: str) -> bool:
    try:
        parse_label(label)
    except ValueError:
        return False
    return True


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


class NumberValues(CellValues):
    """Single numbers; an empty cell is a sample without a value."""

    def __init__(self, field: ListField, kind: str) -> None:
        self._field = field
        self._kind = FieldType.parse(kind)
        self._has: list[bool] = []
        self._found: list[Any] = []

    def see(self, cell: Any) -> None:
        if not _is_missing(cell):
            self._number(cell)

    def _number(self, cell: Any) -> Any:
        try:
            return to_scalar(self._kind, parse_number(self._kind, cell) if isinstance(cell, str) else cell)
        except (FieldError, ValueError, OverflowError) as error:
            text = cell if isinstance(cell, str) else repr(cell)
            raise Broken(f"column {self._field.column!r} holds {shown(text)}, not {self._kind}") from error

    def take(self, cell: Any) -> None:
        has = not _is_missing(cell)
        self._has.append(has)
        self._found.append(self._number(cell) if has else 0)

    def taken(self) -> Column:
        found, has = np.array(self._found, self._kind.dtype), np.array(self._has, np.bool_)
        self._found, self._has = [], []
        return Column(self._field.name, self._kind, valid=bitmap_of(has), values=found)


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


class HeldValues(CellValues):
    """Text, or JSON: the index holds it."""

    def __init__(self, field: ListField, kind: str) -> None:
        self._field = field
        self._kind = kind
        self._found: list[bytes | None] = []

    def see(self, cell: Any) -> None:
        self._bytes(cell)

    def _bytes(self, cell: Any) -> bytes | None:
        if cell is None:
            return None
        try:
            if self._kind == "str":
                return text_of(cell, f"column {self._field.column!r}").encode()
            value = json.loads(cell) if isinstance(cell, str) else cell
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (ValueError, RecursionError) as error:  # UnicodeEncodeError among them
            what = "Unicode" if self._kind == "str" else "JSON"
            raise Broken(f"column {self._field.column!r} holds what is not {what}") from error

    def take(self, cell: Any) -> None:
        self._found.append(self._bytes(cell))

    def taken(self) -> Column:
        found, self._found = self._found, []
        return held_column(self._field.name, self._kind, found)


class AnyValues(CellValues):
    """Cells as they stand: text, or what all values of a member of JSON are."""

    def __init__(self, field: ListField) -> None:
        self._field = field
        self._kinds: set[str] = set()
        self._as: CellValues | None = None

    def see(self, cell: Any) -> None:
        if cell is None:
            return
        if isinstance(cell, bool):
            self._kinds.add("bool")
        elif isinstance(cell, int):
            self._kinds.add("int64" if -(1 << 63) <= cell < 1 << 63 else "json")
        elif isinstance(cell, float):
            self._kinds.add("float64")
        else:
            self._kinds.add("str" if isinstance(cell, str) else "json")

    def _settled(self) -> CellValues:
        if self._as is None:
            kinds = {"float64"} if self._kinds == {"int64", "float64"} else self._kinds or {"str"}
            kind = kinds.pop() if len(kinds) == 1 else "json"
            held = kind in ("str", "json")
            self._as = (_JsonValues if kind == "json" else HeldValues if held else NumberValues)(self._field, kind)
        return self._as

    def take(self, cell: Any) -> None:
        self._settled().take(cell)

    def taken(self) -> Column:
        return self._settled().taken()


class TextValues(AnyValues):
    """Cells as they stand, but text that all cells of a column have as numbers, or true and false, as these."""

    def see(self, cell: Any) -> None:
        if not isinstance(cell, str):
            super().see(cell)
        elif cell.strip():
            self._kinds.add(_kind_of_text(cell.strip()))

    def _settled(self) -> CellValues:
        if "str" in self._kinds and self._kinds <= {"str", "int64", "float64", "bool"}:
            self._kinds = {"str"}
        return super()._settled()


def _kind_of_text(text: str) -> str:
    """The type of a number, true or false; ``str`` for all else, also of digits that a number would lose."""
    if text in ("True", "False", "true", "false"):
        return "bool"
    if _PLAIN_INTEGER.fullmatch(text):
        return "int64" if -(1 << 63) <= int(text) < 1 << 63 else "str"
    return "float64" if _PLAIN_NUMBER.fullmatch(text) else "str"


class _JsonValues(HeldValues):
    """Values of several kinds: text is text, and not JSON that is written as text."""

    def _bytes(self, cell: Any) -> bytes | None:
        return super()._bytes(json.dumps(cell) if isinstance(cell, str) else cell)
