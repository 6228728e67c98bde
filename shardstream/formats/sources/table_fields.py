"""Fields of Parquet and Arrow files: types and values as the readers in place have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.formats import Selection
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.errors import UsageError
from shardstream.formats.arrow.columns import TableField, features_of, fields_of
from shardstream.formats.arrow.format import Arrow
from shardstream.formats.arrow.messages import read_schema
from shardstream.formats.catalog.dataset import ExternalDataset
from shardstream.formats.catalog.make import find_or_make
from shardstream.formats.catalog.plan import Making
from shardstream.formats.catalog.write import AbsentFieldError
from shardstream.formats.contract import SourceFormat
from shardstream.formats.parquet.fields import all_fields
from shardstream.formats.parquet.format import Parquet
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.pack.sources.base import LABEL
from shardstream.pack.sources.lists.mapping import FieldRule
from shardstream.shards.field_names import usable_field
from shardstream.storage import Location, Store
from shardstream.storage.base.store import ObjectMeta

JSON = "json"


def table_fields(store: Store, meta: ObjectMeta) -> tuple[SourceFormat, tuple[TableField, ...]]:
    """The format of a file, and the fields that its columns become.

    Raises:
        FormatError, StorageError: It cannot be read.
    """
    data = ObjectBytes(store, meta.path, meta.size, window=64 << 10)
    if meta.path.lower().endswith(".parquet"):
        return Parquet(), all_fields(data, meta.size)
    schema = read_schema(data)
    return Arrow(), fields_of(schema.columns, features_of(schema.metadata))


def name_of(field: TableField) -> str:
    """The name that chooses a field in place: a label keeps the name of its column."""
    return usable_field(".".join(field.source)) if field.name == LABEL else field.name


class ChosenColumns(NamedTuple):
    """What a user chose of a table.

    Attributes:
        rules: The rules, each with the name of a field in place as its column; those of structs one for each field.
        whole: Names of the structs, and of the lists of numbers, that are taken as JSON.
    """

    rules: tuple[FieldRule, ...]
    whole: tuple[str, ...]


def choose_columns(rules: Sequence[FieldRule], fields: Sequence[TableField]) -> ChosenColumns:
    """Rules in terms of the fields in place. A struct without a type stands for its fields, as if it was not named.

    Args:
        rules: What the user says. Rules that name no column, and patterns, stay as they are.
        fields: The fields of the table.

    Raises:
        UsageError: A struct is to be of a type that it cannot have, or two rules make one field of different columns.
    """
    names = {name_of(one) for one in fields}
    known = {one.source[0]: name_of(one) for one in fields if len(one.source) == 1} | {name: name for name in names}
    lists = {name_of(one) for one in fields if one.shape}
    found, whole = list[FieldRule](), list[str]()
    for given in rules:
        struct = [given.name] if _inside(given.name, fields) else []
        rule = given.among([*known, *struct]) or given
        name = known.get(rule.column)
        inner = () if name is not None else _inside(rule.column, fields)
        if name is not None:
            found.append(rule.of_column(name))
            whole += [name] if name in lists and rule.type == JSON else []
        elif inner and rule.type == JSON:
            whole.append(usable_field(rule.column))
            found.append(rule.of_column(whole[-1]))
        elif inner and rule.type is not None and rule.text != rule.column:
            shown = ", ".join(map(repr, inner))
            raise UsageError(
                f"column {rule.column!r} is a struct, and cannot be stored as {rule.type}",
                field=rule.name,
                hint=f"choose its fields ({shown}), or store it as JSON: "
                f"fields={{{rule.name!r}: {f'{rule.column}:{JSON}'!r}}}",
            )
        elif inner:
            prefix = len(usable_field(rule.column))
            found += [FieldRule(f"{rule.name}{one[prefix:]}", one, None, one) for one in inner]
        else:
            found.append(rule)
    sources: dict[str, str] = {}
    for rule in found:
        if sources.setdefault(rule.name, rule.column) != rule.column:
            what = f"columns {sources[rule.name]!r} and {rule.column!r} would both be the field {rule.name!r}"
            raise UsageError(what, field=rule.name, hint="give one of them another name")
    return ChosenColumns(tuple(found), tuple(whole))


def _inside(column: str, fields: Sequence[TableField]) -> tuple[str, ...]:
    """The fields of the struct in a column."""
    prefix = f"{usable_field(column)}."
    return tuple(one.name for one in fields if one.name.startswith(prefix) and not one.beside)


def read_in_place(location: Location, names: Sequence[str], whole: Sequence[str]) -> Iterator[tuple[Any, ...]] | None:
    """The values of these fields, row by row, as the reader in place gives them; ``None`` if no row has any.

    Args:
        location: The file.
        names: Names of fields.
        whole: Those of them that are taken as JSON.

    Raises:
        DataError, FormatError, StorageError: As of `find_or_make` and `DatasetRows`.
    """
    root = location.parent()
    options = {JSON: ",".join(whole)} if whole else {}
    selection = Selection.of((location.url[len(root.url) :].lstrip("/"),), None, options)
    there = list(names)
    while there:
        selection = replace(selection, chosen=tuple((name, name) for name in sorted(there)))
        try:
            found = find_or_make(root, selection, None, Making(loose=False, limit=None))
        except AbsentFieldError as error:  # a column of the file, without a value
            there.remove(str(error.place["field"]))
        else:
            return _values(ExternalDataset(DatasetAddress(root, selection=selection), found), there, names)
    return None


def _values(dataset: OpenedDataset, there: Sequence[str], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    types = dataset.manifest.fields
    for batch in DatasetRows(dataset, there).read_shards(range(dataset.manifest.shards)):
        for row in range(len(batch.rows)):
            values = batch.values(row)
            yield tuple(types[name].decode(values[name]) if name in values else None for name in names)
