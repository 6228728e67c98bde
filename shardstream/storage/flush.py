"""Bringing a growing file to the disk while more is being written, so that the last ``fsync`` finds little to do."""

from __future__ import annotations

import os
import threading

_EVERY = 16 << 20  # often enough to keep the disk busy, seldom enough to start few threads


class BackgroundFlush:
    """Flushes one file in a thread, one flush at a time.

    Args:
        descriptor: The file's; it must stay open until `wait` has returned.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        self._flushed = 0

    def wrote(self, total: int) -> None:
        """Say that the file holds ``total`` bytes now; begins a flush when enough are new and none is running."""
        if total - self._flushed < _EVERY or (self._thread is not None and self._thread.is_alive()):
            return
        self._flushed = total
        self._thread = threading.Thread(target=self._flush, name="shardstream-flush", daemon=True)
        self._thread.start()

    def _flush(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            # The kernel tells of a failed write once only, so it must not be lost with this call.
            self._error = self._error or error

    def wait(self) -> OSError | None:
        """Wait for a flush that is running; the first error of any of them, or ``None``."""
        if self._thread is not None:
            self._thread.join()
        return self._error
