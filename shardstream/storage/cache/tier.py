"""``Tier``: one folder of a cache, with all the data sets in it.

::

    FOLDER/shardstream-cache.json      says that the folder is ours: without it, nothing in it is touched
    FOLDER/ledger                      bytes given out; its lock guards all changes of files
    FOLDER/lease                       locked by every process that uses the cache
    FOLDER/sets/FINGERPRINT/lease      locked by every process that uses the data set
    FOLDER/sets/FINGERPRINT/*.blocks   the objects, see ``blocks``
    FOLDER/manifests/                  manifests for starts without the store, see ``manifests``
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress

from shardstream.errors import UsageError
from shardstream.storage.cache.blocks import SUFFIX
from shardstream.storage.cache.capacity import in_memory, room
from shardstream.storage.cache.folder import NEW, Folder
from shardstream.storage.cache.ledger import LEDGER, Ledger, LedgerEntry
from shardstream.storage.cache.locks import FileLock, is_locked, lock, lock_file

MARKER = "shardstream-cache.json"
ABOUT = "about.json"
LEASE = "lease"
SETS = "sets"
MANIFESTS = "manifests"
SAID_FULL, SAID_SMALL = 0, 1
_MARK = {"format": "shardstream cache", "version": 1}
_FILES, _FOLDERS = {MARKER, LEDGER, LEASE}, {SETS, MANIFESTS}
_OURS = _FILES | _FOLDERS | {"lost+found"}
_WAIT = 10.0


class Tier:
    """One folder of a cache. It is opened by the first method that needs it, and held as long as this lives.

    Args:
        root: The folder.
        limit: Bytes that files in it may take; ``None`` for what the file system gives.
        modest: Whether, without a limit, to take only half of that.
        shared: Whether the members of the folder's group share it.
        disk: Of a tier in memory, the one behind it: of the same group. The folder above it is then there already.
    """

    def __init__(
        self, root: str, limit: int | None, *, modest: bool = False, shared: bool = False, disk: Tier | None = None
    ) -> None:
        self.modest = modest
        self.root = root
        self.limit = limit
        self.memory = in_memory(root)
        self._shared = shared
        self._disk = disk
        self._folder: Folder | None = None
        self._lease: FileLock | None = None

    # ----------------------------------------------------------------------------------------------------- the folder

    @property
    def folder(self) -> Folder:
        """The folder.

        Raises:
            Untrusted: It is somebody else's.
            OSError: It cannot be opened.
        """
        if self._folder is None:
            self._folder = Folder.root(self.root, shared=self._shared, group=self._group())
        return self._folder

    def _group(self) -> int | None:
        return self._disk.folder.group if self._shared and self._disk is not None else None

    @property
    def gone(self) -> bool:
        """Whether the folder was open, and is not the one of its name any more."""
        return self._folder is not None and not self._folder.named()

    def check(self) -> bool:
        """Whether the folder is a cache; False if it is empty or missing.

        Raises:
            UsageError: It holds something else.
            Untrusted: It is somebody else's, or something in it is.
            OSError: It cannot be looked at.
        """
        try:
            found = set(self.folder.names())
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise UsageError("the cache must be a folder", url=self.root, hint="name a folder of its own") from None
        if "dataset.json" in found:
            raise UsageError("the cache would lie in a data set", url=self.root, hint="name a folder of its own")
        foreign = sorted(name for name in found if name not in _OURS and not name.startswith(NEW))
        if foreign and MARKER not in found:
            raise UsageError(
                f"the folder of the cache holds other files, such as {foreign[0]!r}",
                url=self.root,
                hint="name an empty folder, or one that does not exist yet",
            )
        for name in sorted(found & (_FILES | _FOLDERS)):
            with suppress(FileNotFoundError):
                self.folder.check(name, folder=name in _FOLDERS)
        return MARKER in found

    def prepare(self) -> None:
        """Make the folder, if it is not there.

        Raises:
            UsageError: It holds something else.
            OSError: It cannot be made. Untrusted: See `check`.
        """
        if not self.check():
            if self._shared and self._disk is not None:
                self._disk.prepare()
            self._folder = Folder.root(
                self.root, shared=self._shared, group=self._group(), make=True, parents=self._disk is None
            )
            self._folder.write_json(MARKER, _MARK)
        self.folder.folder(SETS, make=True)
        if self._lease is None:
            self._lease = self._join()

    def _join(self) -> FileLock:
        """Say that this process uses the cache; the first one counts what is there, as the last user may have died."""
        lease = lock_file(self.folder, LEASE, shared=False, wait=0.0)
        if lease is not None:
            self.ledger.begin()
            lock(lease.descriptor, shared=True, wait=_WAIT)
            return lease
        lease = lock_file(self.folder, LEASE, shared=True, wait=_WAIT)
        if lease is None:
            raise OSError(errno.EAGAIN, "waited in vain for another process to count the cache", self.root)
        return lease

    @property
    def ledger(self) -> Ledger:
        """Bytes given out. Raises as `folder`."""
        return Ledger(self.folder, self._count)

    def set(self, name: str, *, make: bool = False) -> Folder:
        """The folder of a data set.

        Raises:
            OSError: It cannot be opened, or made. FileNotFoundError: There is none.
        """
        return self.folder.folder(SETS).folder(name, make=make)

    def sets(self) -> Iterator[Folder]:
        """The folders of data sets that can be looked at, one open after another."""
        with suppress(OSError):
            sets = self.folder.folder(SETS)
            for name in sets.folders():
                with suppress(OSError):
                    yield sets.folder(name)

    # ------------------------------------------------------------------------------------------------------- the room

    def bound(self, entry: LedgerEntry) -> int:
        """Bytes that files here may take."""
        most = self.most(entry)
        if self.limit is not None:
            return min(self.limit, most)
        return most // 2 if self.modest else most

    def most(self, entry: LedgerEntry) -> int:
        """Bytes that files here could take if there were no limit."""
        return entry.used + room(self.folder.descriptor, memory=self.memory)

    def limited(self, need: int, entry: LedgerEntry) -> bool:
        """Whether it is the limit, rather than the file system, that forbids ``need`` more bytes."""
        return self.limit is not None and entry.used + need > self.limit

    def first_to_say(self, what: int) -> bool:
        """Whether no other process has said this since the cache was last unused: one warning is enough."""
        try:
            with self.ledger.open(wait=1.0) as entry:
                return entry.say(what)
        except OSError:
            return True

    def make_room(self, need: int, keep: Folder, entry: LedgerEntry) -> bool:
        """See that ``need`` more bytes may be given out, by clearing what is not in use if that helps.

        Data sets other than that of the folder ``keep`` go, the one that was not used for longest first.
        """
        if self._fits(need, entry):
            return True
        unused = []
        for folder in self.sets():
            with suppress(OSError):
                if folder.name != keep.name and not is_locked(folder, LEASE):
                    unused.append((last_used(folder), _bytes(folder), folder.name))
        if entry.used - sum(size for _, size, _ in unused) + need > self.bound(entry):
            return False  # clearing would not help
        return any(self.clear(self.set(name), entry) and self._fits(need, entry) for _, _, name in sorted(unused))

    def _fits(self, need: int, entry: LedgerEntry) -> bool:
        return entry.used + need <= self.bound(entry)

    def clear(self, folder: Folder, entry: LedgerEntry) -> bool:
        """Remove a data set's folder; False if it is in use, or not ours."""
        if folder.stat(ABOUT) is None:
            return False
        lease = lock_file(folder, LEASE, shared=False, wait=0.0)
        if lease is None:
            return False
        with lease:
            freed = 0
            for name, info in folder.files():
                if name.endswith(SUFFIX):
                    freed += info.st_size
                if name.endswith(SUFFIX) or name.startswith(NEW):
                    folder.unlink(name)
            folder.unlink(ABOUT)
            folder.unlink(LEASE)
            entry.give(-freed, entry.limit)
        with suppress(OSError):  # what is not ours stays
            self.folder.folder(SETS).rmdir(folder.name)
        return True

    def _count(self) -> int:
        """Bytes of all files. Called with the ledger held, so that what is half made has no maker any more."""
        total = 0
        for folder in self.sets():
            for name, _ in folder.files():
                if name.startswith(NEW):
                    with suppress(OSError):
                        folder.unlink(name)
            total += _bytes(folder)
        return total


def _bytes(folder: Folder) -> int:
    return sum(info.st_size for name, info in folder.files() if name.endswith(SUFFIX))


def last_used(folder: Folder) -> float:
    """When a data set's folder was last opened, in seconds of the system's clock."""
    info = folder.stat(LEASE)
    return 0.0 if info is None else info.st_mtime
