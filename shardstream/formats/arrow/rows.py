"""The rows of an Arrow object as columns of a catalogue: batches are joined and cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError, UnsupportedError
from shardstream.formats.arrow.blocks import nested_parts
from shardstream.formats.arrow.columns import TableField
from shardstream.formats.arrow.flatbuffers import Inconsistent
from shardstream.formats.arrow.messages import ArrowTable, Batch, read_table
from shardstream.formats.arrow.places import BatchReader, Values
from shardstream.formats.blocks.nested import MARK
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, ScannedRows, numbered_keys, pieces, sniffed_type
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column, bitmap_of

_INDICES = "indices"
_AT_ONCE = 1 << 18  # rows
_Chunk = Mapping[str, Values]


def scan_rows(
    data: ObjectBytes, fields: Sequence[TableField], chosen: Mapping[str, Any] | None
) -> Iterator[ScannedRows]:
    """The rows of an object.

    Args:
        data: It, as its blocks show it if there are any.
        fields: Those that are wanted.
        chosen: Which rows of it, see `chosen_rows`; ``None`` for all.

    Raises:
        FormatError: It cannot be read.
        StorageError: The same.
    """
    fields = [one for one in fields if one.how != "nothing"]
    table = read_table(data, inflated=True, whole=not any(one.how == "converted" for one in fields))
    chunks = _Chunks(data, table, fields)
    columns = _Columns(data, fields, compressed=any(one.head.codec for one in table.batches))
    if chosen is not None:
        yield from _selected(data, chunks, columns, chosen)
        return
    first = 0
    for count, values in _pieces(chunks):
        yield ScannedRows(numbered_keys(data.path, first, count), columns.of(values))
        first += count
    if chunks.damage is not None:
        yield ScannedRows([], (), chunks.damage)


class _Chunks:
    """The values of an object, batch by batch; `damage` says then what ended them too early."""

    def __init__(self, data: ObjectBytes, table: ArrowTable, fields: Sequence[TableField]) -> None:
        self._data = data
        self._table = table
        self._fields = fields
        self.damage = table.damage

    def __iter__(self) -> Iterator[tuple[int, _Chunk]]:
        """Rows and values, batch by batch, of large ones in parts."""
        table = self._table
        anew = [one for one in self._fields if one.how == "converted"]
        converted = _Converted(self._data, table, anew)
        for batch in table.batches:
            try:
                yield from self._parts(batch, converted)
            except Inconsistent as error:
                self.damage = self._data.damaged(str(error), batch.at)
                return
            except UnsupportedError:
                raise
            except FormatError as error:
                self.damage = error
                return
        if anew and converted.end < self._data.size:
            self.damage = self._data.damaged("it is damaged or cut off behind the last batch that is whole", table.end)

    def _parts(self, batch: Batch, converted: _Converted) -> Iterator[tuple[int, _Chunk]]:
        """A batch in parts, so that of one with millions of rows not all places are made at once."""
        schema, count = self._table.schema, batch.head.rows
        whole = BatchReader.of(self._data, schema, batch)
        anew = {one.name: converted.read(whole, one) for one in self._fields if one.how == "converted"}
        for begin in range(0, count, _AT_ONCE):
            end = min(begin + _AT_ONCE, count)
            reader = BatchReader(self._data, schema, batch, begin, end)
            found = {one.name: reader.read(one) for one in self._fields if one.how != "converted"}
            yield end - begin, found | {name: one.take(slice(begin, end)) for name, one in anew.items()}


class _Converted:
    """Values that are written down anew: a block for some rows each, behind the table.

    Attributes:
        end: Where the last one ends that was read.
    """

    def __init__(self, data: ObjectBytes, table: ArrowTable, fields: Sequence[TableField]) -> None:
        self._data = data
        self.end = table.end
        self._parts = nested_parts(table, fields)

    def read(self, reader: BatchReader, field: TableField) -> Values:
        """The values of a field in all rows of a batch: of the next one that has not been read."""
        offsets, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for begin, end in pieces(reader.batch.head.rows):
            assert next(self._parts) == (reader.batch, field, begin, end)
            sizes = self._data.array("<u4", end - begin, self.end + len(MARK)).astype(np.int64)
            start = self.end + len(MARK) + 4 * (end - begin)
            ends = start + np.cumsum(sizes)
            offsets.append(ends - sizes)
            lengths.append(sizes)
            self.end = int(ends[-1])
        all_lengths = np.concatenate(lengths)
        return Values(reader.has(field) & (all_lengths > 0), np.concatenate(offsets), all_lengths)


def _pieces(chunks: _Chunks) -> Iterator[tuple[int, _Chunk]]:
    """The same rows, as many at a time as a piece has at most; few batches are cut."""
    held: list[_Chunk] = []
    count = 0
    for rows, values in chunks:
        for begin, end in pieces(rows):
            if count + end - begin > PIECE:
                yield count, _joined(held)
                held, count = [], 0
            held.append({name: one.take(slice(begin, end)) for name, one in values.items()})
            count += end - begin
    if count:
        yield count, _joined(held)


def _joined(held: Sequence[_Chunk]) -> _Chunk:
    if len(held) == 1:
        return held[0]
    return {name: _concatenated([one[name] for one in held]) for name in held[0]}


def _concatenated(some: Sequence[Values]) -> Values:
    lengths = [one.lengths for one in some if one.lengths is not None]
    return Values(
        np.concatenate([one.has for one in some]),
        np.concatenate([one.values for one in some]),
        np.concatenate(lengths) if lengths else None,
    )


class _Columns:
    """Makes columns of values.

    Args:
        data: The object.
        fields: Those that there are.
        compressed: Whether looking at values inflates them: then the first ones tell the types of all.
    """

    def __init__(self, data: ObjectBytes, fields: Sequence[TableField], *, compressed: bool) -> None:
        self._data = data
        self._fields = fields
        self._kinds: dict[str, FieldType] | None = {} if compressed else None

    def of(self, values: _Chunk) -> tuple[Column, ...]:
        """Those of a piece; fields that no row has are left out."""
        found = [self._column(one, values[one.name]) for one in self._fields if values[one.name].has.any()]
        return tuple(sorted(found, key=lambda column: column.name))

    def _column(self, field: TableField, found: Values) -> Column:
        valid = bitmap_of(found.has)
        if found.lengths is None:
            return Column(field.name, field.type, valid=valid, values=found.values)
        kind = self._kind(field, found) if field.how == "bytes" else field.type
        codec = "none"
        if field.how == "array":
            codec = f"arrow.rows:{leaf_of(field)}:{','.join(map(str, field.shape[1:]))}"
        lengths = None if kind.kind == "fixed" else found.lengths.astype(np.uint64)
        return Column(field.name, kind, codec, valid, offsets=found.values.astype(np.uint64), lengths=lengths)

    def _kind(self, field: TableField, found: Values) -> FieldType:
        known = None if self._kinds is None else self._kinds.get(field.name)
        if known is None:
            assert found.lengths is not None
            known = sniffed_type(self._data, found.values[found.has], found.lengths[found.has], "bytes")
            if self._kinds is not None:
                self._kinds[field.name] = known
        return known


def leaf_of(field: TableField) -> str:
    """The dtype of the numbers in nested lists."""
    kind = field.column.type
    while kind.children:
        kind = kind.children[0].type
    return kind.kind


# ------------------------------------------------------------------------------------------------------- chosen rows


def chosen_rows(path: str, size: int, first: int, count: int) -> dict[str, Any]:
    """What `scan_rows` has to know of rows that are chosen, in JSON.

    Args:
        path: An Arrow object of the same root, whose column ``indices`` has numbers of rows of a whole table.
        size: Its bytes.
        first: Rows of the table before this object.
        count: Rows of this object.
    """
    return {"path": path, "size": size, "first": first, "count": count}


def _selected(
    data: ObjectBytes, chunks: _Chunks, columns: _Columns, chosen: Mapping[str, Any]
) -> Iterator[ScannedRows]:
    """The rows that are chosen, in their order; those that are lost are left out."""
    rows = _numbers(data.beside(chosen["path"], chosen["size"]))
    rows = rows[(rows >= chosen["first"]) & (rows < chosen["first"] + chosen["count"])] - chosen["first"]
    read = [*chunks]
    there = sum(count for count, _ in read)
    if there > chosen["count"] or (there < chosen["count"] and chunks.damage is None):
        what = f"it has {there} rows, and had {chosen['count']} when it was looked at"
        raise data.damaged(what, 0)
    rows = rows[rows < there]
    if len(rows):
        values = _joined([one for _, one in read])
        for begin, end in pieces(len(rows)):
            taken = {name: one.take(rows[begin:end]) for name, one in values.items()}
            yield ScannedRows(numbered_keys(data.path, begin, end - begin), columns.of(taken))
    if chunks.damage is not None:
        yield ScannedRows([], (), chunks.damage)


def _numbers(data: ObjectBytes) -> NDArray[np.int64]:
    """Numbers of rows, of the column of an Arrow object that is not compressed."""
    table = read_table(data, inflated=False)
    if table.damage is not None:
        raise table.damage
    columns = [one for one in table.schema.columns if one.name == _INDICES]
    if len(columns) != 1 or columns[0].type.kind != "uint64" or any(one.head.codec for one in table.batches):
        what = f"it has no plain column {_INDICES!r} of uint64"
        raise data.unsupported(what, 0, hint="give a file that filter, select or shuffle of datasets wrote")
    field = TableField(_INDICES, (_INDICES,), columns[0], "number", FieldType.parse("uint64"))
    try:
        found = [BatchReader.of(data, table.schema, batch).read(field).values for batch in table.batches]
    except Inconsistent as error:
        raise data.damaged(str(error), 0) from error
    return np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)
