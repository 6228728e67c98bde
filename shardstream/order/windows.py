"""Windows: the bounded shuffle buffer, as arithmetic.

A lane of n positions is cut into max(1, ⌊(n + ⌊w/2⌋)/w⌋) windows of w, the last taking the rest. Each is permuted with
a key of its own; a lane visits its windows in their order, from a keyed one on, around. A classic shuffle buffer holds
w decoded or encoded samples; this one holds w small integers, and can be entered anywhere.
"""

from __future__ import annotations

import numpy as np

from shardstream import rng
from shardstream.order.held import CACHE_BYTES, HeldPermutations
from shardstream.order.lanes import Integers, Lanes


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
        longest = min(
            -(-lanes.samples // lanes.count), window + window // 2
        )  # the last window of a lane takes the rest
        self._held = HeldPermutations(lanes.count, max(longest, 1), limit_bytes=cache_bytes)

    def line_positions(self, lane: Integers, offset: Integers) -> Integers:
        """Position on the line of each offset of each lane, after the shuffle."""
        position, _, _ = self.find(lane, offset)
        return position

    def find(self, lane: Integers, offset: Integers) -> tuple[Integers, Integers, Integers]:
        """The same, with where the window begins and ends on the line."""
        span = self._lanes.span_of(lane)
        begin = self._lanes.begin(span)
        length = self._lanes.begin(span + 1) - begin
        count = np.maximum((length + self._window // 2) // self._window, 1)
        # windows but the last are of one size, so starting with a later one turns the lane as a whole
        turned = (offset + self._first_window(lane, count) * self._window) % length
        window: Integers = np.minimum(turned // self._window, count - 1)
        window_begin = window * self._window
        size = np.where(window == count - 1, length - window_begin, self._window)
        first = begin + window_begin
        place = self._held.through(lane, window, turned - window_begin, size=size, make=self._permutation)
        return first + place, first, first + size

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

    def _permutation(self, lane: int, window: int, size: int) -> Integers:
        raw = rng.words(size, seed=self._seed, domain=rng.Domain.WINDOW, epoch=self._epoch, a=lane, b=window)
        return rng.permutation(raw)
