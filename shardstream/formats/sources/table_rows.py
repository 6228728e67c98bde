"""Whether the rows of a Parquet or Arrow file are samples, or a list of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shardstream.errors import ShardStreamError
from shardstream.formats.arrow.columns import TableField
from shardstream.formats.contract import ObjectListing, SourceFormat, shown
from shardstream.formats.jsonl.first_rows import names_files
from shardstream.formats.scans.rows import ScannedRows
from shardstream.formats.sources.table_fields import choose_columns, name_of, table_fields
from shardstream.pack.sources.keys import MODES
from shardstream.pack.sources.lists.chosen import FILE
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.mapping import NAME, FieldRule, is_path
from shardstream.pack.sources.values import is_picture_name
from shardstream.storage import Location, Store, open_object
from shardstream.storage.base.store import ObjectMeta

_LOOKED_AT = 64  # rows


class TableRows(NamedTuple):
    """A table whose rows are samples.

    Attributes:
        wanted: What the user says, in terms of the fields that the reader in place gives.
        columns: The only fields that are read, in their order; empty for all.
        whole: Structs that are taken as JSON.
    """

    wanted: Wanted
    columns: tuple[str, ...]
    whole: tuple[str, ...]


def rows_of_table(location: Location, wanted: Wanted) -> TableRows | None:
    """How the rows of a table become samples; ``None`` for a list of files.

    It is a list of files if a chosen field is the content of a file, or a column of images has paths alone, or no
    field is chosen and a column of text has the names of files beside no column of bytes. Keys and labels make no
    difference: values come from the reader in place.

    Raises:
        UsageError: See `choose_columns`.
    """
    try:
        store, name = open_object(location)
        meta = store.meta(name)
        form, fields = table_fields(store, meta)
    except ShardStreamError:
        return None  # the reader of lists says what is wrong with it
    known = {one.source[0]: one for one in fields if len(one.source) == 1} | {one.name: one for one in fields}
    if wanted.key not in (*MODES, *known):
        return None  # the same
    rules, whole = choose_columns(wanted.fields, fields)
    columns = _columns(rules, whole, fields)
    try:
        if columns is None or _are_paths_alone(form, store, meta, fields, columns):
            return None
        if _names_files(form, store, meta, fields, rules):
            return None
    except ShardStreamError:
        return None  # the same
    if wanted.key not in MODES:
        key = name_of(known[wanted.key]) if columns else known[wanted.key].name
        wanted = replace(wanted, key=key)
        columns = tuple(dict.fromkeys((*columns, key))) if columns else ()
    return TableRows(replace(wanted, fields=rules), columns, whole)


def _columns(rules: Sequence[FieldRule], whole: Sequence[str], fields: Sequence[TableField]) -> tuple[str, ...] | None:
    """The fields that are chosen, none where only types are; ``None`` where they make a list of it."""
    known = {name_of(one): one for one in fields}
    names = [*known, *whole]
    found = list[str]()
    for rule in (rule.among(names) for rule in rules):
        if rule is None:
            continue
        if rule.is_pattern(names):
            matching = [name for name in known if rule.matching([name])]
            if not matching:
                return tuple(known)  # so that the error names them all
            found += matching
            continue
        one = known.get(rule.column)
        if one is None and rule.column not in whole:
            return None
        if rule.type in (FILE, NAME) or (one is not None and one.how == "text" and is_path(rule)):
            return None
        found.append(rule.column)
    return tuple(dict.fromkeys(found))


def _are_paths_alone(
    form: SourceFormat, store: Store, meta: ObjectMeta, fields: Sequence[TableField], chosen: Sequence[str]
) -> bool:
    """Whether files of Hugging Face's are in no row, of the first ones, but only where they are."""
    beside = {one.source[:-1] for one in fields if one.beside}
    files = [one.name for one in fields if one.how in ("bytes", "nothing") and one.source[:-1] in beside]
    files = [name for name in files if not chosen or name in chosen]
    if not files:
        return False
    rows, _ = _first_piece(form, store, meta, files)
    return rows is not None and not rows.columns


def _names_files(
    form: SourceFormat, store: Store, meta: ObjectMeta, fields: Sequence[TableField], rules: Sequence[FieldRule]
) -> bool:
    """Whether the first texts that would be samples are names of files."""
    texts = [one.name for one in fields if one.how == "text" and not one.beside]
    if rules:  # text is text if it is chosen, but not under the name of an image
        meant = {rule.column for rule in rules if rule.type is None and is_picture_name(rule.name)}
        texts = [name for name in texts if name in meant]
    elif any(one.how == "bytes" for one in fields):
        return False
    if not texts:
        return False
    rows, shows = _first_piece(form, store, meta, texts)
    return rows is not None and names_files(_texts(rows, shows, meta.path))


def _first_piece(
    form: SourceFormat, store: Store, meta: ObjectMeta, names: Sequence[str]
) -> tuple[ScannedRows | None, Store]:
    """The first samples with these fields alone, and the store that they lie in."""
    found = form.recognize(ObjectListing(store, [meta], named=True, chosen={name: name for name in names}), {})
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
