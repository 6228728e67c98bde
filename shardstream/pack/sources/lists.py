"""Lists of files: ``path<TAB>label`` a line, or csv.

UTF-8, with or without byte order mark; Unix or Windows line ends; blank lines are skipped. Tabs separate the columns,
in ``.csv`` files commas, with quotes as in RFC 4180. A header is recognised by the name of its path column (see
``columns``). Paths are relative to the folder of the list. Planning reads the list once, a line at a time, and keeps
twelve bytes a line (twenty until all keys are compared).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import DuplicateKeyError, SourceError
from shardstream.pack.duplicates import key_hash, repeated
from shardstream.pack.sources.base import Item, Part, Reject, Source, file_item, printable
from shardstream.pack.sources.columns import Columns, LabelMode, parse_label, understand
from shardstream.pack.sources.keys import MODES, KeyRule, common_folder
from shardstream.pack.sources.lines import LineIndex, index_lines, map_text, read_record

_HASH_STEP = 64 << 20


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a line becomes a sample: everything a worker needs besides the place of its lines."""

    path: str
    folder: str
    stamp: tuple[int, int]
    quoted: bool
    columns: Columns
    keys: KeyRule
    labels: LabelMode
    names: dict[str, int] = field(default_factory=dict)

    def key(self, record: list[str], line: int) -> str:
        column = None if self.columns.key is None else record[self.columns.key]
        return self.keys.key(line, record[self.columns.path], column)

    def label(self, record: list[str]) -> int | None:
        if self.columns.label is None:
            return None
        text = record[self.columns.label]
        return self.names[_name(text)] if self.labels == "name" else parse_label(text)

    def item(self, record: list[str], line: int) -> Item | Reject:
        path = record[self.columns.path]
        if not path:
            return Reject(line, path, "the line has no path")
        return file_item(line, path, self.key(record, line), folder=self.folder, label=self.label(record))


@dataclass(frozen=True, slots=True)
class ListPart(Part):
    """Lines of a list, by where they begin."""

    reading: _Reading
    starts: NDArray[np.int64]
    lines: NDArray[np.uint32]

    def __iter__(self) -> Iterator[Item | Reject]:
        reading = self.reading
        data = map_text(reading.path)
        if _stamp(reading.path) != reading.stamp:
            raise SourceError("the list changed while it was being packed", url=reading.path, hint="pack it again")
        for start, line in zip(self.starts.tolist(), self.lines.tolist(), strict=True):
            yield reading.item(read_record(data, start, quoted=reading.quoted), line)


class ListSource(Source):
    """A list of files.

    Args:
        path: The list.
        key: ``"path"``, ``"stem"``, ``"line"`` or a column of its header.
        labels: ``"int"``, or ``"name"`` for names, which are numbered in sorting order and become the classes.

    Raises:
        SourceError: An empty list, a malformed line, or a label that is no integer; names list and line.
        DuplicateKeyError: Two lines with one key; names both.
        UsageError: No such column.
    """

    def __init__(self, path: str, *, key: str = "path", labels: LabelMode | None = None) -> None:
        self.url = path
        self._data = map_text(path)
        self._mode = labels or "int"
        quoted = path.lower().endswith(".csv")
        try:
            self._index = index_lines(self._data, quoted=quoted)
            self._reading = self._understand(path, quoted, key)
            self._scan()
        except SourceError as error:
            raise error.at(url=path) from error.__cause__

    def _understand(self, path: str, quoted: bool, key: str) -> _Reading:
        first = read_record(self._data, int(self._index.starts[0]), quoted=quoted) if len(self._index) else []
        columns = understand(first, key=key) if first else Columns(0)
        if columns.header:
            self._index = LineIndex(self._index.starts[1:], self._index.lines[1:])
        if not len(self._index):
            raise SourceError("the list is empty", hint="write one file a line: path<TAB>label")
        if columns.unused:
            self.notes = (f"Columns that are not packed: {', '.join(columns.unused)}.",)
        return _Reading(
            path,
            os.path.dirname(os.path.abspath(path)),
            _stamp(path),
            quoted,
            columns,
            KeyRule(key if key in MODES else "column"),
            self._mode,
        )

    def _records(self) -> Iterator[tuple[list[str], int]]:
        data, quoted = self._data, self._reading.quoted
        for start, line in zip(self._index.starts, self._index.lines, strict=True):
            yield read_record(data, int(start), quoted=quoted), int(line)

    def _scan(self) -> None:
        """Read every line once: check its label, hash its key, find the common folder and the names of the labels."""
        low, high, mixed, hashes, names = self._read_all(self._reading)
        if mixed and self._reading.keys.mode == "path":
            self._reading = replace(self._reading, keys=KeyRule("path", base=self._reading.folder))
            low, high, _, hashes, names = self._read_all(self._reading)
        if self._mode == "name" and self._reading.columns.label is not None:
            self.classes = tuple(sorted(names))
            self._reading = replace(self._reading, names={name: i for i, name in enumerate(self.classes)})
        if self._reading.keys.mode == "path":
            self._reading = replace(self._reading, keys=replace(self._reading.keys, common=common_folder(low, high)))
        self._report_duplicates(repeated(np.frombuffer(hashes, np.uint64)))

    def _read_all(self, reading: _Reading) -> tuple[str, str, bool, array[int], set[str]]:
        """First and last path in sorting order, whether some are absolute and some not, key hashes, label names."""
        columns, label, names, hashes = reading.columns, reading.columns.label, set[str](), array("Q")
        low = high = ""
        relative = absolute = False
        for record, line in self._records():
            columns.check(record, line)
            if label is not None:
                self._check_label(record[label], line, names)
            path = record[columns.path]
            if not path:
                continue
            normal = reading.keys.normal(path)
            low = normal if not low or normal < low else low
            high = max(high, normal)
            absolute = absolute or path[0] == "/"
            relative = relative or path[0] != "/"
            hashes.append(key_hash(reading.key(record, line).encode()))
        return low, high, relative and absolute, hashes, names

    def _check_label(self, text: str, line: int, names: set[str]) -> None:
        if self._mode == "name":
            name = _name(text)
            if not name:
                raise SourceError("the label is missing", line=line, hint="every line needs one, or none at all")
            names.add(name)
            return
        try:
            parse_label(text)
        except ValueError:
            raise SourceError(
                f"the label {printable(text)!r} is no integer of 64 bits",
                line=line,
                hint="labels='name' (--labels name) numbers names in sorting order and keeps them as the classes",
            ) from None

    def _report_duplicates(self, suspects: frozenset[int]) -> None:
        if not suspects:
            return
        # Hashes are of keys that still have their common folder.
        reading, whole, first = self._reading, replace(self._reading.keys, common=""), dict[str, int]()
        for record, line in self._records():
            path = record[reading.columns.path]
            key = replace(reading, keys=whole).key(record, line) if path else ""
            if key_hash(key.encode()) in suspects and first.setdefault(key, line) != line:
                raise DuplicateKeyError(
                    f"lines {first[key]} and {line} have the same key",
                    key=reading.key(record, line),
                    line=line,
                    hint="remove one of them, or choose other keys: --key path, stem, line or a column's name",
                )

    def __len__(self) -> int:
        return len(self._index)

    def part(self, numbers: NDArray[np.int64]) -> ListPart:
        return ListPart(self._reading, self._index.starts[numbers], self._index.lines[numbers])

    @property
    def fingerprint(self) -> str:
        hasher = xxhash.xxh3_128(f"list {self._reading.quoted} {self._mode}\n".encode())
        for start in range(0, len(self._data), _HASH_STEP):
            hasher.update(self._data[start : start + _HASH_STEP])
        return hasher.hexdigest()


def _name(text: str) -> str:
    return printable(text.strip())


def _stamp(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns
