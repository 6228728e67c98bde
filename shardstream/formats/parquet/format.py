"""Parquet: values that are written plainly are read where they lie, others in blocks of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from shardstream.errors import DecodeError, FormatError, UnsupportedError
from shardstream.formats.arrow.columns import NUMBERED, check_json
from shardstream.formats.arrow.format import npy_of_rows
from shardstream.formats.blocks import BlockList
from shardstream.formats.blocks.found_blocks import FoundBlocks
from shardstream.formats.blocks.parquet.pages import is_sound
from shardstream.formats.contract import Form, ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.parquet.columns import ColumnValues, column_of, joined
from shardstream.formats.parquet.fields import (
    ColumnField,
    PageBlock,
    all_fields,
    beside_of,
    classes_in,
    fields_in,
)
from shardstream.formats.parquet.footer import ENCRYPTED, MAGIC, Footer, Group
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, ScannedRows, numbered_keys, pieces

SUFFIXES = (".parquet", ".pq", ".parq")
_FEW = 64  # bytes of a row group for each of its rows, which no image has
_HELD = 64 << 20  # bytes of blocks that are kept since they had to be made
_TABLES = {"_delta_log/": "Delta Lake", "metadata/": "Iceberg"}


class Parquet(SourceFormat):
    """Tables whose rows are samples."""

    name: ClassVar[str] = "parquet"
    title: ClassVar[str] = "Parquet"
    tables: ClassVar[bool] = True
    options: ClassVar[Mapping[str, str]] = {
        "json": "columns to take as JSON, with commas between: structs, and lists of numbers of which some are missing"
    }
    forms: ClassVar[Mapping[str, Form]] = {"rows": npy_of_rows}

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        found = listing.only(*SUFFIXES)
        if not found:
            return None
        first = listing.first_that(found, lambda start: start.startswith((MAGIC, ENCRYPTED)))
        if first is None:
            return None
        _refuse_tables(listing)
        chosen = sorted({text.partition(":")[0] for text in listing.chosen.values()})
        names = [one.strip() for one in options.get("json", "").split(",") if one.strip()]
        about: dict[str, Any] = {"chosen": chosen} | ({"json": names} if names else {})
        objects = tuple(SourceObject(one.path, one.size, {"size": one.size, **about}) for one in found)
        classes, notes = _told(ObjectBytes(listing.store, first.path, first.size), objects[found.index(first)].about)
        return Recognized(objects, classes, notes)

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        footer = Footer(data, about["size"])
        fields = fields_in(data, footer, about)
        out = BlockList()
        out.add("none", 0, data.size, data.size)
        held: dict[int, memoryview] = {}
        left, rows, total = _HELD, 0, sum(group.rows for group in footer.groups)
        for group in footer.groups:
            try:
                found = [block for one in fields for block in _blocks_of(data, one, footer, group)]
            except UnsupportedError:
                raise
            except DecodeError:
                break  # `scan` says so, when it comes there
            for block in found:
                if block.made is not None and len(block.made) <= left:
                    left -= len(block.made)
                    held[len(out)] = block.made
                _add(out, block, data)
            rows += group.rows
            data.reached(rows / max(total, 1))
        return FoundBlocks(out.of(data.size), more=held) if len(out) > 1 else None

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        file = data.first(about["size"])  # what reads ahead in it makes no blocks
        footer = Footer(file, about["size"])
        fields = fields_in(file, footer, about)
        base, row = about["size"], 0
        waiting: list[list[ColumnValues]] = [[] for _ in fields]
        rows = 0
        for group in footer.groups:
            for number, one in enumerate(fields):
                try:
                    found, base = one.values(file, footer, group, data, base)
                except UnsupportedError as error:
                    raise _unsupported(data, one, error) from error
                except DecodeError as error:
                    what = f"column {'.'.join(one.field.source)!r} of the rows from {row + rows} on: {error.what}"
                    raise data.damaged(what, 0) from error
                waiting[number].append(found)
            rows += group.rows
            if rows >= PIECE or group is footer.groups[-1]:
                yield from _given(data, fields, [joined(one) for one in waiting], row, rows)
                row, rows, waiting = row + rows, 0, [[] for _ in fields]

    def announced(self, data: ObjectBytes, about: Mapping[str, Any]) -> int | None:
        return sum(group.rows for group in Footer(data, about["size"]).groups)

    def checksums(self, one: SourceObject) -> str:
        return "CRC-32 of pages, where it was written"

    def differences(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[FormatError]:
        data = data.first(about["size"])
        footer = Footer(data, about["size"])
        for group in footer.groups:
            for one in fields_in(data, footer, about):
                for leaf in range(one.node.first, one.node.first + one.node.leaves):
                    for page in footer.chunk(group, leaf).pages(data):
                        if not is_sound(page, data.get(page.body, page.stored)):
                            yield data.damaged(f"a page of column {one.name!r} is not that of its CRC-32", page.at)


def _blocks_of(data: ObjectBytes, one: ColumnField, footer: Footer, group: Group) -> Iterator[PageBlock]:
    try:
        yield from one.blocks(data, footer, group)
    except UnsupportedError as error:
        raise _unsupported(data, one, error) from error


def _unsupported(data: ObjectBytes, one: ColumnField, error: UnsupportedError) -> UnsupportedError:
    what = f"column {'.'.join(one.field.source)!r} cannot be read: {error.what}"
    return UnsupportedError(what, url=data.url, field=one.name, hint=error.hint)


def _refuse_paths(data: ObjectBytes, footer: Footer, fields: Sequence[ColumnField], about: Mapping[str, Any]) -> None:
    """Refuse images and the like of which only the paths are stored, by the first row group."""
    beside = beside_of(footer)
    if not footer.groups or not beside:
        return
    group = footer.groups[0]
    known = {one.name: one for one in fields}
    for path in fields_in(data, footer, {**about, "chosen": beside}):
        told = known.get(path.name.removesuffix(".path"))
        if told is None or path.field.how == "nothing" or _has_values(data, told, footer, group):
            continue
        if _has_values(data, path, footer, group):
            what = f"column {path.field.source[0]!r} has only the paths of files, and not what is in them"
            hint = "`shardstream pack` stores the files; or leave it out: fields={'NAME': 'COLUMN'} names those to take"
            raise UnsupportedError(what, url=data.url, field=told.name, hint=hint)


def _has_values(data: ObjectBytes, one: ColumnField, footer: Footer, group: Group) -> bool:
    """Whether a row of a row group has a value of bytes or text; a chunk that is large does."""
    if one.field.how == "nothing":
        return False
    chunk = footer.chunk(group, one.node.first)
    if chunk.end - chunk.begin > _FEW * (1 + group.rows):
        return True
    try:
        found, _ = one.values(data, footer, group, data, data.size)
    except DecodeError:
        return True  # its scan says what is wrong
    return bool(found.has.any())


def _refuse_tables(listing: ObjectListing) -> None:
    """Refuse tables of which not every file counts; UnsupportedError."""
    for path in (one.path for one in listing.everything):
        for folder, name in _TABLES.items():
            if path.startswith(folder) and path.endswith(".json"):
                what = f"this is a table of {name}, of which some files may count no more"
                hint = "write the rows that count into Parquet files alone, or name the files by a glob"
                raise UnsupportedError(what, url=listing.url, hint=hint)


def _told(data: ObjectBytes, about: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Names of the classes, and what a user should know, as the first file says them.

    Raises:
        FormatError: It cannot be read; but not where it is damaged, which its scan says.
        UsageError: There is no such column of lists as are to be JSON.
    """
    try:
        footer = Footer(data, data.size)
        fields = fields_in(data, footer, about)
    except UnsupportedError:
        raise
    except FormatError:
        return None, ()
    check_json([one.field for one in fields], about.get("json", ()), data.url)
    _refuse_paths(data, footer, fields, about)
    classes = classes_in(fields)
    beside = [one for one in all_fields(data, data.size) if one.beside]
    return classes, (NUMBERED.format(beside[0].name),) if beside else ()


def _add(out: BlockList, block: PageBlock, data: ObjectBytes) -> None:
    try:
        out.add("parquet", block.begin, block.end - block.begin, block.size, setting=block.setting)
    except ValueError as error:
        raise data.unsupported(str(error), block.begin, hint="write the file again with smaller row groups") from error


def _given(
    data: ObjectBytes, fields: Sequence[ColumnField], found: Sequence[ColumnValues], first: int, count: int
) -> Iterator[ScannedRows]:
    """The samples of some row groups, in pieces."""
    for begin, end in pieces(count):
        columns = (
            column_of(one.field, one.codec, values, begin, end) for one, values in zip(fields, found, strict=True)
        )
        kept = tuple(column for column in columns if column is not None)
        yield ScannedRows(numbered_keys(data.path, first + begin, end - begin), kept)
