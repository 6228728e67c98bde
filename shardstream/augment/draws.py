"""Random numbers for a batch: keyed words, so that they are the same on every device and in every run."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.rng import Domain, unit, words

_MASK64 = (1 << 64) - 1


class RandomStream(IntEnum):
    """Which operation random words are for. Values never change: old runs resume with the numbers they had."""

    CROP = 1
    FLIP = 2
    COLOR_JITTER = 3
    GRAYSCALE = 4
    BLUR = 5
    ERASE = 6
    MIX = 7
    RESIZED_CROP = 8


class Positions(NamedTuple):
    """Which samples of an epoch a batch holds; `shardstream.DevicePrefetcher` gives it to a transform.

    Attributes:
        key: An integer made from seed and epoch, the same for all batches of the epoch on all ranks.
        values: int64 (B,): the position in the epoch of each sample. If ``__valid__`` is False: under
            ``dropped="repeat"`` that of the sample that was dropped, under ``tail="pad"`` of the one that is repeated.

    Example:
        >>> positions = ss.augment.Positions(key=7, values=np.arange(8))
        >>> images = torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
        >>> ss.augment.RandomHorizontalFlip()(images, positions=positions).shape  # as the prefetcher does
        torch.Size([8, 3, 32, 32])
    """

    key: int
    values: NDArray[np.int64]


class Draws:
    """The random numbers of one batch.

    Those of a sample depend on the key, the operation and the sample's place, on nothing else: neither on how many
    samples follow it nor on which other operations there are. The place is that in the epoch where it is known, else
    that in the batch.

    Args:
        key: An integer, taken modulo 2**64. ``None``: one is drawn from torch's global CPU generator.
        count: Samples in the batch.
        positions: Their places in the epoch, with the epoch's key in the stead of ``key``. Of another number of samples
            than ``count`` they are of no use: what came between has added or dropped some.

        >>> Draws(7, 2).uniform(RandomStream.FLIP, 1)[0, 0] == Draws(7, 9).uniform(RandomStream.FLIP, 1)[0, 0]
        np.True_
        >>> both = Draws(None, 2, Positions(7, np.array([40, 30]))).uniform(RandomStream.FLIP, 1)
        >>> both[0, 1] == Draws(None, 1, Positions(7, np.array([30]))).uniform(RandomStream.FLIP, 1)[0, 0]
        np.True_
    """

    def __init__(self, key: int | None, count: int, positions: Positions | None = None) -> None:
        self.count = count
        self._runs = [(0, count)]
        if positions is not None and 0 < count == len(positions.values):
            key = positions.key
            self._runs = _runs(positions.values)
        self.key = int(torch.randint(-(1 << 63), (1 << 63) - 1, ())) & _MASK64 if key is None else key

    def words(self, stream: RandomStream, each: int) -> NDArray[np.uint64]:
        """``each`` raw words for every sample: (B, each)."""
        raw = [
            words(count * each, seed=self.key, domain=Domain.BATCH, a=int(stream), skip=first * each)
            for first, count in self._runs
        ]
        return np.concatenate(raw).reshape(self.count, each)

    def uniform(self, stream: RandomStream, each: int) -> NDArray[np.float64]:
        """``each`` numbers in [0, 1) for every sample: (each, B)."""
        return unit(self.words(stream, each)).T


def _runs(positions: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Consecutive positions: the first of each run, and how many they are. Mostly all of a batch is one."""
    starts = np.flatnonzero(np.diff(positions, prepend=positions[:1] - 2) != 1)
    return list(zip(positions[starts].tolist(), np.diff(starts, append=len(positions)).tolist(), strict=True))
