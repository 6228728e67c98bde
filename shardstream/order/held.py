"""Permutations that many lanes walk through side by side: applied to whole batches, held within a bound in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.order.lanes import Integers

Permutation: TypeAlias = NDArray[np.unsignedinteger]

CACHE_BYTES = 64 << 20
"""Bytes of permutations held a process. A rank's 256 lanes with windows of 128 need 0.2 MB; a larger bound would only
serve windows beyond 100,000 samples on hundreds of lanes at once, and cost that much in every worker."""

_HELD_PER_LANE = 2  # the one being read, and the next, which read-ahead or a batch across both has opened
_ENTRY_BYTES = 512  # what Python adds to a small array and its place in two dicts


class HeldPermutations:
    """The last permutations of the lanes used last.

    A worker visits its lanes in turn, with one permutation open in each, so what must be held is one a lane: a plain
    cache of the last permutations would fill its bound with those that are done with.

    Args:
        limit_bytes: Bound of what is held; the permutation in use is held, however large.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self.bytes = 0
        self._limit = limit_bytes
        self._lanes: OrderedDict[int, dict[int, Permutation]] = OrderedDict()

    def through(
        self,
        lane: Integers,
        number: Integers,
        inside: Integers,
        *,
        size: Integers,
        place: Integers,
        make: Callable[[int, int, int], Integers],
    ) -> Integers:
        """Each ``inside`` through the permutation of its (lane, number).

        Args:
            lane: The lane of each.
            number: Which of its lane's permutations.
            inside: The place in the permutation.
            size: Length of the permutation.
            place: Any number that tells the permutations of all lanes apart.
            make: (lane, number, size) -> the permutation.
        """
        by_place = np.argsort(place, kind="stable")
        edges = np.flatnonzero(np.diff(place[by_place], prepend=-1, append=-1))
        heads = by_place[edges[:-1]]
        keys = zip(lane[heads].tolist(), number[heads].tolist(), size[heads].tolist(), strict=True)
        sorted_inside = inside[by_place]
        found = np.empty_like(inside)
        for (low, high), key in zip(pairwise(edges.tolist()), keys, strict=True):
            found[low:high] = self._permutation(*key, make)[sorted_inside[low:high]]
        result = np.empty_like(inside)
        result[by_place] = found
        return result

    def _permutation(self, lane: int, number: int, size: int, make: Callable[[int, int, int], Integers]) -> Permutation:
        held = self._lanes.get(lane)
        if held is not None:
            self._lanes.move_to_end(lane)
            found = held.get(number)
            if found is not None:
                return found
        made = make(lane, number, size).astype(np.min_scalar_type(size - 1))
        self._put(lane, number, made)
        return made

    def _put(self, lane: int, number: int, permutation: Permutation) -> None:
        held = self._lanes.setdefault(lane, {})
        if len(held) == _HELD_PER_LANE:
            self.bytes -= _cost(held.pop(next(iter(held))))
        held[number] = permutation
        self.bytes += _cost(permutation)
        self._lanes.move_to_end(lane)
        while self.bytes > self._limit and len(self._lanes) > 1:
            _, dropped = self._lanes.popitem(last=False)
            self.bytes -= sum(map(_cost, dropped.values()))


def _cost(permutation: Permutation) -> int:
    return permutation.nbytes + _ENTRY_BYTES
