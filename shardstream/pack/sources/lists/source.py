"""Lists of files: tab-separated lines, csv, JSON lines, and others (see ``records``).

UTF-8, with or without byte order mark; Unix or Windows line ends; blank lines are skipped. In ``.csv`` files commas
separate the columns, with quotes as in RFC 4180; lines with tabs may have such quotes, too (see ``quotes``). A header
is recognised by the name of its path column, or by the names that were asked for (see ``columns``). Paths are relative
to the folder of the list. Compressed lists are read through a temporary file (see ``compressed``). Planning reads the
list and keeps eight bytes a line (sixteen while keys are compared); tasks carry their lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.dataset.lists.decompression import plain_name
from shardstream.dataset.lists.list_file import ListFile, open_list
from shardstream.errors import SourceError, UsageError
from shardstream.pack.sources.keys import MODES, KeyRule
from shardstream.pack.sources.lists.columns import Columns, Wanted, settled, understand
from shardstream.pack.sources.lists.line_reader import LineReader
from shardstream.pack.sources.lists.lines import LineIndex, index_lines, survey, text_pieces
from shardstream.pack.sources.lists.mapping import declared_types, types_alone
from shardstream.pack.sources.lists.mpdataset import CLASSES_OF_MPDATASET, LIST_OF_MPDATASET, listed_classes
from shardstream.pack.sources.lists.quotes import COMMA, TAB, TabQuotes, tab_quotes
from shardstream.pack.sources.lists.records import (
    Broken,
    CellKind,
    Column,
    cell,
    ends_with_label,
    list_kind,
    split,
)
from shardstream.pack.sources.lists.scan import scan
from shardstream.pack.sources.lists.spool import Records, RecordSource
from shardstream.pack.sources.paths import Origin, join
from shardstream.storage import Location, open_object, open_store

_FIRST = 100
_HEAD = 4 << 20  # bytes of the first records that say how a list is written
_DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # what has no folder of its own
_EMPTY_HINT = "write one file a line: path<TAB>label"
_HINT = "every line needs the same columns: path, or path<TAB>label (with commas in a .csv)"


class ListRecords(Records):
    """The records of a list on a local disk."""

    def __init__(self, file: ListFile, index: LineIndex) -> None:
        super().__init__(file, index.starts)
        self._index = index

    def lines(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._index.lines(numbers)

    def read(self, numbers: NDArray[np.int64]) -> list[bytes]:
        self.file.check()  # somebody else's file, which may be written while it is packed
        return super().read(numbers)


class ListSource(RecordSource[LineReader]):
    """A list of files.

    Args:
        records: Its records.
        reader: How they become samples, as far as the first one tells.
        digest: Hash of its content.

    Raises:
        SourceError: An empty list, or one whose first lines are all broken; names list and line.
        DuplicateKeyError: Two lines with one key; names both.
        UsageError: Classes are given, and a label is none of them.
    """

    def __init__(self, records: Records, reader: LineReader, digest: str) -> None:
        self.url = records.file.url
        self._records = records
        self._digest = digest
        if reader.columns.unused:
            self.notes = (f"Columns that are not packed: {', '.join(reader.columns.unused)}.",)
        if reader.kind == "blank":
            self.notes = ("Read as a path and a label, with blanks between them.",)
        self.types = declared_types(tuple(field.rule for field in reader.columns.fields))
        self.declared = types_alone(reader.columns.declared)
        self.origin = reader.origin
        try:
            if not len(records):
                raise SourceError("the list is empty", hint=_EMPTY_HINT)
            self._check_first(reader)
            self._reader, self.numbering = scan(records, reader)
        except (SourceError, UsageError) as error:
            raise error.at(url=self.url) from error.__cause__
        if self._reader.names:
            self.classes = tuple(self._reader.names)

    def _check_first(self, reader: LineReader) -> None:
        """A list whose first lines are all broken is not what it was taken for."""
        numbers = np.arange(min(_FIRST, len(self._records)))
        first = None
        for number, line in enumerate(self._records.lines(numbers).tolist()):
            (raw,) = self._records.read(numbers[number : number + 1])
            try:
                reader.check(raw, line)
            except Broken as error:
                first = first or SourceError(str(error), line=line, hint=error.hint or _HINT)
            else:
                return
        if first is not None:
            raise first

    @property
    def fingerprint(self) -> str:
        reader = self._reader
        fields = [
            [
                *(one.rule.name, one.column if len(one.columns) == 1 else list(one.columns), one.rule.type),
                *([] if one.rule.template is None else [one.rule.template]),
            ]
            for one in reader.columns.fields
        ]
        known = json.dumps(["list", reader.kind, reader.labels, reader.columns.header, fields, self._digest])
        return xxhash.xxh3_128_hexdigest(known.encode())


def open_text_list(location: Location, wanted: Wanted) -> ListSource:
    """A list of text lines, wherever it lies.

    Raises:
        SourceError: See `ListSource`.
        DuplicateKeyError: See `ListSource`.
        UsageError: No such column.
    """
    file = open_list(location)
    newlines, digest = survey(file)
    name = plain_name(location.url.rpartition("/")[2])
    index = index_lines(file, newlines, delimiter=COMMA if suffix_of(name) == ".csv" else None)
    head = _first(file, index)
    kind = list_kind(name, head, partial(ends_with_label, is_name=partial(_is_name, wanted)))
    quotes = tab_quotes(text_pieces(file)) if kind == "tab" else TabQuotes()
    if quotes.csv:
        kind, index = "tsv", index_lines(file, newlines, delimiter=TAB)
        head = _first(file, index)
    try:
        first = split(kind, head[0])
        columns = understand(kind, first, wanted)
        wanted = settled(wanted, columns, partial(_values, kind, head[columns.header :]))
        columns = understand(kind, first, wanted)
    except Broken as error:
        raise SourceError(str(error), url=file.url, line=1, hint=error.hint or _HINT) from error
    except UsageError as error:
        raise error.at(url=file.url) from error.__cause__
    records = ListRecords(file, index.without_first() if columns.header else index)
    source = ListSource(records, row_reader(kind, columns, wanted, location), digest)
    source.notes += (quotes.note,) if quotes.note else ()
    if kind == "commas" and source.classes is None:
        source.classes = _classes_beside(location)
    return source


def _first(file: ListFile, index: LineIndex) -> list[bytes]:
    """The first records of a list, which say how it is written; SourceError where there is none."""
    records = ListRecords(file, index)
    if not len(records):
        raise SourceError("the list is empty", url=file.url, hint=_EMPTY_HINT)
    return records.read(np.arange(min(_FIRST, len(records.block(0, _HEAD)[1]))))


def is_mpdataset(folder: Location) -> bool:
    """Whether a folder is one of MPDataset: a list, and the names of its classes."""
    store = open_store(folder)
    return store.exists(LIST_OF_MPDATASET) and store.exists(CLASSES_OF_MPDATASET)


def _classes_beside(location: Location) -> tuple[str, ...] | None:
    """The names of the classes of MPDataset's list."""
    store, name = open_object(location)
    beside = f"{name.rpartition('/')[0]}/{CLASSES_OF_MPDATASET}".lstrip("/")
    return listed_classes(store, beside)


def _values(kind: CellKind, records: Sequence[bytes], column: Column) -> Iterator[object]:
    """What stands in a column of these records, where something does."""
    for raw in records:
        with suppress(Broken):
            yield cell(split(kind, raw), column, "label")


def row_reader(kind: CellKind, columns: Columns, wanted: Wanted, location: Location) -> LineReader:
    """How the records of the list at this place become samples, before its paths are known."""
    folder = folder_of(location) if wanted.root is None else _rooted(location, wanted.root)
    origin = None if wanted.other_origins else Origin.of(folder)
    keys = KeyRule("line") if wanted.key == "auto" and columns.path is None else key_rule(wanted)
    classes = wanted.classes if wanted.labels == "name" else None
    names = {} if classes is None else classes.numbers
    strict = classes is not None and classes.unknown == "error"
    name = location.url.rpartition("/")[2]
    return LineReader(kind, columns, keys, wanted.labels, folder, names, origin, strict, name)


def _rooted(location: Location, root: str) -> str:
    """The folder that a user says paths are taken from; UsageError where a list in a store would name local files."""
    folder = join(folder_of(location), root)
    if "://" in folder:
        return folder
    if not location.local:
        raise UsageError(
            f"root={root!r} is a local folder, and the list is not local", url=location.url, hint="copy the list first"
        )
    return os.path.normpath(folder)


def key_rule(wanted: Wanted) -> KeyRule:
    """How keys are made, before the paths are known."""
    if wanted.key == "auto":
        return KeyRule("path", number=True)
    return KeyRule(wanted.key if wanted.key in MODES else "column")


def folder_of(location: Location) -> str:
    """The folder or URL that relative paths of a list are taken from; for one from a pipe, the current folder."""
    if location.local and location.url.startswith(_DESCRIPTORS):
        return os.getcwd()
    return location.url.rpartition("/")[0] or "/"


def suffix_of(name: str) -> str:
    """The extension of a list, with its dot, in lower case."""
    return os.path.splitext(name)[1].lower()


def _is_name(wanted: Wanted, label: str) -> bool:
    return wanted.labels == "name" or (not wanted.said and wanted.classes is not None and label in wanted.classes.names)
