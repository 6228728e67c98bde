"""``read_table``: the batches of an IPC file or stream, and where each buffer of each column lies.

A file is a stream with ``ARROW1`` before it and a footer behind. A message is a length, its metadata, and a body of
buffers. Where buffers are compressed, each begins with the bytes that it inflates to, or -1 where it is stored plainly.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardstream.errors import FormatError
from shardstream.formats.arrow.flatbuffers import Inconsistent, UnknownKind
from shardstream.formats.arrow.metadata import (
    BatchHead,
    Message,
    TableSchema,
    footer_batches,
    read_message,
)
from shardstream.formats.arrow.schema import BINARIES, TEXTS, ArrowType
from shardstream.formats.scans.object_bytes import ObjectBytes

MAGIC = b"ARROW1"
OLD_FEATHER = b"FEA1"
_CONTINUES = b"\xff\xff\xff\xff"
_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")
MARKED = 8
"""Bytes before each compressed buffer, which say how much it inflates to."""
_START = 8  # bytes of a file before its first message
AS_ITS_KIND = "write it again with pyarrow, without that, or leave it out"


class Buffer(NamedTuple):
    """Bytes of an object. Of a compressed one that is not inflated: with the length that it begins with."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Node:
    """A column of a batch, or what is nested in one.

    Attributes:
        type: Its type.
        rows: How many it has.
        nulls: How many of them are without a value.
        buffers: Validity first, except of types that have none.
        children: What is nested in it.
    """

    type: ArrowType
    rows: int
    nulls: int
    buffers: tuple[Buffer, ...]
    children: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a table, or the values of a dictionary.

    Attributes:
        head: What its metadata says.
        at: Where its message begins.
        body: Where its buffers begin.
        end: Where it ends.
        buffers: Where they are.
        dictionaries: Those that its columns refer to, by their numbers.
    """

    head: BatchHead
    at: int
    body: int
    end: int
    buffers: Sequence[Buffer]
    dictionaries: Mapping[int, Batch]

    def columns(self, schema: TableSchema) -> dict[str, Node]:
        """Its columns by name.

        Raises:
            Inconsistent: It has not as many as the schema says.
        """
        layout = _Layout(self)
        found = {one.name: layout.node(one.type) for one in schema.columns}
        layout.finish()
        return found

    def values(self, kind: ArrowType) -> Node:
        """The values of a dictionary; raises as `columns`."""
        layout = _Layout(self)
        found = layout.node(kind)
        layout.finish()
        return found


class _Layout:
    """Hands out the rows and buffers of a batch in the order in which columns have them."""

    def __init__(self, batch: Batch) -> None:
        self._nodes = iter(batch.head.nodes)
        self._buffers = iter(batch.buffers)
        self._variadic = iter(batch.head.variadic)

    def node(self, kind: ArrowType) -> Node:
        rows, nulls = next(self._nodes, (-1, 0))
        if rows < 0:
            raise Inconsistent("a batch has fewer columns than the schema")
        buffers = tuple(self._buffer() for _ in range(self._count(kind)))
        nested = () if kind.kind == "dictionary" else kind.children
        return Node(kind, rows, nulls, buffers, tuple(self.node(one.type) for one in nested))

    def _buffer(self) -> Buffer:
        found = next(self._buffers, None)
        if found is None:
            raise Inconsistent("a batch has fewer buffers than its columns need")
        return found

    def _count(self, kind: ArrowType) -> int:
        match kind.kind:
            case "null" | "run_end_encoded":
                return 0
            case "fixed_size_list" | "struct" | "sparse_union":
                return 1
            case "binary" | "large_binary" | "string" | "large_string" | "list_view" | "large_list_view":
                return 3
            case "binary_view" | "string_view":
                more = next(self._variadic, -1)
                if more < 0:
                    raise Inconsistent("a column of views without the number of its buffers")
                return 2 + more
        return 2

    def finish(self) -> None:
        if next(self._nodes, None) is not None or next(self._buffers, None) is not None:
            raise Inconsistent("a batch has more columns than the schema")


@dataclass(frozen=True, slots=True)
class ArrowTable:
    """A file or stream.

    Attributes:
        schema: Its columns.
        batches: Its rows.
        dictionaries: All dictionaries that it has, also those that others took the place of.
        end: Where the last message ends.
        damage: What is wrong after it; ``None`` if nothing is.
    """

    schema: TableSchema
    batches: Sequence[Batch]
    dictionaries: Sequence[Batch]
    end: int
    damage: FormatError | None


def read_schema(data: ObjectBytes) -> TableSchema:
    """The schema of a file or stream; raises as `read_table`."""
    return _schema(data, _Messages(data, inflated=False))


def first_batch(data: ObjectBytes) -> Batch | None:
    """The first batch of an object as it is stored, if there is one that is whole; raises as `read_table`."""
    messages = _Messages(data, inflated=False)
    _schema(data, messages)
    try:
        for head, at, body, buffers in messages.batches():
            if head.dictionary is None:
                return Batch(head, at, body, messages.at, buffers, {})
    except Inconsistent:
        return None  # whoever reads on says so
    except UnknownKind as error:
        raise data.unsupported(str(error), messages.at, hint=AS_ITS_KIND) from error
    return None


def read_table(data: ObjectBytes, *, inflated: bool, whole: bool = True) -> ArrowTable:
    """The batches of a file or stream; where it is damaged, those before.

    Args:
        data: The object, as it is stored or as its blocks show it.
        inflated: Whether that is the latter: then compressed buffers follow one another, each behind its length.
        whole: Whether all of it is there. What is not has no footer.

    Raises:
        FormatError: It is damaged so that nothing can be read, or of a kind that cannot be.
        StorageError: It cannot be read.
    """
    messages = _Messages(data, inflated=inflated)
    schema = _schema(data, messages)
    batches: list[Batch] = []
    dictionaries: dict[int, Batch] = {}
    all_dictionaries: list[Batch] = []
    damage = None
    end = messages.at
    try:
        for head, at, body, buffers in messages.batches():
            found = Batch(head, at, body, messages.at, buffers, dictionaries)
            if head.dictionary is None:
                batches.append(found)
            else:
                dictionaries = {**dictionaries, head.dictionary: found}
                all_dictionaries.append(found)
            end = messages.at
        if messages.is_file and whole:
            _check_footer(data, batches, compare=not inflated)
    except Inconsistent as error:
        damage = data.damaged(str(error), end)
    except UnknownKind as error:
        raise data.unsupported(str(error), end, hint=AS_ITS_KIND) from error
    return ArrowTable(schema, batches, all_dictionaries, end, damage)


def _schema(data: ObjectBytes, messages: _Messages) -> TableSchema:
    try:
        found = messages.next()
    except Inconsistent as error:
        raise data.damaged(str(error), messages.at) from error
    except UnknownKind as error:
        raise data.unsupported(str(error), messages.at, hint=AS_ITS_KIND) from error
    if found is None or not isinstance(found.content, TableSchema):
        raise data.damaged("there is no schema at its beginning: it is not an Arrow file or stream", 0)
    return found.content


class _Messages:
    """The messages of an object, one after another."""

    def __init__(self, data: ObjectBytes, *, inflated: bool) -> None:
        self._data = data
        self._inflated = inflated
        start = data.copy(0, min(8, data.size))
        if start.startswith(OLD_FEATHER):
            what = "Feather of version 1, which is no Arrow file"
            raise data.unsupported(what, 0, hint="read it with pandas or pyarrow, and write it as version 2")
        self.is_file = start.startswith(MAGIC)
        self.at = _START if self.is_file else 0

    def next(self) -> Message | None:
        """The next message, up to its body; ``None`` at the end."""
        data, at = self._data, self.at
        left = data.size - at
        if left == 0 and not self.is_file:
            return None  # streams may just end
        if left < 4:
            raise Inconsistent("it is cut off")
        start = data.copy(at, min(8, left))
        modern = start[:4] == _CONTINUES
        if len(start) < 8 and modern:
            raise Inconsistent("it is cut off")
        length = _INT.unpack_from(start, 4 if modern else 0)[0]
        if length == 0:
            return None
        at += 8 if modern else 4
        if not 0 < length <= data.size - at:
            raise Inconsistent(f"metadata of {length} bytes is not in what is left of it: it is cut off")
        message = read_message(data.copy(at, length))
        self.at = at + length
        return message

    def batches(self) -> Iterator[tuple[BatchHead, int, int, Sequence[Buffer]]]:
        """BatchHead, place, place of the body and buffers of each; `at` is then where it ends."""
        first: BatchHead | None = None
        while True:
            at = self.at
            message = self.next()
            if message is None:
                return
            head, body = message.content, self.at
            if not isinstance(head, BatchHead):
                raise Inconsistent("there is a second schema")
            first = first or head
            if (head.codec is None) != (first.codec is None):
                raise UnknownKind("batches of which only some are compressed")
            if head.rows > 8 * self._data.size:
                raise Inconsistent(f"{head.rows} rows cannot be in an object of {self._data.size} bytes")
            if self._inflated and head.codec is not None:
                buffers = self._inflated_buffers(head)
            else:
                buffers = self._buffers(head, message.body)
            yield head, at, body, buffers

    def _buffers(self, head: BatchHead, body: int) -> list[Buffer]:
        if body > self._data.size - self.at:
            raise Inconsistent(f"a body of {body} bytes is not in what is left of it: it is cut off")
        for offset, length in head.buffers:
            if offset + length > body:
                raise Inconsistent(f"a buffer of {length} bytes reaches past the end of its batch")
        found = [Buffer(self.at + offset, length) for offset, length in head.buffers]
        self.at += body
        return found

    def _inflated_buffers(self, head: BatchHead) -> list[Buffer]:
        found = []
        for _, length in head.buffers:
            if length:
                size = inflated_size(self._data, Buffer(self.at, length))
                self.at += MARKED
                found.append(Buffer(self.at, size))
                self.at += size
            else:
                found.append(Buffer(self.at, 0))
        if self.at > self._data.size:
            raise Inconsistent("the buffers of a batch are not in what is left of it")
        return found


def inflated_size(data: ObjectBytes, stored: Buffer) -> int:
    """Bytes that a compressed buffer inflates to; Inconsistent where it does not say that."""
    if stored.length < MARKED or stored.offset + MARKED > data.size:
        raise Inconsistent(f"a compressed buffer of {stored.length} bytes")
    size: int = _LONG.unpack(data.copy(stored.offset, MARKED))[0]
    if size < -1:
        raise Inconsistent(f"a compressed buffer that inflates to {size} bytes")
    return stored.length - MARKED if size == -1 else size


def is_plain(data: ObjectBytes, stored: Buffer) -> bool:
    """Whether a buffer of a compressed batch is stored as it is."""
    return data.copy(stored.offset, MARKED) == b"\xff" * MARKED


def _check_footer(data: ObjectBytes, batches: Sequence[Batch], *, compare: bool) -> None:
    """A file that is whole ends with where its batches are; Inconsistent where that differs."""
    end = len(MAGIC) + 4
    if data.size < end or data.copy(data.size - len(MAGIC), len(MAGIC)) != MAGIC:
        raise Inconsistent("there is no footer at its end: it is cut off")
    length = _INT.unpack(data.copy(data.size - end, 4))[0]
    if not 0 < length <= data.size - end:
        raise Inconsistent(f"a footer of {length} bytes")
    places = footer_batches(data.copy(data.size - end - length, length))
    if len(places) != len(batches) or (compare and places != [one.at for one in batches]):
        raise Inconsistent(f"the footer lists {len(places)} batches, and {len(batches)} are there, or others")


def is_views(kind: ArrowType) -> bool:
    """Whether values are told by views."""
    return kind.kind in BINARIES | TEXTS and kind.kind.endswith("_view")
