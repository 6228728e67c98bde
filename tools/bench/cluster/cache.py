"""A node's cache, simulated: shards are admitted whole until it is full and stay; of each, what was read is held."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.cluster.reads import Integers


class Intervals:
    """A set of integers as disjoint intervals."""

    def __init__(self) -> None:
        self._begins: Integers = np.empty(0, np.int64)
        self._ends: Integers = np.empty(0, np.int64)
        self._before: Integers = np.zeros(1, np.int64)  # size of all earlier intervals together

    def add(self, begins: Integers, ends: Integers) -> None:
        """Add the integers of [begins[i], ends[i])."""
        begins, ends = np.concatenate([self._begins, begins]), np.concatenate([self._ends, ends])
        order = np.argsort(begins, kind="stable")
        begins, furthest = begins[order], np.maximum.accumulate(ends[order])
        first = np.ones(len(begins), np.bool_)
        first[1:] = begins[1:] > furthest[:-1]
        self._begins = begins[first]
        self._ends = furthest[np.append(np.flatnonzero(first)[1:] - 1, len(begins) - 1)] if len(begins) else furthest
        self._before = np.append(0, np.cumsum(self._ends - self._begins))

    def common(self, begins: Integers, ends: Integers) -> Integers:
        """How many integers of each [begins[i], ends[i]) are in the set."""
        return self._below(ends) - self._below(begins)

    def _below(self, limits: Integers) -> Integers:
        number = np.searchsorted(self._begins, limits, side="right")
        if not len(self._begins):
            return np.zeros_like(limits)
        last = np.maximum(number - 1, 0)
        inside = np.minimum(limits, self._ends[last]) - self._begins[last]
        below: Integers = np.where(number > 0, self._before[last] + inside, 0)
        return below


class NodeCache:
    """What one node holds on its disk.

    Args:
        capacity: Bytes; shards are allocated in full.
        sizes: Bytes of each shard.
        starts: Number of the first sample of each shard, over all shards.
    """

    def __init__(self, capacity: float, sizes: NDArray[np.float64], starts: Integers) -> None:
        self._free = capacity
        self._sizes = sizes
        self._starts = starts
        self._admitted = np.zeros(len(sizes), np.bool_)
        self._held = Intervals()

    def read(self, shard: Integers, row: Integers, rows: Integers) -> int:
        """Read stretches of shards, in this order; how many rows had to be fetched."""
        begins = self._starts[shard] + row
        hits = self._held.common(begins, begins + rows)
        _, first = np.unique(shard, return_index=True)
        wanted = shard[np.sort(first)]
        wanted = wanted[~self._admitted[wanted]]
        admitted = wanted[np.cumsum(self._sizes[wanted]) <= self._free]
        self._admitted[admitted] = True
        self._free -= float(self._sizes[admitted].sum())
        keep = self._admitted[shard]
        self._held.add(begins[keep], (begins + rows)[keep])
        return int((rows - hits).sum())
