"""Mixtures by schedule, item by item, as docs/order.md describes them. See ``reference.py``, whose rules apply here."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from itertools import count, pairwise

from shardstream import rng

from .reference import Epoch, Mixture, Shape, spans_walked

Knots = list[tuple[int, list[Fraction]]]
Labels = list[tuple[int, int]]

LAST = 1 << 43
PRIMES = (2, 3, 5, 7)


def shares_of(knots: list[list]) -> Knots:
    """Positions with shares that add up to 1."""
    return [(at, [Fraction(one) / sum(map(Fraction, weights)) for one in weights]) for at, weights in knots]


class Era:
    """Between two knots: the source of each place of a lane, and its number among the places of that source.

    Args:
        begin: Shares at its beginning.
        end: Shares at its end.
        rows: Rows of lanes that it fills, rounded up.
        lanes: Number of lanes.
        seed: Of the run.
        fine: Whether units are as small as integers allow, as in version 3.
    """

    def __init__(self, begin: list, end: list, rows: int, lanes: int, seed: int, *, fine: bool) -> None:
        total = math.lcm(*(share.denominator for share in (*begin, *end)))
        self.a, self.b = ([int(share * total) for share in shares] for shares in (begin, end))
        self.h = rows if self.a == self.b else max(1, rows // 1024)
        self.n = rows // self.h
        if fine:
            finer = max(1, min(65_536 // total, (2**62 - 1) // (2 * self.n * total * rows)))
            total *= finer
            self.a, self.b = ([finer * one for one in quotas] for quotas in (self.a, self.b))
        self.unit = 2 * self.n * total
        self.lanes, self.seed = lanes, seed

    def amount(self, of: list[int], k: int) -> int:
        a, b = sum(self.a[one] for one in of), sum(self.b[one] for one in of)
        return self.h * (a * (2 * self.n * k - k * k) + b * k * k)

    def share(self, of: list[int], k: int) -> int:
        a, b = sum(self.a[one] for one in of), sum(self.b[one] for one in of)
        return a * max(2 * (self.n - k) - 1, 0) + b * min(2 * k + 1, 2 * self.n)

    def left(self, of: list[int], part: list[int], name: int, lane: int, m: int) -> int:
        k = max(k for k in range(self.n + 1) if self.amount(of, k) <= m * self.unit)
        k -= self.share(of, k) == 0
        r, t = divmod(m * self.unit - self.amount(of, k), self.share(of, k))
        prime, x, y, rest = PRIMES[name.bit_length() - 1], 0, 1, lane
        while y < self.lanes:
            rest, digit = divmod(rest, prime)
            x, y = x * prime + digit, y * prime
        z = int(rng.words(1, seed=self.seed, domain=rng.Domain.SCHEDULE, a=name)[0]) // 2
        phase = ((2 * x + 1) * self.unit // (2 * y) + z % self.unit) % self.unit
        own = self.amount(part, k) + r * self.share(part, k) + t * self.share(part, k) // self.share(of, k)
        return (own + phase) // self.unit

    def find(self, lane: int, place: int) -> tuple[int, int]:
        of, name, m = [one for one in range(len(self.a)) if self.a[one] + self.b[one]], 1, place
        while len(of) > 1:
            halves = of[: (len(of) + 1) // 2], of[(len(of) + 1) // 2 :]
            now, after = (self.left(of, halves[0], name, lane, items) for items in (m, m + 1))
            side = int(after == now)
            of, name, m = halves[side], 2 * name + side, m - now if side else now
        return of[0], m


def eras(knots: Knots, lanes: int, seed: int, *, fine: bool) -> tuple[list[int], list[Era]]:
    """The positions at which eras begin, and the eras."""
    positions, found = [], []
    for (first, begin), (then, end) in pairwise([*knots, (LAST, knots[-1][1])]):
        if first < then:
            positions.append(first)
            found.append(Era(begin, end, -(-(then - first) // lanes), lanes, seed, fine=fine))
    return positions, found


def in_rows(knots: Knots, row: int) -> Knots:
    return [(-(-at // row) * row, shares) for at, shares in knots]


def labels_by_rows(knots: Knots, lanes: int, places: int, seed: int) -> list[Labels]:
    """The source and its number at each place of each lane, where knots act at whole rows."""
    positions, those = eras(in_rows(knots, lanes), lanes, seed, fine=False)
    found: list[Labels] = []
    for lane in range(lanes):
        had = [0] * len(knots[0][1])
        began, before, own = -1, list(had), Labels()
        for place in range(places):
            now = bisect_right(positions, place * lanes) - 1
            if now != began:
                began, before = now, list(had)
            source, number = those[now].find(lane, place - positions[now] // lanes)
            own.append((source, before[source] + number))
            had[source] += 1
        found.append(own)
    return found


class ScheduledMixture(Mixture):
    """Several epochs of a mixture by schedule, by samples, as lists of (source, shard, row).

    In version 3, an era begins on each walk with the first place that comes at the position of its knot or behind it.
    """

    def __init__(
        self, counts: list[list[int]], *, knots: list[list], samples: int, seed: int, shape: Shape, epochs: int
    ) -> None:
        self.labels = self._walked(shares_of(knots), samples, seed, shape, epochs)
        quotas = [1] * len(counts)
        super().__init__(counts, quotas=quotas, samples=samples, seed=seed, shape=shape, by="samples", epochs=epochs)

    @staticmethod
    def _walked(knots: Knots, samples: int, seed: int, shape: Shape, epochs: int) -> list[list[int]]:
        """The labels of each walk, in the order of its places, found position by position."""
        deals = [Epoch([samples], seed=seed, epoch=epoch, shape=shape) for epoch in range(epochs)]
        reading = [dict[int, int]() for _ in deals]  # by epoch: span -> walk
        for walk in range(shape.lanes):
            for walks, span in zip(reading, spans_walked(walk, shape, shape.groups), strict=False):
                walks[span] = walk
        key = {span: lane for lane, span in enumerate(deals[0].spans)}
        found: list[list[int]] = [[] for _ in range(shape.lanes)]
        if shape.version < 3:
            places = max(len(deal.dealt) for deal in deals) * epochs // shape.lanes + 3 * epochs
            rows = labels_by_rows(knots, shape.lanes, places, seed)
            return [[source for source, _ in rows[key[walk]]] for walk in range(shape.lanes)]
        positions, those = eras(knots, shape.lanes, seed, fine=True)
        started: list[dict[int, int]] = [{} for _ in range(shape.lanes)]
        position = count()
        for deal, walks in zip(deals, reading, strict=True):
            for lane, _ in deal.dealt:
                walk = walks[deal.spans[lane]]
                now = bisect_right(positions, next(position)) - 1
                begin = started[walk].setdefault(now, len(found[walk]))
                found[walk].append(those[now].find(key[walk], len(found[walk]) - begin)[0])
        return found

    def _labels(self, key: int) -> Iterator[int]:
        return iter(self.labels[key])
