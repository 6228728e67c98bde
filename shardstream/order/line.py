"""The line: the shards of an epoch laid end to end, of which only the beginnings are held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shardstream import rng
from shardstream.errors import UsageError
from shardstream.order.parameters import OrderParameters

_COUNTS = "pass the samples of each shard, as Manifest.table.samples holds them"
_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # the golden ratio less one, (√5 - 1) / 2, of 2**64


class Line:
    """Position on the line -> (shard, row). 8 to 12 bytes a shard, whatever its size.

    Use ``stored_line`` or ``epoch_line``.

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
        raise UsageError(f"counts must not be negative, got {counts[shard]} at {shard}", hint=_COUNTS)
    if counts.sum(dtype=np.float64) > 1 << 62:
        raise UsageError("counts add up to more than 2**62 samples", hint=_COUNTS)
    return counts.astype(np.int64, copy=False)


def stored_line(counts: NDArray[np.int64]) -> Line:
    """The shards as they are stored."""
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return Line(bounds)


def epoch_line(counts: NDArray[np.int64], parameters: OrderParameters, *, seed: int, epoch: int) -> Line:
    """The shards in the order of one epoch.

    One group: all of them in an order of the epoch's own. Several: in groups that stay the same every epoch, the pieces
    of each in an order of the epoch's own. The fixed order of groups is that of the seed and epoch 0. It is cut at
    ⌊gN/G⌋; pieces are what of a shard lies inside one group, and have at least one sample.

    Since order version 2 the line of each group is turned by a keyed number of positions, so that the ends of spans lie
    at other rows in each epoch, however long shards are.
    """
    if parameters.groups == 1:
        shards = _shard_permutation(len(counts), seed=seed, epoch=epoch)
        groups = [_Pieces(shards, counts[shards])]
    else:
        groups = list(_groups(counts, parameters.groups, seed=seed, epoch=epoch))
    if parameters.version > 1:
        spans = parameters.lanes // parameters.groups
        groups = [pieces.turned(spans, seed=seed, epoch=epoch, group=number) for number, pieces in enumerate(groups)]
    bounds = np.zeros(1 + sum(len(pieces.lengths) for pieces in groups), np.int64)
    np.concatenate([pieces.lengths for pieces in groups], out=bounds[1:])
    np.cumsum(bounds, out=bounds)
    cut, at = [], 0
    for pieces in groups:
        cut += [(at + piece, row) for piece, row in pieces.cut]
        at += len(pieces.lengths)
    numbers = np.array(cut, np.int64).reshape(-1, 2)
    shards = groups[0].shards if len(groups) == 1 else np.concatenate([pieces.shards for pieces in groups])
    return Line(bounds, shards=shards, cut=(numbers[:, 0], numbers[:, 1]))


@dataclass(frozen=True, slots=True)
class _Pieces:
    """What of the shards lies in one group, in the order of the line.

    Attributes:
        shards: Shard of each piece.
        lengths: Its samples: int64.
        cut: The pieces, ascending, that begin inside their shard, and the rows they begin with.
    """

    shards: NDArray[np.integer]
    lengths: NDArray[np.int64]
    cut: tuple[tuple[int, int], ...] = ()

    def turned(self, spans: int, *, seed: int, epoch: int, group: int) -> _Pieces:
        """The same from a keyed position on, around; ``spans`` is the number of the group's lanes."""
        ends = np.cumsum(self.lengths)
        if not len(ends) or not ends[-1]:
            return self
        turn = _turn(int(ends[-1]), spans, seed=seed, epoch=epoch, group=group)
        first = int(np.searchsorted(ends, turn, side="right"))  # the piece that the line begins with
        row = turn - int(ends[first] - self.lengths[first])  # of that piece
        again = first + (row > 0)  # it comes first, and what lies before the row comes last
        shards = np.concatenate([self.shards[first:], self.shards[:again]])
        lengths = np.concatenate([self.lengths[first:], self.lengths[:again]])
        lengths[0] -= row
        if row:
            lengths[-1] = row
        count = len(self.lengths)
        begins = dict(self.cut)
        cut = {(piece - first) % count: begin for piece, begin in begins.items()}
        if row:
            cut |= {0: begins.get(first, 0) + row}
            cut |= {count: begins[first]} if first in begins else {}
        return _Pieces(shards, lengths, tuple(sorted(cut.items())))


def _turn(samples: int, spans: int, *, seed: int, epoch: int, group: int) -> int:
    """How far the line of a group is turned: a keyed number of whole spans, and a part of one.

    The part is keyed in epoch 0 and goes on by 0.618 of a span, the golden ratio, from epoch to epoch. Where all shards
    are as long, it says for all spans alike which neighbours are parted: were it drawn anew, there would be epochs in
    which nearly all stay together. Steps of the golden ratio keep away from all earlier parts.
    """
    whole = int(rng.words(1, seed=seed, domain=rng.Domain.TURN, epoch=epoch, a=group, b=1)[0]) * spans >> 64
    part = moved_on(int(rng.words(1, seed=seed, domain=rng.Domain.TURN, a=group)[0]), epoch)
    return (whole << 64 | part) * samples // (spans << 64)


def moved_on(word: int, epoch: int) -> int:
    """A part of 2**64 that begins with a word, and goes on by the golden ratio from epoch to epoch, around."""
    return word + epoch * _STEP & _WORD


def _groups(counts: NDArray[np.int64], groups: int, *, seed: int, epoch: int) -> Iterator[_Pieces]:
    fixed = _shard_permutation(len(counts), seed=seed, epoch=0)
    if counts.size and not counts.min():
        fixed = fixed[counts[fixed] > 0]
    ends = counts[fixed]
    np.cumsum(ends, out=ends)
    samples = int(ends[-1]) if len(ends) else 0
    cuts = [group * samples // groups for group in range(groups + 1)]
    lows = np.searchsorted(ends, np.array(cuts[:-1], np.int64), side="right").tolist()
    highs = np.searchsorted(ends, np.array(cuts[1:], np.int64)).tolist()
    for group, (begin, end), low, high in zip(range(groups), pairwise(cuts), lows, highs, strict=True):
        if begin == end:
            yield _Pieces(fixed[:0], ends[:0])
            continue
        count = high + 1 - low
        order = rng.permutation(rng.words(count, seed=seed, domain=rng.Domain.PIECES, epoch=epoch, a=group))
        first, last = (int(np.flatnonzero(order == number)[0]) for number in (0, count - 1))
        shards = fixed[order + low]
        lengths = counts[shards]
        first_row = begin - int(ends[low] - counts[fixed[low]])
        lengths[first] -= first_row
        lengths[last] -= ends[high] - end
        yield _Pieces(shards, lengths, ((first, first_row),) if first_row else ())


def _shard_permutation(shards: int, *, seed: int, epoch: int) -> NDArray[np.integer]:
    permutation = rng.permutation(rng.words(shards, seed=seed, domain=rng.Domain.SHARDS, epoch=epoch))
    return permutation.astype(np.min_scalar_type(max(shards - 1, 0)))
