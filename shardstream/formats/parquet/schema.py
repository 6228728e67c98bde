"""The columns of a Parquet schema as those of Arrow, so that one place tells which of our fields they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardstream.formats.arrow.schema import LISTS, ArrowField, ArrowType
from shardstream.formats.blocks.parquet import rows
from shardstream.formats.blocks.parquet.values import BOOLEAN, BYTES, DOUBLE, FIXED, FLOAT, INT32, INT64, INT96
from shardstream.formats.parquet.footer import REPEATED, SchemaNode

_PLAIN = {
    BOOLEAN: "bool",
    INT32: "int32",
    INT64: "int64",
    INT96: "int96",
    FLOAT: "float32",
    DOUBLE: "float64",
    BYTES: "binary",
    FIXED: "fixed_size_binary",
}
# Logical types, and converted ones, by their numbers.
_TEXT, _MAP, _LIST, _ENUM, _DECIMAL, _DATE, _TIME, _STAMP, _INTEGER, _NULL, _JSON, _FLOAT16, _VARIANT = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12),
    *(15, 16),
)
_UNITS = {1: "ms", 2: "us", 3: "ns"}
_OLD_TEXTS, _OLD_JSON, _OLD_INTERVAL = (0, 4), 19, 21
_OLD_MAPS, _OLD_LIST, _OLD_DECIMAL = (1, 2), 3, 5
_OLD: Mapping[int, ArrowType] = {
    6: ArrowType("date32"),
    7: ArrowType("time32", unit="ms"),
    8: ArrowType("time64", unit="us"),
    9: ArrowType("timestamp", unit="ms"),
    10: ArrowType("timestamp", unit="us"),
    **{11 + place: ArrowType(f"uint{8 << place}") for place in range(4)},
    **{15 + place: ArrowType(f"int{8 << place}") for place in range(4)},
}
_IS_JSON = {"ARROW:extension:name": "arrow.json"}


def arrow_field(node: SchemaNode) -> ArrowField:
    """A column as Arrow has it."""
    if node.repetition == REPEATED:  # a list as old writers have it
        return ArrowField(node.name, ArrowType("list", children=(_itself(node),)))
    return _itself(node)


def with_lengths(column: ArrowField, feature: Any) -> ArrowField:
    """The same with the lengths of its lists, where features of Hugging Face tell them."""
    kind = column.type
    if kind.kind not in LISTS or not isinstance(feature, Mapping):
        return column
    inner = with_lengths(kind.children[0], feature.get("feature"))
    length = feature.get("length")
    if type(length) is int and length >= 0:
        return replace(column, type=replace(kind, kind="fixed_size_list", size=length, children=(inner,)))
    return replace(column, type=replace(kind, children=(inner,)))


def _itself(node: SchemaNode) -> ArrowField:
    """What stands in a column once."""
    if node.stored is not None:
        kind, metadata = _leaf(node)
        return ArrowField(node.name, kind, metadata)
    element = element_of(node)
    if element is not None:
        return ArrowField(node.name, ArrowType("list", children=(arrow_field_within(element, node),)))
    entries = entries_of(node)
    if entries is not None:
        inner = ArrowType("struct", children=tuple(map(arrow_field, entries)))
        return ArrowField(node.name, ArrowType("map", children=(ArrowField("entries", inner),)))
    group = "variant" if _VARIANT in node.logical else "struct"
    return ArrowField(node.name, ArrowType(group, children=tuple(map(arrow_field, node.children))))


def arrow_field_within(element: SchemaNode, node: SchemaNode) -> ArrowField:
    """The elements of a list: what is repeated may be the element itself."""
    return _itself(element) if element is node.children[0] else arrow_field(element)


def element_of(node: SchemaNode) -> SchemaNode | None:
    """The elements of a list that is written as a group; ``None`` where it is none."""
    if not (_LIST in node.logical or node.converted == _OLD_LIST) or not _repeats_one(node):
        return None
    repeated = node.children[0]
    wrapped = len(repeated.children) == 1 and repeated.name not in ("array", f"{node.name}_tuple")
    return repeated.children[0] if wrapped else repeated


def entries_of(node: SchemaNode) -> Sequence[SchemaNode] | None:
    """Key and value of a map; ``None`` where it is none."""
    if not (_MAP in node.logical or node.converted in _OLD_MAPS) or not _repeats_one(node):
        return None
    entries = node.children[0].children
    return entries if len(entries) == 2 else None


def _repeats_one(node: SchemaNode) -> bool:
    return len(node.children) == 1 and node.children[0].repetition == REPEATED


def _leaf(node: SchemaNode) -> tuple[ArrowType, Mapping[str, str]]:
    assert node.stored is not None
    physical = node.stored.physical
    plain = ArrowType(_PLAIN[physical], node.stored.width if physical == FIXED else 0)
    number = next(iter(node.logical), None)
    told = node.logical[number] if number is not None else {}
    if number == _NULL:
        return ArrowType("null"), {}
    if number == _DECIMAL or node.converted == _OLD_DECIMAL:
        return ArrowType("decimal128", told.get(1) or node.scale), {}
    if physical == BYTES:
        is_json = number == _JSON or node.converted == _OLD_JSON
        if is_json or number in (_TEXT, _ENUM) or node.converted in _OLD_TEXTS:
            return ArrowType("string"), _IS_JSON if is_json else {}
    if physical == FIXED:
        if node.converted == _OLD_INTERVAL:
            return ArrowType("interval"), {}
        return (ArrowType("float16") if number == _FLOAT16 and node.stored.width == 2 else plain), {}
    if physical not in (INT32, INT64):
        return plain, {}
    return _of_integers(number, told, node.converted) or plain, {}


def _of_integers(number: int | None, told: Mapping[int, Any], converted: int | None) -> ArrowType | None:
    """What integers stand for; ``None`` where they are themselves."""
    if number == _DATE:
        return ArrowType("date32")
    if number in (_TIME, _STAMP):
        unit = _UNITS.get(next(iter(told.get(2) or {}), 0), "us")
        if number == _TIME:
            return ArrowType("time64", unit=unit)
        return ArrowType("timestamp", unit=f"{unit},UTC" if told.get(1) is True else unit)
    if number == _INTEGER and told.get(1) in (8, 16, 32, 64):
        return ArrowType(f"{'int' if told.get(2) else 'uint'}{told[1]}")
    return _OLD.get(converted) if converted is not None and number is None else None


# ---------------------------------------------------------------------------------------------------------------- rows


def row_node(node: SchemaNode, first: int) -> rows.RowNode:
    """How rows of a column are put together, of leaves that are numbered from ``first``."""
    if node.repetition == REPEATED:
        inner = _row_itself(node, first, optional=False)
        return rows.RowNode("list", False, node.repeats, node.defines, node.first - first, node.leaves, (inner,))
    return _row_itself(node, first, optional=node.optional)


def _row_itself(node: SchemaNode, first: int, *, optional: bool) -> rows.RowNode:
    place = node.first - first
    if node.stored is not None:
        return rows.RowNode("leaf", optional, node.repeats, node.defines, place, 1)
    element, entries = element_of(node), entries_of(node)
    if element is not None:
        repeated = node.children[0]
        inner = _row_itself(element, first, optional=False) if element is repeated else row_node(element, first)
        return rows.RowNode("list", optional, repeated.repeats, repeated.defines, place, node.leaves, (inner,))
    if entries is not None:
        repeated = node.children[0]
        inners = tuple(row_node(one, first) for one in entries)
        return rows.RowNode("map", optional, repeated.repeats, repeated.defines, place, node.leaves, inners)
    children = tuple(row_node(one, first) for one in node.children)
    names = tuple(one.name for one in node.children)
    return rows.RowNode("struct", optional, node.repeats, node.defines, place, node.leaves, children, names)


def leaves_of(node: SchemaNode) -> list[SchemaNode]:
    """The leaves of a column, in order."""
    if node.stored is not None:
        return [node]
    return [leaf for child in node.children for leaf in leaves_of(child)]


def meaning_of(node: SchemaNode) -> str:
    """What the values of a leaf are, as `rows.LeafColumn` has it."""
    kind, _ = _leaf(node)
    if kind.kind.startswith("uint"):
        return "unsigned"
    meaning = _MEANINGS.get(kind.kind, "number")
    if meaning == "decimal":
        return f"decimal:{kind.size}"
    return f"{meaning}:{kind.unit}" if kind.unit else meaning


_MEANINGS = {
    "bool": "bool",
    "string": "text",
    "binary": "bytes",
    "fixed_size_binary": "bytes",
    "decimal128": "decimal",
    "date32": "date",
    "time32": "time",
    "time64": "time",
    "timestamp": "timestamp",
    "float16": "float16",
}
