"""Lists in Parquet and Arrow files, as Hugging Face and others keep them.

The columns that are needed are copied once, while planning, to a temporary file of records, so that any rows can be
read in any order. pyarrow reads paths, text, numbers, and bytes. The reader in place gives all other values, and the
types of all fields. Tables that hold the files themselves are no lists: see ``table_rows``.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import SourceError, UsageError
from shardstream.extras import require
from shardstream.formats.arrow.columns import TableField
from shardstream.formats.sources.table_fields import choose_columns, name_of, read_in_place, table_fields
from shardstream.pack.sources.lists.columns import Columns, Wanted, settled, understand
from shardstream.pack.sources.lists.mapping import FieldRule
from shardstream.pack.sources.lists.records import CellKind, Column, packed
from shardstream.pack.sources.lists.source import ListSource, row_reader, suffix_of
from shardstream.pack.sources.lists.spool import Records, Spool
from shardstream.shards.fields import FieldType
from shardstream.storage import Location, open_object
from shardstream.storage.base.ranged import RangedFile

_ROWS = 1 << 14
_READ = 1 << 20
_TEXT = frozenset(("string", "large_string", "string_view"))
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_PLAINLY = ("bytes", "text", "number", "nothing")  # how fields come whose values pyarrow gives as the reader in place
_PURPOSE = "to read Parquet and Arrow files"


class _Table:
    """A Parquet or Arrow file.

    Args:
        location: The file.
        whole: Structs that are taken as JSON.
    """

    def __init__(self, location: Location, whole: Sequence[str] = ()) -> None:
        self.url = location.url
        self.whole = whole
        self._location = location
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

    @cached_property
    def fields(self) -> tuple[TableField, ...]:
        """The fields that its columns become in place."""
        store, name = open_object(self._location)
        return table_fields(store, store.meta(name))[1]

    @property
    def names(self) -> list[str]:
        """The columns of the list: those of the file, but of structs their fields, and structs that are JSON."""
        files = {one.source[0] for one in self.fields if one.beside and len(one.source) == 2}
        inner = {one.source[0] for one in self.fields if len(one.source) > 1} - files
        names: list[str] = [name for name in self.schema.names if name not in inner]
        return [*names, *(name_of(one) for one in self.fields if one.source[0] in inner), *self.whole]

    def rows(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The values of these columns, row by row.

        Raises:
            SourceError: It is damaged.
            FormatError: The reader in place cannot read a column.
        """
        plain = {one.source[0] for one in self.fields if one.how in _PLAINLY and one.type.name != "json"}
        direct = [name for name in names if name in plain and name in self.schema.names]
        others = [name for name in names if name not in direct]
        with self._explained():
            found = self._rows(direct)
            if not others:
                yield from found
                return
            known = {one.source[0]: name_of(one) for one in self.fields if len(one.source) == 1}
            place = {name: number for number, name in enumerate((*direct, *others))}
            order = [place[name] for name in names]
            in_place = read_in_place(self._location, [known.get(name, name) for name in others], self.whole)
            nothing = (None,) * len(others)
            pairs = ((row, nothing) for row in found) if in_place is None else zip(found, in_place, strict=True)
            for ours, theirs in pairs:
                values = (*ours, *theirs)
                yield tuple(values[number] for number in order)

    def _rows(self, names: list[str]) -> Iterator[tuple[Any, ...]]:
        for batch in self._batches(names):
            if names:
                yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            else:
                yield from itertools.repeat((), batch.num_rows)

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
            unsupported = isinstance(error, self._arrow.ArrowNotImplementedError)
            what = "holds what pyarrow does not read" if unsupported else "is damaged"
            raise SourceError(f"the file {what}: {error}", url=self.url, hint="write it again") from error

    def _batches(self, names: list[str]) -> Iterator[Any]:
        if hasattr(self._table, "iter_batches"):
            yield from self._table.iter_batches(_ROWS, columns=names)
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
def _opened(location: Location, whole: Sequence[str] = ()) -> Iterator[_Table]:
    table = _Table(location, whole)
    try:
        yield table
    finally:
        table.close()


def open_tables(locations: Sequence[Location], wanted: Wanted) -> ListSource:
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
            chosen = choose_columns(wanted.fields, table.fields)
            wanted = replace(wanted, fields=_as_listed(chosen.rules, table.fields))
            table.whole = chosen.whole
            names, columns = _needed(table, wanted)
            known = table.classes(names[columns.label]) if isinstance(columns.label, int) and not wanted.said else None
            wanted = settled(wanted, columns, partial(_values, table, names))
            names, columns = _needed(table, wanted)
        except UsageError as error:
            raise error.at(url=table.url) from error.__cause__
        classes, plain = known if wanted.labels == "int" else None, _is_plain(table, names, columns)
        implied = _implied(table, names, columns)
    kind: CellKind = "tab"
    copied = _copied(locations, names, chosen.whole, _copy_text) if plain else None
    reader = row_reader(kind, columns, wanted, first)
    if copied is None:
        reader = replace(reader, kind="packed")
        copied = _copied(locations, names, chosen.whole, _copy_rows)
    assert copied is not None
    records, digest = copied
    source = ListSource(records, reader, f"{digest} {classes}")
    source.implied = implied
    if classes is not None:
        source.classes = classes
    return source


def _as_listed(rules: Sequence[FieldRule], fields: Sequence[TableField]) -> tuple[FieldRule, ...]:
    """Rules with columns called as in the file: those of structs alone have names of fields in place."""
    names = {name_of(one): one.source[0] for one in fields if len(one.source) == 1}
    return tuple(rule.of_column(names.get(rule.column, rule.column)) for rule in rules)


def _implied(table: _Table, names: Sequence[str], columns: Columns) -> dict[str, FieldType]:
    """The types of fields of which nobody declared any: those that the reader in place gives, but of bytes."""
    known = {one.source[0]: one for one in table.fields if len(one.source) == 1}
    known |= {name_of(one): one for one in table.fields if len(one.source) > 1}
    found = {}
    for field in columns.fields:
        if field.rule.type is None and not field.path and isinstance(field.column, int):
            one = known.get(names[field.column])
            if one is not None and one.how not in ("bytes", "nothing"):
                found[field.rule.name] = one.type
    return found


def _is_plain(table: _Table, names: Sequence[str], columns: Columns) -> bool:
    """Whether all columns are text, or integers that are understood as well if they are written as such."""
    typed: set[Column | None] = {
        column for field in columns.fields if field.rule.type is not None for column in field.columns
    }
    typed |= {columns.label, columns.key}
    typed -= {field.column for field in columns.fields if field.rule.type is None}
    as_json = {one.source[0] for one in table.fields if one.type.name == "json"}
    if as_json.intersection(names) or not set(names) <= set(table.schema.names):
        return False
    kinds = [str(table.schema.field(name).type) for name in names]
    return all(kind in _TEXT or (kind in _INTEGERS and i in typed) for i, kind in enumerate(kinds))


def _values(table: _Table, names: Sequence[str], column: Column) -> Iterator[object]:
    assert isinstance(column, int)
    return (value for (value,) in table.rows([names[column]]))


def _copied(
    locations: Sequence[Location],
    names: Sequence[str],
    whole: Sequence[str],
    copy: Callable[[_Table, Sequence[str], Spool, Any], bool],
) -> tuple[Records, str] | None:
    spool, hasher = Spool(), xxhash.xxh3_128()
    try:
        for location in locations:
            with _opened(location, whole) as table:
                missing = [name for name in names if name not in table.names]
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
    names = table.names
    every = understand("packed", [], wanted, names=names)
    used = {every.path, every.label, every.key, *(column for field in every.fields for column in field.columns)}
    needed = [name for i, name in enumerate(names) if i in used]
    return needed, replace(understand("packed", [], wanted, names=needed), unused=every.unused)


def _copy_rows(table: _Table, names: Sequence[str], spool: Spool, hasher: Any) -> bool:
    for row in table.rows(names):
        record = packed(row)
        hasher.update(record)
        spool.add(record)
    return True
