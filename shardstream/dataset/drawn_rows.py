"""``DrawnRows``: the rows of a shard that draws by weight find."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.step import groups
from shardstream.dataset.weights import ViewedShard, WholeWeights
from shardstream.errors import FormatError
from shardstream.order import WeightedDraws

_BLOCK = 64  # rows of which one number is held
_EPOCHS = 3  # that are held of an open shard: one, the next, and what a source of a mixture has left of the last
_AROUND = 2  # blocks
_MOST_NEAR = 16  # blocks of which each row's draws are held as well, of one place in the shard

Integers = NDArray[np.int64]


class DrawnRows:
    """Finds the rows that stand at places of draws.

    Holds a quarter of a byte for each row of the shard and each epoch, and 8 KB at most for the window that is read.

    Attributes:
        spacing: Places from one draw to the next.

    Args:
        viewed: The shard.
        whole: The weights of its rows.
        draws: The draws.
        begin: Weight of all rows before this shard.
        end: The same with it.
    """

    def __init__(self, viewed: ViewedShard, whole: WholeWeights, draws: WeightedDraws, begin: int, end: int) -> None:
        self.spacing = draws.spacing
        self._viewed = viewed
        self._whole = whole
        self._draws = draws
        self._begin = begin
        self._end = end
        self._near: _Stretch | None = None
        self._epochs: dict[int, _Drawn] = {}  # by what their draws are moved by; that used last, last

    def find(self, places: Integers) -> Integers:
        """The stored row at each place: int64 (n,).

        Raises:
            FormatError: The weights are not those that were read before.
        """
        numbers, moved = self._draws.number(places), self._draws.moved(places)
        if self._near is not None and self._near.has(numbers, moved):
            return self._viewed.stored(self._near.rows(numbers))
        rows = np.empty_like(places)
        for one, slots in groups(moved):
            rows[slots] = self._around(one, numbers[slots]).rows(numbers[slots])
        return self._viewed.stored(rows)

    def _around(self, moved: int, numbers: Integers) -> _Stretch:
        """The stretch of rows that these draws of one epoch take, and some around, which a window comes to next."""
        drawn = self._drawn(moved)
        first, last = np.searchsorted(drawn.firsts, [numbers.min(), numbers.max()], side="right").tolist()
        first, last = max(first - 1 - _AROUND, 0), min(last + _AROUND, len(drawn.more))
        rows = np.arange(first * _BLOCK, min(last * _BLOCK, self._viewed.count))
        times = self._draws.least(self._whole.of(self._viewed.index, self._viewed.stored(rows)))
        times += np.unpackbits(drawn.more[first:last], axis=1).reshape(-1)[: len(rows)]
        begin = int(drawn.firsts[first])
        found = _Stretch(moved, first * _BLOCK, begin, begin + np.cumsum(times))
        if last - first <= _MOST_NEAR:
            self._near = found
        return found

    def _drawn(self, moved: int) -> _Drawn:
        drawn = self._epochs.pop(moved, None) or self._draw(moved)
        while len(self._epochs) >= _EPOCHS:
            del self._epochs[next(iter(self._epochs))]
        self._epochs[moved] = drawn
        return drawn

    def _draw(self, moved: int) -> _Drawn:
        index, rows = self._viewed.index, self._viewed.stored(np.arange(self._viewed.count))
        weights = self._whole.of(index, rows)
        if int(weights.sum()) != self._end - self._begin:
            raise FormatError(
                "the weights of the shard's samples are others than when the data set was opened",
                url=index.url or None,
                shard=index.path,
                field=self._whole.field,
                hint="open the data set anew",
            )
        alike = np.argsort(self._whole.alike(index, rows), kind="stable")
        times = np.empty_like(weights)
        times[alike] = self._draws.counts(self._begin, weights[alike], moved)
        blocks = -(-len(times) // _BLOCK)
        sums = np.add.reduceat(times, np.arange(blocks) * _BLOCK)
        more = np.zeros(blocks * _BLOCK, np.bool_)
        more[: len(times)] = times > self._draws.least(weights)
        firsts = np.cumsum(np.concatenate([[self._draws.first(self._begin, moved)], sums]))
        return _Drawn(firsts, np.packbits(more.reshape(blocks, _BLOCK), axis=1))


class _Stretch(NamedTuple):
    """Neighbouring rows of a view, and which draws of one epoch take them.

    Attributes:
        moved: By how many places the draws of the epoch are moved.
        first: The first row.
        begin: The first draw.
        ends: The draw after the last one of each row: int64 (rows,).
    """

    moved: int
    first: int
    begin: int
    ends: Integers

    def has(self, numbers: Integers, moved: Integers) -> bool:
        """Whether all of these draws take one of the rows."""
        return bool(((moved == self.moved) & (numbers >= self.begin) & (numbers < self.ends[-1])).all())

    def rows(self, numbers: Integers) -> Integers:
        """The row that each of these draws takes."""
        return self.first + np.searchsorted(self.ends, numbers, side="right")


class _Drawn(NamedTuple):
    """How often the rows of a shard are drawn in one epoch.

    Attributes:
        firsts: The first draw of each block of rows, and the first one behind the shard: int64 (blocks + 1,).
        more: Which rows come once more than their weight says at least, as bits: uint8 (blocks, 8).
    """

    firsts: Integers
    more: NDArray[np.uint8]
