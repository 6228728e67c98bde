"""Where a catalogue lies: beside the data, or in a folder of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shardstream.dataset.foreign.journal import Journal
from shardstream.dataset.foreign.spec import ForeignSpec
from shardstream.dataset.shard import IndexBytes, Shard
from shardstream.dataset.shared import SharedBytes
from shardstream.errors import ChangedError, DataError, NotFoundError, StorageError
from shardstream.shards.catalogue import CATALOGUE_NAME, OURS, Catalogue, table_name_of
from shardstream.storage import Request, Store
from shardstream.storage.cache import Cache
from shardstream.storage.cache.folder import NEW, Folder
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

    Args:
        store: The same.
        url: Where the data lie.
        head: The bytes of ``shardstream-catalogue.json``.
        table: The bytes of the table of objects.

    Raises:
        DataError: It is damaged, or a newer version wrote it.
    """

    def __init__(self, store: Store, url: str, head: SharedBytes, table: SharedBytes) -> None:
        self.store = store
        self.catalogue = Catalogue.parse_catalogue(head.view, lambda _: table.view, place=store.url, url=url)
        self._shared = head, table

    def __reduce__(self) -> tuple[type[FoundCatalogue], tuple[Store, str, SharedBytes, SharedBytes]]:
        return FoundCatalogue, (self.store, self.catalogue.url, *self._shared)

    def index_bytes(self, number: int, main: Store) -> IndexBytes:
        """Where the index of a shard lies; ``main`` is what the data set is read through."""
        catalogue = self.catalogue
        store = main if self.store.url == catalogue.url else self.store
        request = Request(catalogue.indexes_name, *catalogue.index_range(number))
        return IndexBytes(store, request, catalogue.indexes_bytes)

    def check_unchanged(self, number: int, shard: Shard) -> None:
        """Refuse an object that is not the one that was indexed, where that takes no request; ChangedError."""
        if not shard.store.mapped or self.catalogue.reading.format.loose:  # each value is compared when it is read
            return
        objects = self.catalogue.objects
        now = shard.store.meta(shard.name)
        if (now.size, now.version) != (shard.size, int(objects.versions[objects.objects[number]])):
            raise ChangedError(
                "the object is not the one that was indexed: it was written again",
                url=shard.store.locate(shard.name),
                hint="open the data set anew: what changed is indexed again",
            )


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
        spec: Which they are.
        cache: The cache whose folder it is in; ``None`` for the user's own.

    Raises:
        OSError: The folder cannot be made, or is somebody else's.
    """

    def __init__(self, url: str, spec: ForeignSpec, cache: Cache | None) -> None:
        self._url = url
        self.folder = _root(cache).folder(spec.digest(url), make=True)
        if self.folder.group is None:
            os.fchmod(self.folder.descriptor, 0o700)
        self.store = LocalStore(self.folder.path)

    def find(self) -> FoundCatalogue | None:
        """The catalogue that is kept; ``None`` if there is none, or a damaged one."""
        with suppress(DataError, NotFoundError):
            return read_catalogue(LocalStore(self.folder.path), self._url)
        return None

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

    def copy_to(self, store: Store) -> FoundCatalogue:
        """Put the catalogue beside the data, in place of the one that is there.

        Raises:
            StorageError: The store cannot be written.
        """
        found = self.find()
        assert found is not None, "it was made a moment ago"
        catalogue = found.catalogue
        with store.create(catalogue.indexes_name) as out:
            for piece in self.store.pieces(catalogue.indexes_name, _PIECE):
                out.write(piece)
        catalogue.save(store)
        used = {CATALOGUE_NAME, catalogue.table_name, catalogue.indexes_name}
        for meta in list(store.list("shardstream-")):
            if OURS.fullmatch(meta.path) and meta.path not in used:
                store.delete(meta.path)
        beside = read_catalogue(store, store.url)
        assert beside is not None, "the same"
        return beside

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


def _root(cache: Cache | None) -> Folder:
    if cache is not None:
        tier = tiers_of(cache)[-1]
        tier.prepare()
        return _private(tier.folder)
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "shardstream")
    return _private(Folder.root(root, make=True))


def _private(root: Folder) -> Folder:
    """The folder of catalogues: names of files and their fields are nobody else's business."""
    folder = root.folder(CATALOGUES, make=True)
    if root.group is None:
        os.fchmod(folder.descriptor, 0o700)
    return folder
