"""Lists as files that are read by range.

Those from a store or a pipe, and what compressed ones hold, are written to a temporary file first.
"""

from __future__ import annotations

import mmap
import os
import select
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from typing import IO

from shardstream.dataset.lists.compressed import codec_of, decompressed, refuse_binary
from shardstream.errors import SourceError
from shardstream.names.missing import instead_of
from shardstream.placeholders import find_placeholder
from shardstream.storage import Location, open_object
from shardstream.storage.base.sorting import no_room
from shardstream.waits import watched

_PEEK = 4096
_STEP = 32 << 20
_WRITER_S = 60.0  # until somebody has to write to a pipe


class ListFile:
    """A local file, read by range: no page of it counts as memory of this process.

    Args:
        handle: File descriptor; it is closed when this object goes.
        url: What it is, for messages.
        stamp: Size and time that it has had before; default: it has now.

    Attributes:
        size: Its bytes.
    """

    def __init__(self, handle: int, url: str, stamp: tuple[int, int] | None = None) -> None:
        self._handle = handle
        self._close = weakref.finalize(self, os.close, handle)
        self.url = url
        self._awaited = f"{url} to be read"
        self._stamp = stamp or self._now()
        self.size = self._stamp[0]

    @classmethod
    def written(cls, file: IO[bytes], url: str) -> ListFile:
        """What was written to a temporary file, which can be closed then.

        Raises:
            StorageError: The disk is full, or too many files are open.
        """
        try:
            file.flush()
            handle = os.dup(file.fileno())
        except OSError as error:
            raise no_room(error) from error
        return cls(handle, url)

    @property
    def inherited(self) -> tuple[int, str, tuple[int, int]]:
        """The arguments that make it in a child process, where that has inherited the descriptor."""
        return self._handle, self.url, self._stamp

    def _now(self) -> tuple[int, int]:
        found = os.fstat(self._handle)
        return found.st_size, found.st_mtime_ns

    def read(self, start: int, end: int) -> bytes:
        """Bytes ``[start, end)``.

        Raises:
            SourceError: It became shorter.
        """
        pieces: list[bytes] = []
        while start < end:
            with watched(self._awaited):
                data = os.pread(self._handle, end - start, start)
            if not data:
                raise self._changed()
            if len(data) == end - start and not pieces:
                return data
            pieces.append(data)
            start += len(data)
        return b"".join(pieces)

    def map(self) -> mmap.mmap:
        """All of it, addressable. Reading what was cut off since kills the process, so the size is compared first.

        Raises:
            SourceError: It was changed.
        """
        self.check()
        return mmap.mmap(self._handle, 0, prot=mmap.PROT_READ)

    def check(self) -> None:
        """Refuse a file that was changed since; SourceError."""
        if self._now() != self._stamp:
            raise self._changed()

    def _changed(self) -> SourceError:
        return SourceError("the list changed while it was being packed", url=self.url, hint="pack it again")


def open_list(location: Location) -> ListFile:
    """The text of a list, wherever it lies, compressed or not.

    Raises:
        SourceError: It cannot be read, is damaged, or is not text.
        StorageError: The store does not give it.
        MissingExtraError: It is compressed with zstd, and that package is not installed.
    """
    file = open_local(location.url, "list") if location.local else _fetched(location)
    head = file.read(0, min(_PEEK, file.size))
    if (placeholder := find_placeholder(head, url=file.url)) is not None:
        raise placeholder
    codec = codec_of(head, file.url)
    if codec is None:
        refuse_binary(head, file.url)
        return file
    text = spooled(lambda: decompressed(file.read, file.size, codec, file.url), url=file.url)
    file.check()
    return text


def open_local(path: str, what: str) -> ListFile:
    """A local file, or a pipe, which is read to its end into a temporary file.

    Args:
        path: Where.
        what: What it is, for messages: ``"list"``.

    Raises:
        SourceError: It cannot be read; it is a folder or a device; nobody writes to the pipe.
        StorageError: The disk of the temporary file is full.
    """
    try:
        # Opening a pipe would wait for its writer; for files the flag means nothing.
        with watched(f"{path} to be opened"):
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError(f"the {what} cannot be read: {reason}", url=path, hint=instead_of(path)) from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return ListFile(handle, path)
    try:
        if not stat.S_ISFIFO(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a device"
            raise SourceError(f"the {what} is {kind}", url=path, hint="pass a file, or a pipe")
        return spooled(lambda: _piped(handle, path, what), url=path)
    finally:
        os.close(handle)


def _piped(handle: int, path: str, what: str) -> Iterator[bytes]:
    """What comes through a pipe until all its writers have closed it."""
    poll, begun, waited_from = select.poll(), False, time.monotonic()
    poll.register(handle, select.POLLIN)
    while True:
        try:
            data = os.read(handle, _STEP)
        except BlockingIOError:  # it has a writer, that takes its time
            begun = True
            with watched(f"the rest of the {what} from {path}"):
                poll.poll()
            continue
        if data:
            begun = True
            yield data
        elif begun or poll.poll(0):  # at its end; a writer that wrote nothing hangs up, too
            return
        elif time.monotonic() - waited_from > _WRITER_S:
            raise SourceError(
                f"nobody wrote to this pipe for {_WRITER_S:.0f} s", url=path, hint="start what writes it first"
            )
        else:
            time.sleep(0.01)


def _fetched(location: Location) -> ListFile:
    store, name = open_object(location)
    size = store.size(name)

    def pieces() -> Iterator[bytes | memoryview]:
        for offset in range(0, size, _STEP):
            yield store.get(name, offset, min(_STEP, size - offset))

    return spooled(pieces, url=location.url)


def spooled(pieces: Callable[[], Iterator[bytes | memoryview]], *, url: str) -> ListFile:
    """A temporary file with these contents. It has no name, and is gone with the process.

    Raises:
        StorageError: The disk is full.
    """
    with tempfile.TemporaryFile(prefix="shardstream-") as file:
        for piece in pieces():
            try:
                file.write(piece)
            except OSError as error:
                raise no_room(error) from error
        return ListFile.written(file, url)
