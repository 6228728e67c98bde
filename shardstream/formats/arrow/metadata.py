"""Arrow's metadata: schemas, and the heads of batches, from the flatbuffers that they are written as.

Source: ``Schema.fbs``, ``Message.fbs`` and ``File.fbs`` of https://github.com/apache/arrow, ``format``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardstream.formats.arrow.flatbuffers import Flat, FlatTable, Inconsistent, UnknownKind
from shardstream.formats.arrow.schema import DEEPEST, ArrowField, ArrowType

V4, V5 = 3, 4  # versions of the metadata that can be read, as they are numbered
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_CODECS = ("lz4", "zstd")
_UNITS = ("s", "ms", "us", "ns")
# By the number of each type; those without a name say how wide they are, or in which unit they count.
_PLAIN_TYPES = (
    *("", "null", "", "", "binary", "string", "bool", "", "", "", ""),
    *("interval", "list", "struct", "", "", "fixed_size_list", "map", ""),
    *("large_binary", "large_string", "large_list", "run_end_encoded"),
    *("binary_view", "string_view", "list_view", "large_list_view"),
)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, and what is written beside them."""

    columns: tuple[ArrowField, ...]
    metadata: Mapping[str, str]


class BatchHead(NamedTuple):
    """The head of a batch, or of a dictionary.

    Attributes:
        rows: Of how many rows.
        nodes: Rows, and rows without a value, of each column and what is nested in it.
        buffers: Where each buffer lies in the body, and its bytes.
        variadic: How many buffers of values each column of views has.
        codec: How each buffer is compressed; ``None``: not.
        dictionary: Of which dictionary it has the values; ``None`` for a batch of rows.
    """

    rows: int
    nodes: Sequence[tuple[int, int]]
    buffers: Sequence[tuple[int, int]]
    variadic: Sequence[int]
    codec: str | None
    dictionary: int | None = None


class Message(NamedTuple):
    """A message of a stream: what it is, and bytes of the body that follows it."""

    content: TableSchema | BatchHead
    body: int


def read_message(data: bytes) -> Message:
    """The metadata of a message.

    Raises:
        Inconsistent: It is damaged.
        UnknownKind: It is of a kind that is not read.
    """
    root = Flat(data).root()
    version = root.number(0, "h")
    if version not in (V4, V5):
        raise UnknownKind(f"metadata of version {version + 1}; 4 and 5 can be read")
    kind, body, header = root.number(1, "B"), root.number(3, "q"), root.table(2)
    if header is None or body < 0:
        raise Inconsistent("a message without a head, or with a body of a negative length")
    if kind == _SCHEMA:
        return Message(_schema(header), body)
    if kind == _BATCH:
        return Message(_batch(header), body)
    if kind != _DICTIONARY:
        raise UnknownKind("a tensor, which is no table")
    values = header.table(1)
    if values is None:
        raise Inconsistent("a dictionary without values")
    if header.number(2, "B"):
        raise UnknownKind("a dictionary that adds to the one before it (delta)")
    return Message(_batch(values)._replace(dictionary=header.number(0, "q")), body)


def _batch(table: FlatTable) -> BatchHead:
    rows = table.number(0, "q")
    nodes = [(count, nulls) for count, nulls in table.structs(1, "qq")]
    buffers = [(offset, length) for offset, length in table.structs(2, "qq")]
    if rows < 0 or any(count < 0 for count, _ in nodes) or any(min(pair) < 0 for pair in buffers):
        raise Inconsistent("a batch with a negative length")
    compression = table.table(3)
    codec = None
    if compression is not None:
        number = compression.number(0, "b")
        if not 0 <= number < len(_CODECS) or compression.number(1, "b"):
            raise UnknownKind(f"buffers that are compressed in an unknown way ({number})")
        codec = _CODECS[number]
    return BatchHead(rows, nodes, buffers, [count for (count,) in table.structs(4, "q")], codec)


def footer_batches(data: bytes) -> list[int]:
    """Where the footer of a file says that its batches are; raises `Inconsistent`."""
    return [offset for offset, *_ in Flat(data).root().structs(3, "qiiq")]


def _schema(table: FlatTable) -> TableSchema:
    if table.number(0, "h"):
        raise UnknownKind("numbers in big-endian order, which are read where they lie")
    return TableSchema(tuple(_field(one, 0) for one in table.tables(1)), _pairs(table, 2))


def _pairs(table: FlatTable, field: int) -> dict[str, str]:
    return {one.text(0): one.text(1) for one in table.tables(field)}


def _field(table: FlatTable, depth: int) -> ArrowField:
    if depth > DEEPEST:
        raise UnknownKind(f"a column that is nested more than {DEEPEST} levels deep")
    children = tuple(_field(one, depth + 1) for one in table.tables(5))
    kind = _type(table.number(2, "B"), table.table(3), children)
    dictionary = table.table(4)
    if dictionary is not None:
        index = _integer(dictionary.table(1), default="int32")
        kind = ArrowType(
            "dictionary",
            children=(ArrowField("values", kind),),
            index=index,
            dictionary=dictionary.number(0, "q"),
        )
    return ArrowField(table.text(0), kind, _pairs(table, 6))


def _type(number: int, table: FlatTable | None, children: tuple[ArrowField, ...]) -> ArrowType:
    if table is None:
        raise Inconsistent("a column without a type")
    name = _PLAIN_TYPES[number] if number < len(_PLAIN_TYPES) else ""
    if not name:
        return _sized_type(number, table, children)
    kind = ArrowType(name, table.number(0) if name == "fixed_size_list" else 0, children=children)
    expected = 1 if kind.kind.endswith(("list", "list_view")) or kind.kind == "map" else None
    if (expected and len(children) != expected) or kind.size < 0:
        raise Inconsistent(f"a column of type {kind.kind} without the type of its elements")
    if kind.kind == "map" and (children[0].type.kind != "struct" or len(children[0].type.children) != 2):
        raise Inconsistent("a map without keys and values")
    return kind


def _sized_type(number: int, table: FlatTable, children: tuple[ArrowField, ...]) -> ArrowType:
    """Types that say how wide they are, or in which unit they count."""
    match number:
        case 2:
            return ArrowType(_integer(table, default=""))
        case 3:
            return ArrowType(_one_of(("float16", "float32", "float64"), table.number(0, "h")))
        case 7:
            return ArrowType(f"decimal{table.number(2, default=128)}", table.number(1))
        case 8:
            return ArrowType(_one_of(("date32", "date64"), table.number(0, "h", 1)))
        case 9:
            unit = _one_of(_UNITS, table.number(0, "h", 1))
            return ArrowType(f"time{table.number(1, default=32)}", unit=unit)
        case 10:
            zone = table.text(1)
            unit = _one_of(_UNITS, table.number(0, "h"))
            return ArrowType("timestamp", unit=f"{unit},{zone}" if zone else unit)
        case 14:
            return ArrowType(_one_of(("sparse_union", "dense_union"), table.number(0, "h")), children=children)
        case 15:
            width = table.number(0)
            if width < 0:
                raise Inconsistent("bytes of a negative length")
            return ArrowType("fixed_size_binary", width)
        case 18:
            return ArrowType("duration", unit=_one_of(_UNITS, table.number(0, "h", 1)))
    raise UnknownKind(f"a column of an unknown type ({number})")


def _one_of(names: Sequence[str], number: int) -> str:
    if not 0 <= number < len(names):
        raise UnknownKind(f"an unknown kind of number, unit or time ({number})")
    return names[number]


def _integer(table: FlatTable | None, *, default: str) -> str:
    if table is None:
        if default:
            return default
        raise Inconsistent("integers without a width")
    width = table.number(0)
    if width not in (8, 16, 32, 64):
        raise UnknownKind(f"integers of {width} bits")
    return f"{'' if table.number(1, 'B') else 'u'}int{width}"
