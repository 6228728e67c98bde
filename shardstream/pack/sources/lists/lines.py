"""Where the records of a text file begin: found by numpy a block at a time, eight bytes a record, no strings."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.dataset.lists.compressed import LONGEST, too_long
from shardstream.dataset.lists.list_file import ListFile
from shardstream.pack.sources.lists.quotes import BOM, grouped

_CHUNK = 4 << 20
_AT_ONCE = 1 << 16  # records of an odd csv
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'


@dataclass(frozen=True, slots=True)
class LineIndex:
    """Records of a text file, blank lines left out.

    Attributes:
        starts: int64 (n + 1), byte offset of each record, and where the file ends. Blank lines may follow a record.
        jumps: int64, numbers of the records before which lines were left out, or that follow one of several lines.
        shifts: int64, line minus number of the records from that one on.
    """

    starts: NDArray[np.int64]
    jumps: NDArray[np.int64]
    shifts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def lines(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first line of each of these records, from 1."""
        return numbers + self.shifts[np.searchsorted(self.jumps, numbers, side="right") - 1]

    def without_first(self) -> LineIndex:
        """The records after the first."""
        return replace(self, starts=self.starts[1:], jumps=self.jumps - 1, shifts=self.shifts + 1)


class _Builder:
    """Sized by a first pass, since growing would copy; what stays unused is never touched."""

    def __init__(self, limit: int) -> None:
        self._starts = np.empty(limit + 1, np.int64)
        self._count, self._shift = 0, 0
        self._jumps: list[NDArray[np.int64]] = []
        self._shifts: list[NDArray[np.int64]] = []

    def add(self, starts: NDArray[np.int64], lines: NDArray[np.int64]) -> None:
        found = self._count + len(starts)
        self._starts[self._count : found] = starts
        shifts = lines - np.arange(self._count, found)
        changes = np.flatnonzero(np.diff(shifts, prepend=self._shift))
        if len(changes):
            self._jumps.append(changes + self._count)
            self._shifts.append(shifts[changes])
            self._shift = int(shifts[-1])
        self._count = found

    def index(self, size: int) -> LineIndex:
        self._starts[self._count] = size
        nothing = np.empty(0, np.int64)  # lines count from 1 and numbers from 0: the first record is always a jump
        return LineIndex(
            self._starts[: self._count + 1],
            np.concatenate((nothing, *self._jumps)),
            np.concatenate((nothing, *self._shifts)),
        )


def text_pieces(text: ListFile) -> Iterator[bytes]:
    """All of a list, a piece at a time."""
    for position in range(0, text.size, _CHUNK):
        yield text.read(position, min(position + _CHUNK, text.size))


def survey(text: ListFile) -> tuple[int, str]:
    """Number of line ends in a file, and the hash of all of it."""
    newlines, hasher = 0, xxhash.xxh3_128()
    for data in text_pieces(text):
        newlines += data.count(b"\n")
        hasher.update(data)
    return newlines, hasher.hexdigest()


def index_lines(text: ListFile, newlines: int, *, delimiter: bytes | None) -> LineIndex:
    """Find the records.

    Args:
        text: The file. A byte order mark at its start belongs to no record.
        newlines: How many line ends it has.
        delimiter: Of csv (RFC 4180), whose line ends between quotes belong to the record; ``None``: a line is a record.

    Raises:
        SourceError: A record is longer than those of lists are.
    """
    start = len(BOM) if text.read(0, min(len(BOM), text.size)) == BOM else 0
    builder = _Builder(newlines + 1)
    if not _index_blocks(text, start, builder, delimiter):
        assert delimiter is not None
        builder = _Builder(newlines + 1)
        _index_odd_csv(text, start, builder, delimiter)
    index = builder.index(text.size)
    _check_lengths(index, text.url)
    return index


def _check_lengths(index: LineIndex, url: str) -> None:
    """Refuse a record that would fill the memory, as one of a small archive may; blank lines after it count."""
    for first in range(0, len(index), _AT_ONCE):
        lengths = np.diff(index.starts[first : first + _AT_ONCE + 1])
        if lengths.max() > LONGEST:
            raise too_long(url, line=int(index.lines(first + np.argmax(lengths, keepdims=True))[0]))


def _index_blocks(text: ListFile, start: int, builder: _Builder, delimiter: bytes | None) -> bool:
    """All records; False if quotes stand where no csv has them."""
    line, lines_before, odd = 1, 0, False  # line of the open record; line ends before the block; is a quote open?
    for position in range(start, text.size, _CHUNK):
        length = min(_CHUNK, text.size - position)
        before, after = position > 0, position + length < text.size
        data = np.frombuffer(text.read(position - before, position + length + after), np.uint8)
        block = data[before : before + length]
        ends = np.flatnonzero(block == _NEWLINE)
        numbers = lines_before + np.arange(len(ends)) + 2  # of the line after each line end
        lines_before += len(ends)
        if delimiter is not None:
            quotes = np.flatnonzero(block == _QUOTE)
            if not _regular(data, quotes + before, odd, ord(delimiter)):
                return False
            keep = np.searchsorted(quotes, ends) + odd & 1 == 0
            ends, numbers = ends[keep], numbers[keep]
            odd = bool(len(quotes) + odd & 1)
        if len(ends):
            begins = np.concatenate(([start], ends[:-1] + position + 1))
            first = np.concatenate(([line], numbers[:-1]))
            start, line = int(ends[-1]) + position + 1, int(numbers[-1])
            lengths = ends + position - begins
            filled = (lengths > 1) | ((lengths == 1) & (block[np.maximum(ends - 1, 0)] != _RETURN))
            builder.add(begins[filled], first[filled])
    if odd:
        return False
    if text.read(start, min(start + 2, text.size)).removesuffix(b"\r"):
        builder.add(np.array([start]), np.array([line]))
    return True


def _regular(data: NDArray[np.uint8], quotes: NDArray[np.int64], odd: bool, delimiter: int) -> bool:
    """Whether quotes open where a field begins and close where it ends, or are doubled."""
    opening, closing = quotes[odd::2], quotes[1 - odd :: 2]
    before = data[opening[opening > 0] - 1]
    after = data[closing[closing < len(data) - 1] + 1]
    return bool(
        np.isin(before, (_NEWLINE, delimiter, _QUOTE)).all()
        and np.isin(after, (_NEWLINE, _RETURN, delimiter, _QUOTE)).all()
    )


def _index_odd_csv(text: ListFile, start: int, builder: _Builder, delimiter: bytes) -> None:
    records = _odd_records(text.map(), start, delimiter)
    while found := list(islice(records, _AT_ONCE)):
        builder.add(*np.array(found).T)


def _odd_records(data: mmap.mmap, start: int, delimiter: bytes) -> Iterator[tuple[int, int]]:
    """Where each record begins, and its first line."""
    line = 1
    for group in grouped(_lines(data, start), delimiter):
        if len(group) > 1 or group[0].removesuffix(b"\r"):
            yield start, line
        line += len(group)
        start += sum(map(len, group)) + len(group)


def _lines(data: mmap.mmap, start: int) -> Iterator[bytes]:
    while start < len(data):
        end = data.find(b"\n", start)
        yield data[start:] if end < 0 else data[start:end]
        start = len(data) if end < 0 else end + 1
