"""Locks between the processes of a node, all of which end with the process that holds them, however it ends.

Whole-file locks (``flock``) guard the ledger and say that a folder is in use. Claims are locks on the bytes of an open
file description: a hint that somebody is about to fetch these blocks. The kernel drops them with the process, so no
claim can outlive its owner, and no clock or process number has to be compared.
"""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress
from typing import Self

from shardstream.storage.base.file_locks import TAKEN, system_locks, try_lock
from shardstream.storage.cache.folder import Folder

# struct flock of 64-bit Linux.
_FLOCK = struct.Struct("@hhqqi4x")


class FileLock:
    """An open file that carries a lock.

    A child that is forked meanwhile shares the lock, knowingly or not. So there are two ends: `close`, after which the
    lock lasts until the children let go of it too, and `release` (or the end of a ``with``), which ends it at once.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        """Unlock, for whoever else shares the lock as well."""
        if self.descriptor >= 0:
            self._unlock()
        self.close()

    def _unlock(self) -> None:
        with suppress(OSError):
            fcntl = system_locks()
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of this process's share."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.close()


class Claim(FileLock):
    """Blocks of a file that this process is about to fetch."""

    def _unlock(self) -> None:
        with suppress(OSError):
            fcntl = system_locks()
            fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))


def lock(descriptor: int, *, shared: bool, wait: float) -> bool:
    """Take the lock on an open file, or change its kind; False if that took longer than ``wait`` seconds.

    Raises:
        OSError: The file system, or this system, has no locks.
    """
    deadline = time.monotonic() + wait
    pause = 0.0005
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    return True


def lock_file(folder: Folder, name: str, *, shared: bool, wait: float) -> FileLock | None:
    """Open a file, made if there is none, and lock it; ``None`` if that took longer than ``wait`` seconds.

    The file that is locked is the one that has the name: one that was removed meanwhile is left alone.

    Raises:
        OSError: It cannot be opened for writing, or the file system has no locks.
    """
    deadline = time.monotonic() + wait
    while True:
        taken = FileLock(folder.open_or_create(name))
        if not lock(taken.descriptor, shared=shared, wait=max(0.0, deadline - time.monotonic())):
            taken.close()
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(folder.check(name), os.fstat(taken.descriptor)):
                return taken
        taken.close()


def is_locked(folder: Folder, name: str) -> bool:
    """Whether any process holds a lock on this file; False if there is no such file.

    Raises:
        OSError: It cannot be looked at.
    """
    try:
        descriptor = folder.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with FileLock(descriptor):
        return not lock(descriptor, shared=False, wait=0.0)


def claim(descriptor: int, first: int, stop: int) -> Claim | tuple[int, int]:
    """Claim units ``[first, stop)`` of a file: the claim, or the units that another one has claimed.

    Args:
        descriptor: The file, opened for writing by this alone; it becomes the claim's, or is closed.
        first: The first unit.
        stop: The unit after the last one.

    Raises:
        OSError: Its file system, or this system, has no such locks.
    """
    taken = Claim(descriptor)
    fcntl = system_locks()
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, stop - first, 0)
    while True:
        try:
            fcntl.fcntl(taken.descriptor, fcntl.F_OFD_SETLK, wanted)
        except OSError as error:
            if error.errno not in TAKEN:
                taken.close()
                raise
        else:
            return taken
        kind, _, start, length, _ = _FLOCK.unpack(fcntl.fcntl(taken.descriptor, fcntl.F_OFD_GETLK, wanted))
        if kind != fcntl.F_UNLCK:
            taken.close()
            return max(first, start), min(stop, start + length) if length else stop
