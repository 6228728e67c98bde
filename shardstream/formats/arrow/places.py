"""Where the values of a column lie in a batch, and numbers that are copied into the index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.formats.arrow.columns import TableField
from shardstream.formats.arrow.flatbuffers import Inconsistent
from shardstream.formats.arrow.messages import Batch, Node, is_views
from shardstream.formats.arrow.metadata import TableSchema
from shardstream.formats.arrow.schema import BINARIES, LISTS, TEXTS
from shardstream.formats.scans.object_bytes import ObjectBytes

Places = NDArray[np.int64]
_INLINE = 12  # bytes of a value that stands in its view
_AS_JSON = "take them as JSON with --format-option json=COLUMN (SourceOptions(options=...)), or leave the column out"


class Values(NamedTuple):
    """The values of a field, in some rows.

    Attributes:
        has: Which rows have one.
        values: Numbers; of others, where each lies in the object: 0 where there is none.
        lengths: Bytes of each; ``None`` of numbers.
    """

    has: NDArray[np.bool_]
    values: NDArray[Any]
    lengths: Places | None = None

    def take(self, rows: Any) -> Values:
        """Those of a slice, or of the rows of these numbers."""
        return Values(self.has[rows], self.values[rows], None if self.lengths is None else self.lengths[rows])


class _Spans(NamedTuple):
    """Elements of each row: from which on, and up to which."""

    begin: Places
    end: Places


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Reads fields of one batch.

    Args:
        data: The object.
        schema: Of its table.
        batch: The batch.
        begin: The first row to read.
        end: The row after the last.
    """

    data: ObjectBytes
    schema: TableSchema
    batch: Batch
    begin: int
    end: int

    @classmethod
    def of(cls, data: ObjectBytes, schema: TableSchema, batch: Batch) -> Self:
        """One that reads all rows."""
        return cls(data, schema, batch, 0, batch.head.rows)

    def read(self, field: TableField) -> Values:
        """The values of a field in the rows.

        Raises:
            Inconsistent: Buffers are too small, or speak of what is not there.
            FormatError: They are of a kind that cannot be read, or not inside of the object.
        """
        node, has = self._found(field)
        if node.type.kind == "dictionary":
            return self._looked_up(field, node, has)
        return self._values(field, node, has)

    def node(self, field: TableField) -> tuple[Node, NDArray[np.bool_] | None]:
        """The node of a field's column, and which rows have no struct around it."""
        columns = self.batch.columns(self.schema)
        node, has = columns[field.source[0]], None
        for name in field.source[1:]:
            self._check_rows(node)
            own = self._valid(node, self.begin, self.end)
            if own is not None:
                has = own if has is None else has & own
            number = next(i for i, one in enumerate(node.type.children) if one.name == name)
            node = node.children[number]
        self._check_rows(node)
        return node, has

    def has(self, field: TableField) -> NDArray[np.bool_]:
        """Which rows have a value."""
        return self._found(field)[1]

    def _found(self, field: TableField) -> tuple[Node, NDArray[np.bool_]]:
        node, has = self.node(field)
        own = self._valid(node, self.begin, self.end)
        both = own if has is None else has if own is None else has & own
        return node, np.ones(self.end - self.begin, np.bool_) if both is None else both

    def _check_rows(self, node: Node) -> None:
        if node.rows != self.batch.head.rows:
            raise Inconsistent(f"a column of {node.rows} rows in a batch of {self.batch.head.rows}")

    def _valid(self, node: Node, begin: int, end: int) -> NDArray[np.bool_] | None:
        """Which of the rows of a node have a value; ``None``: all."""
        if not node.nulls or not node.buffers or not node.buffers[0].length:
            return None
        return self._bits(node, 0, begin, end)

    def _bits(self, node: Node, buffer: int, begin: int, end: int) -> NDArray[np.bool_]:
        first = begin // 8
        bits = self._numbers(node, buffer, "|u1", first, -(-end // 8))
        return np.unpackbits(bits, bitorder="little")[begin - 8 * first : end - 8 * first].view(np.bool_)

    def _numbers(self, node: Node, buffer: int, dtype: str, begin: int, end: int) -> NDArray[Any]:
        """Numbers of a buffer, as a view."""
        at, length = node.buffers[buffer]
        width = np.dtype(dtype).itemsize
        if end * width > length:
            raise Inconsistent(f"a buffer of {length} bytes for {end} values of {width} (offset {at})")
        return self.data.array(dtype, end - begin, at + begin * width)

    def _values(self, field: TableField, node: Node, has: NDArray[np.bool_]) -> Values:
        kind = node.type.kind
        if field.how == "number":
            return Values(has, np.where(has, self._scalars(node), np.zeros((), field.type.dtype)))
        if is_views(node.type):
            return _masked(has, *self._views(node))
        if kind in TEXTS | BINARIES:
            return _masked(has, *self._bytes(node))
        return self._elements(field, node, has)

    def _scalars(self, node: Node) -> NDArray[Any]:
        if node.type.kind == "bool":
            return self._bits(node, 1, self.begin, self.end)
        return self._numbers(node, 1, np.dtype(node.type.kind).newbyteorder("<").str, self.begin, self.end)

    def _offsets(self, node: Node, begin: int, end: int) -> Places:
        """Where the elements of each of these rows begin, and where those of the last one end."""
        if begin == end:
            return np.zeros(1, np.int64)
        found: Places = self._numbers(node, 1, _offset_type(node), begin, end + 1).astype(np.int64)
        if found[0] < 0 or np.any(found[1:] < found[:-1]):
            raise Inconsistent(f"the offsets of a column do not rise (offset {node.buffers[1].offset})")
        return found

    def _bytes(self, node: Node) -> tuple[Places, Places]:
        """Offset and length of each value."""
        at, length = node.buffers[-1]
        if node.type.kind == "fixed_size_binary":
            width = node.type.size
            begin = np.arange(self.begin, self.end, dtype=np.int64) * width
            end = begin + width
        else:
            offsets = self._offsets(node, self.begin, self.end)
            begin, end = offsets[:-1], offsets[1:]
        if len(end) and int(end[-1]) > length:
            raise Inconsistent(f"values of {int(end[-1])} bytes in a buffer of {length} (offset {at})")
        return begin + at, end - begin

    def _views(self, node: Node) -> tuple[Places, Places]:
        """The same of views: short values stand in them, others in one of several buffers."""
        views = self._numbers(node, 1, "<i4", 4 * self.begin, 4 * self.end).reshape(-1, 4).astype(np.int64)
        lengths, number, begin = views[:, 0], views[:, 2], views[:, 3]
        own = node.buffers[1].offset + 4 + 16 * np.arange(self.begin, self.end, dtype=np.int64)
        inline = lengths <= _INLINE
        buffers = np.array(node.buffers[2:] or [(0, 0)], np.int64)
        far = ~inline
        wrong = (lengths < 0) | (far & ((number < 0) | (number >= len(node.buffers) - 2) | (begin < 0)))
        number = np.where(far & ~wrong, number, 0)
        wrong |= far & (begin + lengths > buffers[number, 1])
        if wrong.any():
            valid = self._valid(node, self.begin, self.end)
            if valid is None or np.any(wrong & valid):
                raise Inconsistent(f"views of what is not there (offset {node.buffers[1].offset})")
        return np.where(inline, own, buffers[number, 0] + begin), lengths

    def _looked_up(self, field: TableField, node: Node, has: NDArray[np.bool_]) -> Values:
        """Values that are numbers of those in a dictionary."""
        there = self.batch.dictionaries.get(node.type.dictionary)
        if there is None:
            raise Inconsistent("a batch comes before the dictionary that it refers to")
        reader = BatchReader.of(self.data, self.schema, there)
        inner = there.values(node.type.children[0].type)
        reader._check_rows(inner)
        own = reader._valid(inner, 0, inner.rows)
        known = reader._values(field, inner, np.ones(inner.rows, np.bool_) if own is None else own)
        dtype = np.dtype(node.type.index).newbyteorder("<").str
        index = self._numbers(node, 1, dtype, self.begin, self.end).astype(np.int64)
        if np.any(has & ((index < 0) | (index >= inner.rows))):
            raise Inconsistent(f"numbers of what is not in the dictionary (offset {node.buffers[1].offset})")
        if not inner.rows:
            zeros = np.zeros(len(has), known.values.dtype)
            return Values(has & False, zeros, None if known.lengths is None else zeros)
        found = known.take(np.where(has, index, 0))
        has = has & found.has
        if found.lengths is None:
            return Values(has, np.where(has, found.values, np.zeros((), found.values.dtype)))
        return _masked(has, found.values, found.lengths)

    # ----------------------------------------------------------------------------------------------------------- lists

    def _elements(self, field: TableField, node: Node, has: NDArray[np.bool_]) -> Values:
        """Lists of numbers: the elements of a row lie one after another."""
        spans = self._inner(node, self.begin, self.end, has)
        flat = node.children[0].type.kind not in LISTS  # as tensors are
        first, *others = (math.prod(field.shape),) if flat else field.shape
        if first >= 0 and np.any(has & (spans.end - spans.begin != first)):
            raise self._refused(field, f"lists that should all have {first} elements are of other lengths")
        for size in others:
            node = node.children[0]
            spans = self._flattened(field, node, spans, size)
        (leaf,) = node.children
        some = spans.end > spans.begin
        _, high = _used(spans)
        self._check_whole(field, leaf, spans)
        width = np.dtype(leaf.type.kind).itemsize
        at, length = leaf.buffers[1]
        if high * width > length:
            raise Inconsistent(f"{high} elements of lists in a buffer of {length} bytes (offset {at})")
        return _masked(has, np.where(some, at + spans.begin * width, 0), (spans.end - spans.begin) * width)

    def _flattened(self, field: TableField, node: Node, spans: _Spans, size: int) -> _Spans:
        """Elements of the lists in lists, all of which have ``size``; they must lie one after another."""
        low, high = _used(spans)
        if high > self.data.size:  # before as many are looked at
            raise Inconsistent(f"{high} lists in an object of {self.data.size} bytes")
        self._check_whole(field, node, spans)
        inner = self._inner(node, low, high, None)
        some = spans.end > spans.begin
        first, last = np.where(some, spans.begin - low, 0), np.where(some, spans.end - low - 1, 0)
        if not some.any():
            return _Spans(np.zeros_like(first), np.zeros_like(first))
        others = _sums(inner.end - inner.begin != size)
        begin, end = inner.begin[first], inner.end[last]
        # Offsets rise, so that lists of one size lie one after another where they end with the last one's end.
        wrong = (others[last + 1] > others[first]) | (end - begin != (last + 1 - first) * size)
        if np.any(some & wrong):
            raise self._refused(field, f"lists that should all have {size} elements are of other lengths")
        return _Spans(np.where(some, begin, 0), np.where(some, end, 0))

    def _inner(self, node: Node, begin: int, end: int, has: NDArray[np.bool_] | None) -> _Spans:
        """The elements of lists ``[begin, end)``; none of those that have no value."""
        if end > node.rows:
            raise Inconsistent(f"list {end - 1} of {node.rows}")
        if node.type.kind == "fixed_size_list":
            rows = np.arange(begin, end, dtype=np.int64)
            found = _Spans(rows * node.type.size, (rows + 1) * node.type.size)
        elif node.type.kind.endswith("_view"):
            starts, sizes = (self._numbers(node, i, _offset_type(node), begin, end).astype(np.int64) for i in (1, 2))
            found = _Spans(starts, starts + sizes)
        else:
            offsets = self._offsets(node, begin, end)
            found = _Spans(offsets[:-1], offsets[1:])
        if has is not None:
            found = _Spans(np.where(has, found.begin, 0), np.where(has, found.end, 0))
        if np.any(found.begin < 0) or np.any(found.end < found.begin):
            raise Inconsistent("lists of a negative length")
        there = node.children[0].rows
        if len(found.end) and int(found.end.max()) > there:
            raise Inconsistent(f"lists of {int(found.end.max())} elements where there are {there}")
        return found

    def _check_whole(self, field: TableField, node: Node, spans: _Spans) -> None:
        """Refuse elements without a value, but for those of rows without one."""
        low, high = _used(spans)
        valid = self._valid(node, low, high)
        if valid is None:
            return
        without, some = _sums(~valid), spans.end > spans.begin
        begin, end = np.where(some, spans.begin - low, 0), np.where(some, spans.end - low, 0)
        if np.any(without[end] > without[begin]):
            raise self._refused(field, "there are elements without a value in lists")

    def _refused(self, field: TableField, what: str) -> FormatError:
        return self.data.unsupported(f"column {'.'.join(field.source)!r}: {what}", self.batch.at, hint=_AS_JSON)


def _offset_type(node: Node) -> str:
    return "<i8" if node.type.kind.startswith("large_") else "<i4"


def _masked(has: NDArray[np.bool_], offsets: Places, lengths: Places) -> Values:
    return Values(has, np.where(has, offsets, 0), np.where(has, lengths, 0))


def _used(spans: _Spans) -> tuple[int, int]:
    """The first element that any row has, and where the last one ends."""
    some = spans.end > spans.begin
    return (int(spans.begin[some].min()), int(spans.end[some].max())) if some.any() else (0, 0)


def _sums(marks: NDArray[np.bool_]) -> Places:
    """How many of the first 0, 1, 2 ... are marked."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(marks, dtype=np.int64)])
