"""``fields=``: which column becomes which field, and as what."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shardstream.errors import FieldError, UsageError, did_you_mean
from shardstream.images.formats import BY_SUFFIX
from shardstream.pack.sources.base import LABEL, Value
from shardstream.pack.sources.declared import array_dtype, declared_name, fitted, parse_type, type_named
from shardstream.pack.sources.lists.chosen import FILE, filled, split_template
from shardstream.pack.sources.lists.records import (
    TRUTH,
    Broken,
    Cells,
    Column,
    cell,
    is_image,
    kind_of,
    parse_number,
    shown,
    text_of,
)
from shardstream.pack.sources.paths import extension_of
from shardstream.pack.sources.values import is_picture_name
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import IMAGE, PAYLOAD_TYPES, SCALAR_TYPES, VALUES, FieldType, to_fixed, type_of_extension
from shardstream.shards.scalars import to_scalar
from shardstream.sizes import plural

NAME = "name"
_FILE_TYPES = frozenset(("jpg", "png", "webp", "array", "tensor"))
_INT64 = FieldType.parse("int64")
_TYPES = (FILE, "text", "int", "float", *PAYLOAD_TYPES, IMAGE, *SCALAR_TYPES)
_HINT = (
    "write NAME=COLUMN or NAME=COLUMN:TYPE, as jpg=image_path, cls=label:int, caption=text, jpg=id:file:images/{}.jpg"
)
_TYPE_HINT = (
    f"types are {', '.join(_TYPES)}, array:DTYPE (array:uint16), "
    "array:DTYPE:SHAPE (array:float32:512) and values:DTYPE (values:uint16)"
)


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A field and the column that it comes from.

    Attributes:
        name: The field.
        column: As the user named it; a number where the list has no header. With ``*`` for any characters, the columns
            of one array.
        type: ``"file"`` for the content of the file or URL whose path stands there, the name of a field type
            (``"image"``: of such a file, or of bytes that stand there), ``"name"`` for a label that is numbered by its
            name, or ``None`` to store the value as it is (a path, for fields that are called like images, npy and
            safetensors files).
        text: What the user wrote, column and type.
        template: How the path of a file is made of what stands there, as ``images/{}.jpg``; ``None``: it is that.
    """

    name: str
    column: str
    type: str | None = None
    text: str = field(default="", repr=False, compare=False)
    template: str | None = None

    @property
    def declared(self) -> FieldType | None:
        """The type, where the whole text names one: ``{"tokens": "array:uint16:2048"}``."""
        return type_named(self.text)

    def among(self, names: Sequence[str]) -> FieldRule | None:
        """The rule in a list whose columns are called so; ``None`` if it is about no column, but a type alone.

        What is a column as well as a type, is the column. A type alone is that of the column called as the field.
        """
        kind = None if self.column in names else self.declared
        if kind is None:
            return self
        return FieldRule(self.name, self.name, declared_name(kind), self.text) if self.name in names else None

    def of_column(self, column: str) -> FieldRule:
        """The rule for a column that is called otherwise."""
        return replace(self, column=column, text=column if self.text == self.column else self.text)

    def is_pattern(self, names: Sequence[str]) -> bool:
        """Whether it stands for the columns that its ``*`` matches."""
        return "*" in self.column and self.column not in names

    def matching(self, names: Sequence[str]) -> list[int]:
        """The numbers of the columns that its pattern matches, in their order."""
        pattern = re.compile(".*".join(map(re.escape, self.column.split("*"))), re.DOTALL)
        return [number for number, name in enumerate(names) if pattern.fullmatch(name)]

    def in_header(self, names: Sequence[str]) -> bool | None:
        """Whether a line that holds these is a header with its column; ``None`` if it may be one, or no header.

        A number is the number of a column, and may be a cell of a list without header; so may what is empty.
        """
        if not self.is_pattern(names):
            known = self.column in names
            return None if known and self.column.isdecimal() and int(self.column) < len(names) else known
        found = [names[number] for number in self.matching(names)]
        return (None if any(map(_is_value, found)) or not any(found) else True) if found else False


def _is_value(text: str) -> bool:
    """Whether this is a number, true or false."""
    try:
        float(text)
    except ValueError:
        return text.lower() in TRUTH
    return True


def parse_fields(fields: Mapping[str, str] | None) -> tuple[FieldRule, ...]:
    """The argument ``fields`` of `pack`: ``{"jpg": "image_path", "cls": "label:int"}``.

    What follows a colon is the type, if a type is called so; otherwise it is part of the column's name.

    Raises:
        UsageError: A name that no field can have, or no column.

        >>> parse_fields({"emb": "vector:array:float32:3"})
        (FieldRule(name='emb', column='vector', type='array:float32:3', template=None),)
    """
    if not isinstance(fields, Mapping | None):
        raise UsageError(f"fields must be a dict, not a {type(fields).__name__}", hint='fields={"jpg": "image_path"}')
    return tuple(_rule(name, column) for name, column in (fields or {}).items())


def _rule(name: str, text: object) -> FieldRule:
    check_field_name(name)
    if not isinstance(text, str) or not text:
        raise UsageError(f"fields[{name!r}] names no column", hint=_HINT)
    whole, template = split_template(text)
    parts = whole.split(":")
    for count in range(1, len(parts)):
        declared = ":".join(parts[count:])
        known = declared if declared == FILE else _type_name(declared)
        if known is not None:
            return FieldRule(name, ":".join(parts[:count]), known, text, template)
    return FieldRule(name, text, _default(name), text)


def _type_name(text: str) -> str | None:
    kind = type_named({"text": "str"}.get(text, text))
    return None if kind is None else declared_name(kind)


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
        rule.name: _INT64 if rule.type == NAME else parse_type(IMAGE if rule.type == FILE else rule.type)
        for rule in rules
        if rule.type is not None and (rule.type != FILE or is_picture_name(rule.name))
    }


def types_alone(rules: tuple[FieldRule, ...]) -> dict[str, FieldType]:
    """Field types by name, of rules that name no column.

    Raises:
        UsageError: One of them is not a type.
    """
    found = {}
    for rule in rules:
        kind = rule.declared
        if kind is None:
            raise UsageError(
                f"fields[{rule.name!r}] = {rule.text!r} is not a type, and only lists have columns",
                field=rule.name,
                hint=_TYPE_HINT,
            )
        found[rule.name] = kind
    return found


def unknown_type(text: str, columns: Collection[str]) -> UsageError | None:
    """What to say of ``COLUMN:TYPE`` where there is such a column and no such type, or of arrays that are not types.

    ``None`` of anything else.
    """
    parts = text.split(":")
    for count in range(len(parts) - 1, 0, -1):
        column, declared = ":".join(parts[:count]), ":".join(parts[count:])
        if column in columns:
            return UsageError(
                f"{declared!r} is not a field type, for column {column!r}",
                hint=f"{did_you_mean(declared, _TYPES)}{_TYPE_HINT}",
            )
    if parts[0] in ("array", VALUES):
        return UsageError(f"{text!r} is not a type, and there is no such column", hint=_TYPE_HINT)
    return None


@dataclass(frozen=True, slots=True)
class BoundField:
    """A rule with its place in the records of one list."""

    rule: FieldRule
    column: Column
    path: bool

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns that it is made of."""
        return (self.column,)

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
            store, of = (field, column) if kind.is_image else (name, f"{column}:{FILE}")
            raise UsageError(
                f"the field {name!r} would be the text in column {column!r}, such as {shown(found)}, not the picture",
                field=name,
                hint=f"fields={{{store!r}: {of!r}}} stores the files that it names, "
                f"fields={{{name!r}: {f'{column}:str'!r}}} their paths as text",
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
            if self.rule.template is not None:
                found = text_of(found, f"column {where}")
            if not isinstance(found, str):
                raise Broken(f"column {where} holds {kind_of(found)}, not a path")
            if not found:
                raise Broken(f"column {where} is empty, where a path is needed")
            return filled(self.rule.template, found)
        try:
            return _plain(found) if self.rule.type is None else converted(parse_type(self.rule.type), found)
        except (Broken, FieldError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Broken(f"column {where}: {_reason(error, found, self.rule.type)}") from error


@dataclass(frozen=True, slots=True)
class BoundColumns(BoundField):
    """A rule for many columns, whose numbers are one array; `column` is the first of them.

    Attributes:
        names: Their names, in the order of the list.
        places: Their places in its records.
    """

    names: tuple[str, ...] = ()
    places: tuple[Column, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.places

    def value(self, cells: Cells) -> Value | str:
        assert self.rule.type is not None
        kind = parse_type(self.rule.type)
        assert kind.dtype is not None
        element = FieldType.parse(kind.dtype.name)
        numbers: list[Any] = []
        for name, place in zip(self.names, self.places, strict=True):
            found = cell(cells, place, f"column {name!r}")
            try:
                numbers.append(parse_number(element, found) if isinstance(found, str) else found)
            except (ValueError, OverflowError) as error:
                raise Broken(f"column {name!r}: {_reason(error, found, element.name)}") from error
        try:
            return fitted(kind, numbers)
        except FieldError:
            for name, number in zip(self.names, numbers, strict=True):
                try:
                    to_scalar(element, number)
                except FieldError as error:
                    raise Broken(f"column {name!r}: {error.what}") from error
            raise


def bound_columns(rule: FieldRule, names: Sequence[str], places: Sequence[Column]) -> BoundColumns:
    """A rule for many columns with the columns that there are.

    Raises:
        UsageError: Its type is not one of numbers.
    """
    if rule.type not in SCALAR_TYPES:
        given = "has no type" if rule.type is None else f"has the type {rule.type}"
        raise UsageError(
            f"the field {rule.name!r} of {plural(len(names), 'column')} ({rule.column}) {given}",
            field=rule.name,
            hint=f"many columns become one array of numbers: fields={{{rule.name!r}: {f'{rule.column}:float32'!r}}}",
        )
    bound = replace(rule, type=f"array:{rule.type}:{len(names)}")
    return BoundColumns(bound, places[0], False, tuple(names), tuple(places))


def _reason(error: Exception, found: object, kind: str | None) -> str:
    if isinstance(error, Broken):
        return str(error)
    if isinstance(error, FieldError):
        return error.what
    return f"{shown(found) if isinstance(found, str) else kind_of(found)} cannot be read as {kind}"


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        check_text(value)
    return value


def check_text(text: str) -> None:
    """Refuse text that is not Unicode; `Broken`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Broken(f"{shown(text)} is not valid UTF-8") from None


def converted(kind: FieldType, value: Any) -> Any:
    """A value as one of a type: text is parsed.

    Raises:
        Broken, FieldError, ValueError, TypeError, OverflowError, RecursionError: It is none.
    """
    if kind.kind == "scalar":
        return to_scalar(kind, parse_number(kind, value) if isinstance(value, str) else value)
    if kind.name == "bytes":
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else _bytes(kind, value)
    if kind.name == "str":
        text = text_of(value, "value")
        check_text(text)
        return text
    if kind.name in _FILE_TYPES - {"array"}:
        return _bytes(kind, value)
    value = json.loads(value) if isinstance(value, str) else value
    dtype = array_dtype(kind)
    if isinstance(value, np.ndarray) and dtype is not None and value.dtype.kind == "f" and dtype.kind == "f":
        value = value if value.dtype.itemsize <= dtype.itemsize else value.tolist()  # rounded, as a single number is
    if kind.kind == "fixed":
        return to_fixed(kind, fitted(kind, value))
    if dtype is not None:
        return fitted(kind, value)
    if kind.name in ("json", "msgpack") and isinstance(value, np.ndarray):
        return value.tolist()
    return np.asarray(value) if kind.name == "array" and not isinstance(value, bytes) else value


def _bytes(kind: FieldType, value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise Broken(f"{kind_of(value)}, where bytes are needed; for the path of a file declare it as :{FILE}")
    return value
