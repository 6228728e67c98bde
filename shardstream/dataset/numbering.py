"""``Numbering``: numbers that run on through several things: rows through shards, shards through data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Numbering:
    """Finds where a number lies. 8 bytes a thing.

    Args:
        counts: How many numbers each thing has, in order; integers (n,).

    Example:
        >>> Numbering([3, 0, 2]).find(3)
        (2, 0)
    """

    def __init__(self, counts: ArrayLike) -> None:
        self._ends = np.cumsum(counts, dtype=np.int64)

    @property
    def total(self) -> int:
        """How many numbers there are."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def begin(self, thing: int) -> int:
        """The first number of a thing."""
        return int(self._ends[thing - 1]) if thing else 0

    def find(self, number: int) -> tuple[int, int]:
        """The thing that a number in [0, total) lies in, and which of its own it is."""
        thing = int(np.searchsorted(self._ends, number, side="right"))
        return thing, number - self.begin(thing)

    def find_all(self, numbers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same of many: int64 (n,) each."""
        things = np.searchsorted(self._ends, numbers, side="right")
        return things, numbers - np.where(things > 0, self._ends[things - 1], 0)
