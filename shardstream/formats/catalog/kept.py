"""Where a catalogue lies: beside the data, or in a folder of this machine."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from shardstream.dataset.shard import IndexBytes
from shardstream.dataset.shared import SharedBytes
from shardstream.errors import (
    ChangedError,
    DataError,
    MissingExtraError,
    NotFoundError,
    ShardStreamError,
    StorageError,
)
from shardstream.formats.blocks import BlockStore
from shardstream.formats.catalog import CATALOGUE_NAME
from shardstream.formats.catalog.catalog import OURS, Catalogue, table_name_of
from shardstream.formats.catalog.journal import Journal
from shardstream.formats.catalog.whole_scans import identity_of
from shardstream.formats.plugins import Plugin
from shardstream.formats.registry import plugin_of, restore
from shardstream.shards.layout import checksum
from shardstream.storage import Request, Store
from shardstream.storage.cache import Cache, Identity
from shardstream.storage.cache.folder import NEW, Folder, users_own
from shardstream.storage.cache.locks import lock_file
from shardstream.storage.cache.tier import CATALOGUES, tiers_of
from shardstream.storage.local.store import LocalStore
from shardstream.text import in_one_line
from shardstream.waits import watched

_JOURNAL = "scanned.journal"
_LOCK = "lock"
_PIECE = 8 << 20
_PATIENCE_S = 900.0  # for another process that makes the same catalogue
_OLD_S = 24 * 3600.0  # what no catalogue names any more may still be in use by a run of the day before


class FoundCatalogue:
    """A catalogue with the place it lies in. Its pickle has its bytes in memory that all processes share.

    Attributes:
        catalogue: The catalogue.
        store: What has its indexes.
        opened: When it was found, in ns since 1970.

    Args:
        store: What has the indexes of the catalogue.
        url: Where the data lie.
        head: The bytes of ``shardstream-catalogue.json``.
        table: The bytes of the table of objects.
        opened: When it was found, in ns since 1970; now, unless it comes from another process.

    Raises:
        DataError: It is damaged, or a newer version wrote it.
    """

    def __init__(
        self, store: Store, url: str, head: SharedBytes, table: SharedBytes, opened: int | None = None
    ) -> None:
        self.store = store
        self.opened = time.time_ns() if opened is None else opened
        self.catalogue = Catalogue.parse_catalogue(head.view, lambda _: table.view, place=store.url, url=url)
        self._shared = head, table

    def __reduce__(self) -> tuple[Any, ...]:
        plugin = plugin_of(self.catalogue.reading.source)
        return _restored, (plugin, self.store, self.catalogue.url, *self._shared, self.opened)

    def index_bytes(self, number: int, main: Store) -> IndexBytes:
        """Where the index of a shard lies; ``main`` is what the data set is read through."""
        catalogue = self.catalogue
        store = main if self.store.url == catalogue.url else self.store
        request = Request(catalogue.indexes_name, *catalogue.index_range(number))
        return IndexBytes(store, request, catalogue.indexes_bytes)

    def shown(self, store: Store) -> Store:
        """A store of the data as it is read: with objects inflated that are compressed."""
        return BlockStore(store, self.catalogue.blocks_of) if self.catalogue.compressed else store

    def identify(self, name: str) -> Identity | None:
        """What an object has to be for what a cache holds of it to be right: only its place and version tell."""
        catalogue = self.catalogue
        if name == catalogue.indexes_name:
            return Identity(catalogue.indexes_bytes, 0)
        number = None if catalogue.reading.format.loose else catalogue.number_of(name)
        if number is None:  # or whoever asks for a value says its size
            return None
        return identity_of(int(catalogue.table.sizes[number]), catalogue.version_of(name), catalogue.url)

    @property
    def values_since(self) -> int | None:
        """Where values are objects of their own, when it was found: nobody has looked at them before."""
        return self.opened if self.catalogue.reading.format.loose else None

    @property
    def sound(self) -> bool:
        """Whether all indexes are what was written. Reads them all."""
        catalogue, sums = self.catalogue, self.catalogue.objects.index_checksums.tolist()
        with suppress(NotFoundError):
            return all(
                checksum(self.store.get(catalogue.indexes_name, *catalogue.index_range(shard))[:-8]) == expected
                for shard, expected in enumerate(sums)
            )
        return False

    def forget(self) -> None:
        """Remove its head, so that it is not a catalogue any more."""
        self.store.delete(CATALOGUE_NAME)

    def removed(self) -> NotFoundError:
        """The error for indexes that are gone."""
        return NotFoundError(
            "the catalogue was removed while it was in use", url=self.store.url, hint="open the data set anew"
        )

    def check_unchanged(self, number: int, store: Store) -> None:
        """Refuse an object that is not the one that was indexed, where that takes no request; ChangedError."""
        if not store.mapped or self.catalogue.reading.format.loose:  # each value is compared when it is read
            return
        objects, name = self.catalogue.objects, self.catalogue.shard_name(number)
        now, one = store.meta(name), objects.objects[number]
        if (now.size, now.version) != (int(objects.sizes[one]), int(objects.versions[one])):
            raise ChangedError(
                "the object is not the one that was indexed: it was written again",
                url=store.locate(name),
                hint="open the data set anew: what changed is indexed again",
            )

    def copy_to(self, store: Store) -> FoundCatalogue:
        """Put the catalogue beside the data, in place of the one that is there.

        Raises:
            StorageError: The store cannot be written.
        """
        catalogue, used = self.catalogue, {CATALOGUE_NAME}
        with suppress(DataError, MissingExtraError, NotFoundError):
            if (before := read_catalogue(store, store.url)) is not None:  # other runs may still read its indexes
                used |= {before.catalogue.table_name, before.catalogue.indexes_name}
        with store.create(catalogue.indexes_name) as out:
            for piece in self.store.pieces(catalogue.indexes_name, _PIECE):
                out.write(piece)
        catalogue.save(store)
        used |= {catalogue.table_name, catalogue.indexes_name}
        for meta in list(store.list("shardstream-")):
            if OURS.fullmatch(meta.path) and meta.path not in used:
                store.delete(meta.path)
        beside = read_catalogue(store, store.url)
        assert beside is not None, "the same"
        return beside


def _restored(plugin: Plugin | None, *place: Any) -> FoundCatalogue:
    restore(plugin)
    return FoundCatalogue(*place)


def read_catalogue(store: Store, url: str) -> FoundCatalogue | None:
    """The catalogue in a place; ``None`` if there is none.

    Args:
        store: The place.
        url: Where the data lie.

    Raises:
        DataError: It is damaged, or a newer version wrote it.
        StorageError: It cannot be read.
    """
    try:
        head = store.get(CATALOGUE_NAME)
    except NotFoundError:
        return None
    table = table_name_of(head, url=store.url)
    return FoundCatalogue(store, url, SharedBytes(head), SharedBytes(store.get(table)))


class KeptCatalogue:
    """The folder of this machine in which the catalogue of some objects is kept.

    Args:
        url: Where the objects lie.
        digest: Names the folder, see `digest` in ``selected``.
        root: The folder that it is in, one of `roots`.

    Raises:
        OSError: The folder cannot be made, or is somebody else's.

    Attributes:
        absent: The error for a catalog that is there, of a format whose plug-in is not installed.
    """

    def __init__(self, url: str, digest: str, root: Folder) -> None:
        self._url = url
        self.absent: MissingExtraError | None = None
        self.folder = _private(_private(root, CATALOGUES), digest)
        self.store = LocalStore(self.folder.path)

    def find(self) -> FoundCatalogue | None:
        """The catalogue that is kept; ``None`` if there is none, or a damaged one, or one that lost its indexes."""
        try:
            found = read_catalogue(LocalStore(self.folder.path), self._url)
            if found is not None and found.store.size(found.catalogue.indexes_name) == found.catalogue.indexes_bytes:
                return found
        except MissingExtraError as error:
            self.absent = error
        except (DataError, NotFoundError):
            pass
        return None

    def save(self, catalogue: Catalogue, indexes: str) -> FoundCatalogue:
        """Keep a catalogue, in place of the one that is there.

        Args:
            catalogue: The catalogue.
            indexes: Name of the file of its indexes, which is in the folder already.

        Raises:
            OSError: It cannot be written.
        """
        self.store.move(indexes, catalogue.indexes_name)
        self.folder.write(catalogue.table_name, catalogue.objects.pack())
        self.folder.write(CATALOGUE_NAME, catalogue.head())
        found = self.find()
        assert found is not None, "it was written a moment ago"
        return found

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What fails in the block because the folder cannot be written is a StorageError."""
        try:
            yield
        except ShardStreamError:  # some of which are OSErrors
            raise
        except OSError as error:
            raise StorageError(
                f"the catalogue cannot be written: {error.strerror or error}",
                url=self.folder.path,
                hint="make room there, or give another folder: cache=, or XDG_CACHE_HOME",
            ) from error

    @contextmanager
    def making(self) -> Iterator[Journal]:
        """Be the one process of this machine that makes the catalogue, with what was scanned so far.

        Raises:
            StorageError: Another process has been making it for longer than it may.
            OSError: The folder cannot be written.
        """
        with watched(f"another process to index {in_one_line(self._url)}"):
            lock = lock_file(self.folder, _LOCK, shared=False, wait=_PATIENCE_S)
        if lock is None:
            raise StorageError(
                f"another process has been indexing this for {_PATIENCE_S:.0f} s",
                url=self._url,
                hint="wait for it, or run `shardstream index` by itself first",
            )
        with lock:
            self._sweep()
            journal = Journal(self.folder.open_or_create(_JOURNAL))
            try:
                yield journal
            finally:
                journal.close()

    def forget_journal(self) -> None:
        """Remove what was scanned so far: it is in the catalogue."""
        with suppress(FileNotFoundError):
            self.folder.unlink(_JOURNAL)

    def _sweep(self) -> None:
        """Remove what processes that died left half-made, and what no catalogue names any more."""
        found = self.find()
        used = set() if found is None else {found.catalogue.table_name, found.catalogue.indexes_name}
        for name, info in self.folder.files():
            old = info.st_mtime < time.time() - _OLD_S
            if name.startswith(NEW) or (old and OURS.fullmatch(name) and name not in {CATALOGUE_NAME, *used}):
                self.folder.unlink(name)


def roots(cache: Cache | None) -> list[Callable[[], Folder]]:
    """What opens the folders of this machine that catalogues may be kept in, the best first; OSError where it cannot.

    That of the cache, if there is one; the user's own; and one among temporary files, so that training starts also
    where there is no home, or none that can be written.
    """
    places: list[Callable[[], Folder]] = [users_own, _temporary]
    return places if cache is None else [lambda: _of_cache(cache), *places]


def _of_cache(cache: Cache) -> Folder:
    tier = tiers_of(cache)[-1]
    tier.prepare()
    return tier.folder


def _temporary() -> Folder:
    return Folder.root(os.path.join(tempfile.gettempdir(), f"shardstream-{os.geteuid()}"), make=True, parents=False)


def _private(root: Folder, name: str) -> Folder:
    """A folder in it, for this user or group alone: names of files and their fields are nobody else's business."""
    folder = root.folder(name, make=True)
    if root.group is None and stat.S_IMODE(os.fstat(folder.descriptor).st_mode) != 0o700:
        os.fchmod(folder.descriptor, 0o700)
    return folder
