"""Which reads serve which ranges: neighbours joined, long ones split. Pure functions of integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardstream.storage.base.store import Request

HEADER_GAP = 1 << 10
"""Bytes between two values that are planned as one range: headers and padding of a tar, other fields of a record."""

SMALL_GAP = 4 << 10
"""Bytes between two ranges that one read always fetches with them: less than a request costs a store and a client."""

JOIN_GAP = 32 << 10
"""Bytes between two ranges up to which one read fetches both, as long as no more than half of it is gaps."""

LONGEST_READ = 8 << 20
"""Bytes of one read: long enough that its latency hardly counts, short enough that several share the line, and that
one which stalls is soon made up for."""


def closed_up(offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and lengths of ranges that cover all of these that are not empty, in order; close neighbours are one.

    >>> [one.tolist() for one in closed_up(np.array([9000, 0, 12, 10]), np.array([1, 10, 5, 0]))]
    [[0, 9000], [17, 1]]
    """
    order = np.argsort(offsets, kind="stable")
    order = order[lengths[order] > 0]
    begins = offsets[order]
    ends = np.maximum.accumulate(begins + lengths[order])
    apart = np.flatnonzero(begins[1:] - ends[:-1] > HEADER_GAP) + 1
    firsts = np.concatenate([np.zeros(min(len(order), 1), np.int64), apart])
    lasts = np.append(apart, len(order))[: len(firsts)] - 1
    return begins[firsts], ends[lasts] - begins[firsts]


def plan_reads(requests: Iterable[Request], *, most: int = LONGEST_READ) -> list[Request]:
    """Reads that cover all requests, each byte once, in order of path and offset.

    Args:
        requests: Ranges in any order; they may overlap.
        most: Bytes of a read; longer ones are split evenly, but for those up to the end of an object.

        >>> plan_reads([Request("a", 0, 10), Request("a", 12, 5), Request("b", 7, 1)])
        [Request(path='a', offset=0, length=17), Request(path='b', offset=7, length=1)]
        >>> plan_reads([Request("a", 10, None), Request("a", 4, 8)])
        [Request(path='a', offset=4, length=6), Request(path='a', offset=10, length=None)]
    """
    known: list[tuple[str, int, int]] = []
    rests: dict[str, int] = {}  # objects that are read to their ends, and from where
    for path, offset, length in requests:
        if length is None:
            rests[path] = min(offset, rests.get(path, offset))
        else:
            known.append((path, offset, length))
    if rests:
        known = list(_before(known, rests))
    reads = [part for span in _joined(known) for part in _split(span, most)]
    if not rests:
        return reads
    return sorted([*reads, *(Request(path, offset, None) for path, offset in rests.items())], key=lambda one: one[:2])


def _before(ranges: Iterable[tuple[str, int, int]], rests: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """What of some ranges lies before the rests of their objects."""
    for path, offset, length in ranges:
        end = rests.get(path, offset + length)
        if offset < end:
            yield path, offset, min(length, end - offset)


def _joined(ranges: Iterable[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    path, begin, end, gaps = "", 0, 0, 0
    for one, offset, length in sorted(ranges):
        if length == 0:
            continue
        gap = max(offset - end, 0)
        useful = end - begin - gaps
        if one == path and end > begin and (gap <= SMALL_GAP or (gap <= JOIN_GAP and gaps + gap <= useful)):
            end, gaps = max(end, offset + length), gaps + gap
            continue
        if end > begin:
            yield path, begin, end
        path, begin, end, gaps = one, offset, offset + length, 0
    if end > begin:
        yield path, begin, end


def _split(span: tuple[str, int, int], most: int) -> Iterator[Request]:
    path, begin, end = span
    parts = -(-(end - begin) // most)
    cuts = [begin + (end - begin) * number // parts for number in range(parts + 1)]
    for first, last in pairwise(cuts):
        yield Request(path, first, last - first)
