"""Walks: one endless path a span, through the spans of a line, epoch after epoch.

Walk w reads span w in epoch 0, span w + 1 in epoch 1, and so on, around inside its affinity group. So in every epoch
each span is read by exactly one walk, and although spans differ by a sample, all walks are as long: none runs ahead of
the others by more than a sample, in however many epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from shardstream.order.lanes import Integers, Lanes, epoch_lanes
from shardstream.order.parameters import OrderParameters
from shardstream.order.sequence import Sequence


class Walks:
    """(epoch, span, offset) <-> (walk, place on that walk).

    Args:
        lanes: The cut of the line into spans.
        groups: Affinity groups (G), which divide the spans evenly and have at least one sample each.
    """

    def __init__(self, lanes: Lanes, groups: int) -> None:
        self._lanes = lanes
        self._spans = lanes.count // groups  # of a group

    def enter(self, epoch: int, span: Integers, offset: Integers) -> tuple[Integers, Integers]:
        """The walk that reads each span in an epoch, and the place on it where each offset stands."""
        first, _, samples = self._group(span)
        walk = first + (span - first - epoch) % self._spans
        rounds = (walk - span + epoch) // self._spans
        return walk, self._lanes.begin(span) - self._lanes.begin(walk) + rounds * samples + offset

    def span(self, epoch: int, walk: Integers) -> Integers:
        """The span that each walk reads in an epoch."""
        first, _, _ = self._group(walk)
        return first + (walk - first + epoch) % self._spans

    def find(self, walk: Integers, place: Integers) -> tuple[Integers, Integers, Integers]:
        """Epoch, span and offset that each place on each walk stands for."""
        _, begin, samples = self._group(walk)
        rounds, inside = divmod(self._lanes.begin(walk) - begin + place, samples)
        at = begin + inside
        span = ((at + 1) * self._lanes.count - 1) // self._lanes.samples
        return rounds * self._spans + span - walk, span, at - self._lanes.begin(span)

    def _group(self, span: Integers) -> tuple[Integers | int, Integers | int, Integers | int]:
        """First span, beginning on the line and samples of the group of each span."""
        if self._spans == self._lanes.count:
            return 0, 0, self._lanes.samples
        first = span - span % self._spans
        begin = self._lanes.begin(first)
        return first, begin, self._lanes.begin(first + self._spans) - begin


class WalkProgress:
    """How far each walk has come at any position of a run.

    Args:
        samples: Positions of an epoch (E).
        parameters: Λ, c, V, m, R₀, G and the version are used.
        seed: Seed of the run.
    """

    def __init__(self, samples: int, parameters: OrderParameters, *, seed: int) -> None:
        self._samples, self._chunk = samples, parameters.chunk
        self._parameters, self._seed = parameters, seed
        self._held: tuple[int, Lanes] | None = None  # an epoch and its lanes: knots are asked for in order
        self._walks = Walks(Lanes(samples, parameters), parameters.groups)

    def of(self, walk: Integers) -> Callable[[int], Integers]:
        """The function from a position of the run to how many places of each of these walks come before it."""

        @lru_cache(maxsize=1)
        def entered(epoch: int) -> tuple[Sequence, Integers, Integers]:
            lanes, span = self._lanes(epoch), self._walks.span(epoch, walk)
            return Sequence(lanes, self._chunk), lanes.lane_of(span), self._walks.enter(epoch, span, span * 0)[1]

        def places(position: int) -> Integers:
            epoch, inside = divmod(position, self._samples)
            sequence, lane, begin = entered(epoch)
            return begin + sequence.before(inside, lane)

        return places

    def _lanes(self, epoch: int) -> Lanes:
        if self._held is None or self._held[0] != epoch:
            self._held = epoch, epoch_lanes(self._samples, self._parameters, seed=self._seed, epoch=epoch)
        return self._held[1]
