"""One epoch's order: from a position in the epoch to the shard and row that stand there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.order.draws import Counts, EpochDraws, WeightedDraws
from shardstream.order.lanes import Integers, Lanes, epoch_lanes
from shardstream.order.line import checked_counts, epoch_line, stored_line
from shardstream.order.parameters import OrderParameters
from shardstream.order.sequence import Sequence
from shardstream.order.windows import Windows, epoch_windows

_STALE_READS = 1024  # an epoch not used for so many is done with: all lanes have had their turn


class EpochOrder:
    """The order of one epoch, a bijection from positions to stored samples.

    A pure function of its arguments: any process that makes one gets the same order, and can enter it anywhere. Holds
    12 bytes a shard, 24 a lane, nothing a sample, and up to 64 MiB of permutations of open windows, typically below
    1 MiB. Not for several threads at once.

    Args:
        counts: Samples of each shard of the view, int64, shape (shards,). Zeros are fine. Or ``WeightedDraws``: then
            places of draws stand wherever rows are spoken of, ``WeightedDraws.spacing`` from one to the next.
        seed: Seed of the run; taken modulo 2**64.
        epoch: Epoch, in [0, 2**32).
        parameters: See ``OrderParameters``; they say which version of the order this is.
        shuffle: ``False`` is the stored order, whatever seed, epoch and parameters say.

    Raises:
        UsageError: Arguments out of range.

    Example::

        >>> order = EpochOrder(np.array([2, 3]), seed=0, epoch=0, parameters=OrderParameters(1, 1, 1), shuffle=False)
        >>> order.locate(np.array([1, 2]))
        (array([0, 1]), array([1, 0]))
    """

    def __init__(
        self,
        counts: Counts,
        *,
        seed: int,
        epoch: int,
        parameters: OrderParameters,
        shuffle: bool = True,
    ) -> None:
        checked_epoch(epoch)
        self._draws: EpochDraws | None = None
        if isinstance(counts, WeightedDraws):
            self._draws = counts.epoch(seed=seed, epoch=epoch)
            counts = self._draws.counts
        counts = checked_counts(counts)
        if shuffle:
            self._line = epoch_line(counts, parameters, seed=seed, epoch=epoch)
            self._lanes = epoch_lanes(self._line.samples, parameters, seed=seed, epoch=epoch)
            self._windows: Windows | None = epoch_windows(self._lanes, parameters, seed=seed, epoch=epoch)
        else:
            parameters = OrderParameters(lanes=1, chunk=1, window=1)
            self._line = stored_line(counts)
            self._lanes = Lanes(self._line.samples, parameters)
            self._windows = None
        self._sequence = Sequence(self._lanes, parameters.chunk)

    @property
    def samples(self) -> int:
        """Samples of the epoch (N)."""
        return self._line.samples

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The stored sample at each position.

        Fast where the positions of one call, and of calls after one another, lie close together, as those of a batch
        do; correct for any.

        Args:
            positions: int64 in [0, samples), shape (n,), in any order.

        Returns:
            Shard and row inside that shard: int64, shape (n,) each.

        Raises:
            UsageError: A position out of range.
        """
        return self._locate_in_lanes(*self.lanes_of(positions))

    def locate_in_spans(
        self, span: NDArray[np.int64], offset: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The stored sample at each offset of the lanes that read these spans.

        Args:
            span: int64 in [0, lanes), shape (n,).
            offset: int64, shape (n,), each in [0, samples of its span).

        Returns:
            Shard and row inside that shard: int64, shape (n,) each.
        """
        return self._locate_in_lanes(self._lanes.lane_of(span), offset)

    def _locate_in_lanes(self, lane: Integers, offset: Integers) -> tuple[Integers, Integers]:
        # without windows the one lane is the line
        position = offset if self._windows is None else self._windows.line_positions(lane, offset)
        shard, row = self._line.find(position)
        return shard, row if self._draws is None else self._draws.places(shard, row)

    def locate_windows(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """The stored sample at each position, and which rows of its shard are read around the same time.

        Whoever reads ahead gets with one read what the lane needs until it comes to its next window.

        Args:
            positions: As for `locate`.

        Returns:
            Shard, row, the first row of the part of the window that lies in this shard, the row after its last, the
            lane, and the number of the window, which no other of the epoch has: int64, shape (n,) each. A lane reads
            one window after another, and all of it.
        """
        return self._windows_in_lanes(*self.lanes_of(positions))

    def windows_in_spans(self, span: NDArray[np.int64], offset: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """What `locate_windows` returns, for each offset of the lanes that read these spans."""
        return self._windows_in_lanes(self._lanes.lane_of(span), offset)

    def _windows_in_lanes(self, lane: Integers, offset: Integers) -> tuple[Integers, ...]:
        """The stored order is one window."""
        if self._windows is None:
            position, begin, end = offset, np.zeros_like(offset), np.full_like(offset, self.samples)
        else:
            position, begin, end = self._windows.find(lane, offset)
        shard, *rows = self._line.find_between(position, begin, end)
        if self._draws is not None:
            rows = [self._draws.places(shard, row) for row in rows]
        return shard, *rows, lane, begin

    def lanes_of(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which lane each position is read from, and its offset inside that lane, before windows are permuted.

        Args:
            positions: int64 in [0, samples), shape (n,), in any order.

        Returns:
            Lane and offset: int64, shape (n,) each.

        Raises:
            UsageError: A position out of range.
        """
        return self._sequence.lanes_of(checked_positions(positions, self.samples))


class HeldEpochs:
    """The orders of a data set's epochs, made when they are read; those that were read of late are kept.

    Args:
        counts: See ``EpochOrder``, as for the other arguments.
        most: How many are kept.
        seed: Seed of the run.
        parameters: See ``OrderParameters``.
        shuffle: Whether epochs are shuffled.
    """

    def __init__(self, counts: Counts, most: int, *, seed: int, parameters: OrderParameters, shuffle: bool) -> None:
        self._order_of = partial(EpochOrder, counts, seed=seed, parameters=parameters, shuffle=shuffle)
        self._most = most
        self._held: dict[int, tuple[EpochOrder, int]] = {}  # with the read that used it last; that used last, last
        self._reads = 0

    def __getitem__(self, number: int) -> EpochOrder:
        """The order of one epoch, of any number."""
        self._reads += 1
        order, _ = self._held.pop(number, (None, 0))
        if order is None:
            for other, (_, used) in list(self._held.items()):
                if len(self._held) >= self._most or self._reads - used > _STALE_READS:
                    del self._held[other]
            order = self._order_of(epoch=number % (1 << 32))
        self._held[number] = order, self._reads
        return order


def gathered(
    keys: NDArray[np.int64], read: Callable[[int, NDArray[np.int64]], tuple[NDArray[np.int64], ...]]
) -> tuple[NDArray[np.int64], ...]:
    """Columns that are found group by group, put together.

    Args:
        keys: What groups the slots.
        read: Gets a key and the slots that have it; returns their columns. Where there are no slots, the key is 0.
    """
    first = int(keys[0]) if len(keys) else 0
    if not len(keys) or (keys[-1] == first and (keys == first).all()):
        return read(first, np.arange(len(keys)))
    columns: tuple[NDArray[np.int64], ...] = ()
    for key in np.unique(keys).tolist():
        slots = np.flatnonzero(keys == key)
        found = read(key, slots)
        columns = columns or tuple(np.empty(len(keys), np.int64) for _ in found)
        for column, values in zip(columns, found, strict=True):
            column[slots] = values
    return columns


def checked_epoch(epoch: int) -> int:
    """``epoch``, or a ``UsageError`` where it is not in [0, 2**32)."""
    if not 0 <= epoch < 1 << 32:
        raise UsageError(f"epoch must be in [0, 2**32), got {epoch}", hint="count epochs from 0")
    return epoch


def checked_positions(positions: NDArray[np.int64], samples: int) -> Integers:
    """``positions`` as int64, or a ``UsageError`` where one is not in [0, samples)."""
    positions = np.asarray(positions, dtype=np.int64)
    if positions.size and (positions.min() < 0 or positions.max() >= samples):
        raise UsageError(
            f"positions must be in [0, {samples}), got {positions.min()} to {positions.max()}",
            hint="step_positions gives positions inside the epoch",
        )
    return positions
