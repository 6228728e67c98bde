"""Labels by a schedule: which source each place of each lane has, as closed arithmetic on integers.

Between two knots, an *era*, sources are the leaves of a tree, and each node deals what comes to it to its two sides. Of
m items of a node, in a lane, floor(U(m) + phi) go to the left: U is what the left side has of the node in exact
shares by the time the node has m items, and phi a phase that is spread evenly over the lanes. U grows by at most 1, so
each item goes to one side; and how many of each source lie before any place follows from a division a level.
docs/decisions/017-schedules.md has the proof.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream import rng
from shardstream.errors import UsageError
from shardstream.order.lanes import Integers
from shardstream.order.schedule import Era, Schedule

_STRETCHES = 1024  # of constant shares, at least, that a ramp is made of; fewer where it has fewer rows
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # one a level: enough for 4,096 sources
_TOGETHER = 8192  # lanes whose counts are made at once: what a tree has in them stays in a processor's cache
_LIMIT = 1 << 62  # more than any position, and any number of units of an era
_FINE_TOTAL = 1 << 16  # of quotas, where units are fine
_HELD = 4  # eras whose trees and beginnings are kept

Starts: TypeAlias = Callable[[Integers], Callable[[int], Integers]]
"""From keys to a function, from the position of a knot to the place in the row of each key where the era begins."""


class ScheduledLabels:
    """Endless rows of labels, one per lane, whose sources follow a schedule.

    Args:
        schedule: The shares of the sources, with knots where they take effect.
        seed: Seed of the run.
        lanes: Number of rows of labels.
        row: Positions in which each lane has one place.
        starts: Where eras begin in each row. Default ``None``: at the same place in all rows, since all knots of the
            schedule are at whole rows of positions.
    """

    def __init__(self, schedule: Schedule, seed: int, lanes: int, row: int, starts: Starts | None = None) -> None:
        self._eras = list(schedule.eras(row))
        self._positions = np.array([era.position for era in self._eras], np.int64)
        self._row, self._starts = row, starts
        self._sources = len(schedule.knots[0].shares)
        self._lanes = lanes
        self._phases = _Phases(seed, lanes, _shape(self._sources).depth)
        self._trees: OrderedDict[int, _Tree] = OrderedDict()
        self._beginnings: OrderedDict[int, _Beginning] = OrderedDict()

    def find(self, key: Integers, place: Integers, position: Integers | None = None) -> tuple[Integers, Integers]:
        """The source at each place of the row of each key, and how many places of that source are before it.

        Args:
            key: Rows of labels, shape (n,).
            place: Places in them, shape (n,).
            position: Positions of the run at which these places come, shape (n,). Needed with ``starts``, and not used
                without.
        """
        if len(place) == 0:
            return np.zeros_like(place), place
        at = place * self._row if self._starts is None else position
        assert at is not None, "with starts, positions say which era a place is in"
        era = np.searchsorted(self._positions, at, side="right") - 1
        numbers = np.unique(era).tolist()
        if len(numbers) == 1:
            return self._in_era(numbers[0], key, place)
        source, before = np.empty_like(place), np.empty_like(place)
        for number in numbers:
            mine = era == number
            source[mine], before[mine] = self._in_era(number, key[mine], place[mine])
        return source, before

    def _in_era(self, number: int, key: Integers, place: Integers) -> tuple[Integers, Integers]:
        begin = self._beginning(number, key)
        source, inside = self._tree(number).find(key, place - begin.place[key])
        return source, inside + begin.counts[key, source]

    def counts(self, key: Integers, place: Integers, position: int | None = None) -> Integers:
        """How many places of each source are before a place of each row: (n, sources).

        Args:
            key: Rows of labels, shape (n,).
            place: Places in them, shape (n,).
            position: The position of the run at which all rows are there: no later era is looked at. Not used without
                ``starts``.
        """
        found = np.zeros((self._sources, len(key)), np.int64)
        start, done = self._start_of(key), np.zeros_like(place)
        stop = _LIMIT if self._starts is None or position is None else position
        for number, then in enumerate([*self._positions[1:].tolist(), _LIMIT]):
            if np.array_equal(done, place):
                break
            end = place if then >= stop else np.minimum(start(then), place)
            for first in range(0, len(key), _TOGETHER):
                part = slice(first, first + _TOGETHER)
                self._tree(number).count(key[part], (end - done)[part], found[:, part])
            done = end
        return found.T

    def _start_of(self, key: Integers) -> Callable[[int], Integers]:
        if self._starts is not None:
            return self._starts(key)
        return lambda position: np.full_like(key, position // self._row)

    def _beginning(self, number: int, key: Integers) -> _Beginning:
        """Where an era begins, filled in for these keys at least."""
        found = self._beginnings.get(number)
        if found is None:
            found = self._beginnings[number] = _Beginning.unknown(self._lanes, self._sources)
            while len(self._beginnings) > _HELD:
                self._beginnings.popitem(last=False)
        if number and not found.known[key].all():
            position = self._eras[number].position
            new = np.unique(key[~found.known[key]])
            found.place[new] = self._start_of(new)(position)
            found.counts[new] = self.counts(new, found.place[new], position)
            found.known[new] = True
        return found

    def _tree(self, number: int) -> _Tree:
        tree = self._trees.get(number)
        if tree is None:
            tree = self._trees[number] = _Tree(self._eras[number], self._phases, fine=self._starts is not None)
        self._trees.move_to_end(number)
        while len(self._trees) > _HELD:
            self._trees.popitem(last=False)
        return tree


class _Beginning(NamedTuple):
    """Where an era begins in the rows of labels. Unknown rows are zeros, whose untouched pages use no memory.

    Attributes:
        known: Which rows are filled in, (lanes,).
        place: The first place of the era in each row, (lanes,).
        counts: How many places of each source are before it, (lanes, sources).
    """

    known: NDArray[np.bool_]
    place: Integers
    counts: Integers

    @classmethod
    def unknown(cls, lanes: int, sources: int) -> _Beginning:
        """No row is filled in."""
        return cls(np.zeros(lanes, np.bool_), np.zeros(lanes, np.int64), np.zeros((lanes, sources), np.int64))


class _Phases:
    """A phase for each node of a tree and each lane, spread so evenly that what a node has in all lanes adds up.

    In which rows a lane has an item of a node depends on the phases of the nodes above it, each of which is in one
    interval or not: so lanes are points of a Halton sequence, a dimension for each level of the tree, and any number of
    lanes in a row have as many points in each box, but for a few.

    Args:
        seed: Of the run.
        lanes: How many there are.
        levels: How many a tree has.
    """

    def __init__(self, seed: int, lanes: int, levels: int) -> None:
        found = [_radical_inverses(base, lanes) for base in _PRIMES[:levels]]
        self._inverses = np.stack([2 * inverses + 1 for inverses, _ in found]) if found else np.zeros((0, lanes), int)
        self._of = np.array([2 * of for _, of in found], np.int64)
        self._words = np.array(
            [
                int(rng.words(1, seed=seed, domain=rng.Domain.SCHEDULE, a=node)[0]) >> 1
                for node in range(1 << levels)  # their numbers in a complete tree, from 1 on
            ],
            np.int64,
        )

    def of(self, level: int | Integers, name: Integers, key: Integers, unit: int) -> Integers:
        """Of nodes, by their levels and names, for lanes: integers in [0, unit)."""
        found: Integers = self._inverses[level, key] * unit // self._of[level] + self._words[name] % unit
        return np.where(found >= unit, found - unit, found)


def _radical_inverses(base: int, count: int) -> tuple[Integers, int]:
    """The digits of 0, 1, ..., read backwards: integers, and what they are fractions of."""
    left, found, of = np.arange(count), np.zeros(count, np.int64), 1
    while of < count:
        left, digit = divmod(left, base)
        found, of = found * base + digit, of * base
    return found, of


class _Shape(NamedTuple):
    """A balanced binary tree of so many leaves. Its inner nodes are numbered before the leaves, level by level.

    Attributes:
        first: The first leaf below each node, (nodes,).
        stop: Behind the last one.
        sides: The two nodes below each inner node, (inner, 2).
        names: Of each inner node its number in a complete tree, from 1 on.
        levels: Their levels, the root's being 0.
    """

    first: Integers
    stop: Integers
    sides: Integers
    names: Integers
    levels: Integers

    @property
    def depth(self) -> int:
        """How many levels of inner nodes there are."""
        return int(self.levels.max(initial=-1)) + 1


@lru_cache(maxsize=256)
def _shape(leaves: int) -> _Shape:
    inner = leaves - 1
    sides, names = np.zeros((inner, 2), np.int64), list[int]()
    bounds = np.zeros((2 * inner + 1, 2), np.int64)
    waiting = deque([(0, leaves, 1, -1, 0)])
    while waiting:
        first, stop, name, above, side = waiting.popleft()
        number = len(names) if stop - first > 1 else inner + first
        bounds[number] = first, stop
        if above >= 0:
            sides[above, side] = number
        if stop - first > 1:
            middle = (first + stop + 1) // 2
            names.append(name)
            waiting += (first, middle, 2 * name, number, 0), (middle, stop, 2 * name + 1, number, 1)
    levels = [name.bit_length() - 1 for name in names]
    return _Shape(bounds[:, 0], bounds[:, 1], sides, np.array(names, np.int64), np.array(levels, np.int64))


class _Tree:
    """The sources of an era that have a share in it, as the leaves of a binary tree.

    A ramp consists of n stretches of constant shares: in stretch k a node has begin (2(n - k) - 1) + end (2k + 1) units
    of each row, of which a row has `_unit`, so that all is in whole numbers; and by its beginning it has got
    (begin (2nk - k^2) + end k^2) times the rows of a stretch. Behind the last stretch it has its end.

    Args:
        era: The era.
        phases: Of nodes and lanes.
        fine: Whether units are as small as integers allow. Rounding down loses up to a unit per node and lane, and all
            lanes lose alike.
    """

    def __init__(self, era: Era, phases: _Phases, *, fine: bool) -> None:
        self._leaves = np.flatnonzero(np.array(era.begin) + np.array(era.end))
        self._shape, self._phases = _shape(len(self._leaves)), phases
        self._constant = era.begin == era.end
        self._long = era.rows if self._constant else max(1, era.rows // _STRETCHES)  # rows of a stretch
        self._stretches = era.rows // self._long
        total = sum(era.begin)
        self._unit = 2 * self._stretches * total
        if era.rows * self._unit >= _LIMIT:
            raise UsageError(
                f"a ramp of {era.rows:,} rows of lanes is too long for these shares",
                hint="use more lanes, shorter ramps, or shares of smaller denominators",
            )
        scale = max(1, min(_FINE_TOTAL // total, (_LIMIT - 1) // (era.rows * self._unit))) if fine else 1
        self._unit *= scale
        sums = (np.concatenate(([0], np.cumsum(np.array(of)[self._leaves] * scale))) for of in (era.begin, era.end))
        self._begin, self._end = (of[self._shape.stop] - of[self._shape.first] for of in sums)

    def find(self, key: Integers, place: Integers) -> tuple[Integers, Integers]:
        """The source at each place of the era, and how many of that source lie before it in the era."""
        inner, sides = len(self._shape.sides), self._shape.sides
        node, count = np.zeros_like(place), place.copy()
        for _ in range(self._shape.depth):
            mine = np.flatnonzero(node < inner)
            at, items, lane = node[mine], count[mine], key[mine]
            twice = np.concatenate((items, items + 1))
            both = self._left(np.concatenate((at, at)), twice, np.concatenate((lane, lane)))
            left, then = both[: len(mine)], both[len(mine) :]
            goes_left = then > left
            count[mine] = np.where(goes_left, left, items - left)
            node[mine] = sides[at, np.where(goes_left, 0, 1)]
        return self._leaves[node - inner], count

    def count(self, key: Integers, place: Integers, found: Integers) -> None:
        """Add to ``found``, (sources, n), how many of each source lie before a place in the era."""
        inner, sides = len(self._shape.sides), self._shape.sides
        of_nodes = np.zeros((2 * inner + 1, len(key)), np.int64)
        of_nodes[0] = place
        for level in range(self._shape.depth):
            nodes = np.flatnonzero(self._shape.levels == level)
            items = of_nodes[nodes]
            phase = self._phases.of(level, self._shape.names[nodes, None], key, self._unit)
            left = (self._own_of_all(nodes, items) + phase) // self._unit
            of_nodes[sides[nodes, 0]], of_nodes[sides[nodes, 1]] = left, items - left
        found[self._leaves] += of_nodes[inner:]

    def _left(self, node: Integers, items: Integers, key: Integers) -> Integers:
        """How many of the first items of each node go to its left side."""
        phase = self._phases.of(self._shape.levels[node], self._shape.names[node], key, self._unit)
        found: Integers = (self._own(node, items) + phase) // self._unit
        return found

    def _own_of_all(self, nodes: Integers, items: Integers) -> Integers:
        """What `_own` says of items of each node in many lanes, (nodes, lanes), which mostly differ by few."""
        least = items.min(axis=1, keepdims=True)
        several = np.arange(int((items - least).max()) + 1)
        if 2 * len(several) > items.shape[1]:
            return self._own(np.broadcast_to(nodes[:, None], items.shape), items)
        own = self._own(np.broadcast_to(nodes[:, None], (len(nodes), len(several))), least + several)
        return np.take_along_axis(own, items - least, axis=1)

    def _own(self, node: Integers, items: Integers) -> Integers:
        """What the left side of each node has of its first items in exact shares, in units."""
        side = self._shape.sides[node, 0]
        begin, end, amount = self._begin[node], self._end[node], items * self._unit
        stretch = self._stretch(begin, end, amount)
        whole, part = self._share(begin, end, stretch), self._share(self._begin[side], self._end[side], stretch)
        rows, rest = divmod(amount - self._amount(begin, end, stretch), whole)
        own: Integers = self._amount(self._begin[side], self._end[side], stretch) + rows * part + rest * part // whole
        return own

    def _share(self, begin: Integers, end: Integers, stretch: Integers) -> Integers:
        n = self._stretches
        return begin * np.maximum(2 * (n - stretch) - 1, 0) + end * np.minimum(2 * stretch + 1, 2 * n)

    def _amount(self, begin: Integers, end: Integers, stretch: Integers) -> Integers:
        return self._long * (begin * (2 * self._stretches - stretch) * stretch + end * stretch * stretch)

    def _stretch(self, begin: Integers, end: Integers, amount: Integers) -> Integers:
        """The last stretch at whose beginning each node has no more than this; behind the last, if it has a share."""
        found = np.zeros_like(amount)
        if self._constant:
            return found
        step = 1 << self._stretches.bit_length()
        while step := step >> 1:
            further = found + step
            fits = (further <= self._stretches) & (self._amount(begin, end, further) <= amount)
            found = np.where(fits, further, found)
        found -= self._share(begin, end, found) == 0  # it gets nothing more: what rounding brings is dealt as before
        return found
