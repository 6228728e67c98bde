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
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from shardstream.errors import UsageError
from shardstream.storage.cache.blocks import SUFFIX
from shardstream.storage.cache.ledger import Book, Ledger
from shardstream.storage.cache.locks import Held, is_locked, lock, lock_file
from shardstream.storage.cache.room import in_memory, room

MARKER = "shardstream-cache.json"
ABOUT = "about.json"
LEASE = "lease"
NEW = ".new-"
SAID_FULL, SAID_SMALL = 0, 1
_MARK = {"format": "shardstream cache", "version": 1}
_OURS = {MARKER, "ledger", LEASE, "sets", "manifests", "lost+found"}
_WAIT = 10.0


class Tier:
    """One folder of a cache.

    Args:
        root: The folder.
        limit: Bytes that files in it may take; ``None`` for what the file system gives.
        modest: Whether, without a limit, to take only half of that.
    """

    def __init__(self, root: str, limit: int | None, *, modest: bool = False) -> None:
        self.modest = modest
        self.root = root
        self.limit = limit
        self.sets = os.path.join(root, "sets")
        self.ledger = Ledger(os.path.join(root, "ledger"), partial(_count, self.sets))
        self.memory = in_memory(root)
        self._lease: Held | None = None

    # ----------------------------------------------------------------------------------------------------- the folder

    def check(self) -> bool:
        """Whether the folder is a cache; False if it is empty or missing.

        Raises:
            UsageError: It holds something else.
            OSError: It cannot be looked at.
        """
        try:
            found = set(os.listdir(self.root))
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise UsageError("the cache is no folder", url=self.root, hint="name a folder of its own") from None
        if "dataset.json" in found:
            raise UsageError("the cache would lie in a data set", url=self.root, hint="name a folder of its own")
        if MARKER in found:
            return True
        foreign = sorted(name for name in found if name not in _OURS and not name.startswith(NEW))
        if foreign:
            raise UsageError(
                f"the folder of the cache holds other files, such as {foreign[0]!r}",
                url=self.root,
                hint="name an empty folder, or one that does not exist yet",
            )
        return False

    def prepare(self) -> None:
        """Make the folder, if it is not there.

        Raises:
            UsageError: It holds something else.
            OSError: It cannot be made.
        """
        if not self.check():
            os.makedirs(self.root, exist_ok=True)
            write_json(os.path.join(self.root, MARKER), _MARK)
        os.makedirs(self.sets, exist_ok=True)
        if self._lease is None:
            self._lease = self._join()

    def _join(self) -> Held:
        """Say that this process uses the cache; the first one counts what is there, as the last user may have died."""
        held = lock_file(os.path.join(self.root, LEASE), shared=False, wait=0.0)
        if held is not None:
            self.ledger.begin()
            lock(held.descriptor, shared=True, wait=_WAIT)
            return held
        held = lock_file(os.path.join(self.root, LEASE), shared=True, wait=_WAIT)
        if held is None:
            raise OSError(errno.EAGAIN, "waited in vain for another process to count the cache", self.root)
        return held

    def folders(self) -> list[str]:
        """The folders of data sets."""
        return _folders(self.sets)

    # ------------------------------------------------------------------------------------------------------- the room

    def bound(self, book: Book) -> int:
        """Bytes that files here may take."""
        most = self.most(book)
        if self.limit is not None:
            return min(self.limit, most)
        return most // 2 if self.modest else most

    def most(self, book: Book) -> int:
        """Bytes that files here could take if there were no limit."""
        return book.used + room(self.root, memory=self.memory)

    def limited(self, need: int, book: Book) -> bool:
        """Whether it is the limit, rather than the file system, that forbids ``need`` more bytes."""
        return self.limit is not None and book.used + need > self.limit

    def first_to_say(self, what: int) -> bool:
        """Whether no other process has said this since the cache was last unused: one warning is enough."""
        try:
            with self.ledger.open(wait=1.0) as book:
                return book.say(what)
        except OSError:
            return True

    def make_room(self, need: int, keep: str, book: Book) -> bool:
        """See that ``need`` more bytes may be given out, by clearing what is not in use if that helps.

        Data sets other than that of the folder ``keep`` go, the one that was not used for longest first.
        """
        if self._fits(need, book):
            return True
        unused = [folder for folder in self.folders() if folder != keep and not is_locked(os.path.join(folder, LEASE))]
        gain = sum(_bytes(folder) for folder in unused)
        if book.used - gain + need > self.bound(book):
            return False  # clearing would not help
        return any(self.clear(folder, book) and self._fits(need, book) for folder in sorted(unused, key=last_used))

    def _fits(self, need: int, book: Book) -> bool:
        return book.used + need <= self.bound(book)

    def clear(self, folder: str, book: Book) -> bool:
        """Remove a data set's folder; False if it is in use, or not ours."""
        if not os.path.exists(os.path.join(folder, ABOUT)):
            return False
        lease = lock_file(os.path.join(folder, LEASE), shared=False, wait=0.0)
        if lease is None:
            return False
        with lease:
            freed = 0
            for entry in files(folder):
                if entry.name.endswith(SUFFIX):
                    freed += entry.stat(follow_symlinks=False).st_size
                if entry.name.endswith(SUFFIX) or entry.name.startswith(NEW):
                    os.unlink(entry.path)
            os.unlink(os.path.join(folder, ABOUT))
            os.unlink(os.path.join(folder, LEASE))
            book.give(-freed, book.limit)
        with suppress(OSError):  # what is not ours stays
            os.rmdir(folder)
        return True


def _folders(sets: str) -> list[str]:
    with suppress(OSError), os.scandir(sets) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


def _count(sets: str) -> int:
    """Bytes of all files. Called with the ledger held, so that what is half made has no maker any more."""
    for folder in _folders(sets):
        for entry in files(folder):
            if entry.name.startswith(NEW):
                with suppress(OSError):
                    os.unlink(entry.path)
    return sum(_bytes(folder) for folder in _folders(sets))


def _bytes(folder: str) -> int:
    return sum(entry.stat(follow_symlinks=False).st_size for entry in files(folder) if entry.name.endswith(SUFFIX))


def files(folder: str) -> Iterator[os.DirEntry[str]]:
    """The regular files in a folder; none if it is gone."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_file(follow_symlinks=False):
                yield entry


def last_used(folder: str) -> float:
    """When a data set's folder was last opened, in seconds of the system's clock."""
    try:
        return os.stat(os.path.join(folder, LEASE)).st_mtime
    except OSError:
        return 0.0


def write_json(path: str, value: object) -> None:
    """Replace a small file as a whole."""
    write_file(path, json.dumps(value).encode())


def write_file(path: str, data: bytes) -> None:
    """Replace a file as a whole.

    Raises:
        OSError: It cannot be written; the old one stays.
    """
    new = new_name(os.path.dirname(path))
    try:
        with open(new, "xb") as file:
            file.write(data)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise


def new_name(folder: str) -> str:
    """A name for a file that is being made, which will get another one."""
    return os.path.join(folder, f"{NEW}{secrets.token_hex(8)}")
