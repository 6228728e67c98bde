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

    Permutations are drawn when they are needed: a rank needs those of its own group.

    Args:
        samples: Positions of the line (N).
        parameters: Λ, V, m, R₀ and G are used.
        seed: Seed of the run.
        epoch: Epoch, in [0, 2**32).
        together: Whether all sub-lanes of a group are dealt alike, as the first.
    """

    def __init__(
        self, samples: int, parameters: OrderParameters, *, seed: int, epoch: int, together: bool = False
    ) -> None:
        super().__init__(samples, parameters)
        self._seed = seed
        self._epoch = epoch
        self._decks = 1 if together else self._sublanes  # permutations a group
        shape = (parameters.groups * self._decks, self._group_workers)
        self._drawn = np.zeros(shape[0], np.bool_)
        self._places = np.zeros(shape, np.int64)  # untouched pages cost no memory
        self._workers = np.zeros(shape, np.int64)

    def _place_of(self, group: Integers, sublane: Integers, worker: Integers) -> Integers:
        return self._places[self._deck(group, sublane), worker]

    def _worker_of(self, group: Integers, sublane: Integers, place: Integers) -> Integers:
        return self._workers[self._deck(group, sublane), place]

    def _deck(self, group: Integers, sublane: Integers) -> Integers:
        """The row of the permutations of each group and sub-lane; they are drawn by then."""
        deck = group * self._decks + sublane % self._decks
        drawn = self._drawn[deck]
        if not drawn.all():
            for number in np.unique(deck[~drawn]).tolist():
                self._draw(number)
        return deck

    def _draw(self, deck: int) -> None:
        group, sublane = divmod(deck, self._decks)
        raw = rng.words(
            self._group_workers, seed=self._seed, domain=rng.Domain.DEAL, epoch=self._epoch, a=group, b=sublane
        )
        self._places[deck] = rng.permutation(raw)
        self._workers[deck, self._places[deck]] = np.arange(self._group_workers)
        self._drawn[deck] = True


def epoch_lanes(samples: int, parameters: OrderParameters, *, seed: int, epoch: int, together: bool = False) -> Lanes:
    """The lanes of one epoch, as the version of its order has them; arguments as of `DealtLanes`."""
    if parameters.version == 1:
        return Lanes(samples, parameters)
    return DealtLanes(samples, parameters, seed=seed, epoch=epoch, together=together)
