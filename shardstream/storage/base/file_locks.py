"""Locks on files, which end with the process that holds them; systems without them are told apart here."""

from __future__ import annotations

import errno
from types import ModuleType

TAKEN = (errno.EAGAIN, errno.EACCES)
"""Why a lock was not had: another process has it."""


def system_locks() -> ModuleType:
    """Python's module ``fcntl``.

    Raises:
        OSError: This system has none.
    """
    try:
        import fcntl
    except ImportError:
        raise OSError(errno.ENOTSUP, "this system has no locks on files") from None
    return fcntl


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file, or change the kind of its lock; False if another one has it.

    Raises:
        OSError: The file system, or this system, has no locks.
    """
    fcntl = system_locks()
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in TAKEN:
            raise
        return False
    return True
