"""Lists in Parquet and Arrow files, as Hugging Face and others keep them.

The columns that are needed are copied once, while planning, to a temporary file of records, so that any rows can be
read in any order. Tables that hold the files themselves are no lists: see ``table_rows``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import SourceError, UsageError
from shardstream.extras import require
from shardstream.pack.sources.declared import array_dtype, type_named
from shardstream.pack.sources.lists.columns import Columns, Wanted, settled, understand
from shardstream.pack.sources.lists.source import ListSource, row_reader, suffix_of
from shardstream.pack.sources.lists.spool import Records, Spool
from shardstream.shards.fields import FieldType
from shardstream.shards.foreign.formats.files.records import CellKind, Column, packed
from shardstream.storage import Location, open_object
from shardstream.storage.base.ranged import RangedFile

TABLES = (".parquet", ".arrow", ".feather")
_ROWS = 1 << 14
_READ = 1 << 20
_TEXT = frozenset(("string", "large_string", "string_view"))
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_LISTS = ("list<", "large_list<", "fixed_size_list<", "list_view<", "large_list_view<")
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}  # by their names in Arrow
_PURPOSE = "to read Parquet and Arrow files"


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

    def rows(self, names: Sequence[str], arrays: Container[str] = ()) -> Iterator[tuple[Any, ...]]:
        """The values of these columns, row by row.

        Args:
            names: The columns.
            arrays: Those of them that hold lists of numbers, to be given as arrays.

        Raises:
            SourceError: It is damaged.
        """
        with self._explained():
            for batch in self._batches(list(names)):
                columns = ((name, batch.column(name)) for name in names)
                values = (_arrays(one) if name in arrays else one.to_pylist() for name, one in columns)
                yield from zip(*values, strict=True)

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


def _arrays(column: Any) -> list[Any]:
    """Lists of numbers as arrays; as lists where some of their numbers have no value."""
    numbers = column.flatten()
    if numbers.null_count:
        found: list[Any] = column.to_pylist()
        return found
    every = numbers.to_numpy(zero_copy_only=False)
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    ranges = zip((ends - lengths).tolist(), ends.tolist(), column.is_valid().to_pylist(), strict=True)
    return [every[begin:end] if valid else None for begin, end, valid in ranges]


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
            names, columns = _needed(table, wanted)
            known = table.classes(names[columns.label]) if isinstance(columns.label, int) and not wanted.said else None
            wanted = settled(wanted, columns, partial(_values, table, names))
            names, columns = _needed(table, wanted)
            implied = _implied(table, names, columns)
            arrays = _as_arrays(table, names, columns, implied)
        except UsageError as error:
            raise error.at(url=table.url) from error.__cause__
        classes, plain = known if wanted.labels == "int" else None, _is_plain(table, names, columns)
    kind: CellKind = "tab"
    copied = _copied(locations, names, _copy_text) if plain else None
    reader = row_reader(kind, columns, wanted, first)
    if copied is None:
        reader = replace(reader, kind="packed")
        copied = _copied(locations, names, partial(_copy_rows, arrays=arrays))
    assert copied is not None
    records, digest = copied
    source = ListSource(records, reader, f"{digest} {classes}")
    source.implied = implied
    if classes is not None:
        source.classes = classes
    return source


def _implied(table: _Table, names: Sequence[str], columns: Columns) -> dict[str, FieldType]:
    """The types of fields that are columns of lists of numbers, where nobody declared any: arrays, not JSON."""
    found = {}
    for field in columns.fields:
        if field.rule.type is None and not field.path and isinstance(field.column, int):
            kind = _array_type(table.schema.field(names[field.column]).type)
            if kind is not None:
                found[field.rule.name] = kind
    return found


def _as_arrays(table: _Table, names: Sequence[str], columns: Columns, implied: Mapping[str, FieldType]) -> set[str]:
    """The columns of lists of numbers that are copied as arrays, which says the same in a fraction of the room."""
    wanted: dict[str, bool] = {}
    for field in columns.fields:
        kind = implied.get(field.rule.name) or (field.rule.type and type_named(field.rule.type)) or None
        for column in field.columns:
            if isinstance(column, int):
                name = names[column]
                fits = kind is not None and _holds_plainly(kind, table.schema.field(name).type)
                wanted[name] = wanted.get(name, True) and fits
    return {name for name, fits in wanted.items() if fits}


def _holds_plainly(kind: FieldType, arrow: Any) -> bool:
    """Whether arrays of an Arrow type are taken for this type as lists of their numbers are."""
    dtype = array_dtype(kind)
    if dtype is None or not str(arrow).startswith(_LISTS):
        return False
    elements = str(arrow.value_type)
    return elements in _INTEGERS or _FLOATS.get(elements) == dtype.name


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


def _copy_rows(table: _Table, names: Sequence[str], spool: Spool, hasher: Any, *, arrays: Container[str]) -> bool:
    for row in table.rows(names, arrays):
        record = packed(row)
        hasher.update(record)
        spool.add(record)
    return True
