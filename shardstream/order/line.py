"""The line: the shards of an epoch laid end to end, of which only the beginnings are held."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardstream import rng
from shardstream.errors import UsageError


class Line:
    """Position on the line -> (shard, row). 8 to 12 bytes a shard, whatever its size.

    Use ``stored_line``, ``shuffled_line`` or ``grouped_line``.

    Args:
        bounds: int64 (pieces + 1,): where each piece begins, in the order of the line, and where the last one ends.
        shards: Shard of each piece; ``None`` for 0, 1, 2, ...
        cut: The few pieces, ascending, that begin inside their shard, and the rows they begin with; int64 each.
    """

    def __init__(
        self,
        bounds: NDArray[np.int64],
        *,
        shards: NDArray[np.integer] | None = None,
        cut: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        self.samples = int(bounds[-1])
        self._bounds = bounds
        self._shards = shards
        self._cut = cut if cut is not None and len(cut[0]) else None

    def find(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shard and row of each position in [0, samples)."""
        piece = self._piece(positions)
        return self._shard(piece), positions - self._row_zero(piece)

    def find_between(
        self, positions: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], ...]:
        """Shard and row of each position, and which rows of that shard lie in [begin, end) around it.

        Returns:
            Shard, row, first row, and the row after the last: int64, shape (n,) each.
        """
        piece = self._piece(positions)
        zero = self._row_zero(piece)
        first = np.maximum(begin, self._bounds[piece]) - zero
        last = np.minimum(end, self._bounds[piece + 1]) - zero
        return self._shard(piece), positions - zero, first, last

    def _piece(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        # of pieces with one beginning all but the last are empty
        return np.searchsorted(self._bounds, positions, side="right") - 1

    def _row_zero(self, piece: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where row 0 of the shard would stand on the line, if the piece were whole."""
        zero: NDArray[np.int64] = self._bounds[piece]
        if self._cut is not None:
            pieces, first_rows = self._cut
            at = np.minimum(np.searchsorted(pieces, piece), len(pieces) - 1)
            zero = zero - np.where(pieces[at] == piece, first_rows[at], 0)
        return zero

    def _shard(self, piece: NDArray[np.int64]) -> NDArray[np.int64]:
        shard = piece if self._shards is None else self._shards[piece]
        return shard.astype(np.int64, copy=False)


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
    bounds = _bounds(len(counts))
    np.cumsum(counts, out=bounds[1:])
    return Line(bounds)


def shuffled_line(counts: NDArray[np.int64], *, seed: int, epoch: int) -> Line:
    """The shards in an order of this epoch's own."""
    shards = _shard_permutation(len(counts), seed=seed, epoch=epoch)
    bounds = _bounds(len(counts))
    np.take(counts, shards, out=bounds[1:])
    return Line(np.cumsum(bounds, out=bounds), shards=shards)


def grouped_line(counts: NDArray[np.int64], *, seed: int, epoch: int, groups: int) -> Line:
    """The shards in groups that stay the same every epoch; their pieces are permuted inside each group.

    The fixed order is that of the seed and epoch 0. It is cut at ⌊gN/G⌋; pieces are what of a shard lies inside one
    group, and have at least one sample.
    """
    fixed = _shard_permutation(len(counts), seed=seed, epoch=0)
    if counts.size and not counts.min():
        fixed = fixed[counts[fixed] > 0]
    ends = counts[fixed]
    np.cumsum(ends, out=ends)
    samples = int(ends[-1]) if len(ends) else 0
    cuts = [group * samples // groups for group in range(groups + 1)]
    spans = [(g, begin, end) for g, (begin, end) in enumerate(pairwise(cuts)) if begin < end]
    lows = np.searchsorted(ends, np.array([begin for _, begin, _ in spans], np.int64), side="right").tolist()
    highs = np.searchsorted(ends, np.array([end for _, _, end in spans], np.int64)).tolist()
    pieces = sum(highs) - sum(lows) + len(spans)
    shards, bounds = np.empty(pieces, fixed.dtype), _bounds(pieces)
    lengths = bounds[1:]
    cut: list[tuple[int, int]] = []
    at = 0
    for (group, begin, end), low, high in zip(spans, lows, highs, strict=True):
        count = high + 1 - low
        order = rng.permutation(rng.words(count, seed=seed, domain=rng.Domain.PIECES, epoch=epoch, a=group))
        first, last = (at + int(np.flatnonzero(order == number)[0]) for number in (0, count - 1))
        order += low
        shards[at : at + count] = fixed[order]
        lengths[at : at + count] = counts[shards[at : at + count]]
        first_row = begin - int(ends[low] - counts[fixed[low]])
        lengths[first] -= first_row
        lengths[last] -= ends[high] - end
        if first_row:
            cut.append((first, first_row))
        at += count
    numbers = np.array(cut, np.int64).reshape(-1, 2)
    return Line(np.cumsum(bounds, out=bounds), shards=shards, cut=(numbers[:, 0], numbers[:, 1]))


def _bounds(pieces: int) -> NDArray[np.int64]:
    """An array for the bounds of so many pieces, of which the first is set."""
    bounds = np.empty(pieces + 1, np.int64)
    bounds[0] = 0
    return bounds


def _shard_permutation(shards: int, *, seed: int, epoch: int) -> NDArray[np.integer]:
    permutation = rng.permutation(rng.words(shards, seed=seed, domain=rng.Domain.SHARDS, epoch=epoch))
    return permutation.astype(np.min_scalar_type(max(shards - 1, 0)))
