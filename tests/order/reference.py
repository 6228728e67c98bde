"""The order of an epoch, version 1, once more: slow, in Python integers and lists, straight from the design.

Shares nothing with the package but the raw random words. ``Epoch`` builds a whole small epoch as lists, dealing chunks
as cards are dealt; ``Position`` computes single positions of epochs of any size from the formulas. The golden vectors
of this folder come from here, so nothing in this file may change what it returns.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from shardstream import rng


def permutation(n: int, *, seed: int, domain: int, epoch: int, a: int = 0, b: int = 0) -> list[int]:
    mask = 2 ** math.ceil(math.log2(n)) - 1 if n > 1 else 0
    raw = rng.words(n, seed=seed, domain=rng.Domain(domain), epoch=epoch, a=a, b=b).tolist()
    return [word & mask for word in sorted((word & ~mask) | i for i, word in enumerate(raw))]


@dataclass(frozen=True)
class Shape:
    """Λ, c, w, V, m, R₀, G under the names that the package gives them."""

    lanes: int
    chunk: int
    window: int
    virtual: int = 1
    sublanes: int = 1
    ranks: int = 1
    groups: int = 1

    def span_of_lane(self, lane: int) -> int:
        if self.lanes != self.ranks * self.virtual * self.sublanes:
            return lane  # explicit lanes
        u, i = lane // self.sublanes, lane % self.sublanes
        group = (u % self.ranks) * self.groups // self.ranks
        workers = self.ranks * self.virtual // self.groups  # virtual workers a group
        # the rank of u among the group's virtual workers: the whole rounds of ranks before u each hold ranks/groups of
        # them, and those of its own round stand before it
        per_round = self.ranks // self.groups
        rank_in_group = (u // self.ranks) * per_round + (u % self.ranks) - group * per_round
        return group * self.lanes // self.groups + i * workers + rank_in_group

    def window_bounds(self, n: int) -> list[tuple[int, int]]:
        count = max(1, (n + self.window // 2) // self.window)
        return [(k * self.window, n if k == count - 1 else (k + 1) * self.window) for k in range(count)]

    def first_window(self, lane: int, count: int, *, seed: int, epoch: int) -> int:
        (word,) = rng.words(1, seed=seed, domain=rng.Domain(4), epoch=epoch, a=lane).tolist()
        return word * count // 2**64


class Epoch:
    """A whole epoch as lists."""

    def __init__(self, counts: list[int], *, seed: int, epoch: int, shape: Shape) -> None:
        self.counts, self.seed, self.epoch, self.shape = counts, seed, epoch, shape
        self.samples = sum(counts)

    @cached_property
    def line(self) -> list[tuple[int, int]]:
        """(shard, row) of each position of the line."""
        shards = len(self.counts)
        if self.shape.groups == 1:
            order = permutation(shards, seed=self.seed, domain=1, epoch=self.epoch)
            return [(shard, row) for shard in order for row in range(self.counts[shard])]
        fixed = permutation(shards, seed=self.seed, domain=1, epoch=0)
        whole = [(shard, row) for shard in fixed for row in range(self.counts[shard])]
        line: list[tuple[int, int]] = []
        for group in range(self.shape.groups):
            low, high = (g * self.samples // self.shape.groups for g in (group, group + 1))
            pieces: list[list[tuple[int, int]]] = []
            for sample in whole[low:high]:
                if not pieces or pieces[-1][0][0] != sample[0]:
                    pieces.append([])
                pieces[-1].append(sample)
            for piece in permutation(len(pieces), seed=self.seed, domain=2, epoch=self.epoch, a=group):
                line += pieces[piece]
        return line

    @cached_property
    def lanes(self) -> list[list[int]]:
        """The positions on the line that each lane reads, in the order in which it reads them."""
        return [self._lane(lane) for lane in range(self.shape.lanes)]

    def _lane(self, lane: int) -> list[int]:
        span = self.shape.span_of_lane(lane)
        begin, end = (s * self.samples // self.shape.lanes for s in (span, span + 1))
        bounds = self.shape.window_bounds(end - begin)
        first = self.shape.first_window(lane, len(bounds), seed=self.seed, epoch=self.epoch)
        visited: list[int] = []
        for window in [*range(first, len(bounds)), *range(first)]:
            low, high = bounds[window]
            order = permutation(high - low, seed=self.seed, domain=3, epoch=self.epoch, a=lane, b=window)
            visited += [begin + low + i for i in order]
        return visited

    @cached_property
    def dealt(self) -> list[tuple[int, int]]:
        """(lane, offset) of each position of the epoch."""
        chunk, lanes = self.shape.chunk, self.shape.lanes
        full = self.samples // lanes // chunk  # chunks that every lane can give
        dealt = [(lane, turn * chunk + i) for turn in range(full) for lane in range(lanes) for i in range(chunk)]
        lane_of_span = {self.shape.span_of_lane(lane): lane for lane in range(lanes)}
        for span in range(lanes):  # the ragged last row: what is left of each span, in the order of the line
            lane = lane_of_span[span]
            dealt += [(lane, offset) for offset in range(full * chunk, len(self.lanes[lane]))]
        return dealt

    @cached_property
    def sequence(self) -> list[tuple[int, int]]:
        """(shard, row) of each position of the epoch."""
        return [self.line[self.lanes[lane][offset]] for lane, offset in self.dealt]


class Position:
    """Single positions of an epoch of any size, by the formulas. One group only."""

    def __init__(self, counts: list[int], *, seed: int, epoch: int, shape: Shape) -> None:
        self.counts, self.seed, self.epoch, self.shape = counts, seed, epoch, shape
        self.order = permutation(len(counts), seed=seed, domain=1, epoch=epoch)
        self.ends = list(accumulate(counts[shard] for shard in self.order))

    def lane_of(self, p: int) -> tuple[int, int]:
        n, lanes, c = self.ends[-1], self.shape.lanes, self.shape.chunk
        q_full = (n // lanes) // c
        body = q_full * c * lanes
        if p < body:
            j, r = divmod(p, c)
            return j % lanes, (j // lanes) * c + r
        rem, q = n - body, p - body
        span = -(-(q + 1) * lanes // rem) - 1
        offset = q_full * c + q - span * rem // lanes
        return next(lane for lane in range(lanes) if self.shape.span_of_lane(lane) == span), offset

    def locate(self, p: int) -> tuple[int, int]:
        n, lanes = self.ends[-1], self.shape.lanes
        lane, offset = self.lane_of(p)
        span = self.shape.span_of_lane(lane)
        begin, end = span * n // lanes, (span + 1) * n // lanes
        bounds = self.shape.window_bounds(end - begin)
        window = self.shape.first_window(lane, len(bounds), seed=self.seed, epoch=self.epoch)
        while offset >= bounds[window][1] - bounds[window][0]:
            offset -= bounds[window][1] - bounds[window][0]
            window = (window + 1) % len(bounds)
        low, high = bounds[window]
        order = permutation(high - low, seed=self.seed, domain=3, epoch=self.epoch, a=lane, b=window)
        at = begin + low + order[offset]
        piece = bisect_right(self.ends, at)
        shard = self.order[piece]
        return shard, at - (self.ends[piece] - self.counts[shard])


def steps(
    *, samples: int, start: int, rank: int, world_size: int, batch_size: int | None, tail: str
) -> list[tuple[list[int], list[bool]]]:
    """Positions and validity of each step of a rank."""
    b, left = batch_size or 64, max(0, samples - start)
    whole, rest = divmod(left, world_size * b)
    rows = [[list(range(start + (t * world_size + r) * b, start + (t * world_size + r + 1) * b))
             for r in range(world_size)] for t in range(whole)]  # fmt: skip
    if rest:
        begin = start + whole * world_size * b
        if tail == "drop" and batch_size is None:
            each = rest // world_size
            rows.append([list(range(begin + r * each, begin + (r + 1) * each)) for r in range(world_size)])
        elif tail != "drop":
            rows.append([list(range(begin + r * b, begin + (r + 1) * b)) for r in range(world_size)])
    mine = [row[rank] for row in rows]
    if tail == "exact":
        mine = [[p for p in step if p < samples] for step in mine]
    result = []
    for step in mine:
        if not step:
            continue
        shown = [p if p < samples else p - world_size * b if p >= world_size * b else p % samples for p in step]
        result.append((shown, [p < samples for p in step]))
    return result
