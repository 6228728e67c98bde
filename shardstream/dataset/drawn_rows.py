"""``DrawnRows``: the rows of a shard that draws by weight find."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.step import groups
from shardstream.dataset.weights import ViewedShard, WholeWeights
from shardstream.errors import FormatError
from shardstream.order import WeightedDraws

_BLOCK = 64  # rows of which one number is held
_EPOCHS = 3  # that are held of an open shard: one, the next, and what a source of a mixture has left of the last

Integers = NDArray[np.int64]


class DrawnRows:
    """Finds the rows that stand at places of draws. Holds little more than a byte a row of the shard and epoch.

    Attributes:
        spacing: Places from one draw to the next.

    Args:
        viewed: The shard.
        whole: The weights of its rows.
        draws: The draws.
        shard: Its number.
        begin: Weight of all rows before this shard.
        end: The same with it.
    """

    def __init__(
        self, viewed: ViewedShard, whole: WholeWeights, draws: WeightedDraws, shard: int, begin: int, end: int
    ) -> None:
        self.spacing = draws.spacing
        self._viewed = viewed
        self._whole = whole
        self._draws = draws
        self._shard = shard
        self._begin = begin
        self._end = end
        self._epochs: dict[int, _Drawn] = {}  # by what their draws are moved by; that used last, last

    def find(self, places: Integers) -> Integers:
        """The stored row at each place: int64 (n,).

        Raises:
            FormatError: The weights are not those that were read before.
        """
        numbers, moved = self._draws.number(places), self._draws.moved(places)
        rows = np.empty_like(places)
        for one, slots in groups(moved):  # one, but around the end of an epoch
            rows[slots] = self._drawn(one).rows(numbers[slots])
        return self._viewed.stored(rows)

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
        laid = self._draws.laid(self._shard, weights, self._whole.alike(index, rows))
        times = np.empty_like(weights)
        times[laid] = self._draws.counts(self._begin, weights[laid], moved)
        sums = np.add.reduceat(times, np.arange(0, len(times), _BLOCK))
        firsts = np.cumsum(np.concatenate([[self._draws.first(self._begin, moved)], sums]))
        return _Drawn(firsts, times.astype(np.min_scalar_type(int(times.max()))))


class _Drawn(NamedTuple):
    """How often the rows of a shard are drawn in one epoch.

    Attributes:
        firsts: The first draw of each block of rows, and the first one behind the shard: int64 (blocks + 1,).
        times: How often each row comes: the narrowest unsigned integers (rows,).
    """

    firsts: Integers
    times: NDArray[Any]

    def rows(self, numbers: Integers) -> Integers:
        """The row of the view that each of these draws takes."""
        first, last = np.searchsorted(self.firsts, [numbers.min(), numbers.max()], side="right").tolist()
        begin = (first - 1) * _BLOCK
        ends = self.firsts[first - 1] + np.cumsum(self.times[begin : last * _BLOCK], dtype=np.int64)
        found: Integers = begin + np.searchsorted(ends, numbers, side="right")
        return found
