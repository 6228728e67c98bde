"""``ObjectBytes``: the bytes of a foreign object, for the scan that finds its values."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import ChecksumError, DecodeError, FormatError, StorageError, UnsupportedError
from shardstream.placeholders import PLACEHOLDER_START, find_placeholder
from shardstream.storage import Store

FETCH_AGAIN = "fetch or write the file again"
"""The hint of errors about what is damaged, and not merely of a kind that is not read."""
_NEAR = 4096  # bytes of one read of a file by `ObjectBytes.copy`


class ObjectBytes:
    """Bytes of an object: views of the mapped file, else of large reads. What lies outside of it is an error.

    Args:
        store: Where the object lies.
        path: Its name there.
        size: Its bytes.
        window: Bytes of one read where the store is not mapped.

    Attributes:
        path: Its name.
        url: Its URL, for messages.
        size: Its bytes.
        mapped: Whether it is a mapped file: then views of any length cost nothing.
        reached: Called now and then with the share of the object that was read, 0 to 1, by formats that know it.
    """

    def __init__(self, store: Store, path: str, size: int, *, window: int = 4 << 20) -> None:
        self.path = path
        self.url = store.locate(path)
        self.size = size
        self.mapped = store.mapped
        self.reached: Callable[[float], object] = float  # ignored
        self._store = store
        self._window = window
        self._start = 0
        self._held = memoryview(b"")
        self._file: int | None = None
        self._near, self._near_start = b"", 0
        if store.mapped:
            self._held = store.get(path)
            if len(self._held) != size:
                raise self.damaged(f"it has {len(self._held)} bytes, and had {size} when it was listed", 0)

    def get(self, offset: int, length: int) -> memoryview:
        """Bytes ``[offset, offset + length)``: a read-only view, good until the scan ends.

        Raises:
            FormatError: They are not all inside of the object.
            StorageError: They cannot be read.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise self.damaged(f"{length} bytes that should be here are not in an object of {self.size}", offset)
        begin = offset - self._start
        if begin < 0 or begin + length > len(self._held):
            self._held = self._read(offset, min(max(length, self._window), self.size - offset))
            self._start, begin = offset, 0
        return self._held[begin : begin + length]

    def _read(self, offset: int, length: int) -> memoryview:
        try:
            return self._store.get(self.path, offset, length)
        except UnsupportedError:
            raise
        except (ChecksumError, DecodeError) as error:  # a block of a compressed object
            raise FormatError(error.what, hint=FETCH_AGAIN, **error.place) from error

    def copy(self, offset: int, length: int) -> bytes:
        """As `get`, few bytes of their own: for headers that lie far apart.

        Of a file they are read, not mapped: to touch a page for the first time costs as much as several short reads.
        """
        begin = offset - self._near_start
        if begin >= 0 and begin + length <= len(self._near):
            return self._near[begin : begin + length]
        if self._file is None:
            self._file = self._opened()
        if self._file < 0 or offset < 0 or length < 0 or offset + length > self.size:
            return bytes(self.get(offset, length))
        try:
            self._near = os.pread(self._file, min(max(length, _NEAR), self.size - offset), offset)
        except OSError as error:
            raise StorageError.of(error, url=self.url, offset=offset) from error
        self._near_start = offset
        if len(self._near) < length:
            raise self.damaged("the file became shorter while it was read", offset)
        return self._near[:length]

    def _opened(self) -> int:
        """The file that is mapped; -1 where nothing is."""
        path = self._store.file_of(self.path) if self._store.mapped else None
        if path is None:
            return -1
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError.of(error, url=self.url) from error
        weakref.finalize(self, os.close, file)
        return file

    def array(self, dtype: str, count: int, offset: int) -> NDArray[Any]:
        """``count`` numbers from ``offset`` on, as a view; raises as `get`."""
        kind = np.dtype(dtype)
        if count < 0 or count > self.size:
            raise self.damaged(f"{count} numbers cannot be in an object of {self.size} bytes", offset)
        return np.frombuffer(self.get(offset, count * kind.itemsize), kind, count)

    def refuse_placeholder(self) -> None:
        """Refuse a placeholder, for formats without a mark of their own, in which any bytes are values.

        Raises:
            PlaceholderError: It is one.
        """
        start = self.copy(0, min(PLACEHOLDER_START, self.size))
        if (placeholder := find_placeholder(start, url=self.url, offset=0)) is not None:
            raise placeholder

    def first(self, size: int) -> ObjectBytes:
        """The first bytes of it as an object of that size: of one that shows more behind what is stored."""
        return self if size == self.size else ObjectBytes(self._store, self.path, size, window=self._window)

    def beside(self, path: str, size: int) -> ObjectBytes:
        """The bytes of another object of the same root: one that says where values lie in this one."""
        return ObjectBytes(self._store, path, size, window=self._window)

    def damaged(self, what: str, offset: int, *, hint: str = FETCH_AGAIN) -> FormatError:
        """The error for what is wrong at a byte of this object."""
        return FormatError(what, url=self.url, offset=offset, hint=hint)

    def unsupported(self, what: str, offset: int, *, hint: str) -> UnsupportedError:
        """The error for what is valid at a byte of this object, and is not read."""
        return UnsupportedError(what, url=self.url, offset=offset, hint=hint)
