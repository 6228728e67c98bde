"""Which document lies where: best fit, the longest first, so that what fits into a part of a bin lies in one part.

Best fit decreasing (Johnson, "Near-optimal bin packing algorithms", MIT 1973), level by level. A bin is cut into
halves, these into halves, down to the least part. What is longer than half a bin is placed first, then what is longer
than half a half, within one of them each, and so on: so no document crosses the middle of a part that it fits into half
of, and bins can be read as two rows of half the length, or four of a quarter, without cutting it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class _Room:
    """What is still free at the ends of parts of one size, by how much that is.

    Args:
        part: Their size.
    """

    def __init__(self, part: int) -> None:
        self.part = part
        self._places: dict[int, list[int]] = {}  # where what is free begins, by its length
        self._lengths = 0  # bit n: there is such a place of n

    def add(self, place: int, free: int) -> None:
        """Say that so much is free from a place to the end of its part."""
        if free:
            self._places.setdefault(free, []).append(place)
            self._lengths |= 1 << free

    def take(self, length: int) -> int | None:
        """The place where the least is left beside so much, filled now; ``None`` if no place has as much."""
        longer = self._lengths >> length
        if not longer:
            return None
        free = length + (longer & -longer).bit_length() - 1
        places = self._places[free]
        place = places.pop()
        if not places:
            self._lengths ^= 1 << free
        self.add(place + length, free - length)
        return place

    def halved(self) -> _Room:
        """The same free room, in parts of half the size."""
        half = self.part // 2
        found = _Room(half)
        for free, places in self._places.items():
            for place in places:
                if free > half:
                    found.add(place, free - half)
                    found.add(place + free - half, half)
                else:
                    found.add(place, free)
        return found


def best_fit(lengths: NDArray[np.int64], size: int, least: int) -> NDArray[np.int64]:
    """Where documents begin, in bins that are laid end to end.

    Args:
        lengths: Their lengths, each in [1, size], int64 (n,).
        size: Of a bin.
        least: Size of the least part that keeps whole what fits into it; ``size`` divided by a power of two.

    Returns:
        Their places, int64 (n,): document i lies in bin ``places[i] // size``. All bins up to the last one are used.

        >>> best_fit(np.array([5, 2, 3, 8]), 8, 8).tolist()
        [8, 16, 13, 0]
    """
    order = np.argsort(-lengths, kind="stable")
    places = np.empty(len(lengths), np.int64)
    room, bins = _Room(size), 0
    longest, found = lengths[order].tolist(), []
    for length in longest:
        while length <= room.part // 2 and room.part > least:
            room = room.halved()
        place = room.take(length)
        if place is None:
            place, bins = bins * size, bins + 1
            room.add(place + length, room.part - length)
            for other in range(place + room.part, place + size, room.part):
                room.add(other, room.part)
        found.append(place)
    places[order] = found
    return places
