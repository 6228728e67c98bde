"""Lists of files: a line a sample, as ``path<TAB>label``, csv, paths alone, or MXNet's ``.lst``.

A list is read twice, some megabytes at a time: for what all its names share, its suffixes and its labels; then for its
rows. Nothing of it stays in memory but the names of its classes.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardstream.errors import FormatError, UsageError
from shardstream.shards.fields import FieldType
from shardstream.shards.foreign.contract import ForeignObject, ObjectListing, Recognised
from shardstream.shards.foreign.formats.files.columns import columns_of
from shardstream.shards.foreign.formats.files.names import (
    Kind,
    below,
    file_column,
    key_of,
    kind_of,
    suffix_of,
)
from shardstream.shards.foreign.names import common_folder
from shardstream.shards.foreign.object_bytes import ObjectBytes
from shardstream.shards.foreign.rows import PIECE, ScannedRows, usable_field, usable_key
from shardstream.shards.index import Column
from shardstream.storage.base.store import ObjectMeta
from shardstream.text import in_one_line, valid_unicode

_WINDOW = 4 << 20
_LONGEST = 1 << 20  # of a line
_MOST_NAMES = 1_000_000
_MOST_SUFFIXES = 100
_EXACT = 1 << 53  # up to which a float tells integers apart
_SHOWN = 80


def recognised(listing: ObjectListing, one: ObjectMeta, options: Mapping[str, str]) -> Recognised:
    """A list as a data set of one object.

    Raises:
        FormatError: It is none.
        UsageError: An option names no column.
    """
    if options.get("labels", "int") not in ("int", "name"):
        raise UsageError(f"labels={options['labels']!r}: there are 'int' and 'name'", url=listing.url)
    about = {"root": listing.url, "options": {name: options[name] for name in sorted(options)}}
    data = ObjectBytes(listing.store, one.path, one.size, window=_LONGEST)
    columns = _List(data, about).columns
    notes = (f"Columns that are not read: {', '.join(map(in_one_line, columns.unused))}.",) if columns.unused else ()
    del about["root"]  # the same list elsewhere is the same data
    return Recognised((ForeignObject(one.path, one.size, about),), notes=notes)


def scanned(data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
    """The rows of a list.

    Raises:
        FormatError: It is not a list, or a line cannot be read; names it.
    """
    found = _List(data, about)
    seen = _Seen()
    for line, cells in found.lines():
        seen.take(found, line, cells)
    if not seen.lines:
        raise FormatError("the list has no line", url=data.url, hint="give one with a file a line")
    yield from found.rows(seen)


class _List:
    """A list with its columns."""

    def __init__(self, data: ObjectBytes, about: Mapping[str, Any]) -> None:
        self._data = data
        self.url = data.url
        self.folder = data.path.rpartition("/")[0]
        self.root = data.url[: len(data.url) - len(data.path)].rstrip("/")
        self._suffix = suffix_of(data.path)
        first = next(self._texts(), None)
        self._split = self._splitter(first or "")
        try:
            cells = next(self._split(iter([first or ""])), [""])
        except csv.Error as error:
            raise self.broken(1, f"the line is not CSV: {error}") from error
        self.columns = columns_of(cells, self._suffix, about["options"], data.url)
        self.labels = about["options"].get("labels")

    def _splitter(self, first: str) -> Callable[[Iterator[str]], Iterator[list[str]]]:
        if self._suffix == "csv":
            return lambda lines: csv.reader(lines, strict=True)
        if "\t" in first:
            return lambda lines: (line.split("\t") for line in lines)
        last = first.rsplit(None, 1)
        if len(last) == 2 and last[1].lstrip("-").isdecimal():
            return lambda lines: (line.rsplit(None, 1) for line in lines)
        return lambda lines: ([line] for line in lines)

    def _texts(self) -> Iterator[str]:
        """Its lines as text, without their ends; in a csv file with them."""
        data, at, rest = self._data, 0, b""
        ends = "\n" if self._suffix == "csv" else ""
        while at < data.size:
            part = bytes(data.get(at, min(_WINDOW, data.size - at)))
            if not at:
                if b"\0" in part[:4096]:
                    raise FormatError("this is not text", url=data.url, hint="give a list of files")
                part = part.removeprefix(b"\xef\xbb\xbf")
                at = min(_WINDOW, data.size)
            else:
                at += len(part)
            lines = (rest + part).split(b"\n")
            rest = lines.pop() if at < data.size else b""
            if len(rest) > _LONGEST:
                raise FormatError(f"a line has more than {_LONGEST:,} bytes", url=data.url, hint="give a list of files")
            for line in lines:
                yield line.removesuffix(b"\r").decode("utf-8", "surrogateescape") + ends

    def lines(self) -> Iterator[tuple[int, Sequence[str]]]:
        """Number and cells of each line, but for the header and empty ones."""
        texts, count, number = self._texts(), self.columns.width, 0
        cells = self._split(texts)
        try:
            for number, found in enumerate(cells, 1):
                if not found or found == [""] or (self.columns.header and number == 1):
                    continue
                if len(found) != count:
                    raise self.broken(number, f"the line has {len(found)} columns where the first has {count}")
                yield number, found
        except csv.Error as error:
            raise self.broken(number + 1, f"the line is not CSV: {error}") from error

    def broken(self, line: int, what: str, hint: str = "correct the list") -> FormatError:
        """The error for a line, by its number from 1."""
        return FormatError(what, url=self.url, line=line, hint=hint)

    def label(self, line: int, text: str) -> str:
        """The label in a cell, as text."""
        label = text.strip()
        if not label:
            raise self.broken(line, "the label is missing")
        return label if label.isascii() else valid_unicode(label)

    def name(self, line: int, text: str) -> str:
        """The object that a cell names."""
        found = below(self.root, self.folder, text)
        if found is None:
            shown = in_one_line(valid_unicode(text[:_SHOWN]))
            what = f"{shown!r} does not lie below {self.root}" if text else "the line has no path"
            raise self.broken(line, what, "put the list where its files are, or `shardstream pack` it")
        return found

    def rows(self, seen: _Seen) -> Iterator[ScannedRows]:
        """Its rows, with what was seen of all."""
        by_name = self.labels == "name" or (self.labels is None and not seen.numbers)
        classes = tuple(sorted(seen.labels)) if by_name and self.columns.label is not None else None
        known = {name: number for number, name in enumerate(classes or ())}
        kinds = [kind_of(suffixes, url=self.url) for suffixes in seen.suffixes]
        part = _Part(self, kinds, known if classes is not None else None, len(seen.common or ""))
        first = classes
        for line, cells in self.lines():
            part.take(line, cells)
            if len(part.keys) == PIECE:
                yield part.taken(first)
                first = None
        if part.keys:
            yield part.taken(first)


@dataclass(slots=True)
class _Seen:
    """What a first reading has shown."""

    lines: int = 0
    common: str | None = None
    suffixes: list[set[str]] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    numbers: bool = True  # whether all labels are

    def take(self, found: _List, line: int, cells: Sequence[str]) -> None:
        """Take a line into account."""
        columns = found.columns
        self.lines += 1
        if not self.suffixes:
            self.suffixes = [set() for _ in columns.paths]
        for number, (place, suffixes) in enumerate(zip(columns.paths, self.suffixes, strict=True)):
            path = found.name(line, cells[place])
            suffixes.add(suffix_of(path))
            if len(suffixes) > _MOST_SUFFIXES:
                raise found.broken(line, "the files have too many different suffixes", "is this a list of files?")
            if not number and (self.common is None or not path.startswith(self.common)):
                self.common = common_folder(path if self.common is None else self.common, path)
        if columns.label is not None:
            label = found.label(line, cells[columns.label])
            if label not in self.labels and (not self.numbers or len(self.labels) < _MOST_NAMES):
                self.labels.add(label)
                self.numbers = self.numbers and number_of(label) is not None
                if not self.numbers and len(self.labels) > _MOST_NAMES:
                    raise found.broken(
                        line, f"the labels have more than {_MOST_NAMES:,} names", "choose another column"
                    )


class _Part:
    """Rows until there are enough of them."""

    def __init__(self, found: _List, kinds: Sequence[Kind], classes: Mapping[str, int] | None, common: int) -> None:
        self._list = found
        self._kinds = kinds
        self._classes = classes
        self._common = common
        self._begin()

    def _begin(self) -> None:
        self.keys: list[str] = []
        self._paths: list[list[str]] = [[] for _ in self._kinds]
        self._labels: list[int] = []

    def take(self, line: int, cells: Sequence[str]) -> None:
        """A line more."""
        columns = self._list.columns
        for place, paths in zip(columns.paths, self._paths, strict=True):
            paths.append(self._list.name(line, cells[place]))
        key = usable_key(cells[columns.key]) if columns.key is not None else key_of(self._paths[0][-1], self._common)
        if not key:
            raise self._list.broken(line, "the line has no key")
        self.keys.append(key)
        if columns.label is not None:
            self._labels.append(self._number(line, self._list.label(line, cells[columns.label])))

    def _number(self, line: int, label: str) -> int:
        found = number_of(label) if self._classes is None else self._classes.get(label)
        if found is None:
            raise self._list.broken(
                line,
                f"the label {in_one_line(label[:_SHOWN])!r} is not a 64-bit integer",
                "labels='name' (--format-option labels=name) takes labels as names of classes",
            )
        return found

    def taken(self, classes: tuple[str, ...] | None) -> ScannedRows:
        """The rows so far; then there are none."""
        fields = self._list.columns.fields
        names = [usable_field(name) for name in fields] if fields else [kind.field for kind in self._kinds]
        columns = [
            file_column(name, kind.type, paths)
            for name, kind, paths in zip(names, self._kinds, self._paths, strict=True)
        ]
        if self._labels:
            columns.append(Column("cls", FieldType.parse("int64"), values=np.array(self._labels, np.int64)))
        found = ScannedRows(self.keys, tuple(sorted(columns, key=lambda column: column.name)), classes=classes)
        self._begin()
        return found


def number_of(label: str) -> int | None:
    """A label as a 64-bit integer, also one that a float holds; ``None`` where it is none."""
    try:
        number = int(label)
    except ValueError:
        try:
            value = float(label)
        except ValueError:
            return None
        if "." not in label or not value.is_integer() or abs(value) > _EXACT:
            return None
        number = int(value)
    return number if "_" not in label and -(1 << 63) <= number < 1 << 63 else None
