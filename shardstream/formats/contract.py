"""``SourceFormat``: what it takes to stream the data of another library in place.

A format recognises its objects in a listing, and scans one of them at a time into rows: where each value lies in the
object. Rows are written down as one of our indexes (``catalog/catalog.py``), and read like our own from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from shardstream.errors import FormatError, PlaceholderError
from shardstream.formats.blocks import BlockStore
from shardstream.formats.blocks.found_blocks import FoundBlocks
from shardstream.formats.scans.names import accompanies
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, RowBuilder, ScannedRows, numbered_keys, usable_key
from shardstream.names.strays import Strays, any_stray, find_stray
from shardstream.shards.field_names import usable_field
from shardstream.storage import Store
from shardstream.storage.base.placeholders import placeholder_in
from shardstream.storage.base.store import ObjectMeta

__all__ = [
    "PIECE",
    "Form",
    "FoundBlocks",
    "ObjectBytes",
    "ObjectListing",
    "Recognized",
    "Remembered",
    "RowBuilder",
    "ScannedRows",
    "SourceFormat",
    "SourceObject",
    "numbered_keys",
    "shown",
    "usable_field",
    "usable_key",
]

Form: TypeAlias = Callable[[memoryview, str], "bytes | memoryview"]
"""The bytes of one of our types, of a value as another library stores it; the text is what the column says besides.

Raises ValueError where the bytes are no such value. Takes no more room than some times what it is given.
"""
LARGEST_SIDECAR = 256 << 20
"""Bytes of a file that describes a data set, such as ``index.json``; larger ones are refused."""

LOOKED_AT = 16
"""Files of which the first that is not damaged tells the format."""
_BEGINNING = 64


@dataclass(frozen=True, slots=True)
class SourceObject:
    """An object that holds samples.

    Attributes:
        path: Its name below the root.
        size: Its bytes.
        about: What the scan of this object has to know from elsewhere, such as the columns that an ``index.json``
            announces. JSON: it is part of the catalogue's identity, and carried to other processes.
    """

    path: str
    size: int
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recognized:
    """A data set of a foreign format.

    Attributes:
        objects: What holds samples, in the data set's own order.
        classes: Names of the classes, label i being ``classes[i]``; ``None`` where nothing says them.
        notes: One sentence each on what was left out, or decided, that a user should know.
    """

    objects: tuple[SourceObject, ...]
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remembered:
    """How objects were read before. It counts for this format alone.

    Attributes:
        source: Name of the format.
        options: Options of reading.
        chosen: The fields, as `ObjectListing.chosen`.
        named: Whether a user named it.
        first: Whether this format is asked before the others, which are asked only if it finds nothing.
    """

    source: str
    options: Mapping[str, str]
    chosen: Mapping[str, str]
    named: bool
    first: bool


class ObjectListing:
    """The objects from which a format is recognised: all below a root, or those that a user named.

    Args:
        store: The root.
        objects: In order of path.
        url: What messages call it; default: the root.
        named: Whether a user named them, or a glob of them: then all of them are data.
        chosen: The fields that a user wants, as ``{"NAME": "COLUMN[:TYPE]"}``; empty for all.
        tables: Whether it is listed for a format of tables, see `find_stray`.

    Attributes:
        everything: All objects. A format finds its own descriptions, and what a list names, by their names among them.
        objects: Those that are data by their names.
        strays: Counts the others.
        sure: Whether a user named the format that is asked now, so that files of others don't count against it.
    """

    def __init__(
        self,
        store: Store,
        objects: Sequence[ObjectMeta],
        url: str | None = None,
        *,
        named: bool = False,
        chosen: Mapping[str, str] | None = None,
        tables: bool = False,
    ) -> None:
        self.store = store
        self.named = named
        self.chosen = dict(chosen or {})
        self.sure = False
        self.url = store.url if url is None else url
        self._take(objects, tables=tables)

    def _take(self, objects: Iterable[ObjectMeta], *, tables: bool = False) -> None:
        self.everything = tuple(objects)
        self.objects = self.everything
        self.strays = Strays()
        self._sizes = {one.path: one.size for one in self.everything}
        vars(self).pop("as_tables", None)
        vars(self).pop("_lower_names", None)
        if not self.named and any_stray(self._sizes, tables=tables):
            self.leave_out(lambda path: find_stray(path, tables=tables))

    def leave_out(self, stray: Callable[[str], str | None]) -> None:
        """Take these out of the objects, and count them: ``stray`` gives what of a path is not data, or ``None``."""
        kept = []
        for one in self.objects:
            if (found := stray(one.path)) is None:
                kept.append(one)
            else:
                self.strays.add(found)
        self.objects = tuple(kept)
        vars(self).pop("_lower_names", None)

    @cached_property
    def as_tables(self) -> ObjectListing:
        """The same as formats of tables see it."""
        if self.named or not any_stray(self._sizes, tables=True):
            return self
        return ObjectListing(self.store, self.everything, self.url, chosen=self.chosen, tables=True)

    def __contains__(self, path: str) -> bool:
        return path in self._sizes

    def size(self, path: str) -> int:
        """Bytes of an object of this listing; KeyError if there is none."""
        return self._sizes[path]

    def widen(self) -> None:
        """Take in all objects below the root, where a user named one that says which belong together."""
        self.named = False
        self._take(self.store.list())

    def ending(self, *suffixes: str) -> list[ObjectMeta]:
        """The objects whose names end with one of these, in any case."""
        return [one for name, one in self._lower_names if name.endswith(suffixes)]

    def only(self, *suffixes: str, beside: Callable[[str], bool] = accompanies) -> list[ObjectMeta]:
        """The objects with these endings; none if there are others that may be the data, see ``beside`` and `sure`."""
        found = self.ending(*suffixes)
        if not found or self.sure:
            return found
        # An empty object says nothing: stores make some in the place of directories.
        others = {one.path for one in self.objects if one.size} - {one.path for one in found}
        return found if all(map(beside, others)) else []

    def first_that(self, objects: Sequence[ObjectMeta], begins: Callable[[bytes], bool]) -> ObjectMeta | None:
        """The first of some objects that begins as it should; ``None`` if none of the first ones does.

        One bad file among many isn't left out by this: the scan names it.
        """
        return next((one for one in objects[:LOOKED_AT] if begins(self.start(one.path, _BEGINNING))), None)

    @cached_property
    def _lower_names(self) -> list[tuple[str, ObjectMeta]]:
        """The objects with their names in lower case: every format asks for some."""
        return [(one.path.lower(), one) for one in self.objects]

    def start(self, path: str, length: int) -> bytes:
        """The first bytes of an object, fewer where it is shorter."""
        return bytes(self.store.get(path, 0, min(length, self.size(path))))

    def placeholder(self, path: str) -> PlaceholderError | None:
        """The error for an object that is a placeholder; ``None`` if it is none."""
        return placeholder_in(self.store, path, self.size(path))

    def read(self, path: str) -> bytes:
        """All of a small object that describes others.

        Raises:
            FormatError: It is larger than `LARGEST_SIDECAR`.
        """
        if self.size(path) > LARGEST_SIDECAR:
            raise FormatError(
                f"{self.size(path)} bytes are too many for a file that describes a data set",
                url=self.store.locate(path),
                hint="look at it: it is not what its name says",
            )
        return bytes(self.store.get(path))


class SourceFormat(ABC):
    """How another library stores samples. One instance serves all data sets; it holds no state.

    Attributes:
        name: What users call it: ``--source-format NAME``.
        title: What messages call it.
        options: Options of reading by name, each with what it means: ``--format-option NAME=VALUE``; ``recognize`` gets
            them.
        required: Those of the options without which nothing can be read.
        window: Bytes of one read of `ObjectBytes` where the object is not mapped: small for formats that hop.
        forms: Foreign encodings by name; a column's codec is then ``"FORMAT.NAME"`` or ``"FORMAT.NAME:TEXT"``.
        loose: Whether values are objects of their own, whose names the columns have: an object that is scanned is a
            list of them then, or stands for a run of them.
        fallback: Whether it is asked only where no other format takes a listing.
        tables: Whether it is one of tables, in whose directories names that begin with ``_`` are not data.
        chooses: Whether `scan` gives the fields of `ObjectListing.chosen` under their new names, as `recognize` wrote
            them into what is known of each object. Else all fields are given, or at least those that are chosen, under
            their own names.
        unites: What to do about a field that is of several types in several objects, as a hint in which ``{}`` is its
            name; empty where nothing but leaving it out helps.
        empty: The codec of JSON columns all of whose values are empty lists: they take the type of the lists that other
            objects have, as the text of that codec.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    options: ClassVar[Mapping[str, str]] = {}
    required: ClassVar[Sequence[str]] = ()
    window: ClassVar[int] = 4 << 20
    forms: ClassVar[Mapping[str, Form]] = {}
    loose: ClassVar[bool] = False
    fallback: ClassVar[bool] = False
    tables: ClassVar[bool] = False
    chooses: ClassVar[bool] = False
    unites: ClassVar[str] = ""
    empty: ClassVar[str] = ""

    def open(self, store: Store, one: SourceObject) -> ObjectBytes:
        """The bytes of an object, for `scan`; raises as `ObjectBytes`."""
        return ObjectBytes(store, one.path, one.size, window=self.window)

    @abstractmethod
    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        """The objects of a listing that hold samples; ``None`` where it is not of this format.

        Looks at names and first bytes, and never guesses: where another format might claim the same listing, this one
        returns ``None`` unless it is sure.

        Args:
            listing: What there is.
            options: Of those that `options` names.

        Raises:
            FormatError: It is of this format, and cannot be taken as it is: says why, and what to do.
            UnsupportedError: It is of this format, in a kind that is not read: says which.
            UsageError: An option cannot work.
            StorageError: It cannot be read.
        """

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        """The blocks of an object that is compressed: `scan` then gets it inflated. ``None``: it is read as it is.

        Pure, like `scan`. No block inflates to more than `storage.blocks.codecs.LARGEST` bytes.

        Args:
            data: The object as it is stored.
            about: Of its `SourceObject`.

        Raises:
            FormatError: It is damaged.
            UnsupportedError: It is compressed in a way that is not read in place.
            MissingExtraError: A package is not installed that it takes.
            StorageError: It cannot be read.
        """
        return None

    def announced(self, data: ObjectBytes, about: Mapping[str, Any]) -> int | None:
        """Number of samples that an object, or a file beside it, says it has; asked only if some cannot be read.

        Args:
            data: The object as it is stored.
            about: Of its `SourceObject`.

        Returns:
            The number; ``None`` if nothing says so.

        Raises:
            FormatError: The object is too damaged to tell.
            StorageError: It cannot be read.
        """
        return None

    def checksums(self, one: SourceObject) -> str:
        """Which checksums of an object it keeps itself, such as ``"CRC-32 of members"``; empty for none."""
        return ""

    def differences(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[FormatError]:
        """Where an object differs from the `checksums` that the format itself keeps of it. Reads everything.

        Args:
            data: The object, inflated if it is compressed.
            about: Of its `SourceObject`.

        Raises:
            FormatError: It is damaged so that they cannot be found.
            StorageError: It cannot be read.
        """
        return iter(())

    @abstractmethod
    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        """Where the values of an object lie: all of its samples in order, at most `rows.PIECE` at a time.

        Pure: the same bytes and ``about`` give the same rows. Nothing is allocated for what the object announces before
        that is compared with its size; what recurses has a depth.

        Args:
            data: The object.
            about: Of its `SourceObject`.

        Raises:
            UnsupportedError: It is valid, of a kind that is not read; says which. This ends the scan of all objects.
            FormatError: It is damaged so that nothing of it can be trusted; says how, and where. Where samples before
                the damage are whole, they are given, and the last `ScannedRows.damage` says what is lost. Where those
                behind it are, too, it is `ScannedRows.broken`.
            StorageError: It cannot be read.
        """


def shown(
    format: SourceFormat, store: Store, one: SourceObject, reached: Callable[[float], object] = float
) -> tuple[Store, ObjectBytes, FoundBlocks | None]:
    """An object as its format scans it, in a store that shows it so: inflated, with its blocks, if it is compressed.

    Args:
        format: The format.
        store: Where the object lies.
        one: The object.
        reached: As `ObjectBytes.reached`.

    Raises:
        FormatError, MissingExtraError, StorageError: As `SourceFormat.blocks`.
    """
    data = format.open(store, one)
    data.reached = reached
    found = format.blocks(data, one.about)
    if found is None:
        return store, data, None
    inflated = BlockStore(store, {one.path: found.blocks}.get)
    if found.first is not None:
        inflated.hold(one.path, 0, found.first)
    for number, made in found.more.items():
        inflated.hold(one.path, number, made)
    data = ObjectBytes(inflated, one.path, found.blocks.size, window=format.window)
    data.reached = reached
    return inflated, data, found
