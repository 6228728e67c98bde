"""Whether the rows of a Parquet or Arrow file are samples, or a list of files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardstream.errors import ShardStreamError
from shardstream.pack.sources.keys import MODES
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.mapping import NAME, FieldRule, is_path
from shardstream.shards.foreign.contract import ForeignFormat, ObjectListing, shown
from shardstream.shards.foreign.formats.arrow.columns import TableField, features_of, fields_of
from shardstream.shards.foreign.formats.arrow.format import Arrow
from shardstream.shards.foreign.formats.arrow.messages import read_schema
from shardstream.shards.foreign.formats.files.chosen import FILE
from shardstream.shards.foreign.formats.jsonl.first_rows import names_files
from shardstream.shards.foreign.formats.parquet.fields import all_fields
from shardstream.shards.foreign.formats.parquet.format import Parquet
from shardstream.shards.foreign.object_bytes import ObjectBytes
from shardstream.shards.foreign.rows import ScannedRows
from shardstream.storage import Location, Store, open_object
from shardstream.storage.base.store import ObjectMeta

_LOOKED_AT = 64  # rows


def columns_of_rows(location: Location, wanted: Wanted) -> tuple[str, ...] | None:
    """The columns of a table whose rows are samples, none for all of them; ``None`` for a list of files.

    It is a list of files where the user's fields say so, or name a column of text that is to be a file, and where the
    first files of Hugging Face's have a path alone; else where it has a column of text whose values are names of
    pictures and the like, and none of bytes. What that reader does with columns is left to it in tables without bytes:
    keys and labels from them, several as one field, and those of which a user says how keys are made. Columns that a
    pattern matches are in the order of the table.
    """
    try:
        store, name = open_object(location)
        meta = store.meta(name)
        form, fields = _fields(store, meta)
        chosen = _chosen(wanted.fields, fields)
        if wanted.key not in (*MODES, *_known(fields)):
            return None
        if chosen is None or _are_paths_alone(form, store, meta, fields, chosen):
            return None
        if not any(one.how == "bytes" for one in fields if not chosen or one.name in chosen):
            listed = wanted.key != "path" if chosen else _names_files(form, store, meta, fields)
            if listed or wanted.key not in MODES or wanted.labels == "name" or wanted.classes is not None:
                return None
    except ShardStreamError:
        return None  # the reader of lists says what is wrong with it
    return tuple(dict.fromkeys((*chosen, wanted.key))) if chosen and wanted.key not in MODES else chosen


def _fields(store: Store, meta: ObjectMeta) -> tuple[ForeignFormat, tuple[TableField, ...]]:
    data = ObjectBytes(store, meta.path, meta.size, window=64 << 10)
    if meta.path.lower().endswith(".parquet"):
        return Parquet(), all_fields(data, meta.size)
    schema = read_schema(data)
    return Arrow(), fields_of(schema.columns, features_of(schema.metadata))


def _chosen(rules: Sequence[FieldRule], fields: Sequence[TableField]) -> tuple[str, ...] | None:
    """The columns that are chosen, none where only types are; ``None`` where they make a list of it."""
    known = _known(fields)
    names = [one.name for one in fields]
    found = list[str]()
    for rule in (rule.among(list(known)) for rule in rules):
        if rule is None:
            continue
        if rule.is_pattern(list(known)) and any(one.how == "bytes" for one in fields):
            found += (names[number] for number in rule.matching(names))
            continue
        one = known.get(rule.column)
        if one is None or rule.type in (FILE, NAME) or (one.how == "text" and is_path(rule)):
            return None
        found.append(rule.column)
    return tuple(dict.fromkeys(found))


def _known(fields: Sequence[TableField]) -> dict[str, TableField]:
    """Fields by their names, and by those of their columns."""
    return {one.source[0]: one for one in fields if len(one.source) == 1} | {one.name: one for one in fields}


def _are_paths_alone(
    form: ForeignFormat, store: Store, meta: ObjectMeta, fields: Sequence[TableField], chosen: Sequence[str]
) -> bool:
    """Whether files of Hugging Face's are in no row, of the first ones, but only where they are."""
    beside = {one.source[:-1] for one in fields if one.beside}
    files = [one.name for one in fields if one.how in ("bytes", "nothing") and one.source[:-1] in beside]
    files = [name for name in files if not chosen or name in chosen]
    if not files:
        return False
    rows, _ = _first_piece(form, store, meta, files)
    return rows is not None and not rows.columns


def _names_files(form: ForeignFormat, store: Store, meta: ObjectMeta, fields: Sequence[TableField]) -> bool:
    """Whether the first texts of a column are names of files."""
    texts = [one.name for one in fields if one.how == "text" and not one.beside]
    if not texts:
        return False
    rows, shows = _first_piece(form, store, meta, texts)
    return rows is not None and names_files(_texts(rows, shows, meta.path))


def _first_piece(
    form: ForeignFormat, store: Store, meta: ObjectMeta, names: Sequence[str]
) -> tuple[ScannedRows | None, Store]:
    """The first samples with these fields alone, and the store that they lie in."""
    found = form.recognise(ObjectListing(store, [meta], named=True, chosen={name: name for name in names}), {})
    if found is None:
        return None, store
    shows, data, _ = shown(form, store, found.objects[0])
    return next(iter(form.scan(data, found.objects[0].about)), None), shows


def _texts(rows: ScannedRows, store: Store, path: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{} for _ in rows.keys[:_LOOKED_AT]]
    for column in rows.columns:
        there = [row for row in range(len(found)) if column.has(row)]
        places = (one.tolist() for one in column.extents(np.array(there, np.int64)))
        for row, offset, length in zip(there, *places, strict=True):
            found[row][column.name] = str(store.get(path, offset, length), "utf-8", "replace") if length else ""
    return found
