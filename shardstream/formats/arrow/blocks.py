"""The blocks of Arrow objects: buffers that are compressed, and values that are written down anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import xxhash

from shardstream.errors import DecodeError, UnsupportedError
from shardstream.formats.arrow.columns import TableField, is_file
from shardstream.formats.arrow.flatbuffers import Inconsistent
from shardstream.formats.arrow.messages import (
    MARKED,
    ArrowTable,
    Batch,
    Buffer,
    Node,
    inflated_size,
    is_plain,
    read_table,
)
from shardstream.formats.arrow.places import BatchReader
from shardstream.formats.blocks import BlockList, ObjectBlocks
from shardstream.formats.blocks.codecs import inflate_by_name
from shardstream.formats.blocks.found_blocks import FoundBlocks
from shardstream.formats.blocks.nested import NestedNode, NestedSetting, convert
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import pieces


def find_blocks(data: ObjectBytes, fields: Sequence[TableField]) -> FoundBlocks:
    """What is shown of an object instead of its bytes: see `read_table`, and behind it a block of `nested_parts` each.

    Of one that is damaged, what is stored behind its last batch follows these: by that the damage is told.

    Args:
        data: The object as it is stored.
        fields: Those that are wanted.

    Raises:
        FormatError: A buffer or a value is damaged, or larger than blocks may be.
        MissingExtraError: A package is not installed that it takes.
        StorageError: It cannot be read.
    """
    table = read_table(data, inflated=False)
    nested = [one for one in fields if one.how == "converted"]
    blocks = _Blocks(data)
    try:
        for batch in sorted((*table.batches, *table.dictionaries), key=lambda one: one.at):
            if batch.head.codec is not None:
                blocks.buffers(batch)
        if not nested:
            blocks.plain(blocks.at, data.size)
            return FoundBlocks(blocks.found())
        if table.damage is not None and (not table.batches or table.end == data.size):
            raise table.damage  # there is nothing to keep, or to tell it by
        blocks.plain(blocks.at, table.end)
        for batch, field, begin, end in nested_parts(table, nested):
            reader = BatchReader.of(data, table.schema, batch)
            blocks.values(reader, field, begin, end)
        if table.damage is not None:
            blocks.plain(table.end, data.size)
    except Inconsistent as error:
        raise data.damaged(str(error), blocks.at) from error
    return FoundBlocks(blocks.found())


def nested_parts(table: ArrowTable, nested: Sequence[TableField]) -> Iterator[tuple[Batch, TableField, int, int]]:
    """Which values a block each has: those of a field in some rows of a batch, in the order of the blocks."""
    for batch in table.batches:
        for field in nested:
            for begin, end in pieces(batch.head.rows):
                yield batch, field, begin, end


class _Blocks:
    """Collects the blocks of an object."""

    def __init__(self, data: ObjectBytes) -> None:
        self._data = data
        self._list = BlockList()
        self._plain = Buffer(0, 0)
        self.at = 0

    def plain(self, begin: int, end: int) -> None:
        """Bytes that are shown as they are stored."""
        if self._plain.offset + self._plain.length != begin:
            self._flush()
            self._plain = Buffer(begin, 0)
        self._plain = Buffer(self._plain.offset, end - self._plain.offset)
        self.at = end

    def _flush(self) -> None:
        if self._plain.length:
            self._list.add("none", *self._plain, self._plain.length)
        self._plain = Buffer(self._plain.offset + self._plain.length, 0)

    def buffers(self, batch: Batch) -> None:
        """The compressed buffers of a batch, and what is stored before them."""
        assert batch.head.codec is not None
        self.plain(self.at, batch.body)
        for stored in batch.buffers:
            if not stored.length:
                continue
            begin, end = stored.offset + MARKED, stored.offset + stored.length
            size = inflated_size(self._data, stored)
            self.plain(stored.offset, begin)
            if is_plain(self._data, stored):
                self.plain(begin, end)
            elif size:
                self._flush()
                self._add(batch.head.codec, Buffer(begin, end - begin), size)
        self.at = batch.end

    def values(self, reader: BatchReader, field: TableField, begin: int, end: int) -> None:
        """Values that are written down anew."""
        batch = reader.batch
        node, _ = reader.node(field)
        stored = [one for one in _buffers(node) if one.length]
        at = min((one.offset for one in stored), default=batch.at)
        span = Buffer(at, max((one.offset + one.length for one in stored), default=batch.at + MARKED) - at)
        form = NestedSetting(str(field.type), batch.head.codec or "", begin, end, _described(node, at))
        setting = form.pack()
        try:
            made = convert(self._data.get(*span), setting, inflate_by_name)
        except UnsupportedError as error:
            what = f"column {'.'.join(field.source)!r}: {error.what}"
            raise UnsupportedError(what, url=self._data.url, field=field.name, hint=error.hint) from error
        except DecodeError as error:
            raise self._data.damaged(f"column {'.'.join(field.source)!r}: {error.what}", at) from error
        self._flush()
        self._add("nested", span, len(made), xxhash.xxh3_64_intdigest(made), setting)

    def _add(self, codec: str, span: Buffer, size: int, checksum: int = 0, setting: bytes = b"") -> None:
        try:
            self._list.add(codec, *span, size, checksum, setting)
        except ValueError as error:
            raise self._data.unsupported(
                str(error), span.offset, hint="write it again with fewer rows in a batch"
            ) from error

    def found(self) -> ObjectBlocks:
        """All of them."""
        self._flush()
        return self._list.of(self._data.size)


def _buffers(node: Node) -> Iterator[Buffer]:
    yield from node.buffers
    for one in node.children:
        yield from _buffers(one)


def _described(node: Node, start: int) -> NestedNode:
    """A node as the codec takes it, its buffers from the first stored byte on."""
    kind, children = node.type, node.children
    names = [one.name for one in kind.children] if kind.kind == "struct" else []
    file = is_file(kind)
    if file:
        names = []
        children = tuple(one for one, said in zip(children, kind.children, strict=True) if said.name == "bytes")
    return NestedNode(
        "file" if file else kind.kind,
        kind.size,
        kind.unit,
        node.rows,
        node.nulls,
        [(one.offset - start if one.length else 0, one.length) for one in node.buffers],
        names,
        [_described(one, start) for one in children],
    )
