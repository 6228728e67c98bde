"""Recognizers: which source a user means, asked one after another until one of them takes it.

Recognizers of formats of other libraries are in ``formats.sources``. That package is imported when their turn comes, in
the process that plans; processes that read samples don't need it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, cast

from shardstream.dataset.lists.compressed import is_archive
from shardstream.errors import SourceError, UsageError
from shardstream.extras import built_in
from shardstream.images.formats import BY_SUFFIX
from shardstream.names.globs import split_glob
from shardstream.names.missing import instead_of
from shardstream.pack.sources.base import Source, SourceReading, StreamSource
from shardstream.pack.sources.folders import Containers, FolderSource
from shardstream.pack.sources.listings import FileListing
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.mapping import types_alone
from shardstream.pack.sources.lists.mpdataset import LIST_OF_MPDATASET
from shardstream.pack.sources.lists.path_objects import path_list
from shardstream.pack.sources.lists.source import is_mpdataset, open_text_list, suffix_of
from shardstream.pack.sources.look import Look, look_into
from shardstream.pack.sources.paths import scheme_of
from shardstream.pack.sources.python import python_source
from shardstream.pack.sources.tars import TarSource, is_streamed, is_tar, tar_paths
from shardstream.storage import Location, locate, open_object
from shardstream.storage.base.location import Access

_PICTURES = {f".{suffix}" for suffix in BY_SUFFIX}


@dataclass(frozen=True)
class Place:
    """A source as a user gives it. What is there is looked up when a recognizer first asks for it.

    Attributes:
        source: Samples from Python, or a path, URL, or pattern.
        reading: How the source is read.
        access: How its store is reached.
    """

    source: Any
    reading: SourceReading = field(default_factory=SourceReading)
    access: Access = field(default_factory=Access)

    @property
    def is_named(self) -> bool:
        """Whether it is a path, URL, or pattern."""
        return isinstance(self.source, str | os.PathLike)

    @property
    def text(self) -> str:
        """The path, URL, or pattern."""
        return os.fsdecode(self.source)

    @property
    def location(self) -> Location:
        """The file or directory that the text names, if it is no pattern."""
        return self.locate(self.text)

    @cached_property
    def listing(self) -> FileListing | None:
        """The directory, or the pattern of files; ``None`` for a list, and for files that hold many samples each."""
        if source_formats().names_containers(self.text) and not os.path.isdir(self.text):
            return None
        return list_place(self)

    @cached_property
    def look(self) -> Look:
        """Some of the names in the directory of the listing."""
        return Look((), whole=True) if self.listing is None else look_into(self.listing.root)

    @property
    def is_directory(self) -> bool:
        """Whether it is a whole directory."""
        return self.listing is not None and self.listing.pattern is None

    def locate(self, text: str) -> Location:
        """The location of a path or URL, reached as the source is."""
        return locate(text, storage_options=self.access.options).through(self.access.transport)


class Recognizer(Protocol):
    """Takes the sources of one kind."""

    def recognize(self, place: Place, wanted: Wanted) -> Source | StreamSource | None:
        """Open a source of this kind.

        Args:
            place: The source as the user gives it.
            wanted: Keys, labels, and fields as the user wants them.

        Returns:
            The source; ``None`` if it is of another kind, so that the next recognizer is asked.

        Raises:
            SourceError, UsageError: It is of this kind, and cannot be packed.
        """
        ...


class SourceFormats(Containers, Protocol):
    """The functions of ``formats.sources`` that packing calls, while it plans."""

    RECOGNIZERS: Sequence[Recognizer]

    def names_containers(self, text: str) -> bool:
        """Whether a path, URL, or pattern is called like files of another library that hold many samples."""
        ...

    def is_table(self, name: str) -> bool:
        """Whether a file, or files of a pattern, are called like tables, which may be lists."""
        ...


def source_formats() -> SourceFormats:
    """The package that knows the formats of other libraries, imported at the first call."""
    return cast("SourceFormats", built_in("sources"))


def recognizers() -> Iterator[Recognizer]:
    """All recognizers in the order in which they are asked; the last two take any path or URL."""
    yield PythonObjects()
    yield TarsInOrder()
    yield from source_formats().RECOGNIZERS
    yield from built_in("plugins").recognizers()
    yield Directories()
    yield TextLists()


class PythonObjects(Recognizer):
    """Samples from Python."""

    def recognize(self, place: Place, wanted: Wanted) -> Source | StreamSource | None:
        if place.is_named:
            return None
        _refuse_columns(place, wanted)
        if place.reading.format is not None:
            raise UsageError("reading=SourceOptions(format=...) is for files, and not for samples", hint="leave it out")
        paths, samples = path_list(place.source, wanted)
        if paths is not None:
            return paths
        return _declared(python_source(samples, key=wanted.key, classes=wanted.classes), wanted)


class TarsInOrder(Recognizer):
    """Tar files that can only be read in order: compressed ones, and pipes."""

    def recognize(self, place: Place, wanted: Wanted) -> Source | StreamSource | None:
        text = place.text
        if not is_tar(text) or os.path.isdir(text):
            return None
        paths = tar_paths(text)
        if not is_streamed(paths, place.locate):
            return None
        _refuse_columns(place, wanted)
        found = TarSource(text, [place.locate(path) for path in paths], key=wanted.key, classes=wanted.classes)
        return _declared(found, wanted)


class Directories(Recognizer):
    """Directories of class directories, flat directories, and files that match a pattern."""

    def recognize(self, place: Place, wanted: Wanted) -> Source | StreamSource | None:
        listing = place.listing
        if listing is None:
            return None
        if place.is_directory and place.reading.group == "file" and is_mpdataset(listing.root):
            return open_text_list(listing.root.join(LIST_OF_MPDATASET), wanted)
        found = FolderSource(
            listing,
            source_formats(),
            wanted,
            place.reading,
        )
        return _declared(found, wanted)


class TextLists(Recognizer):
    """Lists of files. Takes any file, so that errors say why it is no list."""

    def recognize(self, place: Place, wanted: Wanted) -> Source | StreamSource | None:
        if place.reading.group != "file":
            hint = "a list has a column for each file: fields="
            raise UsageError("group='stem' is for folders", hint=hint, url=place.text)
        location = place.location
        if location.local and not os.path.exists(location.url):
            raise SourceError("there is no such list or folder", url=location.url, hint=instead_of(location.url))
        picture = suffix_of(location.url) in _PICTURES
        if picture or is_archive(location.url):
            raise SourceError(
                f"{'a single image' if picture else 'an archive'} cannot be packed",
                url=location.url,
                hint="pass a list (path<TAB>label a line, or csv; it may be compressed: list.csv.gz), or a folder",
            )
        return open_text_list(location, wanted)


def _refuse_columns(place: Place, wanted: Wanted) -> None:
    """Refuse arguments that are about columns, and files of one name, where there is neither; UsageError."""
    if place.reading.group != "file" or any(rule.declared is None for rule in wanted.fields):
        raise UsageError(
            "columns in fields= and group= are for lists and folders",
            hint='a type alone is for all, fields={"tokens": "array:uint16"}; transform= changes samples',
        )


def _declared(source: Source | StreamSource, wanted: Wanted) -> Source | StreamSource:
    """The same source, which has no columns: the user declares types of its fields alone."""
    source.declared = types_alone(wanted.fields)
    return source


def list_place(place: Place) -> FileListing | None:
    """The files to list for a path, URL, or pattern; ``None`` if it names one file."""
    text = place.text
    web = scheme_of(text) in ("http", "https")
    chosen = None if web or os.path.lexists(text) else split_glob(text)
    if chosen is not None:
        return FileListing(place.locate(chosen[0]), chosen[1])
    location = place.location
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
