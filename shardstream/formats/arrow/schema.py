"""``ArrowField``: a column of an Arrow schema and its type, whoever read the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardstream.extras import require

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
NUMBERS = frozenset((*SIGNED, *UNSIGNED, *FLOATS))
TEXTS = frozenset(("string", "large_string", "string_view"))
BINARIES = frozenset(("binary", "large_binary", "binary_view", "fixed_size_binary"))
LISTS = frozenset(("list", "large_list", "list_view", "large_list_view", "fixed_size_list"))
DEEPEST = 32
"""Levels of lists and structs in a column; what is deeper is refused."""
_JSON = "arrow.json"
_PURPOSE = "to read the schema of an Arrow table"
# Names that pyarrow gives types otherwise.
_RENAMED = {"halffloat": "float16", "float": "float32", "double": "float64"}
_UNITS = ("timestamp", "time32", "time64", "duration")


@dataclass(frozen=True, slots=True)
class ArrowType:
    """A type of Arrow.

    Attributes:
        kind: What it is called, without what stands in brackets: ``int64``, ``large_string``, ``list``, ``timestamp``.
            Extension types are what they are stored as.
        size: Elements of ``fixed_size_list``, bytes of ``fixed_size_binary``, digits behind the point of decimals.
        unit: ``s``, ``ms``, ``us`` or ``ns`` of times; the time zone of a timestamp follows a comma.
        children: Of structs, the fields; of lists, the one of the elements; of maps, a struct of key and value; of
            dictionaries, the one of what stands in them.
        index: Of dictionaries, the type of the numbers that stand for values.
        dictionary: Which dictionary, in one file.
    """

    kind: str
    size: int = 0
    unit: str = ""
    children: tuple[ArrowField, ...] = ()
    index: str = ""
    dictionary: int = 0

    def __str__(self) -> str:
        inner = ", ".join(f"{one.name}: {one.type}" for one in self.children)
        return f"{self.kind}<{inner}>" if inner else self.kind


@dataclass(frozen=True, slots=True)
class ArrowField:
    """A column, or what is in one.

    Attributes:
        name: Its name.
        type: Its type.
        metadata: What else is written with it.
    """

    name: str
    type: ArrowType
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_json(self) -> bool:
        """Whether it is text that is JSON."""
        return self.metadata.get("ARROW:extension:name") == _JSON and self.type.kind in TEXTS


def of_pyarrow(schema: Any) -> tuple[ArrowField, ...]:
    """The columns of a ``pyarrow.Schema``.

    Raises:
        MissingExtraError: pyarrow is not installed.
        ValueError: A column is nested too deep.
    """
    return tuple(_field(one, 0) for one in schema)


def _field(one: Any, depth: int) -> ArrowField:
    metadata = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in _pairs(one.metadata)}
    kind = one.type
    while hasattr(kind, "storage_type"):
        metadata.setdefault("ARROW:extension:name", kind.extension_name)
        kind = kind.storage_type
    return ArrowField(one.name, _type(kind, depth), metadata)


def _pairs(metadata: Any) -> list[tuple[bytes, bytes]]:
    return list((metadata or {}).items())


def _type(kind: Any, depth: int) -> ArrowType:
    if depth > DEEPEST:
        raise ValueError(f"a column is nested more than {DEEPEST} levels deep")
    types = require("pyarrow.types", extra="parquet", purpose=_PURPOSE)
    text = str(kind)
    name = text.partition("[")[0].partition("<")[0].partition("(")[0]
    name = _RENAMED.get(name, name)
    if types.is_dictionary(kind):
        inner = ArrowField("values", _type(kind.value_type, depth + 1))
        return ArrowType("dictionary", children=(inner,), index=str(kind.index_type))
    if types.is_map(kind):
        entries = ArrowType("struct", children=(_field(kind.key_field, depth + 1), _field(kind.item_field, depth + 1)))
        return ArrowType("map", children=(ArrowField("entries", entries),))
    if types.is_fixed_size_list(kind):
        return ArrowType("fixed_size_list", kind.list_size, children=(_field(kind.value_field, depth + 1),))
    if name in LISTS:
        return ArrowType(name, children=(_field(kind.value_field, depth + 1),))
    if types.is_struct(kind):
        return ArrowType("struct", children=tuple(_field(one, depth + 1) for one in kind))
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return ArrowType("fixed_size_binary", kind.byte_width)
    if types.is_decimal(kind):
        return ArrowType(name, kind.scale)
    if name in _UNITS:
        zone = getattr(kind, "tz", None)
        return ArrowType(name, unit=f"{kind.unit},{zone}" if zone else kind.unit)
    return ArrowType(name)
