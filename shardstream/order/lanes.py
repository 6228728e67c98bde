"""Lanes: the line cut into equal spans, and which lane reads which span.

Span σ of N positions on Λ lanes is [⌊σN/Λ⌋, ⌊(σ+1)N/Λ⌋). Lane ``l = u m + i`` belongs to virtual worker u, sub-lane i;
the m lanes of one virtual worker, which make up a batch, lie about ``Λ / (G m)`` spans apart inside the part of the
line that belongs to the worker's affinity group: one in each sub-lane. Explicit lanes have one sub-lane.

Since order version 2 the spans of each sub-lane are dealt to the virtual workers of the group anew in every epoch.
Were they not, equally long shards would give each of them the same rows for ever: the spans' ends would lie at the same
rows, whatever the order of the shards.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream import rng
from shardstream.errors import UsageError
from shardstream.order.parameters import OrderParameters

Integers: TypeAlias = NDArray[np.int64]
"""One integer a position: int64, shape (n,)."""


class Lanes:
    """The cut of ``samples`` positions into spans, one a lane: worker u′ of a group reads span u′ of each sub-lane.

    Args:
        samples: Positions of the line (N).
        parameters: Λ, V, m, R₀ and G are used.

    Raises:
        UsageError: So many lanes that N·Λ does not fit 63 bits.
    """

    def __init__(self, samples: int, parameters: OrderParameters) -> None:
        if samples * (parameters.lanes + 1) >= 1 << 63:
            raise UsageError(
                f"{parameters.lanes} lanes are too many for {samples} samples: their product must stay below 2**63",
                hint="use fewer lanes; a few hundred a rank mix well",
            )
        self.samples = samples
        self.count = parameters.lanes
        spread = parameters.spread
        self._sublanes = parameters.sublanes if spread else 1
        self._ranks = parameters.ranks if spread else 1
        self._group_ranks = self._ranks // parameters.groups
        self._group_lanes = parameters.lanes // parameters.groups
        self._group_workers = self._group_lanes // self._sublanes

    def begin(self, span: Integers) -> Integers:
        """First position on the line of each span; ``begin(span + 1)`` is its end."""
        return span * self.samples // self.count

    def span_of(self, lane: Integers) -> Integers:
        """The span that each lane reads."""
        worker, sublane = divmod(lane, self._sublanes)
        virtual, rank = divmod(worker, self._ranks)
        group, rank_in_group = divmod(rank, self._group_ranks)
        place = self._place_of(group, sublane, virtual * self._group_ranks + rank_in_group)
        return group * self._group_lanes + sublane * self._group_workers + place

    def lane_of(self, span: Integers) -> Integers:
        """The lane that reads each span: the inverse of ``span_of``."""
        group, inside = divmod(span, self._group_lanes)
        sublane, place = divmod(inside, self._group_workers)
        virtual, rank_in_group = divmod(self._worker_of(group, sublane, place), self._group_ranks)
        worker = virtual * self._ranks + group * self._group_ranks + rank_in_group
        return worker * self._sublanes + sublane

    def _place_of(self, group: Integers, sublane: Integers, worker: Integers) -> Integers:
        """Which span of a sub-lane each virtual worker of a group reads."""
        return worker

    def _worker_of(self, group: Integers, sublane: Integers, place: Integers) -> Integers:
        """Which virtual worker of a group reads each span of a sub-lane."""
        return place


class DealtLanes(Lanes):
    """The same, where each epoch deals the spans of a sub-lane to the virtual workers of the group by a permutation.

    Args:
        samples: Positions of the line (N).
        parameters: Λ, V, m, R₀ and G are used.
        seed: Seed of the run.
        epoch: Epoch, in [0, 2**32).
    """

    def __init__(self, samples: int, parameters: OrderParameters, *, seed: int, epoch: int) -> None:
        super().__init__(samples, parameters)
        self._deals = _Deals(parameters.groups, range(self._sublanes), self._group_workers, seed=seed, epoch=epoch)

    def _place_of(self, group: Integers, sublane: Integers, worker: Integers) -> Integers:
        return self._deals.through(group, sublane, worker)

    def _worker_of(self, group: Integers, sublane: Integers, place: Integers) -> Integers:
        return self._deals.back(group, sublane, place)


class HandedLanes(DealtLanes):
    """The same, where the lanes of a virtual worker stay together: as epoch 0 deals them, for ever.

    Each epoch hands all lanes of a virtual worker to one of its group, by one more permutation.
    """

    def __init__(self, samples: int, parameters: OrderParameters, *, seed: int, epoch: int) -> None:
        super().__init__(samples, parameters, seed=seed, epoch=0)
        after = range(self._sublanes, self._sublanes + 1)
        self._hands = _Deals(parameters.groups, after, self._group_workers, seed=seed, epoch=epoch)

    def _place_of(self, group: Integers, sublane: Integers, worker: Integers) -> Integers:
        return super()._place_of(group, sublane, self._hands.through(group, np.zeros_like(sublane), worker))

    def _worker_of(self, group: Integers, sublane: Integers, place: Integers) -> Integers:
        return self._hands.back(group, np.zeros_like(sublane), super()._worker_of(group, sublane, place))


class _Deals:
    """Permutations of the virtual workers of a group, drawn when they are needed: a rank needs those of its own group.

    Args:
        groups: Number of groups.
        keys: What the permutations of each group are keyed by.
        workers: Virtual workers of a group.
        seed: Seed of the run.
        epoch: Epoch, in [0, 2**32).
    """

    def __init__(self, groups: int, keys: range, workers: int, *, seed: int, epoch: int) -> None:
        self._keys = keys
        self._seed = seed
        self._epoch = epoch
        self._drawn = np.zeros(groups * len(keys), np.bool_)
        self._forward = np.zeros((len(self._drawn), workers), np.int64)  # untouched pages cost no memory
        self._backward = np.zeros_like(self._forward)

    def through(self, group: Integers, number: Integers, worker: Integers) -> Integers:
        """Each worker through the permutation of this number of its group."""
        found: Integers = self._forward[self._row(group, number), worker]
        return found

    def back(self, group: Integers, number: Integers, worker: Integers) -> Integers:
        """The inverse."""
        found: Integers = self._backward[self._row(group, number), worker]
        return found

    def _row(self, group: Integers, number: Integers) -> Integers:
        row = group * len(self._keys) + number
        drawn = self._drawn[row]
        if not drawn.all():
            for one in np.unique(row[~drawn]).tolist():
                self._draw(one)
        return row

    def _draw(self, row: int) -> None:
        group, number = divmod(row, len(self._keys))
        workers = self._forward.shape[1]
        where = {"epoch": self._epoch, "a": group, "b": self._keys[number]}
        self._forward[row] = rng.permutation(rng.words(workers, seed=self._seed, domain=rng.Domain.DEAL, **where))
        self._backward[row, self._forward[row]] = np.arange(workers)
        self._drawn[row] = True


def epoch_lanes(samples: int, parameters: OrderParameters, *, seed: int, epoch: int, together: bool = False) -> Lanes:
    """The lanes of one epoch, as the version of its order has them; ``together``: as `HandedLanes`."""
    if parameters.version == 1:
        return Lanes(samples, parameters)
    return (HandedLanes if together else DealtLanes)(samples, parameters, seed=seed, epoch=epoch)
