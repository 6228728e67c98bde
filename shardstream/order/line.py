"""The line: the shards of an epoch laid end to end, of which only the beginnings are held."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardstream import rng
from shardstream.errors import UsageError


class Line:
    """Position on the line -> (shard, row). 8 to 20 bytes a shard, whatever its size.

    Use ``stored_line``, ``shuffled_line`` or ``grouped_line``.

    Args:
        lengths: int64 samples of each piece, in the order of the line; may be 0.
        shards: Shard of each piece; ``None`` for 0, 1, 2, ...
        first_rows: Row of its shard that each piece begins with; ``None`` for whole shards.
    """

    def __init__(
        self,
        lengths: NDArray[np.int64],
        *,
        shards: NDArray[np.integer] | None = None,
        first_rows: NDArray[np.int64] | None = None,
    ) -> None:
        ends = np.cumsum(lengths)
        self.samples = int(ends[-1]) if len(ends) else 0
        self._begins = ends - lengths
        self._shards = shards
        self._first_rows = first_rows

    def find(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shard and row of each position in [0, samples)."""
        # of pieces with one beginning all but the last are empty
        piece = np.searchsorted(self._begins, positions, side="right") - 1
        row = positions - self._begins[piece]
        if self._first_rows is not None:
            row += self._first_rows[piece]
        shard = piece if self._shards is None else self._shards[piece]
        return shard.astype(np.int64, copy=False), row


def checked_counts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """``counts`` as int64, or a ``UsageError`` that says what is wrong with them."""
    counts = np.asarray(counts)
    if counts.ndim != 1 or not (np.issubdtype(counts.dtype, np.integer) or counts.size == 0):
        raise UsageError(
            f"counts must be one integer a shard, got shape {counts.shape} of {counts.dtype}", hint="pass a 1-d array"
        )
    if counts.size and int(counts.min()) < 0:
        shard = int(counts.argmin())
        raise UsageError(f"counts must not be negative, got {counts[shard]} at {shard}", hint="check the manifest")
    if counts.sum(dtype=np.float64) > 1 << 62:
        raise UsageError("counts add up to more than 2**62 samples", hint="check the manifest")
    return counts.astype(np.int64, copy=False)


def stored_line(counts: NDArray[np.int64]) -> Line:
    """The shards as they are stored."""
    return Line(counts)


def shuffled_line(counts: NDArray[np.int64], *, seed: int, epoch: int) -> Line:
    """The shards in an order of this epoch's own."""
    shards = _shard_permutation(len(counts), seed=seed, epoch=epoch)
    return Line(counts[shards], shards=shards)


def grouped_line(counts: NDArray[np.int64], *, seed: int, epoch: int, groups: int) -> Line:
    """The shards in groups that stay the same every epoch; their pieces are permuted inside each group.

    The fixed order is that of the seed and epoch 0. It is cut at ⌊gN/G⌋; pieces are what of a shard lies inside one
    group, and have at least one sample.
    """
    fixed = _shard_permutation(len(counts), seed=seed, epoch=0)
    ends = np.cumsum(counts[fixed])
    samples = int(ends[-1]) if len(ends) else 0
    cuts = np.array([group * samples // groups for group in range(groups + 1)], dtype=np.int64)
    edges = np.sort(np.concatenate((cuts, ends)), kind="stable")  # fast on two sorted runs
    edges = edges[np.diff(edges, prepend=-1) > 0]
    begins = edges[:-1]
    held_by = np.searchsorted(ends, begins, side="right")
    shards = fixed[held_by]
    first_rows = begins - (ends[held_by] - counts[shards])
    order = _permuted_inside_groups(np.searchsorted(begins, cuts), seed=seed, epoch=epoch)
    return Line(np.diff(edges)[order], shards=shards[order], first_rows=first_rows[order])


def _permuted_inside_groups(bounds: NDArray[np.intp], *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Pieces [bounds[g], bounds[g + 1]) of each group g, in an order of this epoch's own."""
    parts = [np.empty(0, np.int64)]
    for group, (low, high) in enumerate(pairwise(bounds.tolist())):
        raw = rng.words(high - low, seed=seed, domain=rng.Domain.PIECES, epoch=epoch, a=group)
        parts.append(low + rng.permutation(raw))
    return np.concatenate(parts)


def _shard_permutation(shards: int, *, seed: int, epoch: int) -> NDArray[np.integer]:
    permutation = rng.permutation(rng.words(shards, seed=seed, domain=rng.Domain.SHARDS, epoch=epoch))
    return permutation.astype(np.min_scalar_type(max(shards - 1, 0)))
