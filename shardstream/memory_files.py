"""Files without a name, in memory: what processes share by their descriptors."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from functools import cache

from shardstream.errors import StorageError

_NOT_HERE = (errno.EPERM, errno.EACCES, errno.ENOSYS)


@cache
def has_memory_files() -> bool:
    """Whether the system makes files in memory: macOS has none, and filters of system calls may refuse them."""
    try:
        os.close(os.memfd_create("shardstream"))
    except AttributeError:
        return False
    except OSError as error:
        return error.errno not in _NOT_HERE
    return True


def memory_file(name: str, size: int = 0) -> int:
    """The descriptor of a new file without a name: in memory, else a temporary one on the disk.

    Args:
        name: What ``/proc`` calls it; a file in memory only.
        size: Its bytes, zero at first.

    Raises:
        StorageError: The system refuses it, such as for want of descriptors.
    """
    try:
        descriptor = os.memfd_create(name) if has_memory_files() else _temporary(name)
        os.ftruncate(descriptor, size)
    except OSError as error:
        raise _refused(error) from error
    return descriptor


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """Such a file as memory that all processes that map it share; StorageError as `memory_file`."""
    try:
        return mmap.mmap(descriptor, size)  # it needs a descriptor of its own
    except OSError as error:
        raise _refused(error) from error


def _temporary(name: str) -> int:
    with tempfile.TemporaryFile(prefix=f"{name}-") as file:
        return os.dup(file.fileno())


def _refused(error: OSError) -> StorageError:
    reason = StorageError.of(error)
    return StorageError(f"no memory to share between processes: {reason.what}", hint=reason.hint)
