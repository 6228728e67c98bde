"""The data sets that are shuffled: how many samples of which size, in which shards, with which classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.shuffle.measures import Integers
from shardstream import rng
from shardstream.order import OrderParameters, default_parameters
from shardstream.pack.plan.permute import Permutation

BATCH = 128
WORKERS = 2
CLASSES = 1_000
SHARD_BYTES = 256_000_000  # the default of `shardstream pack`


@dataclass(frozen=True)
class Setting:
    """A data set.

    Attributes:
        samples: Number of samples.
        sample_bytes: Their mean size.
        shard_bytes: A shard of this size is full.
    """

    samples: int
    sample_bytes: int
    shard_bytes: int = SHARD_BYTES

    @cached_property
    def counts(self) -> Integers:
        """Samples of each shard. Sizes vary evenly between half and one and a half of the mean, so counts vary too."""
        words = rng.words(self.samples, seed=0, domain=rng.Domain.PACK, a=self.sample_bytes)
        ends = np.cumsum((0.5 + rng.unit(words)) * self.sample_bytes)
        counts: Integers = np.bincount((ends / self.shard_bytes).astype(np.int64))
        return counts

    @cached_property
    def sorted_labels(self) -> Integers:
        """Classes as they lie when the data was sorted by class and packed as it came."""
        return np.arange(self.samples) * CLASSES // self.samples

    @cached_property
    def shuffled_labels(self) -> Integers:
        """Classes as they lie after the write-time shuffle."""
        return self.sorted_labels[Permutation(self.samples, seed=0)(np.arange(self.samples))]

    def parameters(self, *, ranks: int = 1, nodes: int = 1) -> OrderParameters:
        """The defaults for it; with ``nodes`` above 1, shards keep to a node."""
        return default_parameters(
            self.samples,
            batch_size=BATCH,
            world_size=ranks,
            num_workers=WORKERS,
            mean_bytes=self.sample_bytes,
            shuffle=True,
            groups=nodes,
        )

    def open_samples(self, parameters: OrderParameters) -> int:
        """Samples in the windows that one rank has open: what it shuffles among at a time."""
        lanes = max(1, parameters.lanes // parameters.ranks)
        return min(lanes * parameters.window, -(-self.samples // parameters.ranks))
