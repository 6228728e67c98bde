"""``fields=``: which column becomes which field, and as what."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardstream.errors import FieldError, UsageError, did_you_mean
from shardstream.images.formats import BY_SUFFIX
from shardstream.pack.sources.base import LABEL, Value
from shardstream.pack.sources.lists.records import Broken, Cells, Column, cell, is_image, kind_of, shown, text_of
from shardstream.pack.sources.paths import extension_of
from shardstream.pack.sources.values import is_picture_name
from shardstream.shards.fields import (
    IMAGE,
    PAYLOAD_TYPES,
    SCALAR_TYPES,
    FieldType,
    check_field_name,
    to_fixed,
    to_scalar,
    type_of_extension,
)

FILE = "file"
NAME = "name"
_FILE_TYPES = frozenset(("jpg", "png", "webp", "array", "tensor"))
_INT64 = FieldType.parse("int64")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_TYPES = (FILE, "text", "int", "float", *PAYLOAD_TYPES, IMAGE, *SCALAR_TYPES)
_HINT = "write NAME=COLUMN or NAME=COLUMN:TYPE, as jpg=image_path, cls=label:int, caption=text"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A field and the column that it comes from.

    Attributes:
        name: The field.
        column: As the user named it; a number where the list has no header.
        type: ``"file"`` for the content of the file or URL whose path stands there, the name of a field type
            (``"image"``: of such a file, or of bytes that stand there), ``"name"`` for a label that is numbered by its
            name, or ``None`` to store the value as it is (a path, for fields that are called like images, npy and
            safetensors files).
    """

    name: str
    column: str
    type: str | None = None


def parse_fields(fields: Mapping[str, str] | None) -> tuple[FieldRule, ...]:
    """The argument ``fields`` of `pack`: ``{"jpg": "image_path", "cls": "label:int"}``.

    What follows a colon is the type, if a type is called so; otherwise it is part of the column's name.

    Raises:
        UsageError: A name that no field can have, or no column.

        >>> parse_fields({"emb": "vector:array:float32:3"})
        (FieldRule(name='emb', column='vector', type='array:float32:3'),)
    """
    if not isinstance(fields, Mapping | None):
        raise UsageError(f"fields must be a dict, not a {type(fields).__name__}", hint='fields={"jpg": "image_path"}')
    return tuple(_rule(name, column) for name, column in (fields or {}).items())


def _rule(name: str, text: object) -> FieldRule:
    check_field_name(name)
    if not isinstance(text, str) or not text:
        raise UsageError(f"fields[{name!r}] names no column", hint=_HINT)
    parts = text.split(":")
    for count in range(1, len(parts)):
        declared = ":".join(parts[count:])
        known = declared if declared == FILE else _type_name(declared)
        if known is not None:
            return FieldRule(name, ":".join(parts[:count]), known)
    return FieldRule(name, text, _default(name))


def _type_name(text: str) -> str | None:
    try:
        return str(FieldType.parse({"text": "str"}.get(text, text)))
    except FieldError:
        return None


def _default(name: str) -> str | None:
    return _INT64.name if name == LABEL else None


def is_path(rule: FieldRule) -> bool:
    """Whether a field is the content of a file, if text stands in its column."""
    if rule.type is not None:
        return rule.type in (FILE, IMAGE)
    last = rule.name.rsplit(".", 1)[-1].lower()
    return last in BY_SUFFIX or type_of_extension(last).name in _FILE_TYPES


def declared_types(rules: tuple[FieldRule, ...]) -> dict[str, FieldType]:
    """Field types by name, of the fields that have one. Files under a picture's name are pictures."""
    return {
        rule.name: _INT64 if rule.type == NAME else FieldType.parse(IMAGE if rule.type == FILE else rule.type)
        for rule in rules
        if rule.type is not None and (rule.type != FILE or is_picture_name(rule.name))
    }


def unknown_type(text: str, columns: Collection[str]) -> UsageError | None:
    """What to say of ``COLUMN:TYPE`` where there is such a column and no such type; ``None`` of anything else."""
    parts = text.split(":")
    for count in range(len(parts) - 1, 0, -1):
        column, declared = ":".join(parts[:count]), ":".join(parts[count:])
        if column in columns:
            return UsageError(
                f"{declared!r} is no type of a field, for column {column!r}",
                hint=f"{did_you_mean(declared, _TYPES)}types are {', '.join(_TYPES)} and array:DTYPE:SHAPE "
                "(array:float32:512)",
            )
    return None


@dataclass(frozen=True, slots=True)
class BoundField:
    """A rule with its place in the records of one list."""

    rule: FieldRule
    column: Column
    path: bool

    def check_meant(self, cells: Cells) -> None:
        """Refuse a field that is called like a picture and would be the path of one, as text.

        Raises:
            UsageError: Says what to write.
        """
        name, column = self.rule.name, self.rule.column
        if self.path or self.rule.type is not None or not is_picture_name(name):
            return
        found = cell(cells, self.column, f"column {column!r}")
        extension = extension_of(found).lower() if isinstance(found, str) else ""
        if extension in BY_SUFFIX:
            prefix, kind = name.rpartition(".")[0], type_of_extension(extension)
            field = f"{prefix}.{kind}" if prefix else str(kind)
            store = f"{field}={column}" if kind.is_image else f"{name}={column}:{FILE}"
            raise UsageError(
                f"the field {name!r} would be the text in column {column!r}, such as {shown(found)}, not the picture",
                field=name,
                hint=f"--field {store} stores the files that it names, --field {name}={column}:str their paths as text",
            )

    def value(self, cells: Cells) -> Value | str:
        """The value of this field in a record; a path, if `path` says so and it is text.

        Raises:
            Broken: It is missing, or does not parse.
        """
        where = f"{self.rule.column!r}"
        found = cell(cells, self.column, f"column {where}")
        if is_image(found):
            found = found["bytes"] or found["path"] or ""
        if self.path:
            if isinstance(found, bytes) and self.rule.type in (None, IMAGE):
                return found
            if not isinstance(found, str):
                raise Broken(f"column {where} holds {kind_of(found)}, no path")
            if not found:
                raise Broken(f"column {where} is empty, where a path is needed")
            return found
        try:
            return _plain(found) if self.rule.type is None else _convert(FieldType.parse(self.rule.type), found)
        except (Broken, FieldError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Broken(f"column {where}: {_reason(error, found, self.rule.type)}") from error


def _reason(error: Exception, found: object, kind: str | None) -> str:
    if isinstance(error, Broken):
        return str(error)
    if isinstance(error, FieldError):
        return error.what
    return f"{shown(found) if isinstance(found, str) else kind_of(found)} is no {kind}"


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        check_text(value)
    return value


def check_text(text: str) -> None:
    """Refuse text that is no Unicode; `Broken`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Broken(f"{shown(text)} is no valid UTF-8") from None


def _convert(kind: FieldType, value: Any) -> Any:
    if kind.kind == "scalar":
        return to_scalar(kind, _number(kind, value) if isinstance(value, str) else value)
    if kind.name == "bytes":
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else _bytes(kind, value)
    if kind.name == "str":
        text = text_of(value, "value")
        check_text(text)
        return text
    if kind.name in _FILE_TYPES - {"array"}:
        return _bytes(kind, value)
    value = json.loads(value) if isinstance(value, str) else value
    if kind.kind == "fixed":
        return to_fixed(kind, np.asarray(value, kind.dtype))
    return np.asarray(value) if kind.name == "array" and not isinstance(value, bytes) else value


def _bytes(kind: FieldType, value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise Broken(f"{kind_of(value)}, where bytes are needed; for the path of a file declare it as :{FILE}")
    return value


def _number(kind: FieldType, text: str) -> int | float | bool:
    assert kind.dtype is not None
    if kind.dtype.kind == "b":
        if text.strip().lower() not in _TRUTH:
            raise ValueError(text)
        return _TRUTH[text.strip().lower()]
    if "_" in text:
        raise ValueError(text)
    return float(text) if kind.dtype.kind == "f" else int(text)
