"""Bytes that are read by range, as a file that other libraries can read."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class RangedFile(io.RawIOBase):
    """A file to read and seek in; nothing is read but what is asked for.

    Args:
        size: Its bytes.
        read: Gives the bytes at an offset, so many of them; never asked for what lies past the end.
    """

    def __init__(self, size: int, read: Callable[[int, int], bytes | memoryview]) -> None:
        self._size = size
        self._read = read
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = max(0, min(len(buffer), self._size - self._at))
        if length:
            buffer[:length] = self._read(self._at, length)
        self._at += length
        return length
