"""Windows: the bounded shuffle buffer, as arithmetic.

A lane of n positions is cut into max(1, ⌊(n + ⌊w/2⌋)/w⌋) windows of w, the last taking the rest. Each is permuted with
a key of its own; a lane visits its windows in their order, from a keyed one on, around. A classic shuffle buffer holds
w decoded or encoded samples; this one holds w small integers, and can be entered anywhere.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardstream import rng
from shardstream.order.lanes import Integers, Lanes

CACHE_BYTES = 64 << 20
"""Bytes of permutations held a process. A rank's 256 lanes with windows of 128 need 0.2 MB; a larger bound would only
serve windows beyond 100,000 samples on hundreds of lanes at once, and cost that much in every worker."""

_HELD_PER_LANE = 2  # the window being read, and the next, which read-ahead or a batch across both has opened
_ENTRY_BYTES = 512  # what Python adds to a small array and its place in two dicts


class Windows:
    """(lane, offset) -> position on the line.

    Args:
        lanes: The lanes, with the number of samples.
        window: Positions a window (w).
        seed: Seed of the run.
        epoch: Epoch, in [0, 2**32).
        cache_bytes: Bound of the permutations held.
    """

    def __init__(self, lanes: Lanes, *, window: int, seed: int, epoch: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._lanes = lanes
        self._window = window
        self._seed = seed
        self._epoch = epoch
        self._first_plus_1 = np.zeros(lanes.count, np.int64)  # 0: not drawn yet, so untouched pages cost no memory
        self._held = _HeldPermutations(cache_bytes)

    def line_positions(self, lane: Integers, offset: Integers) -> Integers:
        """Position on the line of each offset of each lane, after the shuffle."""
        span = self._lanes.span_of(lane)
        begin = self._lanes.begin(span)
        length = self._lanes.begin(span + 1) - begin
        count = np.maximum((length + self._window // 2) // self._window, 1)
        # windows but the last are of one size, so starting with a later one turns the lane as a whole
        turned = (offset + self._first_window(lane, count) * self._window) % length
        window: Integers = np.minimum(turned // self._window, count - 1)
        window_begin = window * self._window
        size = np.where(window == count - 1, length - window_begin, self._window)
        return begin + window_begin + self._permuted(lane, window, size, begin + window_begin, turned - window_begin)

    def _first_window(self, lane: Integers, count: Integers) -> Integers:
        first = self._first_plus_1[lane]
        unknown = np.flatnonzero(first == 0)
        if len(unknown) == 0:
            return first - 1
        lanes, index = np.unique(lane[unknown], return_index=True)
        counts = count[unknown][index]
        for number, windows in zip(lanes.tolist(), counts.tolist(), strict=True):
            self._first_plus_1[number] = 1 + self._draw_first_window(number, windows)
        return self._first_plus_1[lane] - 1

    def _draw_first_window(self, lane: int, count: int) -> int:
        if count == 1:
            return 0
        word = rng.words(1, seed=self._seed, domain=rng.Domain.WINDOW_START, epoch=self._epoch, a=lane)
        return int(word[0]) * count >> 64

    def _permuted(
        self,
        lane: Integers,
        window: Integers,
        size: Integers,
        place: Integers,
        inside: Integers,
    ) -> Integers:
        """``inside`` through the permutation of its window; ``place`` tells the windows of all lanes apart."""
        by_window = np.argsort(place, kind="stable")
        edges = np.flatnonzero(np.diff(place[by_window], prepend=-1, append=-1))
        heads = by_window[edges[:-1]]
        keys = zip(lane[heads].tolist(), window[heads].tolist(), size[heads].tolist(), strict=True)
        result = np.empty_like(inside)
        for (low, high), key in zip(pairwise(edges.tolist()), keys, strict=True):
            members = by_window[low:high]
            result[members] = self._permutation(*key)[inside[members]]
        return result

    def _permutation(self, lane: int, window: int, size: int) -> NDArray[np.unsignedinteger]:
        held = self._held.get(lane, window)
        if held is None:
            raw = rng.words(size, seed=self._seed, domain=rng.Domain.WINDOW, epoch=self._epoch, a=lane, b=window)
            held = rng.permutation(raw).astype(np.min_scalar_type(size - 1))
            self._held.put(lane, window, held)
        return held


class _HeldPermutations:
    """The permutations of the last windows of the lanes used last, within a bound in bytes.

    A worker visits its lanes in turn, with one window open in each, so what must be held is a window a lane: a plain
    cache of the last windows would fill its bound with windows that are done with.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.bytes = 0
        self._limit = limit_bytes
        self._lanes: OrderedDict[int, dict[int, NDArray[np.unsignedinteger]]] = OrderedDict()

    def get(self, lane: int, window: int) -> NDArray[np.unsignedinteger] | None:
        windows = self._lanes.get(lane)
        if windows is None:
            return None
        self._lanes.move_to_end(lane)
        return windows.get(window)

    def put(self, lane: int, window: int, permutation: NDArray[np.unsignedinteger]) -> None:
        windows = self._lanes.setdefault(lane, {})
        if len(windows) == _HELD_PER_LANE:
            self.bytes -= _cost(windows.pop(next(iter(windows))))
        windows[window] = permutation
        self.bytes += _cost(permutation)
        self._lanes.move_to_end(lane)
        while self.bytes > self._limit and len(self._lanes) > 1:  # the window in use is held, however large
            _, dropped = self._lanes.popitem(last=False)
            self.bytes -= sum(map(_cost, dropped.values()))


def _cost(permutation: NDArray[np.unsignedinteger]) -> int:
    return permutation.nbytes + _ENTRY_BYTES
