"""What becomes of the samples of other libraries: fields that are chosen, labels, keys that stand in a field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from shardstream.errors import DecodeError, FieldError, ShardStreamError, UsageError
from shardstream.faults import fault_kind
from shardstream.pack.sources.base import LABEL, File, Item, Reject, SourcePart
from shardstream.pack.sources.declared import parse_type
from shardstream.pack.sources.keys import KeyRule
from shardstream.pack.sources.lists.chosen import FILE
from shardstream.pack.sources.lists.columns import LABEL_NAMES, columns_of_patterns
from shardstream.pack.sources.lists.labels import Classes, not_listed
from shardstream.pack.sources.lists.mapping import BoundColumns, FieldRule, bound_columns, converted
from shardstream.pack.sources.lists.records import Broken, label_name, text_of
from shardstream.shards.fields import FieldType
from shardstream.shards.manifest import unknown_field

_COLUMN_KEY = KeyRule("column")


@dataclass(frozen=True, slots=True)
class FieldOf:
    """A field, and the field of the foreign data that it comes from.

    Attributes:
        name: Its name.
        column: That of the other.
        type: What it is made; ``None`` leaves it as it is.
        stored: The type of the other.
    """

    name: str
    column: str
    type: str | None
    stored: FieldType | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All fields that it is made of."""
        return (self.column,)

    def value(self, values: Mapping[str, Any]) -> Any:
        """The value, of those that a sample has; ``None`` if it has none.

        Raises:
            Broken, DecodeError, FieldError, ValueError, TypeError, OverflowError, RecursionError: It cannot be of this
                type.
        """
        found = values.get(self.column)
        if self.type is None or found is None or isinstance(found, File):  # which is read later
            return found
        kind = parse_type(self.type)
        if not kind.is_encoded:
            found = decoded(self.stored, found)
        if isinstance(found, bytes) and kind.kind == "payload":
            return found
        if isinstance(found, bytes) and kind.kind == "scalar":
            found = found.decode("utf-8", "replace")
        return converted(kind, found)


def decoded(stored: FieldType | None, value: Any) -> Any:
    """The value that bytes of a type stand for: they would be taken for those of another type; DecodeError."""
    if stored is None or stored.is_encoded or not isinstance(value, bytes):
        return value
    return stored.decode(memoryview(value))


@dataclass(frozen=True, slots=True)
class ArrayOfFields:
    """A field that is an array of the numbers in many fields of the foreign data.

    Attributes:
        bound: The rule and the fields.
        stored: The types of the fields.
    """

    bound: BoundColumns
    stored: tuple[FieldType | None, ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return self.bound.rule.name

    @property
    def columns(self) -> tuple[str, ...]:
        """All fields that it is made of."""
        return self.bound.names

    @property
    def type(self) -> str | None:
        """The type of the array."""
        return self.bound.rule.type

    def value(self, values: Mapping[str, Any]) -> Any:
        """As of `FieldOf`; a number that is missing is `Broken`."""
        kinds = zip(self.columns, self.stored, strict=True)
        return self.bound.value({name: decoded(kind, values.get(name)) for name, kind in kinds})


ChosenField: TypeAlias = FieldOf | ArrayOfFields


@dataclass(frozen=True, slots=True)
class ForeignPart(SourcePart):
    """Samples by their numbers.

    Attributes:
        part: The same with the fields of the foreign data.
        fields: Fields that are made of them; empty for all, under their names.
        classes: What a label that is text is looked up in; ``None`` leaves it text.
        named: Whether a label that is a number is the name of a class, too.
        key: The field that keys stand in; ``None`` leaves those that samples have.
        url: Where the data lie.
    """

    part: SourcePart
    fields: tuple[ChosenField, ...] = ()
    classes: Classes | None = None
    named: bool = False
    key: str | None = None
    url: str = ""

    def __iter__(self) -> Iterator[Item | Reject]:
        if not self.fields and self.classes is None and self.key is None:
            yield from self.part
            return
        for item in self.part:
            yield self._changed(item) if isinstance(item, Item) else item

    def _changed(self, item: Item) -> Item | Reject:
        values = dict(item.values)
        try:
            if self.key is not None:
                item = item._replace(key=key_of(values.get(self.key)))
            if self.fields:
                made = ((one.name, one.value(values)) for one in self.fields)
                values = {name: value for name, value in made if value is not None}
        except (Broken, DecodeError, FieldError, ValueError, TypeError, OverflowError, RecursionError) as error:
            what = error.what if isinstance(error, ShardStreamError) else str(error)
            return Reject(item.line, item.path, what, kind=fault_kind(error))
        try:
            return self._with_number(item._replace(values=values))
        except Broken as error:
            return Reject(item.line, item.path, str(error))

    def _with_number(self, item: Item) -> Item | Reject:
        """The sample with the number of its class, where its label is a name; `Broken`."""
        label, classes = item.values.get(LABEL), self.classes
        if classes is None or not (self.named or isinstance(label, bytes | str)):
            return item
        if label is None:
            return Reject(item.line, item.path, "it has no label")
        text = label_name(text_in(label, "label"))
        number = None if self.named else _integer(text)
        if number is None:
            number = classes.number(text, url=self.url, key=item.key)
        if number is None:
            return Reject(item.line, item.path, not_listed("label", text))
        return item._replace(values={**item.values, LABEL: number})


def key_of(found: Any) -> str:
    """The key that stands in a field; `Broken`."""
    if found is None:
        raise Broken("it has no key")
    return _COLUMN_KEY.key(0, "", text_in(found, "key"))


def text_in(found: Any, name: str) -> str:
    """The text of a value; `Broken` where it is none."""
    found = found.item() if isinstance(found, np.generic) else found
    return text_of(str(found, "utf-8", "surrogateescape") if isinstance(found, bytes | memoryview) else found, name)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def chosen_fields(
    rules: tuple[FieldRule, ...], types: Mapping[str, FieldType | None], url: str, key: str
) -> tuple[tuple[ChosenField, ...], dict[str, FieldType]]:
    """The fields that are made of which, none for all as they are; and the types that are declared.

    Args:
        rules: What the user says.
        types: The fields that there are, in their order; ``None`` where values are no stored bytes.
        url: Where, for messages.
        key: How keys are made; what they stand in is not left for a ``*`` alone.

    Raises:
        FieldError: There is no such field.
        UsageError: A field is to be the content of a file, or no field matches a ``*``.
    """
    names = list(types)
    kinds = ((rule.name, rule.declared) for rule in rules if rule.column not in names)
    declared = {name: kind for name, kind in kinds if kind is not None}
    if len(declared) == len(rules):
        return (), declared
    chosen: list[ChosenField] = []
    own = [rule for rule in (rule.among(names) for rule in rules) if rule is not None]
    taken = {number for number, name in enumerate(names) if name == key or name in {rule.column for rule in own}}
    many = columns_of_patterns(own, names, taken)
    for rule in own:
        if rule in many:
            found = [names[number] for number in many[rule]]
            array = ArrayOfFields(bound_columns(rule, found, found), tuple(types[name] for name in found))
            declared[rule.name] = parse_type(str(array.type))
            chosen.append(array)
            continue
        if rule.column not in names:
            raise unknown_field(rule.column, names, url=url)
        kind = None if rule.text == rule.column else rule.type
        if kind == FILE:
            raise UsageError(f"field {rule.column!r} holds no paths of files", field=rule.name, hint="leave :file out")
        if kind is not None:
            declared[rule.name] = parse_type(kind)
        chosen.append(FieldOf(rule.name, rule.column, kind, types[rule.column]))
    return tuple(chosen), declared


def with_label(types: Mapping[str, FieldType]) -> tuple[ChosenField, ...]:
    """All fields, and the only one that is called like a label as that; none where there is one, or no such field."""
    single = [name for name, kind in types.items() if kind.kind == "scalar" or kind.name in ("str", "bytes")]
    like = [name for name in single if name.lower() in LABEL_NAMES]
    if LABEL in types or len(like) != 1:
        return ()
    return tuple(FieldOf(LABEL if name in like else name, name, None) for name in types)
