"""``Ledger``: how many bytes a cache has given out, kept by all processes of the node together.

It is a small file, and the one lock of a cache. Whoever holds it may make and remove files in the cache, and touches no
network. A number is written before the file that it counts is made, and taken back after one is removed, so a process
that dies in between leaves it too large, never too small; the next one that has the cache to itself counts anew.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import xxhash

from shardstream.storage.cache.folder import Folder
from shardstream.storage.cache.locks import lock_file

LEDGER = "ledger"

_ENTRY = struct.Struct("<8sQQQ")  # magic, bytes given out, limit of who wrote last (0: none), what was said
_MAGIC = b"SSLEDGER"
_CHECK = struct.Struct("<Q")
_WAIT = 10.0  # a holder makes one file, or removes one unused data set


class Busy(OSError):
    """The ledger was held by others for too long."""


class LedgerEntry:
    """The open ledger.

    Attributes:
        used: Bytes given out.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        entry = os.pread(descriptor, _ENTRY.size + _CHECK.size, 0)
        self.readable = len(entry) == _ENTRY.size + _CHECK.size and entry[_ENTRY.size :] == _check(entry[: _ENTRY.size])
        numbers: tuple[int, int, int] = _ENTRY.unpack(entry[: _ENTRY.size])[1:] if self.readable else (0, 0, 0)
        self.used, self._limit, self._said = numbers

    @property
    def limit(self) -> int | None:
        """The limit of the process that wrote last; ``None`` for none."""
        return self._limit or None

    def give(self, count: int, limit: int | None) -> None:
        """Count ``count`` bytes more, or less."""
        self.used, self._limit = max(0, self.used + count), limit or 0
        self._write()

    def begin(self, used: int) -> None:
        """So many bytes were given out, and nothing was said yet."""
        self.used, self._said = used, 0
        self._write()

    def say(self, what: int) -> bool:
        """Whether this is the first process that has to say something, number ``what`` (0 to 63), since `begin`."""
        first = not self._said >> what & 1
        if first:
            self._said |= 1 << what
            self._write()
        return first

    def _write(self) -> None:
        entry = _ENTRY.pack(_MAGIC, self.used, self._limit, self._said)
        os.pwrite(self._descriptor, entry + _check(entry), 0)


def _check(entry: bytes) -> bytes:
    return _CHECK.pack(xxhash.xxh3_64_intdigest(entry))


class Ledger:
    """The ledger of a cache.

    Args:
        folder: The cache's folder.
        count: Counts the bytes that files take really; called with the ledger held.
    """

    def __init__(self, folder: Folder, count: Callable[[], int]) -> None:
        self._folder = folder
        self._count = count

    @contextmanager
    def open(self, *, wait: float = _WAIT) -> Iterator[LedgerEntry]:
        """Hold the ledger.

        Raises:
            Busy: Others held it for ``wait`` seconds.
            OSError: It cannot be opened for writing.
        """
        lock = lock_file(self._folder, LEDGER, shared=False, wait=wait)
        if lock is None:
            raise Busy(f"the ledger {self._folder.place(LEDGER)} was held by other processes for {wait:g} s")
        with lock:
            entry = LedgerEntry(lock.descriptor)
            if not entry.readable:
                entry.begin(self._count())
            yield entry

    def begin(self) -> None:
        """Count anew, and forget what was said: nobody else uses the cache."""
        with self.open() as entry:
            entry.begin(self._count())
