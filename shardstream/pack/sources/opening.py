"""``open_source``: the source that a user wants packed; and what its name alone tells."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from shardstream.errors import FormatError, PlaceholderError, SourceError, StorageError
from shardstream.names.globs import split_glob
from shardstream.pack.sources.base import Source, SourceReading, StreamSource
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.labels import Classes, LabelMode
from shardstream.pack.sources.lists.mapping import parse_fields
from shardstream.pack.sources.look import look_into
from shardstream.pack.sources.numbered import numbered
from shardstream.pack.sources.recognizers import Place, list_place, recognizers, source_formats
from shardstream.storage import open_object
from shardstream.storage.base.location import Access
from shardstream.storage.base.placeholders import placeholder_in

_LOOKED_AT = 64  # files that may be placeholders, where nothing can be packed


def open_source(
    source: Any,
    *,
    key: str = "path",
    labels: LabelMode | None = None,
    fields: Mapping[str, str] | None = None,
    classes: Classes | None = None,
    reading: SourceReading | None = None,
    access: Access | None = None,
) -> Source | StreamSource:
    """Open what a user wants packed, with the first recognizer that takes it.

    Args:
        source: A path or URL, or a pattern of such (``data/**/*.jpg``); or samples from Python.
        key: How keys are made, see `KeyRule`.
        labels: ``"int"`` or ``"name"``; ``None`` means integers for lists and names for class folders.
        fields: Column by field, see `parse_fields`; default: path and label. Types alone for any source.
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
    place = Place(source, reading, access or Access())
    try:
        answers = (one.recognize(place, wanted) for one in recognizers())
        found = next(answer for answer in answers if answer is not None)
    except (SourceError, FormatError) as error:
        placeholder = _placeholder(place)
        raise error if placeholder is None else placeholder from error
    return numbered(found) if isinstance(found, Source) else found


def _placeholder(place: Place) -> PlaceholderError | None:
    """The first placeholder among the files of a path or URL, of which some are looked at."""
    if not place.is_named:
        return None
    with suppress(StorageError):
        listing = list_place(place)
        if listing is None:
            files = [place.location]
        else:
            files = [listing.root.join(name) for name in look_into(listing.root).names[:_LOOKED_AT]]
        for file in files:
            store, name = open_object(file)
            if (found := placeholder_in(store, name, store.size(name))) is not None:
                return found
    return None


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
    if os.path.isdir(text) or source_formats().names_containers(text):
        return False
    return os.path.lexists(text) or split_glob(text) is None or source_formats().is_table(text)
