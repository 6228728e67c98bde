"""Which of our fields the columns of an Arrow schema become: of Arrow's files and of Parquet's.

Hugging Face's ``datasets`` writes features into the schema's metadata, under ``huggingface``: they tell class labels,
shapes of arrays, and images.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from shardstream.errors import FieldError, UsageError, did_you_mean
from shardstream.formats.arrow.schema import (
    BINARIES,
    LISTS,
    NUMBERS,
    SIGNED,
    TEXTS,
    UNSIGNED,
    ArrowField,
    ArrowType,
)
from shardstream.pack.sources.lists.columns import LABEL_NAMES
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import FieldType

LABEL = "cls"
"""What the label of a class is called."""
NUMBERED = (
    "samples are numbered: names beside values, such as {!r}, are those of files without their folders, and repeat"
)
"""What a user should know of tables with files of Hugging Face's in them."""
TENSOR = "arrow.fixed_shape_tensor"
"""The name of the extension type of tensors of one shape."""
METADATA = "huggingface"
"""The key of features in the metadata of a schema."""
How: TypeAlias = Literal["bytes", "text", "number", "fixed", "values", "array", "converted", "nothing", "refused"]
"""How a field comes from its column.

``bytes`` and ``text`` are the column's values as they are stored, ``number`` becomes a scalar. ``fixed`` and ``array``
are lists of numbers whose elements lie one after another, all of one shape or with any number of rows, ``values`` those
of one axis and any length. ``converted`` are values that lie nowhere in a form of ours: they are written down as JSON,
or msgpack where bytes are among them. Of ``nothing`` there are no values. ``refused`` cannot be read.
"""
_FILE = frozenset(("bytes", "path"))
_LABELS = LABEL_NAMES - {"y"}  # which may as well be a coordinate
_DATES = frozenset(("date32", "date64", "time32", "time64", "timestamp", "duration"))
_DECIMALS = frozenset(("decimal", "decimal32", "decimal64", "decimal128", "decimal256"))
_PLAIN = NUMBERS | TEXTS | _DATES | _DECIMALS | {"bool", "null"}


@dataclass(frozen=True, slots=True)
class TableField:
    """A field, and the column that it comes from.

    Attributes:
        name: Its name.
        source: Where its values are: the name of the column, and of fields of structs within.
        column: What is there.
        how: How it is made of that.
        type: Its type; ``bytes`` may turn out to be images.
        shape: Of ``fixed`` and ``array``: elements along each axis; -1 first where it varies.
        classes: Names of the classes that its numbers stand for.
        why: What is ``refused``, for messages.
        beside: Whether it accompanies another field, and is given only to who asks for it by name.
    """

    name: str
    source: tuple[str, ...]
    column: ArrowField
    how: How
    type: FieldType
    shape: tuple[int, ...] = ()
    classes: tuple[str, ...] | None = None
    why: str = ""
    beside: bool = False


def features_of(metadata: Mapping[str, str]) -> Mapping[str, Any]:
    """The features that `datasets` wrote into the metadata of a schema; none where it did not."""
    try:
        found = json.loads(metadata[METADATA])["info"]["features"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def fields_of(
    columns: Sequence[ArrowField],
    features: Mapping[str, Any],
    *,
    chosen: Collection[str] = (),
    whole: Collection[str] = (),
) -> tuple[TableField, ...]:
    """The fields that the columns of a schema become, in their order.

    Fields of structs get names with dots. ``{"bytes", "path"}`` are the bytes; the path is a field only on request. The
    one label is called ``cls``: the only ``ClassLabel``, or the only column of integers that is called like one.

    Args:
        columns: The columns.
        features: What `features_of` gives.
        chosen: Names of fields that a user asks for: a label that is among them keeps its own.
        whole: Names of structs that are one field each, as JSON.
    """
    found: list[TableField] = []
    for column in columns:
        found += _fields(column, features.get(column.name), usable_field(column.name), (column.name,), whole)
    label = _label(found, chosen)
    found = [replace(one, name=LABEL) if one is label else one for one in found]
    repeated = {name for name, count in Counter(one.name for one in found).items() if count > 1}
    return tuple(
        _refused(one, "another column becomes the same field") if one.name in repeated else one for one in found
    )


def classes_of(fields: Sequence[TableField]) -> tuple[str, ...] | None:
    """Names of the classes that the label stands for, or the only field that has some; ``None`` where nothing says."""
    label = next((one for one in fields if one.name == LABEL), None)
    some = [one for one in fields if one.classes is not None] if label is None else [label]
    return some[0].classes if len(some) == 1 else None


def as_json(one: TableField) -> TableField:
    """A list as JSON, whatever it holds; other fields as they are."""
    return replace(one, how="converted", type=FieldType.parse("json")) if one.shape else one


def check_json(fields: Sequence[TableField], names: Sequence[str], url: str) -> None:
    """Refuse names that are of none of the columns that were taken as JSON; UsageError."""
    taken = [one.name for one in fields if one.how == "converted"]
    for name in names:
        if name not in taken:
            hint = f"{did_you_mean(name, [one.name for one in fields])}see option json"
            raise UsageError(f"{name!r} is not a column of lists or a struct", url=url, hint=hint)


def _label(found: Sequence[TableField], chosen: Collection[str]) -> TableField | None:
    whole = [one for one in found if len(one.source) == 1 and one.how == "number"]
    some = [one for one in whole if one.classes is not None] or [
        one for one in whole if one.type.name in SIGNED + UNSIGNED and one.name.lower() in _LABELS
    ]
    if len(some) > 1:
        some = [one for one in some if one.name.lower() in _LABELS]
    taken = any(one.name == LABEL for one in found if one not in some)
    return some[0] if len(some) == 1 and not taken and some[0].name not in chosen else None


def _refused(one: TableField, why: str) -> TableField:
    return replace(one, how="refused", why=why)


def _fields(
    column: ArrowField, feature: Any, name: str, source: tuple[str, ...], whole: Collection[str]
) -> list[TableField]:
    kind = column.type.kind
    if kind != "struct":
        return [_field(column, feature, name, source)]
    children = {one.name: one for one in column.type.children}
    if len(children) < len(column.type.children):
        return [_refused(_of(column, "nothing", "bytes", name, source), "a struct has two fields of one name")]
    if is_file(column.type):
        return [
            _field(children["bytes"], None, name, (*source, "bytes")),
            replace(_field(children["path"], None, f"{name}.path", (*source, "path")), beside=True),
        ]
    inner = feature if isinstance(feature, dict) and "_type" not in feature else {}
    found = []
    if name in whole:
        found.append(_converted(column, name, source))
    for child, one in children.items():
        found += _fields(one, inner.get(child), f"{name}.{usable_field(child)}", (*source, child), whole)
    return [found[0], *(replace(one, beside=True) for one in found[1:])] if name in whole else found


def is_file(kind: ArrowType) -> bool:
    """Whether it is how `datasets` stores images, audio and the like: ``{"bytes", "path"}``."""
    kinds = {one.name: one.type.kind for one in kind.children}
    return (
        kind.kind == "struct"
        and kinds.keys() == _FILE
        and kinds["bytes"] in BINARIES | {"null"}
        and kinds["path"] in TEXTS | {"null"}
    )


def _of(
    column: ArrowField, how: How, kind: str, name: str, source: tuple[str, ...], shape: tuple[int, ...] = ()
) -> TableField:
    return TableField(name, source, column, how, FieldType.parse(kind), shape)


def _field(column: ArrowField, feature: Any, name: str, source: tuple[str, ...]) -> TableField:
    kind = column.type.kind
    told = feature if isinstance(feature, dict) else {}
    stored = column.type.children[0] if kind == "dictionary" else column
    inner = stored.type.kind
    if kind == "null":
        return _of(column, "nothing", "bytes", name, source)
    if inner in TEXTS:
        is_json = column.is_json or told.get("_type") == "Json"
        return _of(column, "text", "json" if is_json else "str", name, source)
    if inner in BINARIES:
        return _of(column, "bytes", "bytes", name, source)
    if inner in NUMBERS or inner == "bool":
        return replace(_of(column, "number", inner, name, source), classes=_names(told))
    if kind in LISTS:
        found = _array(column, told, name, source)
        if found is not None:
            return found
    return _converted(column, name, source)


def _names(feature: Mapping[str, Any]) -> tuple[str, ...] | None:
    names = feature.get("names")
    if feature.get("_type") != "ClassLabel" or not isinstance(names, list):
        return None
    return tuple(names) if all(isinstance(one, str) for one in names) else None


def _array(column: ArrowField, feature: Mapping[str, Any], name: str, source: tuple[str, ...]) -> TableField | None:
    """Of lists of numbers that lie as an array does; ``None`` for others."""
    shape, leaf = _shape(column.type, feature)
    if column.metadata.get("ARROW:extension:name") == TENSOR and leaf in NUMBERS and len(shape) == 1:
        tensor = _tensor_shape(column)
        if tensor is None or shape[0] not in (-1, math.prod(tensor)):
            return _refused(_of(column, "nothing", "bytes", name, source), "its tensors have permuted axes")
        shape = tensor
    if leaf not in NUMBERS or 0 in shape or any(size < 0 for size in shape[1:]):
        return None
    if any(one.endswith("_view") for one in _list_kinds(column.type)[1:]):
        return None  # their elements may lie anywhere
    if shape == (-1,):
        return _of(column, "values", f"values:{leaf}", name, source, shape)
    if shape[0] < 0:
        return _of(column, "array", "array", name, source, shape)
    try:
        return _of(column, "fixed", f"array:{leaf}:{','.join(map(str, shape))}", name, source, shape)
    except FieldError as error:
        return _refused(_of(column, "nothing", "bytes", name, source), error.what)


def _shape(kind: ArrowType, feature: Mapping[str, Any]) -> tuple[tuple[int, ...], str]:
    """Elements along each axis of nested lists, -1 where nothing says how many, and the type of the innermost."""
    shape: list[int] = []
    while kind.kind in LISTS:
        shape.append(kind.size if kind.kind == "fixed_size_list" else -1)
        kind = kind.children[0].type
    told = feature.get("shape")  # of Array2D and so on
    if isinstance(told, list) and len(told) == len(shape):
        said = [one if type(one) is int and one >= 0 else -1 for one in told]
        shape = [one if one >= 0 else other for one, other in zip(shape, said, strict=True)]
    return tuple(shape), kind.kind


def _tensor_shape(column: ArrowField) -> tuple[int, ...] | None:
    """The shape of the flat lists of Arrow's ``fixed_shape_tensor``; ``None`` if axes are permuted."""
    try:
        told = json.loads(column.metadata["ARROW:extension:metadata"])
        shape, order = told["shape"], told.get("permutation")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    plain = isinstance(shape, list) and shape and all(type(size) is int and size > 0 for size in shape)
    return tuple(shape) if plain and order in (None, [*range(len(shape))]) else None


def _list_kinds(kind: ArrowType) -> list[str]:
    """What nested lists are, the outermost first."""
    return [kind.kind, *_list_kinds(kind.children[0].type)] if kind.kind in LISTS else []


def _converted(column: ArrowField, name: str, source: tuple[str, ...]) -> TableField:
    kinds = _kinds(column.type)
    unknown = sorted(kinds - _PLAIN - BINARIES)
    if unknown:
        why = f"values of type {unknown[0]} cannot be read"
        return _refused(_of(column, "nothing", "bytes", name, source), why)
    return _of(column, "converted", "msgpack" if kinds & BINARIES else "json", name, source)


def _kinds(kind: ArrowType) -> set[str]:
    """What stands in lists, structs and maps; dictionaries in them are of a kind of their own."""
    if kind.kind in LISTS | {"struct", "map"}:
        return {one for child in kind.children for one in _kinds(child.type)}
    return {kind.kind}
