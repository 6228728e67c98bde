"""``ObjectBytes``: the bytes of a foreign object, for the scan that finds its values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.storage import Store


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
    """

    def __init__(self, store: Store, path: str, size: int, *, window: int = 4 << 20) -> None:
        self.path = path
        self.url = store.locate(path)
        self.size = size
        self.mapped = store.mapped
        self._store = store
        self._window = window
        self._start = 0
        self._held = memoryview(b"")
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
            self._held = self._store.get(self.path, offset, min(max(length, self._window), self.size - offset))
            self._start, begin = offset, 0
        return self._held[begin : begin + length]

    def array(self, dtype: str, count: int, offset: int) -> NDArray[Any]:
        """``count`` numbers from ``offset`` on, as a view; raises as `get`."""
        kind = np.dtype(dtype)
        if count < 0 or count > self.size:
            raise self.damaged(f"{count} numbers cannot be in an object of {self.size} bytes", offset)
        return np.frombuffer(self.get(offset, count * kind.itemsize), kind, count)

    def beside(self, path: str, size: int) -> ObjectBytes:
        """The bytes of another object of the same root: one that says where values lie in this one."""
        return ObjectBytes(self._store, path, size, window=self._window)

    def damaged(self, what: str, offset: int, *, hint: str = "fetch or write the file again") -> FormatError:
        """The error for what is wrong at a byte of this object."""
        return FormatError(what, url=self.url, offset=offset, hint=hint)
