"""Records of a file, found again by eight bytes each: those of lists, and those copied to a temporary file."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.lists.list_file import ListFile
from shardstream.pack.sources.base import Item, Reject, Source, SourcePart
from shardstream.storage.base.sorting import no_room

_BUFFER = 1 << 20
_BLOCK = 2 << 20


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
        self._write(record)
        self._starts.append(self._starts[-1] + len(record))

    def extend(self, records: bytes, ends: NDArray[np.int64]) -> None:
        """Add several records at once: their bytes end to end, and where each ends; see `add`."""
        before = self._starts[-1]
        self._write(records)
        self._starts.frombytes((ends + before).astype(np.int64).tobytes())

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise no_room(error) from error

    def finish(self, url: str, lines: NDArray[np.int64] | None = None) -> Records:
        """The records, to be read; nothing can be added after that. Their lines are as of `Records`."""
        with self._file as file:
            found = ListFile.written(file, url)
        return Records(found, np.frombuffer(self._starts, np.int64), lines)

    def close(self) -> None:
        """Drop the records, if they will not be read."""
        self._file.close()


class Records:
    """Records of a file by number.

    Args:
        file: The file.
        starts: int64 (n + 1), where each begins, and where the last one ends.
        lines: int64 (n), where each stands in the list that it was copied from. Default: record n is line n + 1.
    """

    def __init__(self, file: ListFile, starts: NDArray[np.int64], lines: NDArray[np.int64] | None = None) -> None:
        self.file, self.starts = file, starts
        self._lines = lines

    def __len__(self) -> int:
        return len(self.starts) - 1

    def lines(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers from 1, for messages."""
        return numbers + 1 if self._lines is None else self._lines[numbers]

    def block(self, first: int, size: int) -> tuple[bytes, NDArray[np.int64]]:
        """Some records from ``first`` on, about ``size`` bytes of them: their bytes, and where each begins in these."""
        last = int(np.searchsorted(self.starts, self.starts[first] + size))
        last = max(first + 1, min(last, len(self)))
        data = self.file.read(int(self.starts[first]), int(self.starts[last]))
        return data, self.starts[first:last] - self.starts[first]

    def blocks(self) -> Iterator[tuple[int, bytes, NDArray[np.int64]]]:
        """All records, a `block` at a time, with the number of its first one."""
        first = 0
        while first < len(self):
            data, starts = self.block(first, _BLOCK)
            yield first, data, starts
            first += len(starts)

    def read(self, numbers: NDArray[np.int64]) -> list[bytes]:
        """These records, in this order; they are read in the order of the file."""
        order = np.argsort(numbers, kind="stable")
        begins, ends = self.starts[numbers[order]], self.starts[numbers[order] + 1]
        found = [b""] * len(numbers)
        for place, begin, end in zip(order.tolist(), begins.tolist(), ends.tolist(), strict=True):
            found[place] = self.file.read(begin, end)
        return found


class RecordReader(Protocol):
    """How a record becomes a sample: everything that a worker needs besides the records."""

    def item(self, raw: bytes, line: int, begin: int = 0, /) -> Item | Reject:
        """The sample of a record; lines count from 1, and it begins at a byte of its file."""


@dataclass(frozen=True, slots=True)
class RecordPart(SourcePart):
    """Some records: their bytes end to end, where each ends, their lines, and where each begins in its file."""

    reader: RecordReader
    data: bytes
    ends: NDArray[np.int64]
    lines: NDArray[np.int64]
    begins: NDArray[np.int64]

    def __iter__(self) -> Iterator[Item | Reject]:
        start = 0
        for end, line, begin in zip(self.ends.tolist(), self.lines.tolist(), self.begins.tolist(), strict=True):
            yield self.reader.item(self.data[start:end], line, begin)
            start = end


R = TypeVar("R", bound=RecordReader)


class RecordSource(Source, Generic[R]):
    """Samples that are records of a file; a worker reads its own."""

    lendable = True
    _records: Records
    _reader: R

    def __len__(self) -> int:
        return len(self._records)

    def part(self, numbers: NDArray[np.int64]) -> RecordPart:
        found = self._records.read(numbers)
        ends = np.cumsum([len(raw) for raw in found], dtype=np.int64)
        return RecordPart(
            self._reader, b"".join(found), ends, self._records.lines(numbers), self._records.starts[numbers]
        )
