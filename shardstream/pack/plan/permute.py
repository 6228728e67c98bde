"""The write-time shuffle: a keyed bijection on [0, n), computed where it is needed and never held.

A generalised Feistel network with cycle walking (Black & Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA
2002, method 3): an integer below a·b is a pair (l mod a, r mod b); the rounds add a keyed hash of one half to the
other. With a = ⌈√n⌉ and b = ⌈n/a⌉ fewer than a of the a·b pairs lie outside of [0, n), so walking on from those costs
almost nothing. Part of format version 1 of a pack plan: golden values stand in the tests.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shardstream.rng import Domain, words

_ROUNDS = 8
# The finaliser of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014).
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class Permutation:
    """A permutation of ``n`` integers.

    Args:
        n: How many, in [0, 2**62].
        seed: Which permutation.
        stream: What it is for: different streams of one seed have nothing in common.

        >>> sorted(Permutation(5, seed=0)(np.arange(5)).tolist())
        [0, 1, 2, 3, 4]
    """

    def __init__(self, n: int, *, seed: int, stream: int = 0) -> None:
        if not 0 <= n <= 1 << 62:
            raise ValueError(f"n must be in [0, 2**62], got {n}")
        self.n = n
        self._left = np.uint64(math.isqrt(max(n, 1) - 1) + 1)
        self._right = np.uint64(-(-max(n, 1) // int(self._left)))
        self._keys = words(_ROUNDS, seed=seed, domain=Domain.PACK, a=stream)

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each of these positions, all in [0, n), is sent: int64, of the same shape (k,)."""
        out = self._rounds(positions.astype(np.uint64))
        while len(outside := np.flatnonzero(out >= np.uint64(self.n))):
            out[outside] = self._rounds(out[outside])
        return out.astype(np.int64)

    def _rounds(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        right, left = np.divmod(values, self._left)
        for i, key in enumerate(self._keys):
            if i % 2:
                right = (right + _mix(left, key) % self._right) % self._right
            else:
                left = (left + _mix(right, key) % self._left) % self._left
        return right * self._left + left


def _mix(values: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    mixed = values ^ key
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= multiplier
    return mixed ^ mixed >> np.uint64(31)
