"""Reading a whole list once: what all its paths have in common, which labels there are, and which keys repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DuplicateKeyError
from shardstream.pack.sources.base import Item
from shardstream.pack.sources.duplicates import Hashed, KeyNumbers, key_hash, number_repeats, repeated_of
from shardstream.pack.sources.lists.labels import check_class_count, unknown_class
from shardstream.pack.sources.lists.line_reader import LineReader
from shardstream.pack.sources.lists.objects import Lines, lines_of
from shardstream.pack.sources.lists.records import Broken, Column, label_name
from shardstream.pack.sources.lists.spans import Block, Span
from shardstream.pack.sources.lists.spool import Records
from shardstream.pack.sources.paths import common_folder, scheme_of

_SUSPECTS = 100_000
_FAST = frozenset(("tab", "tsv", "csv", "blank", "lst", "json"))


@dataclass(slots=True)
class Findings:
    """What a scan has seen so far.

    Attributes:
        common: The folder that all paths share, with its last ``/``; ``None`` before the first path.
        absolute, relative, urls: Whether there are paths of this kind.
        names: Names of labels; where classes are given, those that are not among them.
    """

    common: str | None = None
    absolute: bool = False
    relative: bool = False
    urls: bool = False
    names: set[str] | None = None

    def path(self, path: str, normal: str) -> None:
        """Take a path into account."""
        if self.common is None or not normal.startswith(self.common):
            self.common = common_folder(normal if self.common is None else self.common, normal)
        if path.startswith("/"):
            self.absolute = True
        elif "://" in path and scheme_of(path) is not None:
            self.urls = True
        else:
            self.relative = True

    @property
    def mixed(self) -> bool:
        """Whether paths have to be brought to one kind before they can be compared."""
        return self.relative and (self.absolute or self.urls)


class _Looked(NamedTuple):
    """The columns that a scan looks at; the label's only for its name."""

    path: Column | None
    key: Column | None
    label: Column | None


class ListScan:
    """A walk over all records of a list.

    Args:
        records: The list.
        reader: How records become samples.
        numbering: How equal keys are told apart, once that is known.
    """

    def __init__(self, records: Records, reader: LineReader, numbering: KeyNumbers | None = None) -> None:
        self.records, self.reader = records, reader.whole
        self._numbering = numbering
        self.findings = Findings(names=set() if _looks_at_names(reader) else None)

    def hashed(self) -> Iterator[Hashed]:
        """The hashes of all keys, a block at a time; fills `findings` on the way.

        Raises:
            SourceError: There are too many names of labels.
            UsageError: Classes are given, and a label is none of them.
        """
        for first, data, starts in self.records.blocks():
            yield self._block(data, starts, first)
            if self.reader.names and self.findings.names:
                self._refuse(data, starts, first)
            check_class_count(len(self.findings.names or ()))

    def _block(self, data: bytes, starts: NDArray[np.int64], first: int) -> Hashed:
        """The keys of a block: of records like all others by numpy, of the rest one by one."""
        everything = np.arange(len(starts))
        if self.reader.kind not in _FAST:
            return self._slowly(data, starts, everything, first)
        columns = self.reader.columns
        looked = _Looked(columns.path, columns.key, None if self.findings.names is None else columns.label)
        if self.reader.kind == "json":
            used = [column for column in looked if column is not None]
            lines = lines_of(data, starts, used, path=columns.path)
            looked = _Looked(*(None if column is None else used.index(column) for column in looked))
            block = Block(lines.data, lines.starts, kind="tab", count=len(used))
        else:
            lines = Lines(data, starts, everything)
            block = Block(data, starts, kind=self.reader.kind, count=columns.count)
        found = self._by_numpy(block, looked, lines.rows + first)
        odd = np.delete(everything, lines.rows[~block.odd])
        parts = self._slowly(data, starts, odd, first), Hashed(lines.rows[found.numbers] + first, found.hashes)
        return Hashed(*(np.concatenate(both) for both in zip(*parts, strict=True)))

    def _by_numpy(self, block: Block, looked: _Looked, numbers: NDArray[np.int64]) -> Hashed:
        """The keys of the records that are not odd, which have these numbers; marks those that turn out to be."""
        mode = self.reader.keys.mode
        last = max(len(block.data), 1)
        keys = paths = None
        if isinstance(looked.path, int):
            paths = block.paths(block.column(looked.path))
            if self.reader.keys.base and mode == "path":
                block.odd |= ~block.urls & (block.bytes[paths.starts % last] != ord("/"))
            if mode in ("path", "stem"):
                keys = block.stems(paths, whole=mode == "path")
        if isinstance(looked.key, int):
            keys = block.keys(block.column(looked.key))
        labels = None
        if isinstance(looked.label, int):
            labels = block.column(looked.label)
            block.odd |= (labels.ends <= labels.starts) | (block.bytes[labels.starts % last] <= ord(" "))
        usable = ~block.odd
        if paths is not None:
            usable &= paths.ends > paths.starts
            if mode == "path":
                self._see(block, paths, np.flatnonzero(usable))
        rows = np.flatnonzero(usable)
        if labels is not None:
            self._see_names(block, labels, rows)
        if keys is None:
            return Hashed(rows[:0], np.empty(0, np.uint64))
        begins, ends = keys.starts[rows].tolist(), keys.ends[rows].tolist()
        texts = (block.data[begin:end] for begin, end in zip(begins, ends, strict=True))
        if self._numbering is not None:
            texts = (text + self._suffix(number) for text, number in zip(texts, numbers[rows].tolist(), strict=True))
        return Hashed(rows, np.fromiter(map(key_hash, texts), np.uint64, len(rows)))

    def _suffix(self, number: int) -> bytes:
        return b"" if self._numbering is None else self._numbering.suffix(number).encode()

    def _see(self, block: Block, paths: Span, rows: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        starts, ends = paths.starts[rows], paths.ends[rows]
        urls = block.urls[rows]
        slash = block.bytes[starts] == ord("/")
        findings = self.findings
        findings.urls |= bool(urls.any())
        findings.absolute |= bool((slash & ~urls).any())
        findings.relative |= bool((~slash & ~urls).any())

        def text(row: int) -> str:
            return block.data[starts[row] : ends[row]].decode()

        common = findings.common
        common = common_folder(text(0) if common is None else common, text(0))
        unlike = _unlike(block, starts, ends, common)
        while unlike is not None:
            common = common_folder(common, text(unlike))
            unlike = _unlike(block, starts, ends, common)
        findings.common = common

    def _see_names(self, block: Block, labels: Span, rows: NDArray[np.int64]) -> None:
        begins, ends = labels.starts[rows].tolist(), labels.ends[rows].tolist()
        texts = {block.data[begin:end] for begin, end in zip(begins, ends, strict=True)}
        self._add_names(label_name(text.decode("utf-8", "surrogateescape")) for text in texts)

    def _add_names(self, names: Iterator[str]) -> None:
        if self.findings.names is not None:
            self.findings.names.update(name for name in names if name and name not in self.reader.names)

    def _refuse(self, data: bytes, starts: NDArray[np.int64], first: int) -> None:
        """Raise the error for the first label in a block that is not a class."""
        lines = self.records.lines(np.arange(len(starts)) + first).tolist()
        for (start, end), line in zip(pairwise([*starts.tolist(), len(data)]), lines, strict=True):
            with suppress(Broken):
                name = self.reader.name(self.reader.cells(data[start:end]))
                if name not in self.reader.names:
                    raise unknown_class("label", name, self.reader.names, line=line)

    def _slowly(self, data: bytes, starts: NDArray[np.int64], rows: NDArray[np.int64], first: int) -> Hashed:
        numbers, hashes = [], []
        ends = np.append(starts[1:], len(data))
        lines = self.records.lines(rows + first).tolist()
        mode = self.reader.keys.mode
        for row, start, end, line in zip(rows.tolist(), starts[rows].tolist(), ends[rows].tolist(), lines, strict=True):
            try:
                cells = self.reader.cells(data[start:end])
                path = self.reader.path(cells)
                key = self.reader.key(cells, path, line).encode() if mode != "line" else None
                names = () if self.findings.names is None else (self.reader.name(cells),)
            except (Broken, UnicodeEncodeError):
                continue  # it will be rejected
            self._add_names(iter(names))
            if mode == "path":
                self.findings.path(path, self.reader.keys.normal(path))
            if key is not None:
                numbers.append(first + row)
                hashes.append(key_hash(key + self._suffix(first + row)))
        return Hashed(np.array(numbers, np.int64), np.array(hashes, np.uint64))


def _unlike(block: Block, starts: NDArray[np.int64], ends: NDArray[np.int64], prefix: str) -> int | None:
    """The first path that does not begin so."""
    letters = prefix.encode()
    same = ends - starts >= len(letters)
    last = len(block.bytes) - 1
    for i, letter in enumerate(letters):
        same &= block.bytes[np.minimum(starts + i, last)] == letter
    return None if same.all() else int(np.argmin(same))


def _looks_at_names(reader: LineReader) -> bool:
    """Whether names of labels are to be found, or have to be among those that are given."""
    named = reader.labels == "name" and reader.columns.label is not None
    return named and (reader.strict or not reader.names)


def scan(records: Records, reader: LineReader) -> tuple[LineReader, KeyNumbers | None]:
    """Look at every record of a list once.

    Returns:
        The reader with what is known now: the common folder, and the numbers of names; and how equal keys are told
        apart, if there are any and the reader has them numbered.

    Raises:
        DuplicateKeyError: Two samples with one key.
        SourceError: Too many names of labels.
        UsageError: Classes are given, and a label is none of them.
    """
    named = _looks_at_names(reader)
    if reader.keys.mode == "line" and not named:
        return reader, None
    walk = ListScan(records, reader)
    suspects = repeated_of(walk.hashed(), len(records))
    if walk.findings.mixed and reader.keys.mode == "path" and not reader.keys.base:
        return scan(records, replace(reader, keys=replace(reader.keys, base=reader.folder)))
    if named and not reader.names:
        reader = replace(reader, names={name: i for i, name in enumerate(sorted(walk.findings.names or ()))})
    if reader.keys.mode == "path":
        reader = replace(reader, keys=replace(reader.keys, common=walk.findings.common or ""))
    if reader.keys.number:

        def hashed(numbering: KeyNumbers | None) -> Iterator[Hashed]:
            return ListScan(records, reader, numbering).hashed()

        return reader, number_repeats(hashed, suspects, len(records))
    for start in range(0, len(suspects), _SUSPECTS):
        _look(records, reader, suspects[start : start + _SUSPECTS])
    return reader, None


def _look(records: Records, reader: LineReader, suspects: NDArray[np.uint64]) -> None:
    """Compare the keys of these hashes as strings."""
    whole, first = reader.whole, dict[str, int]()
    for part in ListScan(records, reader).hashed():
        numbers = np.sort(part.numbers[np.isin(part.hashes, suspects)])
        for number, line in zip(numbers.tolist(), records.lines(numbers).tolist(), strict=True):
            (raw,) = records.read(np.array([number]))
            found = whole.item(raw, line)
            if isinstance(found, Item) and first.setdefault(found.key, line) != line:
                here = reader.item(raw, line)
                raise DuplicateKeyError(
                    f"lines {first[found.key]} and {line} have the same key",
                    key=here.key if isinstance(here, Item) else found.key,
                    line=line,
                    hint="--key auto (key='auto') numbers equal keys; or remove one of them, or choose other keys: "
                    "--key path, stem, line or a column's name",
                )
