"""Epochs of another size than the data set: pieces of an endless walk through the data set's own epochs.

Position p of epoch e of E positions is position ``(e E + p) mod N`` of the data set's epoch ``(e E + p) div N``. So
every sample comes once before any comes again, whatever E; with E = N this is the plain epoch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.order.epoch import EpochOrder, HeldEpochs, checked_epoch, checked_positions, gathered
from shardstream.order.line import checked_counts
from shardstream.order.parameters import OrderParameters

_HELD = 2  # epochs of the data set in use: one, and the next one around its end


class SizedOrder:
    """The order of one epoch of ``samples`` positions, in the role of ``EpochOrder``.

    Args:
        counts: Samples of each shard of the view, int64, shape (shards,); at least one sample in all.
        samples: Positions of an epoch (E).
        seed: Seed of the run.
        epoch: Epoch, in [0, 2**32).
        parameters: See ``OrderParameters``.
        shuffle: ``False`` is the stored order, over and over.

    Raises:
        UsageError: Arguments out of range, or no samples.

    Example::

        >>> order = SizedOrder(np.array([2, 3]), samples=4, seed=0, epoch=1, parameters=OrderParameters(1, 1, 1),
        ...                    shuffle=False)
        >>> order.locate(np.array([0, 1]))
        (array([1, 0]), array([2, 0]))
    """

    def __init__(
        self,
        counts: NDArray[np.int64],
        *,
        samples: int,
        seed: int,
        epoch: int,
        parameters: OrderParameters,
        shuffle: bool = True,
    ) -> None:
        counts = checked_counts(counts)
        self.samples = samples
        self._size = int(counts.sum())
        if samples < 0 or not self._size:
            raise UsageError(
                f"an epoch of {samples} positions cannot be made of {self._size} samples",
                hint="pass samples from 0 on, and counts that add up to 1 or more",
            )
        self._first = checked_epoch(epoch) * samples
        if self._first + samples >= 1 << 62:
            raise UsageError(
                f"epoch {epoch} of {samples} positions is beyond 2**62 positions", hint="use smaller epochs"
            )
        self._epochs = HeldEpochs(counts, _HELD, seed=seed, parameters=parameters, shuffle=shuffle)

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The stored sample at each position, as ``EpochOrder.locate``."""
        shard, row = self._find(positions, EpochOrder.locate)
        return shard, row

    def locate_windows(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """The same with the windows around, as ``EpochOrder.locate_windows``."""
        return self._find(positions, EpochOrder.locate_windows)

    def _find(
        self,
        positions: NDArray[np.int64],
        how: Callable[[EpochOrder, NDArray[np.int64]], tuple[NDArray[np.int64], ...]],
    ) -> tuple[NDArray[np.int64], ...]:
        epoch, position = divmod(self._first + checked_positions(positions, self.samples), self._size)
        return gathered(epoch, lambda number, slots: how(self._epochs[number], position[slots]))
