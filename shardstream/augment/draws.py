"""Random numbers for a batch: keyed words, so that they are the same on every device and in every run."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.rng import Domain, unit, words

_MASK64 = (1 << 64) - 1


class Stream(IntEnum):
    """Which operation random words are for. Values never change: old runs resume with the numbers they had."""

    CROP = 1
    FLIP = 2
    COLOR_JITTER = 3
    GRAYSCALE = 4
    BLUR = 5
    ERASE = 6
    MIX = 7
    RESIZED_CROP = 8


class Draws:
    """The random numbers of one batch.

    Those of a sample depend on the key, the operation and the sample's place in the batch, on nothing else: neither on
    how many samples follow it nor on which other operations there are.

    Args:
        key: An integer, taken modulo 2**64. ``None``: one is drawn from torch's global CPU generator.
        count: Samples in the batch.

        >>> Draws(7, 2).uniform(Stream.FLIP, 1)[0, 0] == Draws(7, 9).uniform(Stream.FLIP, 1)[0, 0]
        np.True_
    """

    def __init__(self, key: int | None, count: int) -> None:
        self.key = int(torch.randint(-(1 << 63), (1 << 63) - 1, ())) & _MASK64 if key is None else key
        self.count = count

    def words(self, stream: Stream, each: int) -> NDArray[np.uint64]:
        """``each`` raw words for every sample: (B, each)."""
        raw = words(self.count * each, seed=self.key, domain=Domain.BATCH, a=int(stream))
        return raw.reshape(self.count, each)

    def uniform(self, stream: Stream, each: int) -> NDArray[np.float64]:
        """``each`` numbers in [0, 1) for every sample: (each, B)."""
        return unit(self.words(stream, each)).T
