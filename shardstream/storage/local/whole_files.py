"""Whole files of a folder of this machine, read and not mapped.

To map a file, touch its pages and unmap it costs more than to read it, up to some hundred kilobytes. In the page cache
a thread more only costs time; where a file takes longer, on a disk or another machine, many are asked at once.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import ChangedError, NotFoundError, StorageError
from shardstream.storage.base.buffers import Buffers, MappedBuffers, gathered
from shardstream.storage.base.store import Request, Store
from shardstream.storage.local.links import refuse_planted_link
from shardstream.threads import each
from shardstream.waits import watched

_SLOW_S = 0.0005  # of one file, on the average of a batch
_AT_ONCE = 16


class _FileBuffers(Buffers):
    """Whole files, or why they could not be read."""

    def __init__(self, files: dict[str, memoryview | StorageError]) -> None:
        self._files = files

    def view(self, path: str, offset: int, length: int | None) -> memoryview:
        if length == 0:
            return memoryview(b"")
        found = self._files.get(path)
        if found is None:
            raise StorageError("a file was used that had not been planned", url=path)
        if isinstance(found, StorageError):
            raise found
        return found[offset:] if length is None else found[offset : offset + length]

    def gather(self, path: str, offsets: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        if not len(offsets) or not width:
            return np.empty((len(offsets), width), np.uint8)
        return gathered(self.view(path, 0, None), offsets, width)


class _Pace:
    """How long a file took of late."""

    def __init__(self) -> None:
        self.seconds = 0.0


_pace = _Pace()


def read_files(store: Store, requests: Sequence[Request]) -> Buffers:
    """The files that these requests name, all of each; what is wrong with one is raised when it is used.

    Args:
        store: A folder of this machine, or a store in front of one.
        requests: Whole files; where a size is given, it is compared.
    """
    root = store.file_of("")
    if root is None:
        return MappedBuffers(store)

    def read(request: Request) -> memoryview | StorageError:
        begun = time.perf_counter()
        try:
            return _read(store, str(root), request)
        except StorageError as error:
            return error
        finally:
            _pace.seconds += (time.perf_counter() - begun - _pace.seconds) / 64

    if _pace.seconds <= _SLOW_S or len(requests) < 2:
        with watched(lambda: f"files of {store.url} to be read"):
            found = [read(request) for request in requests]
    else:
        what = f"files of {store.url} to be read"
        found = list(each(read, requests, at_once=min(_AT_ONCE, len(requests)), what=what))
    return _FileBuffers({request.path: one for request, one in zip(requests, found, strict=True)})


def _read(store: Store, root: str, request: Request) -> memoryview:
    path, _, size = request
    if ".." in path or path.startswith("/") or "\0" in path:
        store.file_of(path)  # refuses what leads out of the store
    try:
        return memoryview(read_whole(f"{root}/{path}", root, size=size))
    except StorageError as error:
        raise error.at(url=store.locate(path)) from None
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError("no such object", url=store.locate(path)) from None
    except (OSError, ValueError) as error:
        raise StorageError.of(error, url=store.locate(path)) from error


def read_whole(
    path: str, root: str = "", *, size: int | None = None, check: Callable[[int, int], object] | None = None
) -> bytes:
    """Read all bytes of a regular file.

    Args:
        path: The file.
        root: The directory above it that a user named, see `refuse_planted_link`.
        size: Bytes that it must have. Default: as many as it has when it is opened, and nothing may write to it
            meanwhile, which costs one more system call.
        check: Called with a descriptor of the file and its size before it is read; may raise.

    Raises:
        NotFoundError: It is a directory, a pipe, or a device.
        AccessError: It is reached by a link that must not be followed.
        ChangedError: It has another size, or was written while it was read.
        OSError, ValueError: It cannot be opened or read.
    """
    # Non-blocking, so that opening a FIFO does not wait for its writer; the flag means nothing for files.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise NotFoundError("it is a directory" if stat.S_ISDIR(info.st_mode) else "it is not a regular file")
        refuse_planted_link(path, info, root)
        wanted = info.st_size if size is None else size
        if check is not None:
            check(handle, info.st_size)
        data = os.read(handle, wanted + 1)  # one more, to see that it ends
        while len(data) < wanted and (more := os.read(handle, wanted + 1 - len(data))):
            data += more
        after = info if size is not None else os.fstat(handle)
    finally:
        os.close(handle)
    if len(data) != wanted and size is not None:
        what = f"the file is {'longer' if len(data) > wanted else 'shorter'}, and had {size} bytes when it was indexed"
        raise ChangedError(what, hint="open the dataset again: what changed is indexed again")
    if len(data) != wanted or (after.st_size, after.st_mtime_ns) != (info.st_size, info.st_mtime_ns):
        raise ChangedError("the file changed while it was being read", hint="read it again once nothing writes to it")
    return data
