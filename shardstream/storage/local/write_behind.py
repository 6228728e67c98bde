"""Writing a file in a thread: whoever makes its bytes goes on meanwhile, and the last ``fsync`` finds little to do."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from io import FileIO
from queue import Empty, SimpleQueue

from shardstream.threads import start
from shardstream.waits import watched

_BLOCK = 1 << 20  # bytes handed to the thread at once
_PARTS = 1000  # buffers in them; one system call takes 1024
_WAITING = 4  # blocks that wait for the thread, then the caller waits
_LOOK_S = 0.25  # between two looks whether the thread is still there
_EVERY = 16 << 20  # bytes between two flushes: often enough to keep the disk busy, seldom enough to start few threads


class WriteBehind:
    """Writes one file and flushes it as it grows, each in a thread of its own, one write and one flush at a time.

    Args:
        file: The file, unbuffered; it must stay open until `wait` has returned, or `abandon` said so.
    """

    def __init__(self, file: FileIO) -> None:
        self._file = file  # which so is not closed by the garbage collector while a thread writes to it
        self._descriptor = file.fileno()
        self._parts: list[bytes] = []
        self._size = 0
        # Simple queues: where memory is short, the locks that others make for each wait would be what fails.
        self._blocks: SimpleQueue[list[bytes] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(_WAITING):
            self._room.put(None)
        self._writer: threading.Thread | None = None
        self._flusher: threading.Thread | None = None
        self._written = self._flushed = 0
        # The kernel tells of a failed write or flush once only, so it must not be lost with the call.
        self._error: Exception | None = None

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append ``data``; waits where more is waiting already than memory should hold.

        Raises:
            OSError: Something before it could not be written.
        """
        if self._error is not None:
            raise self._error
        part = data if type(data) is bytes else bytes(data)
        self._parts.append(part)
        self._size += len(part)
        if self._size >= _BLOCK or len(self._parts) >= _PARTS:
            self._hand_over()
        return len(part)

    def wait(self) -> Exception | None:
        """Wait until all is written, and for a flush that is running; the first error of any, or ``None``."""
        if self._parts:
            self._hand_over()
        with self._watched():
            if self._writer is not None:
                self._blocks.put(None)
                self._writer.join()
                self._writer = None
            if self._flusher is not None:
                self._flusher.join()
        return self._error

    def abandon(self, patience: float) -> bool:
        """Write no more; whether both threads end within some seconds. Else the disk hangs, and they may use the file.

        Args:
            patience: Seconds.
        """
        deadline = time.monotonic() + patience
        self._error = self._error or OSError("the file was given up")
        with suppress(Empty):
            while True:
                self._blocks.get_nowait()
        self._blocks.put(None)
        threads = [thread for thread in (self._writer, self._flusher) if thread is not None]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _watched(self) -> watched:
        return watched(f"{self._file.name} to be written to the disk")

    def _hand_over(self) -> None:
        if self._writer is None:
            writer = threading.Thread(target=self._write_blocks, name="shardstream-write", daemon=True)
            start(writer)
            self._writer = writer
        parts, self._parts, self._size = self._parts, [], 0
        with self._watched():
            while not self._has_room():
                if not self._writer.is_alive():
                    raise self._error or OSError("the thread that writes the file has died")
        self._blocks.put(parts)

    def _has_room(self) -> bool:
        with suppress(Empty):
            self._room.get(timeout=_LOOK_S)
            return True
        return False

    def _write_blocks(self) -> None:
        try:
            while (parts := self._blocks.get()) is not None:
                self._room.put(None)
                self._write_all(parts)
                self._flush_some()
        except Exception as error:
            self._error = self._error or error

    def _write_all(self, parts: list[bytes]) -> None:
        size = sum(map(len, parts))
        done = os.writev(self._descriptor, parts)
        if done < size:  # larger than one call can be, or the disk is nearly full: then the next call says so
            left = memoryview(b"".join(parts))[done:]
            while left:
                left = left[os.write(self._descriptor, left) :]
        self._written += size

    def _flush_some(self) -> None:
        if self._written - self._flushed < _EVERY or (self._flusher is not None and self._flusher.is_alive()):
            return
        self._flushed = self._written
        flusher = threading.Thread(target=self._flush, name="shardstream-flush", daemon=True)
        start(flusher)
        self._flusher = flusher

    def _flush(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._error = self._error or error
