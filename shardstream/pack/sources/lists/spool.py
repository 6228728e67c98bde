"""Records of any bytes in a temporary file, found again by eight bytes each: listings, and lists that are no text."""

from __future__ import annotations

import os
import tempfile
from array import array

import numpy as np
from numpy.typing import NDArray

from shardstream.pack.sources.lists.list_file import ListFile
from shardstream.storage.base.sorting import no_room

_BUFFER = 1 << 20


class Spool:
    """A temporary file of records, in the order in which they were added. It has no name, and goes with the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="shardstream-", buffering=_BUFFER)  # noqa: SIM115 - see `finish`
        self._starts = array("q", [0])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, record: bytes) -> None:
        """Add a record.

        Raises:
            StorageError: The disk is full.
        """
        try:
            self._file.write(record)
        except OSError as error:
            raise no_room(error) from error
        self._starts.append(self._starts[-1] + len(record))

    def extend(self, records: bytes, ends: NDArray[np.int64]) -> None:
        """Add several records at once: their bytes end to end, and where each ends; see `add`."""
        before = self._starts[-1]
        try:
            self._file.write(records)
        except OSError as error:
            raise no_room(error) from error
        self._starts.frombytes((ends + before).astype(np.int64).tobytes())

    def finish(self, url: str) -> Records:
        """The records, to be read; nothing can be added after that."""
        try:
            self._file.flush()
            found = ListFile(os.dup(self._file.fileno()), url)
        except OSError as error:
            raise no_room(error) from error
        finally:
            self._file.close()
        return Records(found, np.frombuffer(self._starts, np.int64))

    def close(self) -> None:
        """Drop the records, if they will not be read."""
        self._file.close()


class Records:
    """Records of a file by number. Line n + 1 is record n.

    Args:
        file: The file.
        starts: int64 (n + 1), where each begins, and where the last one ends.
    """

    def __init__(self, file: ListFile, starts: NDArray[np.int64]) -> None:
        self.file, self.starts = file, starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def lines(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers from 1, for messages."""
        return numbers + 1

    def block(self, first: int, size: int) -> tuple[bytes, NDArray[np.int64]]:
        """Some records from ``first`` on, about ``size`` bytes of them: their bytes, and where each begins in these."""
        last = int(np.searchsorted(self.starts, self.starts[first] + size))
        last = max(first + 1, min(last, len(self)))
        data = self.file.read(int(self.starts[first]), int(self.starts[last]))
        return data, self.starts[first:last] - self.starts[first]

    def read(self, numbers: NDArray[np.int64]) -> list[bytes]:
        """These records, in this order; they are read in the order of the file."""
        order = np.argsort(numbers, kind="stable")
        begins, ends = self.starts[numbers[order]], self.starts[numbers[order] + 1]
        found = [b""] * len(numbers)
        for place, begin, end in zip(order.tolist(), begins.tolist(), ends.tolist(), strict=True):
            found[place] = self.file.read(begin, end)
        return found
