"""Files as read-only memory, without holding a file descriptor.

``mmap.mmap`` keeps a duplicate of the descriptor for as long as the mapping lives (until Python 3.13, which can leave
it out), and 1,024 descriptors a process is the usual limit: a few data sets with an open shard in each of hundreds of
lanes would meet it. So this maps through libc itself. What a mapping costs then is address space.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
import weakref
from typing import NamedTuple

from shardstream.storage.base.store import FileState
from shardstream.storage.local.links import refuse_planted_link

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64),
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class Mapped(NamedTuple):
    """A file in memory.

    Attributes:
        data: All of it, read-only.
        state: Which file it is and what it was like when it was mapped.
    """

    data: memoryview
    state: FileState


def map_file(path: str | os.PathLike[str], root: str = "") -> Mapped:
    """The whole file as read-only bytes. Unmapped when the last slice of it is gone.

    A file that is replaced by rename stays readable as it was; one that is truncated in place is not (SIGBUS).

    Args:
        path: The file.
        root: The directory above it that a user named, see `refuse_planted_link`.

    Raises:
        AccessError: It is reached by a link that must not be followed.
        OSError: It cannot be opened or mapped. FileNotFoundError also for what is not a regular file.
    """
    # Non-blocking, so that opening a FIFO does not wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise FileNotFoundError("no regular file")
        refuse_planted_link(os.fspath(path), info, root)
        return Mapped(map_descriptor(descriptor, info.st_size), FileState.of(info))
    finally:
        os.close(descriptor)


def map_descriptor(descriptor: int, size: int) -> memoryview:
    """So many bytes of an open file, which may be closed then.

    Raises:
        OSError: It cannot be mapped.
    """
    if not size:
        return memoryview(b"")
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    content = (ctypes.c_ubyte * size).from_address(address)
    # Views keep `content` alive, and its end ends the mapping. At exit the kernel does it.
    weakref.finalize(content, _libc.munmap, address, size).atexit = False
    return memoryview(content).toreadonly().cast("B")
