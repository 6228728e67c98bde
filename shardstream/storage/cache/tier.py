"""``Tier``: one folder of a cache, with all the data sets in it; and from a `Cache` to its tiers.

::

    FOLDER/shardstream-cache.json      says that the folder is ours: without it, nothing in it is touched
    FOLDER/ledger                      bytes given out; its lock guards all changes of files
    FOLDER/lease                       locked by every process that uses the cache
    FOLDER/sets/FINGERPRINT/lease      locked by every process that uses the data set
    FOLDER/sets/FINGERPRINT/*.blocks   the objects, see ``blocks``
    FOLDER/sets/FINGERPRINT/*.keys     what was made of the data set: key tables, and the lock of who makes them
    FOLDER/manifests/                  manifests for starts without the store, see ``manifests``
    FOLDER/catalogues/                 catalogues of foreign data sets
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from weakref import WeakValueDictionary

from shardstream.errors import UsageError
from shardstream.storage.cache.blocks import SUFFIX
from shardstream.storage.cache.capacity import RESERVED_MEMORY, in_memory, memory_left, room
from shardstream.storage.cache.folder import NEW, Folder
from shardstream.storage.cache.ledger import LEDGER, Ledger, LedgerEntry
from shardstream.storage.cache.locks import FileLock, is_locked, lock, lock_file
from shardstream.storage.cache.spec import Cache

MARKER = "shardstream-cache.json"
ABOUT = "about.json"
LEASE = "lease"
KEPT = ".keys"
SETS = "sets"
MANIFESTS = "manifests"
CATALOGUES = "catalogues"
SAID_FULL, SAID_SMALL = 0, 1
_MARK = {"format": "shardstream cache", "version": 1}
_FILES, _FOLDERS = {MARKER, LEDGER, LEASE}, {SETS, MANIFESTS, CATALOGUES}
_OURS = _FILES | _FOLDERS | {"lost+found"}
_WAIT = 10.0
_GIB = 1 << 30


class NoRoom(Exception):
    """An object has no room in a tier.

    Args:
        bound: Bytes that may be given out there.
        limited: Whether that is the user's limit, rather than what the file system has.
    """

    def __init__(self, bound: int, *, limited: bool) -> None:
        super().__init__(bound)
        self.bound = bound
        self.limited = limited


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

    def first_to_say(self, what: int) -> bool:
        """Whether no other process has said this since the cache was last unused: one warning is enough."""
        try:
            with self.ledger.open(wait=1.0) as entry:
                return entry.say(what)
        except OSError:
            return True

    def take(self, need: int, keep: Folder, entry: LedgerEntry) -> None:
        """Give out ``need`` more bytes, and clear what is not in use if that helps.

        Data sets other than that of the folder ``keep`` go, the one that was not used for longest first.

        Raises:
            NoRoom: There is no room for them.
        """
        if not self._make_room(need, keep, entry):
            limited = self.limit is not None and entry.used + need > self.limit
            raise NoRoom(self.bound(entry), limited=limited)
        entry.give(need, self.limit)

    def _make_room(self, need: int, keep: Folder, entry: LedgerEntry) -> bool:
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
            freed = _bytes(folder)
            for name, _ in folder.files():
                if name.endswith((SUFFIX, KEPT)) or name.startswith(NEW):
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
    return sum(info.st_size for name, info in folder.files() if name.endswith((SUFFIX, KEPT)))


def last_used(folder: Folder) -> float:
    """When a data set's folder was last opened, in seconds of the system's clock."""
    info = folder.stat(LEASE)
    return 0.0 if info is None else info.st_mtime


_open: WeakValueDictionary[tuple[object, ...], Tier] = WeakValueDictionary()


def tiers_of(cache: Cache) -> list[Tier]:
    """The tiers of a cache; nothing is looked at yet. Data sets of one process share them, with what they hold open."""
    disk = _tier(cache, str(cache.path), cache.size, None)
    if cache.memory is None:
        return [disk]
    return [_tier(cache, memory_folder(cache), cache.memory_size, disk), disk]


def _tier(cache: Cache, root: str, size: int | str | None, disk: Tier | None) -> Tier:
    limit = size if isinstance(size, int) else None  # `Cache` has made numbers of them
    key = os.getpid(), root, limit, cache.shared, id(disk)
    found = _open.get(key)
    if found is None or found.gone:
        found = _open[key] = Tier(root, limit, modest=disk is not None, shared=cache.shared, disk=disk)
    return found


def memory_folder(cache: Cache) -> str:
    """Our own folder in the memory that the user names: another one for each cache."""
    name = hashlib.blake2s(os.fsencode(cache.path), digest_size=8).hexdigest()
    return os.path.join(os.fsdecode(cache.memory or ""), f"shardstream-{name}")


def shortage(tier: Tier) -> str | None:
    """What to tell a user who asks for more memory than there is; ``None`` if there is enough.

    Raises:
        OSError: It cannot be looked at.
    """
    if tier.limit is None or not tier.memory:
        return None
    with tier.ledger.open() as entry:
        possible = tier.most(entry)
        used = entry.used
    if tier.limit <= possible:
        return None
    left = memory_left()
    if left is not None and left + used < tier.limit:
        return (
            f"{tier.root} may hold {tier.limit:,} bytes, but the memory limit of the container leaves {possible:,}; "
            "raise that limit, or ask for less with memory_size="
        )
    return f"{tier.root} may hold {tier.limit:,} bytes, but there is room for {possible:,}; {more_memory(tier.limit)}"


def more_memory(wanted: int) -> str:
    """How to give a container so many bytes of memory for files.

    >>> more_memory(64 * 10**9).partition(",")[0]
    'start the container with --shm-size=64g'
    """
    size = -(-min(wanted * 4 // 3, wanted + RESERVED_MEMORY) // _GIB)
    return (
        f"start the container with --shm-size={size}g, or on Kubernetes mount a volume "
        f"emptyDir: {{medium: Memory, sizeLimit: {size}Gi}} at /dev/shm (it counts as memory of the container)"
    )
