"""Ranges of positions that a run leaves out: from a place to before another one, places being epoch and position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shardstream.errors import UsageError
from shardstream.order.lanes import Integers

Place: TypeAlias = tuple[int, int]
"""An epoch, and a position in it."""

PlaceRange: TypeAlias = tuple[Place, Place]
"""Half open."""

_MOST_RANGES = 64  # after joining; all of them travel with each state
_MOST_EPOCHS = 1 << 32
_LARGEST = 1 << 62
_FORM = "write skip=[((0, 5000), (0, 6000))]: from position 5,000 of epoch 0 to before position 6,000 of it"


def ranges_of(given: Any) -> tuple[PlaceRange, ...]:
    """Ranges as anybody may have written them, in order; those that overlap or touch are one.

    Raises:
        UsageError: They are none.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UsageError(f"skip must be a list of ranges, got {given!r}", hint=_FORM)
    found = joined_ranges(map(_range_of, given))
    if len(found) > _MOST_RANGES:
        raise UsageError(f"skip must be at most {_MOST_RANGES} ranges, got {len(found)}", hint="join some of them")
    return found


def _range_of(given: Any) -> PlaceRange:
    if not (isinstance(given, tuple | list) and len(given) == 2 and all(map(_is_place, given))):
        raise UsageError(f"a range of skip must be two places, each an epoch and a position, got {given!r}", hint=_FORM)
    begin, end = tuple(given[0]), tuple(given[1])
    if begin >= end:
        raise UsageError(f"a range of skip must end behind where it begins, got {begin} to {end}", hint=_FORM)
    return begin, end


def _is_place(given: Any) -> bool:
    if not (isinstance(given, tuple | list) and len(given) == 2 and all(type(one) is int for one in given)):
        return False
    epoch, position = given
    return 0 <= int(epoch) < _MOST_EPOCHS and 0 <= int(position) < _LARGEST


def joined_ranges(*several: Iterable[PlaceRange]) -> tuple[PlaceRange, ...]:
    """What any of these cover, in order.

    Example::

        >>> joined_ranges([((0, 5), (0, 9))], [((1, 0), (1, 2)), ((0, 7), (0, 12))])
        (((0, 5), (0, 12)), ((1, 0), (1, 2)))
    """
    found: list[PlaceRange] = []
    for begin, end in sorted(one for ranges in several for one in ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return tuple(found)


def uncovered(ranges: Sequence[PlaceRange], known: Sequence[PlaceRange]) -> list[PlaceRange]:
    """The parts of ranges that others, which are in order, do not cover."""
    found: list[PlaceRange] = []
    for begin, end in ranges:
        for other, beyond in known:
            if other < end and beyond > begin:
                if begin < other:
                    found.append((begin, other))
                begin = beyond
        if begin < end:
            found.append((begin, end))
    return found


def ranges_in_epoch(ranges: Sequence[PlaceRange], epoch: int, samples: int) -> list[tuple[int, int]]:
    """What ranges cover of one epoch of so many samples: positions, half open, in order."""
    found = []
    for (first, begin), (last, end) in ranges:
        if first <= epoch <= last:
            inside = (begin if first == epoch else 0, min(end, samples) if last == epoch else samples)
            if inside[0] < inside[1]:
                found.append(inside)
    return found


class Gaps:
    """The positions from ``start`` on outside of some ranges, numbered on from ``start`` without a gap.

    Args:
        ranges: Half open, in order.
        start: What lies before it is not looked at.

    Attributes:
        count: How many positions from ``start`` on are inside of a range.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]], start: int) -> None:
        pairs = np.array([(max(begin, start), end) for begin, end in ranges if end > start], np.int64).reshape(-1, 2)
        self._through = np.concatenate([[0], np.cumsum(pairs[:, 1] - pairs[:, 0])])
        self._numbers = pairs[:, 1] - self._through[1:]  # of the first positions behind
        self.count = int(self._through[-1])

    def positions(self, numbers: Integers) -> Integers:
        """Positions by number: int64 (n,), in any order."""
        found: Integers = numbers + self._through[np.searchsorted(self._numbers, numbers, side="right")]
        return found
