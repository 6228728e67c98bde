"""Which reads serve which ranges: neighbours joined, long ones split. Pure functions of integers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from shardstream.storage.base.store import Request

SMALL_GAP = 4 << 10
"""Bytes between two ranges that one read always fetches with them: less than a request costs a store and a client."""

JOIN_GAP = 32 << 10
"""Bytes between two ranges up to which one read fetches both, as long as no more than half of it is gaps."""

LONGEST_READ = 8 << 20
"""Bytes of one read: long enough that its latency hardly counts, short enough that several share the line, and that
one which stalls is soon made up for."""


def plan_reads(requests: Iterable[Request], *, most: int = LONGEST_READ) -> list[Request]:
    """Reads that cover all requests, each byte once, in order of path and offset.

    Args:
        requests: Ranges of known length, in any order; they may overlap.
        most: Bytes of a read; longer ones are split evenly.

        >>> plan_reads([Request("a", 0, 10), Request("a", 12, 5), Request("b", 7, 1)])
        [Request(path='a', offset=0, length=17), Request(path='b', offset=7, length=1)]
    """
    return [part for span in _joined(requests) for part in _split(span, most)]


def _joined(requests: Iterable[Request]) -> Iterator[tuple[str, int, int]]:
    path, begin, end, gaps = "", 0, 0, 0
    for one, offset, length in sorted(requests):
        assert length is not None, "the length of every range of ours is known"
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
