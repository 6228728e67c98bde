"""Windows: the bounded shuffle buffer, as arithmetic.

A lane is cut into windows of w positions, but for a few that take what is left, and each is permuted with a key of its
own. A lane begins at a keyed place, so that lanes do not keep step from epoch to epoch, and goes around. A classic
shuffle buffer holds w decoded or encoded samples; this one holds w small integers, and can be entered anywhere.

Since order version 2 the first window of each lane has a keyed size, so that the lanes of a rank come to their next
windows one after another, and not all in the same step.
"""

from __future__ import annotations

import numpy as np

from shardstream import rng
from shardstream.order.held import CACHE_BYTES, HeldPermutations
from shardstream.order.lanes import Integers, Lanes
from shardstream.order.parameters import OrderParameters


class Windows:
    """(lane, offset) -> position on the line.

    A lane of n positions has max(1, ⌊(n + ⌊w/2⌋)/w⌋) windows of w, the last taking the rest. They are visited in their
    order, from a keyed one on, around.

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
        self._begins = np.zeros(lanes.count, np.int64)  # 0: not drawn yet, so untouched pages cost no memory
        longest = min(-(-lanes.samples // lanes.count), window + window // 2)  # what takes the rest of a lane
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
        window, window_begin, size, inside = self._window_of(lane, offset, length)
        first = begin + window_begin
        place = self._held.through(lane, window, inside, size=size, make=self._permutation)
        return first + place, first, first + size

    def _window_of(self, lane: Integers, offset: Integers, length: Integers) -> tuple[Integers, ...]:
        """Number of the window, where it begins in the lane's span, its size, and the place inside it."""
        count = self._count(length)
        # windows but the last are of one size, so starting with a later one turns the lane as a whole
        turned = (offset + (self._begin_of(lane, length) - 1) * self._window) % length
        window: Integers = np.minimum(turned // self._window, count - 1)
        window_begin = window * self._window
        size = np.where(window == count - 1, length - window_begin, self._window)
        return window, window_begin, size, turned - window_begin

    def _count(self, length: Integers) -> Integers:
        """How many windows each stretch of a lane has."""
        return np.maximum((length + self._window // 2) // self._window, 1)

    def _begin_of(self, lane: Integers, length: Integers) -> Integers:
        """Where each lane begins, as `_draw_begin` says."""
        begins = self._begins[lane]
        unknown = np.flatnonzero(begins == 0)
        if len(unknown) == 0:
            return begins
        lanes, index = np.unique(lane[unknown], return_index=True)
        for number, positions in zip(lanes.tolist(), length[unknown][index].tolist(), strict=True):
            self._begins[number] = self._draw_begin(number, positions)
        return self._begins[lane]

    def _draw_begin(self, lane: int, length: int) -> int:
        """The window that the lane begins with, from 1 on."""
        return 1 + self._below(max((length + self._window // 2) // self._window, 1), lane)

    def _below(self, choices: int, lane: int) -> int:
        """An integer in [0, choices), drawn for this lane."""
        if choices == 1:
            return 0
        word = rng.words(1, seed=self._seed, domain=rng.Domain.WINDOW_START, epoch=self._epoch, a=lane)
        return int(word[0]) * choices >> 64

    def _permutation(self, lane: int, window: int, size: int) -> Integers:
        raw = rng.words(size, seed=self._seed, domain=rng.Domain.WINDOW, epoch=self._epoch, a=lane, b=window)
        return rng.permutation(raw)


class TurnedWindows(Windows):
    """The same, where windows are cut at the place that a lane begins with.

    A lane of n positions is read in two stretches: its last h positions, then those before them. Each is cut into
    windows of w from the outer end of the span. The first one that is read takes the rest of its stretch, 1 to w, the
    last one that of the other, w/2 to 3w/2. So lanes come to their second window one after another, and to the others w
    apart. h is keyed, from 1 to n - ⌊w/2⌋; a lane of less than 3w/2 positions is one window. Windows are numbered as
    they are read.
    """

    def _window_of(self, lane: Integers, offset: Integers, length: Integers) -> tuple[Integers, ...]:
        head = self._begin_of(lane, length)
        heads = np.where(length < self._least_cut, 1, -(-head // self._window))
        beyond = offset - head
        late = beyond >= 0
        stretch = np.where(late, length - head, head)
        from_end = np.where(late, beyond, ~beyond)  # positions between here and the outer end: ~x is -x - 1
        last = np.where(late, self._count(stretch), heads) - 1
        window: Integers = np.minimum(from_end // self._window, last)  # counted from the outer end as well
        before = window * self._window
        size = np.where(window == last, stretch - before, self._window)
        inside = from_end - before
        inside = np.where(late, inside, size - 1 - inside)
        number = np.where(late, heads + window, last - window)
        return number, np.where(late, before, length - before - size), size, inside

    @property
    def _least_cut(self) -> int:
        """The shortest lane that is cut."""
        return self._window + (self._window + 1) // 2

    def _draw_begin(self, lane: int, length: int) -> int:
        """The length of the stretch that the lane begins with."""
        if length < self._least_cut:
            return length
        return 1 + self._below(length - self._window // 2, lane)


def epoch_windows(lanes: Lanes, parameters: OrderParameters, *, seed: int, epoch: int) -> Windows:
    """The windows of one epoch, as the version of its order has them."""
    kind = Windows if parameters.version == 1 else TurnedWindows
    return kind(lanes, window=parameters.window, seed=seed, epoch=epoch)
