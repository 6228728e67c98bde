"""Lanes: the line cut into equal spans, and which lane reads which span.

Span σ of N positions on Λ lanes is [⌊σN/Λ⌋, ⌊(σ+1)N/Λ⌋). Lane ``l = u m + i`` belongs to virtual worker u, sub-lane i;
the m lanes of one virtual worker, which make up a batch, lie ``Λ / (G m)`` spans apart inside the part of the line
that belongs to the worker's affinity group.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.order.parameters import OrderParameters

Integers: TypeAlias = NDArray[np.int64]
"""One integer a position: int64, shape (n,)."""


class Lanes:
    """The cut of ``samples`` positions into spans, one a lane.

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
        self._spread = parameters.spread
        self._sublanes = parameters.sublanes
        self._ranks = parameters.ranks
        self._group_ranks = parameters.ranks // parameters.groups
        self._group_workers = self._group_ranks * parameters.virtual
        self._group_lanes = self._group_workers * parameters.sublanes

    def begin(self, span: Integers) -> Integers:
        """First position on the line of each span; ``begin(span + 1)`` is its end."""
        return span * self.samples // self.count

    def span_of(self, lane: Integers) -> Integers:
        """The span that each lane reads."""
        if not self._spread:
            return lane
        worker, sublane = divmod(lane, self._sublanes)
        virtual, rank = divmod(worker, self._ranks)
        group, rank_in_group = divmod(rank, self._group_ranks)
        worker_in_group = virtual * self._group_ranks + rank_in_group
        return group * self._group_lanes + sublane * self._group_workers + worker_in_group

    def lane_of(self, span: Integers) -> Integers:
        """The lane that reads each span: the inverse of ``span_of``."""
        if not self._spread:
            return span
        group, inside = divmod(span, self._group_lanes)
        sublane, worker_in_group = divmod(inside, self._group_workers)
        virtual, rank_in_group = divmod(worker_in_group, self._group_ranks)
        worker = virtual * self._ranks + group * self._group_ranks + rank_in_group
        return worker * self._sublanes + sublane
