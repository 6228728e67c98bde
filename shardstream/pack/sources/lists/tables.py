"""Lists in Parquet and Arrow files, as Hugging Face and others keep them.

The columns that are needed are copied once, while planning, to a temporary file of records, so that any rows can be
read in any order. Images that stand in the table itself are copied with them where they are small; a table of large
ones is read in order, a row group at a time, into temporary shards.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgpack
import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import SourceError, UsageError
from shardstream.extras import require
from shardstream.pack.sources.base import Item, Reject, SourcePart, StreamSource
from shardstream.pack.sources.declared import type_named
from shardstream.pack.sources.lists.columns import Columns, Wanted, settled, understand
from shardstream.pack.sources.lists.line_reader import LineReader
from shardstream.pack.sources.lists.mapping import declared_types, types_alone
from shardstream.pack.sources.lists.source import ListSource, row_reader, suffix_of
from shardstream.pack.sources.lists.spool import Records, Spool
from shardstream.shards.fields import FieldType
from shardstream.shards.foreign.formats.files.records import Broken, CellKind, Column
from shardstream.storage import Location, open_object
from shardstream.storage.base.ranged import RangedFile
from shardstream.text import valid_unicode

TABLES = (".parquet", ".arrow", ".feather")
_ROWS = 1 << 14
_FEW = 64  # rows read at once where they are large
_LARGE = 16 << 10  # bytes a row: beyond it, a copy of the table costs more disk than people expect
_READ = 1 << 20
_TEXT = frozenset(("string", "large_string", "string_view"))
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_LISTS = ("list<", "large_list<", "fixed_size_list<", "list_view<", "large_list_view<")
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}  # by their names in Arrow
_PURPOSE = "to read Parquet and Arrow files"


class _LargeRows(Exception):
    """The rows are too large to be copied beside the table."""


class _Table:
    """A Parquet or Arrow file."""

    def __init__(self, location: Location) -> None:
        self.url = location.url
        store, name = open_object(location)
        self.size = store.size(name)
        self._file = io.BufferedReader(RangedFile(self.size, partial(store.get, name)), _READ)
        arrow = require("pyarrow", extra="parquet", purpose=_PURPOSE)
        try:
            if suffix_of(name) == ".parquet":
                parquet = require("pyarrow.parquet", extra="parquet", purpose=_PURPOSE)
                self._table = parquet.ParquetFile(self._file, buffer_size=_READ)
                self.schema = self._table.schema_arrow
            else:
                self._table = _open_ipc(require("pyarrow.ipc", extra="parquet", purpose=_PURPOSE), self._file)
                self.schema = self._table.schema
        except (arrow.ArrowException, OSError) as error:
            self.close()
            raise SourceError(
                f"this is not a {suffix_of(name)} file: {error}",
                url=self.url,
                hint="write it again, or pass another kind",
            ) from error
        self._arrow = arrow

    def close(self) -> None:
        self._file.close()

    @property
    def grouped(self) -> bool:
        """Whether parts of it can be read alone."""
        return hasattr(self._table, "num_row_groups")

    @property
    def groups(self) -> list[int]:
        """Rows of each row group; of files that have none, all rows, which takes reading them."""
        if not self.grouped:
            with self._explained():
                return [sum(batch.num_rows for batch in self._batches([]))]
        return [self._table.metadata.row_group(i).num_rows for i in range(self._table.num_row_groups)]

    def rows(self, names: Sequence[str], group: int | None = None) -> Iterator[tuple[Any, ...]]:
        """The values of these columns, row by row.

        Args:
            names: The columns.
            group: Of this row group only.

        Raises:
            SourceError: It is damaged.
        """
        with self._explained():
            for batch in self._batches(list(names), group):
                yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)

    def texts(self, names: Sequence[str]) -> Iterator[tuple[bytes, NDArray[np.int64]] | None]:
        """The same rows as lines, columns separated by tabs: some at a time, with where each ends.

        ``None`` for rows with values that cannot stand in such a line: nothing, tabs, line ends.
        """
        arrow = self._arrow
        compute = require("pyarrow.compute", extra="parquet", purpose=_PURPOSE)
        text = arrow.large_string()
        with self._explained():
            for batch in self._batches(list(names)):
                columns = [compute.cast(batch.column(name), text) for name in names]
                if any(column.null_count for column in columns):
                    yield None
                    continue
                lines = compute.binary_join_element_wise(*columns, arrow.scalar("\t", text))
                lines = compute.binary_join_element_wise(lines, arrow.scalar("\n", text), arrow.scalar("", text))
                _, offsets, data = lines.buffers()
                found = data.to_pybytes() if data is not None else b""
                ends = np.frombuffer(offsets, np.int64)[1 : len(lines) + 1]
                counts = found.count(b"\n"), found.count(b"\t"), found.count(b"\r")
                plain = counts == (len(lines), len(lines) * (len(names) - 1), 0)
                yield (found[: ends[-1]], ends) if plain and len(lines) else None if len(lines) else (b"", ends)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SourceError(f"the file is damaged: {error}", url=self.url, hint="write it again") from error

    def _batches(self, names: list[str], group: int | None = None) -> Iterator[Any]:
        if hasattr(self._table, "iter_batches"):
            groups = None if group is None else [group]
            yield from self._table.iter_batches(_ROWS if group is None else _FEW, columns=names, row_groups=groups)
        elif hasattr(self._table, "num_record_batches"):
            yield from (self._table.get_batch(i) for i in range(self._table.num_record_batches))
        else:
            yield from self._table

    def classes(self, name: str) -> tuple[str, ...] | None:
        """The names of labels that Hugging Face keeps with a column."""
        try:
            known = json.loads(self.schema.metadata[b"huggingface"])["info"]["features"][name]["names"]
        except (TypeError, KeyError, ValueError):
            return None
        return tuple(map(str, known))


def _open_ipc(ipc: Any, file: io.BufferedIOBase) -> Any:
    if file.read(6) == b"ARROW1":
        file.seek(0)
        return ipc.open_file(file)
    file.seek(0)
    return ipc.open_stream(file)


@contextmanager
def _opened(location: Location) -> Iterator[_Table]:
    table = _Table(location)
    try:
        yield table
    finally:
        table.close()


def open_tables(locations: Sequence[Location], wanted: Wanted) -> ListSource | TableStreams:
    """The rows of Parquet or Arrow files, one file after another.

    Args:
        locations: Files with the same columns. Paths are relative to the folder of the first.
        wanted: What the user asked for.

    Raises:
        SourceError: No such file, a damaged one, or see `ListSource`.
        UsageError: No such column.
        MissingExtraError: pyarrow is not installed.
    """
    first = locations[0]
    with _opened(first) as table:
        try:
            names, columns = _needed(table, wanted)
            known = table.classes(names[columns.label]) if isinstance(columns.label, int) and not wanted.said else None
            wanted = settled(wanted, columns, partial(_values, table, names))
            names, columns = _needed(table, wanted)
            implied = _implied(table, names, columns)
        except UsageError as error:
            raise error.at(url=table.url) from error.__cause__
        classes, plain = known if wanted.labels == "int" else None, _is_plain(table, names, columns)
    kind: CellKind = "tab"
    copied = _copied(locations, names, _copy_text) if plain else None
    reader = row_reader(kind, columns, wanted, first)
    if copied is None:
        reader = replace(reader, kind="packed")
        try:
            copied = _copied(locations, names, _copy_rows)
        except _LargeRows:
            streams = TableStreams(locations, names, reader)
            streams.classes, streams.implied = classes, implied
            streams.key = "auto" if reader.keys.number else "path"
            return streams
    assert copied is not None
    records, digest = copied
    source = ListSource(records, reader, f"{digest} {classes}")
    source.implied = implied
    if classes is not None:
        source.classes = classes
    return source


@dataclass(frozen=True, slots=True)
class TablePart(SourcePart):
    """The rows of a row group, in order.

    Attributes:
        location: The file.
        names: Columns to read.
        reader: How a row becomes a sample.
        group: Which row group; ``None`` for the whole file.
        start: Rows before it, in all files.
    """

    location: Location
    names: tuple[str, ...]
    reader: LineReader
    group: int | None
    start: int

    def __iter__(self) -> Iterator[Item | Reject]:
        number = self.start
        try:
            with _opened(self.location) as table:
                for row in table.rows(self.names, self.group):
                    number += 1
                    yield self.reader.item(_packed(row), number)
        except SourceError as error:  # what cannot be opened at all was found before
            yield Reject(number + 1, valid_unicode(self.location.url), error.what)


class TableStreams(StreamSource):
    """Tables of large values, such as images, read in order.

    Args:
        locations: Files with the same columns.
        names: Columns to read.
        reader: How a row becomes a sample.

    Raises:
        SourceError: The first row cannot be packed, or labels are names of classes that are not given: they are not
            known before all is read.
    """

    def __init__(self, locations: Sequence[Location], names: Sequence[str], reader: LineReader) -> None:
        self.url = locations[0].url
        if reader.labels == "name" and not reader.names:
            raise SourceError(
                "labels by name need a list of them first, and this table is read only once",
                url=self.url,
                hint="give the list: classes= (--classes); or number them in a column of integers",
            )
        self.types = declared_types(tuple(one.rule for one in reader.columns.fields))
        self.declared = types_alone(reader.columns.declared)
        self.origin = reader.origin
        hasher = xxhash.xxh3_128(repr((tuple(names), replace(reader, folder=""))).encode())
        streams: list[SourcePart] = []
        start = 0
        for location in locations:
            with _opened(location) as table:
                if not streams:
                    self._check_first(table, names, reader)
                groups, grouped = table.groups, table.grouped
            hasher.update(f"{location.url.rpartition('/')[2]} {table.size} {groups}\n".encode())
            for group, rows in enumerate(groups):
                streams.append(TablePart(location, tuple(names), reader, group if grouped else None, start))
                start += rows
        self.streams = streams
        self._fingerprint = hasher.hexdigest()

    def _check_first(self, table: _Table, names: Sequence[str], reader: LineReader) -> None:
        row = next(table.rows(names), None)
        try:
            if row is not None:
                reader.check(_packed(row), 1)
        except UsageError as error:
            raise error.at(url=table.url) from None
        except Broken as error:
            raise SourceError(
                str(error), url=table.url, line=1, hint=error.hint or "choose columns by --field"
            ) from None

    @property
    def fingerprint(self) -> str:
        return self._fingerprint


def _packed(row: tuple[Any, ...]) -> bytes:
    return bytes(msgpack.packb(row, default=_plain))


def _plain(value: object) -> object:
    """What msgpack has no type for: numbers of numpy, as pyarrow gives halves, as Python's, all else as text."""
    return value.item() if isinstance(value, np.generic) else str(value)


def _implied(table: _Table, names: Sequence[str], columns: Columns) -> dict[str, FieldType]:
    """The types of fields that are columns of lists of numbers, where nobody declared any: arrays, not JSON."""
    found = {}
    for field in columns.fields:
        if field.rule.type is None and not field.path and isinstance(field.column, int):
            kind = _array_type(table.schema.field(names[field.column]).type)
            if kind is not None:
                found[field.rule.name] = kind
    return found


def _array_type(arrow: Any) -> FieldType | None:
    """The type of the arrays in a column of an Arrow type; ``None`` of anything but lists of numbers."""
    shape: list[int | None] = []
    while str(arrow).startswith(_LISTS):
        shape.append(getattr(arrow, "list_size", None))
        arrow = arrow.value_type
    elements = _FLOATS.get(str(arrow), str(arrow))
    sizes = "" if None in shape else ":" + ",".join(map(str, shape))
    return type_named(f"array:{elements}{sizes}") if shape else None


def _is_plain(table: _Table, names: Sequence[str], columns: Columns) -> bool:
    """Whether all columns are text, or integers that are understood as well if they are written as such."""
    typed: set[Column | None] = {
        column for field in columns.fields if field.rule.type is not None for column in field.columns
    }
    typed |= {columns.label, columns.key}
    typed -= {field.column for field in columns.fields if field.rule.type is None}
    kinds = [str(table.schema.field(name).type) for name in names]
    return all(kind in _TEXT or (kind in _INTEGERS and i in typed) for i, kind in enumerate(kinds))


def _values(table: _Table, names: Sequence[str], column: Column) -> Iterator[object]:
    assert isinstance(column, int)
    return (value for (value,) in table.rows([names[column]]))


def _copied(
    locations: Sequence[Location], names: Sequence[str], copy: Callable[[_Table, Sequence[str], Spool, Any], bool]
) -> tuple[Records, str] | None:
    spool, hasher = Spool(), xxhash.xxh3_128()
    try:
        for location in locations:
            with _opened(location) as table:
                missing = [name for name in names if name not in table.schema.names]
                if missing:
                    raise SourceError(
                        f"the file has no column {missing[0]!r}", url=table.url, hint="every file needs the same"
                    )
                if not copy(table, names, spool, hasher):
                    return None
        return spool.finish(locations[0].url), hasher.hexdigest()
    finally:
        spool.close()


def _copy_text(table: _Table, names: Sequence[str], spool: Spool, hasher: Any) -> bool:
    for found in table.texts(names):
        if found is None:
            return False
        hasher.update(found[0])
        spool.extend(*found)
    return True


def _needed(table: _Table, wanted: Wanted) -> tuple[list[str], Columns]:
    """The names of the columns that have a part in samples, in their order, and which of these is what."""
    names: list[str] = table.schema.names
    every = understand("packed", [], wanted, names=names)
    used = {every.path, every.label, every.key, *(column for field in every.fields for column in field.columns)}
    needed = [name for i, name in enumerate(names) if i in used]
    return needed, replace(understand("packed", [], wanted, names=needed), unused=every.unused)


def _copy_rows(table: _Table, names: Sequence[str], spool: Spool, hasher: Any) -> bool:
    size, before = 0, len(spool)
    for row in table.rows(names):
        record = _packed(row)
        size += len(record)
        hasher.update(record)
        spool.add(record)
        if size > _LARGE * max(len(spool) - before, 1 << 10):
            raise _LargeRows
    return True
