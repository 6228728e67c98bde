"""The fields of a file, and how each is read from a row group."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardstream.errors import DecodeError
from shardstream.formats.arrow.columns import (
    TENSOR,
    TableField,
    as_json,
    classes_of,
    features_of,
    fields_of,
)
from shardstream.formats.arrow.flatbuffers import Inconsistent, UnknownKind
from shardstream.formats.arrow.metadata import TableSchema, read_message
from shardstream.formats.arrow.schema import ArrowField
from shardstream.formats.blocks.codecs import LARGEST
from shardstream.formats.blocks.parquet.block import rows_setting
from shardstream.formats.blocks.parquet.rows import MISSING, LeafColumn, row_places, rows
from shardstream.formats.parquet.columns import (
    ColumnValues,
    element_dtype,
    read_bytes,
    read_lists,
    read_numbers,
)
from shardstream.formats.parquet.footer import REPEATED, Footer, Group, SchemaNode
from shardstream.formats.parquet.parts import (
    LARGEST_PART,
    check_encodings,
    parts_of_bytes,
    parts_of_lists,
)
from shardstream.formats.parquet.schema import (
    arrow_field,
    leaves_of,
    meaning_of,
    row_node,
    with_lengths,
)
from shardstream.formats.scans.object_bytes import ObjectBytes

_LEAVE_OUT = "leave it out: --field NAME=COLUMN (fields=) chooses others"
_SCHEMA = "ARROW:schema"
_LISTS = frozenset(("fixed", "values", "array"))


@dataclass(frozen=True, slots=True)
class PageBlock:
    """A block of a row group.

    Attributes:
        begin: Where it is stored.
        end: Where it ends there.
        size: Its bytes.
        setting: Of the codec.
        made: The same inflated, if it had to be made to know how large it is.
    """

    begin: int
    end: int
    size: int
    setting: bytes
    made: memoryview | None = None


@dataclass(frozen=True, slots=True)
class ColumnField:
    """A field, and the column that it comes from.

    Attributes:
        field: What it is.
        node: The column.
    """

    field: TableField
    node: SchemaNode

    @property
    def name(self) -> str:
        """Its name."""
        return self.field.name

    @property
    def codec(self) -> str:
        """The form of its values, as a column's codec."""
        if self.field.how != "array":
            return "none"
        inner = ",".join(map(str, self.field.shape[1:]))
        return f"parquet.rows:{element_dtype(self.field).name}:{inner}"

    def blocks(self, data: ObjectBytes, footer: Footer, group: Group) -> Iterator[PageBlock]:
        """Its blocks of a row group, in the order in which they are shown.

        Raises:
            FormatError, DecodeError, MissingExtraError, StorageError: As `Footer.chunk` and `parts_of_bytes`.
        """
        if self.field.how in ("number", "nothing"):
            return
        if self.field.how == "converted":
            yield self._rows(data, footer, group)
            return
        node = leaves_of(self.node)[0]
        assert node.stored is not None
        chunk = footer.chunk(group, node.first)
        pages = chunk.pages(data)
        check_encodings(pages, node.stored)
        if self.field.how in _LISTS:
            parts = parts_of_lists(data, chunk, node.stored, element_dtype(self.field), pages)
        else:
            parts = parts_of_bytes(data, chunk, node.stored, pages)
        yield from (PageBlock(part.begin, part.end, part.size, part.setting) for part in parts if part.setting)

    def values(
        self, data: ObjectBytes, footer: Footer, group: Group, shown: ObjectBytes, base: int
    ) -> tuple[ColumnValues, int]:
        """It over a row group, and where the next block is shown.

        Args:
            data: The file.
            footer: Its footer.
            group: The row group.
            shown: The file, and its blocks behind it.
            base: Where the first block of these values is shown.

        Raises:
            FormatError, DecodeError, MissingExtraError, StorageError: As `blocks`.
        """
        how = self.field.how
        if how == "nothing":
            return ColumnValues(np.zeros(group.rows, np.bool_), numbers=np.zeros(0, np.uint8)), base
        if how == "converted":
            lengths = shown.array("<u4", group.rows, base)
            size = int(lengths[lengths != MISSING].sum(dtype=np.int64)) + lengths.nbytes
            has, begins, sizes = row_places(shown.get(base, size), group.rows)
            return ColumnValues(has, offsets=begins[has] + base, lengths=sizes[has]), base + size
        node = leaves_of(self.node)[0]
        assert node.stored is not None
        chunk = footer.chunk(group, node.first)
        if how == "number":
            found = read_numbers(data, chunk, node.stored, self.field.type)
        elif how in _LISTS:
            found, base = read_lists(data, chunk, node.stored, self.field, _outermost(self.node) - 1, base)
        else:
            found, base = read_bytes(data, chunk, node.stored, base)
        if len(found.has) != group.rows:
            raise DecodeError(f"column {self.name!r} has {len(found.has)} rows, and {group.rows} are announced")
        return found, base

    def _rows(self, data: ObjectBytes, footer: Footer, group: Group) -> PageBlock:
        """The block of a column that is written down as JSON or msgpack."""
        leaves = leaves_of(self.node)
        columns, stored = [], []
        for leaf in leaves:
            assert leaf.stored is not None
            chunk = footer.chunk(group, leaf.first)
            pages = chunk.pages(data)
            check_encodings(pages, leaf.stored)
            columns.append(LeafColumn(leaf.stored, meaning_of(leaf), chunk.compression, pages))
            stored.append(chunk)
        begin, end = min(one.begin for one in stored), max(one.end for one in stored)
        if end - begin > LARGEST:
            what = f"column {self.field.source[0]!r} takes {end - begin} bytes of a row group, too many to read at once"
            raise data.unsupported(what, begin, hint=_LEAVE_OUT)
        node = row_node(self.node, leaves[0].first)
        made = rows(data.get, node, columns, self.field.type.name, LARGEST_PART)
        told = [
            (column.leaf, column.meaning, column.compression, chunk.begin - begin, chunk.end - begin)
            for column, chunk in zip(columns, stored, strict=True)
        ]
        setting = rows_setting(node, self.field.type.name, told)
        row_places(made, group.rows)
        return PageBlock(begin, end, len(made), setting, made)


def _outermost(node: SchemaNode) -> int:
    """Level of definition from which on a list has something in it."""
    return node.defines if node.repetition == REPEATED else node.children[0].defines


def fields_in(data: ObjectBytes, footer: Footer, about: Mapping[str, Any]) -> list[ColumnField]:
    """The fields that are read of a file, sorted by name: those that a user chose, or all.

    Args:
        data: The file, for messages.
        footer: Its footer.
        about: Of its `SourceObject`.

    Raises:
        FormatError: One cannot be read; says why.
    """
    chosen: Sequence[str] = about["chosen"]
    names = about.get("json", ())
    found = [as_json(one) if one.name in names else one for one in _fields_of(footer, chosen, names)]
    wanted = [one for one in found if (one.name in chosen if chosen else not one.beside)]
    for one in wanted:
        if one.how == "refused":
            raise data.unsupported(f"column {'.'.join(one.source)!r} cannot be read: {one.why}", 0, hint=_LEAVE_OUT)
    nodes = [ColumnField(one, _node_at(footer.columns, one.source)) for one in wanted]
    return sorted(nodes, key=lambda one: one.name)


def all_fields(data: ObjectBytes, size: int) -> tuple[TableField, ...]:
    """The fields of a file of so many bytes, those that cannot be read as well; raises as `Footer`."""
    return _fields_of(Footer(data, size), (), ())


def beside_of(footer: Footer) -> list[str]:
    """Names of the fields that are the paths beside files."""
    return [one.name for one in _fields_of(footer, (), ()) if one.beside]


def _fields_of(footer: Footer, chosen: Sequence[str], whole: Sequence[str]) -> tuple[TableField, ...]:
    features = features_of(footer.metadata)
    columns = [with_lengths(arrow_field(one), features.get(one.name)) for one in footer.columns]
    tensors = {one.name: one.metadata for one in _arrow_columns(footer) if TENSOR in one.metadata.values()}
    columns = [replace(one, metadata=tensors.get(one.name, one.metadata)) for one in columns]
    return fields_of(columns, features, chosen=chosen, whole=whole)


def _arrow_columns(footer: Footer) -> Sequence[ArrowField]:
    """The columns of the Arrow schema that pyarrow writes beside that of Parquet; none where there is no such."""
    try:
        stored = base64.b64decode(footer.metadata[_SCHEMA])
        content = read_message(stored[8:]).content
    except (KeyError, ValueError, Inconsistent, UnknownKind):
        return ()
    return content.columns if isinstance(content, TableSchema) else ()


def classes_in(fields: Sequence[ColumnField]) -> tuple[str, ...] | None:
    """Names of the classes that the label stands for; ``None`` where nothing says them."""
    return classes_of([one.field for one in fields])


def _node_at(columns: Sequence[SchemaNode], source: Sequence[str]) -> SchemaNode:
    """The column at a path of names; those of structs are told apart, or their fields refused."""
    node = next(one for one in columns if one.name == source[0])
    for name in source[1:]:
        node = next(one for one in node.children if one.name == name)
    return node
