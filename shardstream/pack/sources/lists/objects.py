"""JSON objects, a line each, as lines of plain text: what stands in a few of their columns, for numpy to look at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.pack.sources.lists.records import Column

_decode = json.JSONDecoder().raw_decode
_UNLIKE = "\t\r\n"  # what no column may hold


class Lines(NamedTuple):
    """Columns of some records of a block, separated by tabs.

    Attributes:
        data: The lines.
        starts: Where each begins.
        rows: Which record each is of; the others are unlike them, and for their reader to take apart.
    """

    data: bytes
    starts: NDArray[np.int64]
    rows: NDArray[np.int64]


def lines_of(data: bytes, starts: NDArray[np.int64], columns: Sequence[Column], *, path: Column | None) -> Lines:
    """The records of a block whose columns are all there, as text or integers.

    Args:
        data: The block.
        starts: Where each record begins.
        columns: Those that are looked at.
        path: The one of the path, which has to be text.
    """
    lines: list[bytes] = []
    rows: list[int] = []
    for row, (start, end) in enumerate(pairwise([*starts.tolist(), len(data)])):
        line = _line(data[start:end].partition(b"\n")[0].removesuffix(b"\r"), columns, path)
        if line is not None:
            lines.append(line)
            rows.append(row)
    ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
    return Lines(b"".join(lines), np.append(np.zeros(1, np.int64), ends)[:-1], np.array(rows, np.int64))


def _line(raw: bytes, columns: Sequence[Column], path: Column | None) -> bytes | None:
    try:
        text = raw.decode()
        found, end = _decode(text)
        cells = [found[column] for column in columns]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if end != len(text) or not isinstance(found, dict):
        return None
    for number, cell in enumerate(cells):
        if type(cell) is int and columns[number] != path:
            cells[number] = str(cell)
        elif type(cell) is not str or not cell or any(letter in cell for letter in _UNLIKE):
            return None
    try:
        return "\t".join(cells).encode() + b"\n"
    except UnicodeEncodeError:
        return None
