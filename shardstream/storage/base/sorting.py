"""Names in their order as bytes, any number of them in bounded memory."""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO

from shardstream.errors import StorageError

RUN = 200_000  # names held in memory: some 30 MB
_READ = _BUFFER = 1 << 20


def no_room(error: OSError) -> StorageError:
    """What to say if a temporary file cannot be written."""
    return StorageError(
        f"a temporary file cannot be written: {error.strerror}",
        url=tempfile.gettempdir(),
        hint="point TMPDIR to a disk with more room",
    )


class SortedNames:
    """Collects names with a number each, and gives them back in order.

    Runs of them are sorted, and all but the last lie in a temporary file, which goes with the block (``with``). Runs
    that follow one another, as the pages of a store that lists in order do, are one.

    Args:
        run: Names held in memory.
    """

    def __init__(self, run: int = RUN) -> None:
        self._limit = run
        self._held: list[tuple[bytes, int]] = []
        self._file: BinaryIO | None = None
        self._runs: list[tuple[int, int]] = []  # where they lie in the file
        self._last = b"", 0  # of the last run

    def __enter__(self) -> SortedNames:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all of them."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._held = []
        self._runs = []
        self._last = b"", 0

    def add(self, names: Iterable[tuple[bytes, int]]) -> None:
        """Add some, each without a null byte and with a number from 0 on.

        Raises:
            StorageError: The disk is full.
        """
        names = iter(names)
        while part := list(islice(names, self._limit - len(self._held))):
            self._held += part
            if len(self._held) >= self._limit:
                self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="shardstream-", buffering=_BUFFER)  # type: ignore[assignment]  # noqa: SIM115
        assert self._file is not None
        self._held.sort()
        try:
            start = self._file.tell()
            self._file.writelines(b"%s\0%d\0" % one for one in self._held)
            stop = self._file.tell()
        except OSError as error:
            raise no_room(error) from error
        if self._runs and self._last <= self._held[0]:
            start, _ = self._runs.pop()
        self._runs.append((start, stop))
        self._last = self._held[-1]
        self._held = []

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        self._held.sort()
        if self._file is None:
            return iter(self._held)
        try:
            self._file.flush()
        except OSError as error:
            raise no_room(error) from error
        return heapq.merge(*(self._read(start, stop) for start, stop in self._runs), self._held)

    def _read(self, start: int, stop: int) -> Iterator[tuple[bytes, int]]:
        assert self._file is not None
        rest = b""
        while start < stop:
            data = os.pread(self._file.fileno(), min(_READ, stop - start), start)
            start += len(data)
            parts = (rest + data).split(b"\0")
            rest = parts.pop()
            if len(parts) % 2:
                rest = parts.pop() + b"\0" + rest
            yield from zip(parts[::2], map(int, parts[1::2]), strict=True)
