"""Draws: rows that come as often as their weights say, as arithmetic.

The weights of all rows, integers, are laid end to end: a line of T units, on which each row begins where those before
it end. E draws stand on it, T/E apart, all moved by one keyed part of that distance; each takes the row it stands on.
So a row of weight w comes ⌊wE/T⌋ or ⌈wE/T⌉ times, an epoch has E draws whatever the weights, and which rows a draw
more goes to is another matter in each epoch. Of a shard, nothing but the weight before it is held.

On that line, rows of a shard lie sorted by what they are alike in, such as their label: so each label of a shard has
about its share of the draws as well. Each shard begins with another row, or draws at one distance would meet the same
labels in shards of equal weight. The draws of a shard are then counted in the order of its rows.

Where a draw stands is a *place*: draw m of an epoch is at place 2^k m + g, with g in [0, 2^k) keyed by seed and epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from shardstream import rng
from shardstream.errors import UsageError
from shardstream.order.lanes import Integers
from shardstream.order.line import moved_on

WEIGHT_BITS = 60
"""The weights of all rows add up to less than 2 to the power of this."""

_PLACE_BITS = 52  # places are below 2 to the power of this, which floats hold exactly
_MOST_SAMPLES = 1 << 44  # so that there are 256 places a draw at least


class WeightedDraws:
    """How often the rows of each shard come, epoch by epoch. In the place of samples of each shard; 16 bytes a shard.

    Attributes:
        samples: Draws of an epoch (E).
        spacing: Places from one draw to the next, 2^k: the largest with E·2^k < 2^52.
        total: Weight of all rows (T).

    Args:
        begins: Weight of all rows before each shard, and of all rows at last: int64 (shards + 1,), from 0 on.
        samples: Draws of an epoch.

    Raises:
        UsageError: No weight at all, or numbers out of range.

    Example: two shards of weights 3 and 5, and how often the rows of the second one come, of weights 1 and 4::

        >>> draws = WeightedDraws(np.array([0, 3, 8]), samples=16)
        >>> draws.epoch(seed=0, epoch=0).counts, draws.counts(3, np.array([1, 4]), moved=0)
        (array([ 6, 10]), array([2, 8]))
    """

    def __init__(self, begins: Integers, samples: int) -> None:
        self.total = int(begins[-1])
        if not 0 < self.total < 1 << WEIGHT_BITS:
            raise UsageError(
                f"weights must add up to 1 at least, and to less than 2**{WEIGHT_BITS}, got {self.total}",
                hint="give some sample a weight above 0",
            )
        if not 0 < samples < _MOST_SAMPLES:
            raise UsageError(
                f"an epoch of draws by weight must have 1 to 2**44 samples, got {samples}",
                hint="choose another epoch_size",
            )
        self.samples = samples
        self._bits = _PLACE_BITS - samples.bit_length()
        self.spacing = 1 << self._bits
        self._begins = begins
        self._first_places = self._places_of(begins)

    def epoch(self, *, seed: int, epoch: int) -> EpochDraws:
        """The draws of one epoch.

        They are moved by a part of their distance that is keyed in epoch 0 and goes on by 0.618 from epoch to epoch.
        So what is rounded up for a row in one epoch is rounded down in others, as evenly as can be.
        """
        word = int(rng.words(1, seed=seed, domain=rng.Domain.DRAWS)[0])
        moved = moved_on(word, epoch) >> 64 - self._bits
        return EpochDraws(self._firsts(self._first_places, moved), self._bits, moved)

    @staticmethod
    def laid(shard: int, weights: Integers, alike: Integers) -> Integers:
        """The rows of a shard in the order in which they lie on the line.

        They are sorted, and begin with the first one before which there is a part of their weight that goes on by 0.618
        from shard to shard.

        Args:
            shard: Its number.
            weights: Their weights, int64 (n,).
            alike: What they are sorted by, (n,).

        Returns:
            int64 (n,).
        """
        rows: Integers = np.argsort(alike, kind="stable")
        ordered = weights[rows]
        ends = np.cumsum(ordered)
        first = int(np.searchsorted(ends - ordered, moved_on(0, shard) * int(ends[-1]) >> 64))
        return np.roll(rows, -first)

    def counts(self, begin: int, weights: Integers, moved: int) -> Integers:
        """How often rows come that lie end to end on the line.

        Args:
            begin: Weight of all rows before them.
            weights: Their weights, int64 (n,).
            moved: Places by which the draws of the epoch are moved.

        Returns:
            int64 (n,).
        """
        ends = begin + np.cumsum(np.concatenate([np.zeros(1, np.int64), weights]))
        return np.diff(self._firsts(self._places_of(ends), moved))

    def number(self, places: Integers) -> Integers:
        """Which draw of its epoch each place is of: int64 (n,)."""
        numbers: Integers = places >> self._bits
        return numbers

    def moved(self, places: Integers) -> Integers:
        """By how many places the draws of its epoch are moved, for each place: int64 (n,)."""
        return places & self.spacing - 1

    def first(self, begin: int, moved: int) -> int:
        """The first draw of an epoch at or behind a weight, see `counts`."""
        return int(self._firsts(self._places_of(np.array([begin])), moved)[0])

    def _places_of(self, weights: Integers) -> Integers:
        """Where on the line these weights end, as places, rounded up."""
        whole, rest = _scaled(weights, self.samples << self._bits, self.total)
        return whole + (rest > 0)

    def _firsts(self, places: Integers, moved: int) -> Integers:
        """The first draw at or behind each place."""
        firsts: Integers = (places - moved + self.spacing - 1) >> self._bits
        return firsts

    def without_empty(self) -> tuple[Integers, WeightedDraws]:
        """The shards that have any weight, and the same draws of these alone."""
        shards = np.flatnonzero(np.diff(self._begins))
        return shards, WeightedDraws(np.append(self._begins[shards], self.total), self.samples)


@dataclass(frozen=True, slots=True)
class EpochDraws:
    """The draws of one epoch.

    Attributes:
        firsts: The first draw at or behind the beginning of each shard, and E at last: int64 (shards + 1,).
        bits: There are 2 to the power of this places from one draw to the next.
        moved: Places by which all draws are moved.
    """

    firsts: Integers
    bits: int
    moved: int

    @property
    def counts(self) -> Integers:
        """Draws of each shard: int64 (shards,)."""
        return np.diff(self.firsts)

    def places(self, shard: Integers, number: Integers) -> Integers:
        """The place of each draw, given as a number among those of its shard."""
        places: Integers = (self.firsts[shard] + number << self.bits) + self.moved
        return places


Counts: TypeAlias = Integers | WeightedDraws
"""Samples of each shard, int64 (shards,), or how often they are drawn by weight."""


def samples_of(counts: Counts) -> int:
    """Samples of an epoch."""
    return counts.samples if isinstance(counts, WeightedDraws) else int(counts.sum())


def without_empty(counts: Counts) -> tuple[Integers, Counts]:
    """The shards that have samples, and the counts of these alone."""
    if isinstance(counts, WeightedDraws):
        return counts.without_empty()
    shards = np.flatnonzero(counts)
    return shards, counts[shards]


def _scaled(values: Integers, factor: int, divisor: int) -> tuple[Integers, Integers]:
    """``divmod(values * factor, divisor)``, exactly, for products below 2^112 and quotients below 2^60.

    Floats say the quotient to within 2^-50 of it. What the estimate leaves of the product is small, so it is exact in
    64 bits that wrap around, and the division of it mends whatever floats have rounded.
    """
    values = np.asarray(values, np.int64)
    estimate = (values * (factor / divisor)).astype(np.int64)
    left = values.astype(np.uint64) * np.uint64(factor) - estimate.astype(np.uint64) * np.uint64(divisor)
    more, rest = divmod(left.view(np.int64), divisor)
    return estimate + more, rest
