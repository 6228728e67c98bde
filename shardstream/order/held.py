"""Permutations that many lanes walk through side by side: applied to whole batches, held within a bound in bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.order.lanes import Integers

Make: TypeAlias = Callable[[int, int, int], Integers]
"""(lane, number, size) -> the permutation."""

CACHE_BYTES = 64 << 20
"""Bytes of permutations held a process. A rank's 256 lanes with windows of 128 need 0.2 MB; a larger bound would only
serve windows beyond 100,000 samples on hundreds of lanes at once, and cost that much in every worker."""

_PER_LANE = 2  # the one being read, and the next, which read-ahead or a batch across both has opened
_FEWEST_ROWS = 64


class HeldPermutations:
    """The last two permutations of each lane that is read, as rows of one table, so that a batch is one gather.

    Permutation k of a lane lies in the row of its parity: the two that are in use at a time are neighbours. Where the
    table is full, it is emptied; calls that it cannot serve, as of a whole epoch at once, go without it.

    Args:
        lanes: Lanes are in [0, lanes).
        width: Length of the longest permutation.
        limit_bytes: Bound of the table.
    """

    def __init__(self, lanes: int, width: int, *, limit_bytes: int = CACHE_BYTES) -> None:
        self._dtype = np.min_scalar_type(max(width - 1, 0))
        self._width = width
        self._most_rows = limit_bytes // (width * self._dtype.itemsize)
        self._first_row = np.zeros(lanes, np.int32)  # of each lane; untouched pages cost no memory
        self._empty(0)

    @property
    def bytes(self) -> int:
        """Bytes of the table."""
        return self._table.nbytes

    def _empty(self, rows: int) -> None:
        self._first_row[:] = 0
        self._rows = _PER_LANE  # the first rows belong to no lane, and hold nothing
        self._number = np.full(max(rows, _PER_LANE), -1, np.int64)
        self._table = np.empty((rows, self._width), self._dtype)

    def through(
        self, lane: Integers, number: Integers, inside: Integers, *, size: Integers, make: Make
    ) -> NDArray[np.integer]:
        """Each ``inside`` through the permutation of its (lane, number).

        Args:
            lane: The lane of each.
            number: Which of its lane's permutations, from 0 on.
            inside: The place in the permutation.
            size: Length of the permutation.
            make: Makes a permutation that is not held.
        """
        parity = number & 1
        row = self._first_row[lane] + parity
        missing = np.flatnonzero(self._number[row] != number)
        if len(missing):
            keys = set(zip(lane[missing].tolist(), number[missing].tolist(), size[missing].tolist(), strict=True))
            if not self._hold(keys, make):
                return _one_by_one(lane, number, inside, size, make)
            row = self._first_row[lane] + parity
            if (self._number[row] != number).any():  # its place was needed by another one of the same call
                return _one_by_one(lane, number, inside, size, make)
        return self._table[row, inside]

    def _hold(self, keys: set[tuple[int, int, int]], make: Make) -> bool:
        """Make and hold these; ``False`` if they do not all have a place at once."""
        places = {(lane, number & 1) for lane, number, _ in keys}
        if len(places) < len(keys) or _PER_LANE * (len(keys) + 1) > self._most_rows:
            return False
        for lane, number, size in sorted(keys):
            row = self._row_of(lane) + (number & 1)
            self._table[row, :size] = make(lane, number, size)
            self._number[row] = number
        return True

    def _row_of(self, lane: int) -> int:
        """The first row of a lane; gives it one if it has none."""
        row = int(self._first_row[lane])
        if row:
            return row
        if self._rows + _PER_LANE > len(self._table):
            self._grow()
        row = self._first_row[lane] = self._rows
        self._rows += _PER_LANE
        return row

    def _grow(self) -> None:
        rows = min(max(_FEWEST_ROWS, 2 * len(self._table)), self._most_rows)
        if rows < self._rows + _PER_LANE:
            self._empty(rows)
            return
        number, table = self._number, self._table
        self._number = np.full(rows, -1, np.int64)
        self._table = np.empty((rows, self._width), self._dtype)
        self._number[: len(number)] = number
        self._table[: len(table)] = table


def _one_by_one(lane: Integers, number: Integers, inside: Integers, size: Integers, make: Make) -> NDArray[np.integer]:
    """The same without a table: each permutation is made once, and forgotten."""
    order = np.lexsort((number, lane))
    sorted_lane, sorted_number = lane[order], number[order]
    new = (np.diff(sorted_lane, prepend=-1) != 0) | (np.diff(sorted_number, prepend=-1) != 0)
    edges = [*np.flatnonzero(new).tolist(), len(order)]
    result = np.empty_like(inside)
    for low, high in pairwise(edges):
        slots = order[low:high]
        first = slots[0]
        result[slots] = make(int(lane[first]), int(number[first]), int(size[first]))[inside[slots]]
    return result
