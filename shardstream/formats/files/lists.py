"""Lists of files: a line a sample, as ``path<TAB>label``, csv, JSON lines, paths alone, MXNet's ``.lst``, MPDataset.

A list is read twice, some megabytes at a time: for what all its names share, its suffixes and its labels; then for its
rows. Nothing of it stays in memory but the names of its classes.
"""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardstream.dataset.lists.decompression import plain_name
from shardstream.dataset.opening import common_parts
from shardstream.errors import UnsupportedError, UsageError
from shardstream.formats.contract import ObjectListing, Recognized, SourceObject
from shardstream.formats.files.columns import columns_of
from shardstream.formats.files.names import below, key_of
from shardstream.formats.files.tables import is_table, rows_of_table
from shardstream.formats.files.text import records
from shardstream.formats.files.values import CellValues, FileValues, LabelValues, values_of
from shardstream.formats.files.written import written
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, Loss, Remark, ScannedRows, numbered_keys, usable_key
from shardstream.pack.sources.lists.mpdataset import CLASSES_OF_MPDATASET, LIST_OF_MPDATASET, listed_classes
from shardstream.pack.sources.lists.records import (
    DELIMITERS,
    Broken,
    CellKind,
    Cells,
    refuse_windows,
    split,
    text_of,
)
from shardstream.pack.sources.media import suffix_of
from shardstream.pack.sources.paths import local_path, scheme_of
from shardstream.storage.base.store import ObjectMeta
from shardstream.text import in_one_line, valid_unicode, without_credentials

SUFFIXES = ("tsv", "csv", "txt", "lst", "jsonl", "ndjson", "json")
_HEAD = 1 << 20
_MOST_LOST = 100_000  # lines
_SHOWN = 80


def is_list(path: str) -> bool:
    """Whether a file is called like a list, compressed or not."""
    return suffix_of(plain_name(path)) in SUFFIXES


def is_mpdataset(listing: ObjectListing) -> bool:
    """Whether a folder is one of MPDataset."""
    return LIST_OF_MPDATASET in listing and CLASSES_OF_MPDATASET in listing


def recognised(listing: ObjectListing, one: ObjectMeta, options: Mapping[str, str]) -> Recognized:
    """A list as a data set of one object.

    Raises:
        FormatError: It is none.
        UsageError: An option names no column.
    """
    if options.get("labels", "int") not in ("int", "name"):
        raise UsageError(f"labels={options['labels']!r}: there are 'int' and 'name'", url=listing.url)
    about: dict[str, Any] = {"options": {name: options[name] for name in sorted(options)}}
    if listing.chosen:
        about["chosen"] = dict(listing.chosen)
    data = ObjectBytes(listing.store, one.path, one.size, window=_HEAD)
    found = _List(data, about, whole=False)
    unused = found.columns.unused
    notes = (f"Columns that are not read: {', '.join(map(in_one_line, unused))}.",) if unused else ()
    folder, slash, _ = one.path.rpartition("/")
    beside = f"{folder}{slash}{CLASSES_OF_MPDATASET}"
    classes = listed_classes(listing.store, beside) if found.kind == "commas" else None
    return Recognized((SourceObject(one.path, one.size, about),), classes, notes)


def scanned(data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
    """The rows of a list.

    Raises:
        FormatError: It is not a list, or a line cannot be read; names it.
    """
    found = _List(data, about, whole=True)
    if not found.see():
        raise UnsupportedError("the list has no line", url=data.url, hint="give one with a file a line")
    yield from found.rows()


class _List:
    """A list with its columns.

    Args:
        data: The list.
        about: Of its `SourceObject`.
        whole: Whether quotes are looked for in all of it, and not in its first lines only.
    """

    def __init__(self, data: ObjectBytes, about: Mapping[str, Any], *, whole: bool) -> None:
        self._data = data
        self.url = data.url
        self.root = data.url[: len(data.url) - len(data.path)].rstrip("/")
        options = about["options"]
        self.folder = data.path.rpartition("/")[0] if "root" not in options else self._given(options["root"])
        known: CellKind | None = about.get("kind")
        self.kind, head, self.note = written(data, names=options.get("labels") == "name", whole=whole, known=known)
        self._header_line = 0
        self._lost: dict[int, str] = {}
        self._seen = False
        line, first = head[0] if head else (1, b"")
        try:
            cells = split(self.kind, first)
            if isinstance(cells, dict):  # objects may lack what others have
                cells = {name: value for _, raw in head for name, value in _object(raw).items() if value is not None}
        except Broken as error:
            raise self.broken(line, error) from error
        self.columns = columns_of(self.kind, cells, options, about.get("chosen", {}), data.url)
        if self.columns.header and self.kind != "json":
            self._header_line = line
        self._whole_keys = bool(about.get("several"))
        self.values = [
            values_of(one, data.url, self._place, options.get("labels"), typed=bool(about.get("typed")))
            for one in self.columns.fields
        ]

    def _records(self) -> Iterator[tuple[int, bytes]]:
        """All records, with their lines. A row of a table is the JSON object that it would be in a list of these."""
        if is_table(self._data.path):
            return rows_of_table(self._data)
        return records(self._data, delimiter=DELIMITERS.get(self.kind))

    def _given(self, text: str) -> str:
        """The folder below the root that a user says names are taken from; UsageError."""
        found = "" if text in ("", ".") else below(self.root, "", text)
        if found is None:
            raise UsageError(f"root={text!r} does not lie below {self.root}", url=self.url, hint="open what holds both")
        return found

    def _cells(self, raw: bytes) -> Cells:
        """The cells of a record; `Broken`."""
        cells, width = split(self.kind, raw), self.columns.width
        if width is not None and len(cells) != width:
            raise Broken(f"the line has {len(cells)} columns where the first has {width}")
        return cells

    def _acted(self, acts: Sequence[Callable[[Any], None]]) -> Iterator[tuple[int, Cells]]:
        """Line and cells of each record, once each function was called with the cell of its field.

        Lines that cannot be read are left out. What is wrong with all of a list, and can be helped, is an error.
        """
        pairs: list[tuple[Any, Callable[[Any], None]]]
        pairs = [(field.column, act) for field, act in zip(self.columns.fields, acts, strict=True)]
        for line, raw in self._records():
            if line == self._header_line or line in self._lost:
                continue
            try:
                cells = self._cells(raw)
                if isinstance(cells, dict):
                    for column, act in pairs:
                        act(cells.get(column))
                else:
                    for column, act in pairs:
                        act(cells[column])
                if self.columns.key is not None:
                    self._key_of(cells)
            except Broken as error:
                if error.hint is not None or self._seen or len(self._lost) >= _MOST_LOST:
                    raise self.broken(line, error) from error
                self._lost[line] = str(error)
                continue
            yield line, cells

    def see(self) -> int:
        """Look at all lines; says how many there are that can be read."""
        count = sum(1 for _ in self._acted([one.see for one in self.values]))
        if not count and self._lost:
            line, what = next(iter(self._lost.items()))
            raise self.broken(line, Broken(what))
        self._seen = True
        for one in self.values:
            if isinstance(one, LabelValues):
                try:
                    one.settle()
                except Broken as error:
                    raise UnsupportedError(str(error), url=self.url, hint=error.hint) from error
        return count

    def broken(self, line: int, error: Broken) -> UnsupportedError:
        """The error for a line, by its number from 1."""
        return UnsupportedError(str(error), url=self.url, line=line, hint=error.hint or "correct the list")

    def _place(self, text: str) -> str:
        """The object that a cell names; `Broken`."""
        refuse_windows(text)
        remote = "://" in self.root
        try:
            found = below(self.root, self.folder, text if remote else local_path(text))
        except UsageError as error:  # a URL of another host
            raise Broken(error.what, hint=error.hint) from error
        if found is None:
            shown = in_one_line(valid_unicode(without_credentials(text)[:_SHOWN]))
            raise Broken(f"{shown!r} does not lie below {self.root}", hint=self._outside(text, remote=remote))
        return found

    def _outside(self, text: str, *, remote: bool) -> str:
        """What to do about a file that is not below the root: for a local list, the root to give."""
        if remote or scheme_of(text) not in (None, "file"):
            return "put the list where its files are, or pack it"
        path = posixpath.normpath(posixpath.join(self.root, self.folder, local_path(text)))
        root = "/".join(common_parts(self.root.split("/"), posixpath.dirname(path).split("/"))) or "/"
        return (
            f"give a directory that holds all files: SourceOptions(options={{'root': {root!r}}}) "
            f"(--format-option root={root}); then relative paths are taken from there"
        )

    def rows(self) -> Iterator[ScannedRows]:
        """Its rows, once all lines were seen."""
        labels = next((one for one in self.values if isinstance(one, LabelValues)), None)
        files = next((one for one in self.values if isinstance(one, FileValues)), None)
        first = None if labels is None else labels.classes
        keys: list[str] = []
        lines = array("q")
        done = 0
        for line, cells in self._acted([one.take for one in self.values]):
            keys.append(self._key(cells, files, done + len(keys)))
            lines.append(line)
            if len(keys) == PIECE:
                yield replace(_taken(keys, self.values, first), lines=lines)
                first, keys, lines, done = None, [], array("q"), done + PIECE
        broken = tuple(Loss(f"line {line}: {what}", 1, line) for line, what in self._lost.items())
        remarks = (Remark(self.note),) if self.note else ()
        if keys or broken or remarks:
            rows = _taken(keys, self.values, first) if keys else ScannedRows([], ())
            yield replace(rows, broken=broken, remarks=remarks, lines=lines)

    def _key(self, cells: Cells, files: FileValues | None, number: int) -> str:
        if self.columns.key is not None:
            return self._key_of(cells)
        if files is not None:
            return key_of(files.paths[-1], 0 if self._whole_keys else len(files.common or ""))
        return numbered_keys(self._data.path, number, 1)[0]

    def _key_of(self, cells: Cells) -> str:
        column: Any = self.columns.key
        cell = cells.get(column) if isinstance(cells, dict) else cells[column]
        key = usable_key(text_of("" if cell is None else cell, "key"))
        if not key:
            raise Broken("the line has no key")
        return key


def _object(raw: bytes) -> dict[str, Any]:
    found = split("json", raw)
    assert isinstance(found, dict)
    return found


def _taken(keys: list[str], values: list[CellValues], classes: tuple[str, ...] | None) -> ScannedRows:
    columns = [one.taken() for one in values]
    return ScannedRows(keys, tuple(sorted(columns, key=lambda column: column.name)), classes=classes)
