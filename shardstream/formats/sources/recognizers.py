"""Recognizers of sources in the formats of other libraries, in the order in which they are asked.

Sources themselves are imported when one is recognized: most directories and lists are none of these.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardstream.errors import FormatError, NotFoundError, SourceError, UsageError
from shardstream.formats.blocks.compressed import plain_start
from shardstream.formats.blocks.found_blocks import OR_PACK
from shardstream.formats.catalog.places import rooted
from shardstream.formats.files.layouts import LISTS, layout_of_directory, layout_of_list, needs_all_names
from shardstream.formats.sources.containers import (
    TABLES,
    first_table,
    may_be_foreign,
    may_be_rows,
    may_match_containers,
    named_files,
    names_containers,
)
from shardstream.formats.sources.packages import open_package
from shardstream.pack.sources.base import Source, SourceReading, StreamSource
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.json_rows import rows_of
from shardstream.pack.sources.lists.mapping import FieldRule
from shardstream.pack.sources.lists.source import ListSource, open_text_list, suffix_of
from shardstream.pack.sources.paths import scheme_of
from shardstream.pack.sources.recognizers import Place, Recognizer
from shardstream.shards.field_names import usable_field
from shardstream.shards.heads import is_no_data_set
from shardstream.storage import Location, open_object, open_store

if TYPE_CHECKING:
    from shardstream.formats.sources.foreign import ForeignSource
    from shardstream.formats.sources.table_rows import TableRows

_START = 4 << 20  # bytes of JSON lines whose rows tell the columns
_DESCRIPTIONS = (".json", ".yaml", ".yml")  # COCO, or a data.yaml of YOLO


class PackageDatasets(Recognizer):
    """Datasets that only their own packages read: Zarr, Lance, and ArrayRecord."""

    def recognize(self, place: Place, wanted: Wanted) -> Source | StreamSource | None:
        found = open_package(place.text, wanted, place.reading.format, place.locate)
        if found is not None:
            _refuse_groups(place)
        return found


class Layouts(Recognizer):
    """Lists beside directories of files: imagefolder, Kaggle, Common Voice, LJSpeech, LibriSpeech."""

    def recognize(self, place: Place, wanted: Wanted) -> Source | StreamSource | None:
        reading, listing = place.reading, place.listing
        if place.reading.group != "file" or reading.format is not None or reading.options or wanted.other_origins:
            return None
        if listing is not None and place.is_directory:
            root, names = listing.root, place.look.names
            if not place.look.whole and needs_all_names(names):
                names = [entry.path for entry in listing.entries()]
            found = layout_of_directory(open_store(root), names, split_names=reading.split_names)
        elif listing is None and not wanted.fields and _is_list(place):
            root, (name,) = named_files(place.text, place.locate)
            found = layout_of_list(open_store(root), name)
        else:
            return None
        if found is None:
            return None
        from shardstream.formats.sources.layouts import LayoutSource

        return LayoutSource(root, found, wanted)


class ExternalDatasets(Recognizer):
    """Datasets of other libraries that are read in place, and rows of tables and of JSON lines."""

    def recognize(self, place: Place, wanted: Wanted) -> Source | StreamSource | None:
        try:
            return self._dataset(place, wanted)
        except FormatError as error:
            if OR_PACK in (error.hint or "") and place.listing is None and may_be_rows(place.text, wanted):
                return _rows_in_order(place.location, wanted)  # compressed so that it can only be read in order
            raise

    def _dataset(self, place: Place, wanted: Wanted) -> ForeignSource | None:
        text, reading = place.text, place.reading
        perhaps = may_be_rows(text, wanted) or (place.listing is None and suffix_of(text) in _DESCRIPTIONS)
        rows = None
        if reading.format is None:
            rows = _rows_of_tables(place, wanted)
            if rows is None and not _is_likely(place, perhaps):
                return None
        _refuse_groups(place)
        root, names = (place.location, ()) if place.is_directory else named_files(text, place.locate)
        if names and "root" in (reading.options or {}):
            above, names, options = rooted(root.url, names, reading.options)
            root, reading = place.locate(os.fspath(above)), replace(reading, options=options)  # type: ignore[arg-type] # text as given
        try:
            if rows is not None:
                return _row_source(root, names, reading, rows)
            return _external_source(root, names, reading, wanted)
        except NotFoundError as error:
            if not is_no_data_set(error):
                raise
            if place.listing is not None or perhaps:
                return None  # the source that lists it refuses files that hold many samples
            which = "--source-format (reading=SourceOptions(format=...)) says which it is"
            hint = f"{which}; docs/foreign.md has those that are read"
            raise SourceError("these files are of no format that is known", url=text, hint=hint) from error


class Tables(Recognizer):
    """Parquet and Arrow files, whose rows are samples or name files."""

    def recognize(self, place: Place, wanted: Wanted) -> Source | StreamSource | None:
        files = _tables(place)
        if not files:
            return None
        from shardstream.formats.sources.table_rows import rows_of_table
        from shardstream.formats.sources.tables import open_tables

        rows = rows_of_table(files[0], wanted) if place.reading.group == "file" else None
        if rows is None:
            return open_tables(files, wanted)
        root, names = named_files(place.text, place.locate)
        return _row_source(root, names, place.reading, rows)


RECOGNIZERS: Sequence[Recognizer] = (PackageDatasets(), Layouts(), ExternalDatasets(), Tables())


def _rows_in_order(location: Location, wanted: Wanted) -> ListSource:
    """JSON lines whose rows are samples, read as a list with all columns of its first rows."""
    store, name = open_object(location)
    start = bytes(store.get(name, 0, min(_START, store.size(name))))
    rows = rows_of(plain_start(start, _START), whole=False).rows
    columns = {usable_field(column): column for row in rows for column in row}
    rules = tuple(FieldRule(field, column, None, column) for field, column in columns.items())
    key = wanted.key if wanted.key not in ("path", "stem", "auto") else "line"
    return open_text_list(location, replace(wanted, key=key, fields=rules))


def _is_list(place: Place) -> bool:
    """Whether a list is named, in a place that tells what is beside it."""
    web = scheme_of(place.text) in ("http", "https")
    there = not place.location.local or os.path.exists(place.location.url)
    return place.text.lower().endswith(LISTS) and there and not web


def _refuse_groups(place: Place) -> None:
    if place.reading.group != "file":
        raise UsageError("group='stem' is for folders of files", hint="leave it out", url=place.text)


def _is_likely(place: Place, perhaps: bool) -> bool:
    """Whether names tell that it may be a dataset of another library, so that it is worth a closer look.

    Args:
        place: The source.
        perhaps: Whether the name of a file is that of a text file that some library writes.
    """
    listing = place.listing
    if listing is not None and place.is_directory:
        return place.reading.group == "file" and may_be_foreign(listing.root, place.look)
    if names_containers(place.text) or perhaps:
        return True
    return listing is not None and may_match_containers(listing, lambda: place.look)


def _rows_of_tables(place: Place, wanted: Wanted) -> TableRows | None:
    """How the rows of a directory of tables become samples; ``None`` if its files are others, or lists."""
    if place.listing is None or place.reading.group != "file":
        return None
    table = first_table(place.listing, lambda: place.look)
    if table is None:
        return None
    from shardstream.formats.sources.table_rows import rows_of_table

    return rows_of_table(place.listing.root.join(table), wanted)


def _tables(place: Place) -> list[Location]:
    """The tables that a path, URL, or pattern names; a file that isn't there is left to the recognizer of lists."""
    listing = place.listing
    if listing is None:
        location = place.location
        there = place.reading.group == "file" and not (location.local and not os.path.exists(location.url))
        return [location] if there and suffix_of(location.url) in TABLES else []
    if suffix_of(listing.pattern or "") not in TABLES:
        return []
    found = [listing.root.join(entry.path) for entry in listing.entries()]
    if not found:
        raise SourceError("no file matches the pattern", url=listing.url)
    return found


def _external_source(
    root: Location, names: tuple[str, ...], reading: SourceReading, wanted: Wanted, columns: tuple[str, ...] = ()
) -> ForeignSource:
    from shardstream.formats.sources.foreign import ForeignSource

    return ForeignSource(root, names, reading, wanted, columns)


def _row_source(root: Location, names: tuple[str, ...], reading: SourceReading, rows: TableRows) -> ForeignSource:
    """The rows of tables."""
    from shardstream.formats.sources.table_fields import JSON

    if rows.columns:  # their catalog is kept for these columns, whichever of them were JSON the last time
        options: Mapping[str, str] = dict(reading.options or {})
        whole = ",".join(filter(None, (options.get(JSON), *rows.whole)))
        reading = replace(reading, options={**options, **({JSON: whole} if whole else {})})
    return _external_source(root, names, reading, rows.wanted, rows.columns)
