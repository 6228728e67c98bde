"""Equal keys, found in eight bytes a key: 64-bit hashes are sorted, and only what repeats is looked at as a string."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xxhash
from numpy.typing import NDArray

# XXH3-64 of a key's UTF-8.
key_hash = xxhash.xxh3_64_intdigest


def repeated(hashes: NDArray[np.uint64]) -> frozenset[int]:
    """The values that occur more than once. Sorts ``hashes`` in place, so nothing is copied."""
    hashes.sort()
    return frozenset(hashes[1:][hashes[1:] == hashes[:-1]].tolist())


class SeenHashes:
    """The hashes of all keys so far, a batch at a time.

    Sorted runs of which each is at least twice as long as the next: n hashes cost 8n bytes and are copied log n times
    in all, and a batch is looked up by bisection in log n runs.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, hashes: Iterable[int]) -> frozenset[int]:
        """Add a batch; returns those of its values that an earlier batch, or the batch itself, has already."""
        batch = np.array(sorted(hashes), np.uint64)
        known = [batch[1:][batch[1:] == batch[:-1]]]
        for run in self._runs:
            at = np.searchsorted(run, batch)
            at[at == len(run)] = 0
            known.append(batch[run[at] == batch])
        if len(batch):
            self._runs.append(batch)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate((self._runs.pop(), self._runs.pop()))
            merged.sort()
            self._runs.append(merged)
        return frozenset(np.concatenate(known).tolist())
