"""``TextSpool``: parts of an object that are wanted again later, in another order."""

from __future__ import annotations

import tempfile
import weakref
from array import array
from typing import IO

from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.storage.base.sorting import no_room


class TextSpool:
    """Parts of an object by number: where they lie in a file that is mapped; copies in a temporary file of any other.

    Args:
        data: The object.

    Attributes:
        any: Whether one of them has any byte.
    """

    def __init__(self, data: ObjectBytes) -> None:
        self._data = data
        self._offsets = array("q")
        self._lengths = array("q")
        self._file: IO[bytes] | None = None
        self._written = 0
        self.any = False

    def add(self, offset: int, length: int) -> None:
        """The next part; StorageError where there is no room for it."""
        if length and not self._data.mapped:
            part = self._data.get(offset, length)
            try:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(prefix="shardstream-")  # noqa: SIM115 - closed below
                    weakref.finalize(self, self._file.close)
                self._file.write(part)
            except OSError as error:
                raise no_room(error) from error
            offset, self._written = self._written, self._written + length
        self.any |= length > 0
        self._offsets.append(offset)
        self._lengths.append(length)

    def get(self, number: int) -> bytes:
        """A part."""
        offset, length = self._offsets[number], self._lengths[number]
        if self._file is None or not length:
            return bytes(self._data.get(offset, length)) if length else b""
        self._file.seek(offset)
        return self._file.read(length)
