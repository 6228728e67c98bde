"""``open_source``: what somebody wants packed, by what lies there; and what its name alone says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from shardstream.dataset.lists.compressed import is_archive
from shardstream.errors import FormatError, NotFoundError, PlaceholderError, SourceError, StorageError, UsageError
from shardstream.formats.blocks.found_blocks import OR_PACK
from shardstream.formats.catalog.places import rooted
from shardstream.formats.sources.containers import (
    first_table,
    is_streamed,
    is_tar,
    look_into,
    may_be_foreign,
    may_be_rows,
    may_match_containers,
    named_files,
    names_containers,
)
from shardstream.formats.sources.foreign import ForeignSource, SourceReading
from shardstream.formats.sources.packages import PackageSource, open_package
from shardstream.formats.sources.table_rows import TableRows, rows_of_table
from shardstream.images.formats import BY_SUFFIX
from shardstream.names.globs import split_glob
from shardstream.names.missing import instead_of
from shardstream.pack.sources.base import Source, StreamSource
from shardstream.pack.sources.folders import FolderSource, Group
from shardstream.pack.sources.listings import FileListing
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.labels import Classes, LabelMode
from shardstream.pack.sources.lists.mapping import parse_fields, types_alone
from shardstream.pack.sources.lists.mpdataset import LIST_OF_MPDATASET
from shardstream.pack.sources.lists.source import ListSource, is_mpdataset, open_rows, open_text_list, suffix_of
from shardstream.pack.sources.lists.table_fields import JSON
from shardstream.pack.sources.lists.tables import TABLES, open_tables
from shardstream.pack.sources.numbered import numbered
from shardstream.pack.sources.paths import scheme_of
from shardstream.pack.sources.python import python_source
from shardstream.pack.sources.tars import TarSource, tar_paths
from shardstream.shards.heads import is_no_data_set
from shardstream.storage import Location, locate, open_object
from shardstream.storage.base.location import Access
from shardstream.storage.base.placeholders import placeholder_in

_LOOKED_AT = 64  # files that may be placeholders, where nothing can be packed
_PICTURES = {f".{suffix}" for suffix in BY_SUFFIX}


def open_source(
    source: Any,
    *,
    key: str = "path",
    labels: LabelMode | None = None,
    fields: Mapping[str, str] | None = None,
    group: Group = "file",
    classes: Classes | None = None,
    reading: SourceReading | None = None,
    access: Access | None = None,
) -> Source | StreamSource:
    """The source at a path or URL, by what lies there (a list, a folder, files that match a pattern), or an object.

    Args:
        source: A path or URL, or a pattern of such (``data/**/*.jpg``); or samples from Python.
        key: How keys are made, see `KeyRule`.
        labels: ``"int"`` or ``"name"``; ``None`` means integers for lists and names for class folders.
        fields: Column by field, see `parse_fields`; default: path and label. Types alone for any source.
        group: ``"stem"``: files of one folder that share the name before its first dot are one sample.
        classes: The classes that names are looked up in. Default: those that are found, in sorting order.
        reading: How it is read. Default: data of another library as they are recognised.
        access: How the store that the source lies in is reached. Default: as the environment says.

    Raises:
        SourceError: There is nothing, or nothing that can be packed.
        UsageError: Arguments that do not go with this source.
    """
    if isinstance(source, Source | StreamSource):
        return source
    reading = reading or SourceReading()
    wanted = Wanted(
        key,
        labels or "int",
        parse_fields(fields),
        other_origins=reading.allow_other_origins,
        classes=classes,
        said=labels is not None,
        root=(reading.options or {}).get("root"),
    )
    access = access or Access()
    try:
        found = _opened(source, wanted, labels, group, reading, access)
    except (SourceError, FormatError) as error:
        placeholder = _placeholder(source, partial(_location, access))
        raise error if placeholder is None else placeholder from error
    if not isinstance(found, ListSource | ForeignSource | PackageSource):
        found.declared = types_alone(wanted.fields)
    return numbered(found) if isinstance(found, Source) else found


def _opened(
    source: Any, wanted: Wanted, labels: LabelMode | None, group: Group, reading: SourceReading, access: Access
) -> Source | StreamSource:
    """The source, whose keys may be equal yet."""
    if not isinstance(source, str | os.PathLike):
        _refuse_columns(wanted, group)
        if reading.format is not None:
            raise UsageError("source_format= is for files, and not for samples", hint="leave it out")
        return python_source(source, key=wanted.key, classes=wanted.classes)
    text = os.fsdecode(source)
    at = partial(_location, access)
    if is_tar(text) and not os.path.isdir(text):
        paths = tar_paths(text)
        if is_streamed(paths, at):
            _refuse_columns(wanted, group)
            return TarSource(text, [at(path) for path in paths], key=wanted.key, classes=wanted.classes)
    package = open_package(text, wanted, reading.format, at)
    if package is not None:
        if group != "file":
            raise UsageError("group='stem' is for folders of files", hint="leave it out", url=text)
        return package
    listing = None if names_containers(text) and not os.path.isdir(text) else _listing(text, at)
    try:
        foreign = _foreign(text, listing, wanted, group, reading, at)
    except FormatError as error:
        if not (OR_PACK in (error.hint or "") and listing is None and may_be_rows(text, wanted)):
            raise
        return open_rows(at(text), wanted)
    if foreign is not None:
        return foreign
    if listing is not None and suffix_of(listing.pattern or "") in TABLES:
        return _tables(text, _matches(listing), wanted, group, reading, at)
    if listing is not None and listing.pattern is None and group == "file" and is_mpdataset(listing.root):
        return open_text_list(listing.root.join(LIST_OF_MPDATASET), wanted)
    if listing is not None:
        return FolderSource(
            listing,
            key=wanted.key,
            group=group,
            labels=labels,
            classes=wanted.classes,
            split_names=reading.split_names,
        )
    if group != "file":
        raise UsageError("group='stem' is for folders", hint="a list has a column for each file: --field", url=text)
    location = at(text)
    if location.local and not os.path.exists(location.url):
        raise SourceError("there is no such list or folder", url=location.url, hint=instead_of(location.url))
    picture = suffix_of(location.url) in _PICTURES
    if picture or is_archive(location.url):
        raise SourceError(
            f"{'a single image' if picture else 'an archive'} cannot be packed",
            url=location.url,
            hint="pass a list (path<TAB>label a line, or csv; it may be compressed: list.csv.gz), or a folder",
        )
    if suffix_of(location.url) in TABLES:
        return _tables(text, [location], wanted, group, reading, at)
    return open_text_list(location, wanted)


def _placeholder(source: Any, at: Callable[[str], Location]) -> PlaceholderError | None:
    """The first placeholder among the files of a path or URL, of which some are looked at."""
    if not isinstance(source, str | os.PathLike):
        return None
    text = os.fsdecode(source)
    with suppress(StorageError):
        listing = _listing(text, at)
        places = [at(text)] if listing is None else map(listing.root.join, look_into(listing.root).names[:_LOOKED_AT])
        for place in places:
            store, name = open_object(place)
            if (found := placeholder_in(store, name, store.size(name))) is not None:
                return found
    return None


def _foreign(
    text: str,
    listing: FileListing | None,
    wanted: Wanted,
    group: Group,
    reading: SourceReading,
    at: Callable[[str], Location],
) -> ForeignSource | None:
    """Data of another library; ``None`` where this is a list, or a folder of files."""
    folder = listing is not None and listing.pattern is None
    look = lru_cache(lambda: look_into(at(text) if listing is None else listing.root))  # once, and where it is needed
    # COCO, or a data.yaml of YOLO.
    perhaps = may_be_rows(text, wanted) or (listing is None and suffix_of(text) in (".json", ".yaml", ".yml"))
    rows: TableRows | None = None
    if reading.format is None:
        if listing is not None and group == "file" and (table := first_table(listing, look)) is not None:
            rows = rows_of_table(listing.root.join(table), wanted)
        if rows is None:
            if listing is not None and listing.pattern is None:
                likely = group == "file" and may_be_foreign(listing.root, look())
            else:
                likely = names_containers(text) or perhaps or bool(listing and may_match_containers(listing, look))
            if not likely:
                return None
    if group != "file":
        raise UsageError("group='stem' is for folders of files", hint="leave it out", url=text)
    root, names = (at(text), ()) if folder else named_files(text, at)
    if names and "root" in (reading.options or {}):
        place, names, options = rooted(root.url, names, reading.options)
        root, reading = at(os.fspath(place)), replace(reading, options=options)  # type: ignore[arg-type] # text as given
    try:
        if rows is not None:
            return _row_source(root, names, reading, rows)
        return ForeignSource(root, names, reading, wanted)
    except NotFoundError as error:
        if not is_no_data_set(error):
            raise
        if listing is not None or perhaps:
            return None  # whoever lists it refuses what holds many samples
        hint = "--source-format (source_format=) says which it is; docs/foreign.md has those that are read"
        raise SourceError("these files are of no format that is known", url=text, hint=hint) from error


def _tables(
    text: str,
    locations: Sequence[Location],
    wanted: Wanted,
    group: Group,
    reading: SourceReading,
    at: Callable[[str], Location],
) -> Source | StreamSource:
    """Parquet or Arrow files: their rows, or the files that they list."""
    rows = rows_of_table(locations[0], wanted) if group == "file" else None
    if rows is None:
        return open_tables(locations, wanted)
    root, names = named_files(text, at)
    return _row_source(root, names, reading, rows)


def _row_source(root: Location, names: tuple[str, ...], reading: SourceReading, rows: TableRows) -> ForeignSource:
    """The rows of tables."""
    if rows.columns:  # their catalog is kept for these columns, whichever of them were JSON the last time
        options = dict(reading.options or {})
        whole = ",".join(filter(None, (options.get(JSON), *rows.whole)))
        reading = replace(reading, options=options | ({JSON: whole} if whole else {}))
    return ForeignSource(root, names, reading, rows.wanted, rows.columns)


def _refuse_columns(wanted: Wanted, group: Group) -> None:
    """Refuse arguments that are about columns, and files of one name, where there is neither; UsageError."""
    if group != "file" or any(rule.declared is None for rule in wanted.fields):
        raise UsageError(
            "columns in fields= and group= are for lists and folders",
            hint='a type alone is for all, fields={"tokens": "array:uint16"}; transform= changes samples',
        )


def roots(source: Any) -> list[str]:
    """Where a source lies, as far as a path or URL says so: the local path, or the bucket or container of a URL."""
    if not isinstance(source, str | os.PathLike):
        return []
    text = os.fsdecode(source)
    # The container stands first in the path of some URLs; what follows may be a pattern.
    return ["/".join(text.partition("?")[0].split("/")[:4]) if "://" in text else text]


def names_urls(source: Any) -> bool:
    """Whether a source may name files behind URLs, wherever it lies itself: a list, or one of somebody's own."""
    if not isinstance(source, str | os.PathLike):
        return isinstance(source, Source | StreamSource)
    text = os.fsdecode(source)
    if os.path.isdir(text) or names_containers(text):
        return False
    return os.path.lexists(text) or split_glob(text) is None or suffix_of(text) in TABLES


def _location(access: Access, place: str) -> Location:
    return locate(place, storage_options=access.options, transport=access.transport)


def _matches(listing: FileListing) -> list[Location]:
    found = [listing.root.join(entry.path) for entry in listing.entries()]
    if not found:
        raise SourceError("no file matches the pattern", url=listing.url)
    return found


def _listing(text: str, at: Callable[[str], Location]) -> FileListing | None:
    """What is to be listed, if this is not a list."""
    web = scheme_of(text) in ("http", "https")
    chosen = None if web or os.path.lexists(text) else split_glob(text)
    if chosen is not None:
        return FileListing(at(chosen[0]), chosen[1])
    location = at(text)
    if location.local:
        folder = os.path.isdir(location.url)
    elif web:
        folder = False  # a web server lists nothing
    elif text.endswith("/"):
        folder = True
    else:
        folder = not suffix_of(location.url) and not (location.address.prefix and _is_object(location))
    return FileListing(location) if folder else None


def _is_object(location: Location) -> bool:
    store, name = open_object(location)
    return store.exists(name)
