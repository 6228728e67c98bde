"""The sequence: chunks dealt to the lanes in turn, then one ragged last row with what does not fill a chunk a lane."""

from __future__ import annotations

import numpy as np

from shardstream.order.lanes import Integers, Lanes


class Sequence:
    """Position in the epoch -> (lane, offset inside the lane). A bijection: nothing is truncated.

    Args:
        lanes: The lanes, with the number of samples.
        chunk: Consecutive positions a lane gets at a time (c).
    """

    def __init__(self, lanes: Lanes, chunk: int) -> None:
        self._lanes = lanes
        self._chunk = chunk
        self._full = lanes.samples // lanes.count // chunk * chunk  # positions a lane gives to the body
        self._body = self._full * lanes.count
        self._ragged = lanes.samples - self._body

    def lanes_of(self, positions: Integers) -> tuple[Integers, Integers]:
        """Lane and offset inside that lane of each position in [0, N)."""
        ragged = positions >= self._body
        if not ragged.any():
            return self._in_body(positions)
        if ragged.all():
            return self._in_ragged_row(positions)
        lane, offset = np.empty_like(positions), np.empty_like(positions)
        lane[~ragged], offset[~ragged] = self._in_body(positions[~ragged])
        lane[ragged], offset[ragged] = self._in_ragged_row(positions[ragged])
        return lane, offset

    def before(self, position: int, lane: Integers) -> Integers:
        """How many positions of each lane lie before a position of the epoch, in [0, N]."""
        turn, inside = divmod(min(position, self._body), self._chunk * self._lanes.count)
        found: Integers = turn * self._chunk + np.clip(inside - lane * self._chunk, 0, self._chunk)
        if position > self._body:
            span = self._lanes.span_of(lane)
            begin = span * self._ragged // self._lanes.count
            size = (span + 1) * self._ragged // self._lanes.count - begin
            found += np.clip(position - self._body - begin, 0, size)
        return found

    def _in_body(self, positions: Integers) -> tuple[Integers, Integers]:
        chunk, inside = divmod(positions, self._chunk)
        turn, lane = divmod(chunk, self._lanes.count)
        return lane, turn * self._chunk + inside

    def _in_ragged_row(self, positions: Integers) -> tuple[Integers, Integers]:
        # the row goes through the spans in the order of the line; span s has its share [⌊s rem/Λ⌋, ⌊(s+1) rem/Λ⌋)
        inside = positions - self._body
        span = ((inside + 1) * self._lanes.count - 1) // self._ragged
        offset = self._full + inside - span * self._ragged // self._lanes.count
        return self._lanes.lane_of(span), offset
