"""The footer of a Parquet file: its schema, and where the columns of its row groups lie.

https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardstream.errors import DecodeError, FormatError
from shardstream.formats.blocks.parquet.pages import COMPRESSIONS, Page, pages
from shardstream.formats.blocks.parquet.thrift import Thrift
from shardstream.formats.blocks.parquet.values import FIXED, INT96, LeafShape
from shardstream.formats.scans.object_bytes import ObjectBytes

MAGIC = b"PAR1"
ENCRYPTED = b"PARE"
"""Where a file begins, or ends, whose footer is encrypted."""
REQUIRED, OPTIONAL, REPEATED = range(3)
_TAIL = struct.Struct("<I4s")
_LARGEST = 256 << 20  # bytes of a footer
_DEEPEST = 32
_FEW_ROWS, _ROWS_A_BYTE = 1 << 22, 16  # of a row group: few bytes may say that many values are the same
_WIDEST = 1 << 20  # bytes of a value of one length
_UNIT: dict[int, Any] = {1: {}, 2: {}, 3: {}}
_LOGICAL: dict[int, Any] = {
    **{number: {} for number in (1, 2, 3, 4, 6, 11, 12, 13, 14, 15, 16, 17, 18)},
    5: {1: None, 2: None},
    7: {1: None, 2: _UNIT},
    8: {1: None, 2: _UNIT},
    10: {1: None, 2: None},
}
_ELEMENT: dict[int, Any] = {**dict.fromkeys(range(1, 9)), 10: _LOGICAL}
_CHUNK: dict[int, Any] = {
    1: None,
    3: {1: None, 3: None, 4: None, 5: None, 6: None, 7: None, 9: None, 11: None},
    8: {},
}
_FOOTER: dict[int, Any] = {
    1: None,
    2: [_ELEMENT],
    3: None,
    4: [{1: [_CHUNK], 3: None}],
    5: [{1: None, 2: None}],
    8: {},
}
_PLAIN = "write it again without encryption"
_COMPRESSION_NAMES = {3: "lzo", 5: "lz4 with frames of Hadoop"}
_HINT = "write the file again with another one, such as zstd"


@dataclass(slots=True)
class SchemaNode:
    """A column of the schema, or what is within one.

    Attributes:
        name: Its name.
        repetition: `REQUIRED`, `OPTIONAL` or `REPEATED`.
        repeats: Level of repetition.
        defines: Level of definition from which on it is there.
        converted: Its converted type, as old files say what it means.
        logical: Its logical type: one entry.
        scale: Digits behind the point of a decimal.
        stored: How its values are stored, of a leaf.
        first: The number of the first leaf in it.
        leaves: How many there are.
        children: Of a group.
    """

    name: str
    repetition: int
    repeats: int
    defines: int
    converted: int | None
    logical: Mapping[int, Any]
    scale: int
    stored: LeafShape | None
    first: int
    leaves: int = 1
    children: list[SchemaNode] = field(default_factory=list)

    @property
    def optional(self) -> bool:
        """Whether it may be missing."""
        return self.repetition == OPTIONAL


class ColumnChunk(NamedTuple):
    """The values of a leaf in a row group.

    Attributes:
        compression: Of `COMPRESSIONS`.
        begin: Where its pages begin.
        end: Where they end.
        values: Its values and what stands for missing ones.
    """

    compression: str
    begin: int
    end: int
    values: int

    def pages(self, data: ObjectBytes) -> list[Page]:
        """Its pages, the dictionary first if there is one.

        Raises:
            DecodeError: They are damaged, or not as many values as the footer says.
        """
        found = list(pages(data.get, self.begin, self.end))
        there = sum(page.values for page in found if not page.dictionary)
        if there != self.values:
            raise DecodeError(f"a column has {there} values, and {self.values} are announced", hint="")
        return found


class Group(NamedTuple):
    """A row group.

    Attributes:
        rows: How many rows it has.
        chunks: What the footer says of the leaves, in order.
    """

    rows: int
    chunks: Sequence[Mapping[int, Any]]


class Footer:
    """The footer of a file.

    Args:
        data: The file, and maybe more behind it.
        size: Bytes of the file.

    Attributes:
        columns: The top of the schema.
        groups: The row groups that have rows, in order.
        metadata: What else was written into it.

    Raises:
        FormatError: It is damaged, or encrypted.
        StorageError: It cannot be read.
    """

    def __init__(self, data: ObjectBytes, size: int) -> None:
        self._data = data
        self._begin, raw = _footer_bytes(data, size)
        try:
            found = Thrift(raw).struct(_FOOTER)
        except DecodeError as error:
            raise data.damaged(f"the footer is damaged: {error.what}", self._begin) from error
        if 8 in found:
            raise data.unsupported("the file is encrypted", self._begin, hint=_PLAIN)
        self.metadata = {
            _text(one.get(1, b"")): _text(one.get(2, b"")) for one in found.get(5, ()) if isinstance(one.get(1), bytes)
        }
        schema = _Schema(found.get(2, []), data, self._begin)
        self.columns = schema.columns
        self._leaves = schema.leaves
        groups = (self._group(one) for one in found.get(4, ()))
        self.groups = [one for one in groups if one.rows]  # of no rows, writers tell no places
        total = sum(one.rows for one in self.groups)
        if found.get(3) not in (0, total):  # some writers announce none
            raise self._wrong(f"its row groups have {total} rows, and {found.get(3)!r} are announced")

    def _wrong(self, what: str) -> FormatError:
        return self._data.damaged(f"the footer is damaged: {what}", self._begin)

    def _group(self, found: Mapping[int, Any]) -> Group:
        rows, chunks = found.get(3), found.get(1, ())
        if type(rows) is not int or rows < 0 or len(chunks) != len(self._leaves):
            raise self._wrong(f"a row group of {rows!r} rows and {len(chunks)} columns of {len(self._leaves)}")
        return Group(rows, chunks)

    def chunk(self, group: Group, leaf: int) -> ColumnChunk:
        """A leaf of a row group.

        Raises:
            FormatError: The footer says of it what cannot be; or it is encrypted, in another file, or of a compression
                that is not read.
        """
        found, node = group.chunks[leaf], self._leaves[leaf]
        name = repr(node.name)
        meta = found.get(3)
        if 8 in found or meta is None:
            raise self._data.unsupported(f"column {name} is encrypted", self._begin, hint=_PLAIN)
        if found.get(1):
            raise self._data.unsupported(
                f"column {name} is in another file", self._begin, hint="write both into one file"
            )
        codec, values, size, first, dictionary = (meta.get(number) for number in (4, 5, 7, 9, 11))
        if codec not in COMPRESSIONS:
            kind = _COMPRESSION_NAMES.get(codec, f"number {codec}")
            raise self._data.unsupported(f"column {name} is of a compression that is not read: {kind}", 0, hint=_HINT)
        assert node.stored is not None
        if meta.get(1) != node.stored.physical or not _counts(values, size, first):
            raise self._wrong(f"column {name} is not what the schema says, or of no size")
        begin = min(first, dictionary) if type(dictionary) is int and dictionary > 0 else first
        if begin < len(MAGIC) or begin + size > self._begin:
            raise self._wrong(f"{size} bytes of column {name} at {begin} do not lie before the footer")
        if group.rows > max(_FEW_ROWS, _ROWS_A_BYTE * size) or values > max(_FEW_ROWS, _ROWS_A_BYTE * size):
            raise self._wrong(f"{group.rows} rows and {values} values of column {name} in {size} bytes")
        return ColumnChunk(COMPRESSIONS[codec], begin, begin + size, values)


def _counts(*numbers: object) -> bool:
    return all(type(one) is int and one >= 0 for one in numbers)


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


def _footer_bytes(data: ObjectBytes, size: int) -> tuple[int, bytes]:
    """Where the footer begins, and its bytes."""
    if size < 2 * len(MAGIC) + _TAIL.size:
        raise data.damaged(f"a Parquet file is larger than {size} bytes", 0)
    length, magic = _TAIL.unpack(data.get(size - _TAIL.size, _TAIL.size))
    if magic == ENCRYPTED:
        raise data.unsupported("the file is encrypted", size - _TAIL.size, hint=_PLAIN)
    if magic != MAGIC:
        raise data.damaged("the file does not end with a footer of Parquet: it is cut off, or none", size - _TAIL.size)
    begin = size - _TAIL.size - length
    if begin < len(MAGIC) or length > _LARGEST:
        raise data.damaged(f"a footer of {length} bytes in a file of {size}", size - _TAIL.size)
    return begin, bytes(data.get(begin, length))


class _Schema:
    """The elements of a schema as a tree."""

    def __init__(self, elements: Sequence[Mapping[int, Any]], data: ObjectBytes, begin: int) -> None:
        self._elements: Iterator[Mapping[int, Any]] = iter(elements)
        self._data, self._begin = data, begin
        self.leaves: list[SchemaNode] = []
        root = next(self._elements, None)
        if root is None:
            raise self._wrong("it has no schema")
        self.columns = [self._node(0, 0, 0, 1) for _ in range(self._count(root, len(elements)))]
        if next(self._elements, None) is not None:
            raise self._wrong("its schema has more columns than it says")

    def _wrong(self, what: str) -> FormatError:
        return self._data.damaged(f"the footer is damaged: {what}", self._begin)

    def _count(self, element: Mapping[int, Any], most: int) -> int:
        count = element.get(5, 0)
        if type(count) is not int or not 0 <= count <= most:
            raise self._wrong(f"{count!r} columns in one")
        return count

    def _node(self, repeats: int, defines: int, inner: int, depth: int) -> SchemaNode:
        element = next(self._elements, None)
        if element is None or depth > _DEEPEST:
            raise self._wrong("its schema is cut off" if element is None else "columns are nested too deep")
        repetition, name = element.get(3, REQUIRED), element.get(4, b"")
        if repetition not in (REQUIRED, OPTIONAL, REPEATED) or not isinstance(name, bytes):
            raise self._wrong("a column is neither required nor optional nor repeated, or has no name")
        repeats += repetition == REPEATED
        defines += repetition != REQUIRED
        inner = defines if repetition == REPEATED else inner
        scale = element.get(7) or 0
        node = SchemaNode(
            name=_text(name),
            repetition=repetition,
            repeats=repeats,
            defines=defines,
            converted=element.get(6),
            logical=element.get(10) or {},
            scale=scale if type(scale) is int else 0,
            stored=None,
            first=len(self.leaves),
        )
        count = self._count(element, 1 << 20)
        if count == 0 and 1 in element:
            node.stored = self._leaf(element, LeafShape(element[1], element.get(2) or 0, repeats, defines, inner))
            self.leaves.append(node)
        node.children = [self._node(repeats, defines, inner, depth + 1) for _ in range(count)]
        node.leaves = len(self.leaves) - node.first
        return node

    def _leaf(self, element: Mapping[int, Any], found: LeafShape) -> LeafShape:
        if type(found.physical) is not int or not 0 <= found.physical <= FIXED:
            raise self._wrong(f"values of type {found.physical!r}")
        if type(found.width) is not int or not 0 <= found.width <= _WIDEST:
            raise self._wrong(f"values of {found.width!r} bytes each")
        if found.physical == FIXED and not found.width:
            raise self._wrong("values of no bytes each")
        return found if found.physical != INT96 else found._replace(width=12)
