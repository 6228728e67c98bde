"""Where the records of a text file begin: numpy over a mapping of the file, twelve bytes a record, no strings."""

from __future__ import annotations

import csv
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import SourceError

_CHUNK = 4 << 20
_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
_PEEK = 4096


@dataclass(frozen=True, slots=True)
class LineIndex:
    """Records of a text file, blank lines left out. Arrays are of length n.

    Attributes:
        starts: int64, byte offset of each record.
        lines: uint32, number of its first line, from 1.
    """

    starts: NDArray[np.int64]
    lines: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.starts)


def map_text(path: str) -> mmap.mmap | bytes:
    """A text file as a read-only mapping.

    Raises:
        SourceError: It cannot be read, is empty, or is no text.
    """
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise SourceError("the list is empty", url=path, hint="write one file a line: path<TAB>label")
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    except OSError as error:
        raise SourceError(f"the list cannot be read: {error.strerror}", url=path, hint="check the path") from error
    if b"\0" in data[:_PEEK]:
        raise SourceError(
            "this is no text list: it holds zero bytes",
            url=path,
            hint="save the list as UTF-8 (not UTF-16), one file a line: path<TAB>label",
        )
    return data


def index_lines(data: mmap.mmap | bytes, *, quoted: bool) -> LineIndex:
    """Find the records.

    Args:
        data: The file. A byte order mark at its start belongs to no record.
        quoted: Whether line ends between double quotes belong to the record, as in csv (RFC 4180).
    """
    # Sized by a first pass, since growing them would copy; what stays unused is never touched.
    limit = sum(int(np.count_nonzero(block == _NEWLINE)) for block in _blocks(data, 0)) + 1
    starts, lines = np.empty(limit, np.int64), np.empty(limit, np.uint32)
    count = 0
    position = start = len(_BOM) if data[: len(_BOM)] == _BOM else 0
    newlines, line, odd = 0, 1, False  # line ends seen; line of the open record; whether a quote is open
    for block in _blocks(data, position):
        ends = np.flatnonzero(block == _NEWLINE)
        numbers = newlines + np.arange(len(ends)) + 2  # of the line after each line end
        newlines += len(ends)
        if quoted:
            parity = np.add.accumulate(block == _QUOTE, dtype=np.uint8) + odd & 1
            keep = parity[ends] == 0
            odd = bool(parity[-1])
            ends, numbers = ends[keep], numbers[keep]
        if len(ends):
            begins = np.concatenate(([start], ends[:-1] + position + 1))
            first = np.concatenate(([line], numbers[:-1]))
            start, line = int(ends[-1]) + position + 1, int(numbers[-1])
            lengths = ends + position - begins
            filled = (lengths > 1) | ((lengths == 1) & (block[np.maximum(ends - 1, 0)] != _RETURN))
            found = count + int(np.count_nonzero(filled))
            starts[count:found], lines[count:found] = begins[filled], first[filled]
            count = found
        position += len(block)
    if bytes(data[start:]).strip(b"\r"):
        starts[count], lines[count] = start, line
        count += 1
    return LineIndex(starts[:count], lines[:count])


def _blocks(data: mmap.mmap | bytes, start: int) -> Iterator[NDArray[np.uint8]]:
    for position in range(start, len(data), _CHUNK):
        yield np.frombuffer(data, np.uint8, min(_CHUNK, len(data) - position), position)


def read_record(data: mmap.mmap | bytes, start: int, *, quoted: bool) -> list[str]:
    """The columns of the record at ``start``: separated by tabs, or by commas as in csv if ``quoted``.

    Bytes that are no UTF-8 come as surrogates, as Python has them in file names.

    Raises:
        SourceError: Malformed csv.
    """
    end = data.find(b"\n", start)
    if quoted:
        while end >= 0 and data[start:end].count(b'"') % 2:
            end = data.find(b"\n", end + 1)
    record = data[start:end] if end >= 0 else data[start:]
    text = record.removesuffix(b"\r").decode("utf-8", "surrogateescape")
    if not quoted:
        return text.split("\t")
    try:
        return next(csv.reader([text], strict=True))
    except (csv.Error, StopIteration) as error:
        raise SourceError(f"malformed csv: {error}", hint='a " inside of quotes is written as ""') from error
