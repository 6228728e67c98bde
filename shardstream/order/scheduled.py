"""Labels by a schedule: which source each place of each lane has, as closed arithmetic on integers.

Between two knots, an *era*, sources are the leaves of a tree, and each node deals what comes to it to its two sides. Of
m items of a node, in a lane, floor(U(m) + phi) go to the left: U is what the left side has of the node in exact
shares by the time the node has m items, and phi a phase that is spread evenly over the lanes. U grows by at most 1, so
each item goes to one side; and how many of each source lie before any place follows from a division a level.
docs/decisions/017-schedules.md has the proof.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream import rng
from shardstream.errors import UsageError
from shardstream.order.lanes import Integers
from shardstream.order.schedule import Era, Schedule

_STRETCHES = 1024  # of constant shares, at least, that a ramp is made of; fewer where it has fewer rows
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)  # one a level: enough for 4,096 sources
_TOGETHER = 8192  # lanes whose counts are made at once: what a tree has in them stays in a processor's cache
_HELD = 4  # eras whose trees are kept


class ScheduledLabels:
    """Endless rows of labels, one for each lane, whose sources come as a schedule wants them.

    Args:
        schedule: The shares of the sources.
        seed: Of the run.
        lanes: How many rows of labels there are.
        row: Positions of a place of all lanes.
    """

    def __init__(self, schedule: Schedule, seed: int, lanes: int, row: int) -> None:
        self._eras = list(schedule.eras(row))
        self._rows = np.array([era.row for era in self._eras], np.int64)
        self._sources = len(schedule.knots[0].shares)
        self._lanes = lanes
        self._phases = _Phases(seed, lanes, _shape(self._sources).depth)
        self._trees: OrderedDict[int, _Tree] = OrderedDict()
        self._before: OrderedDict[int, tuple[NDArray[np.bool_], Integers]] = OrderedDict()

    def find(self, key: Integers, place: Integers) -> tuple[Integers, Integers]:
        """The source at each place of the row of each key, and how many places of that source lie before it."""
        if len(place) == 0:
            return np.zeros_like(place), place
        era = np.searchsorted(self._rows, place, side="right") - 1
        numbers = np.unique(era).tolist()
        if len(numbers) == 1:
            return self._in_era(numbers[0], key, place)
        source, before = np.empty_like(place), np.empty_like(place)
        for number in numbers:
            mine = era == number
            source[mine], before[mine] = self._in_era(number, key[mine], place[mine])
        return source, before

    def _in_era(self, number: int, key: Integers, place: Integers) -> tuple[Integers, Integers]:
        source, inside = self._tree(number).find(key, place - self._eras[number].row)
        return source, inside + self._counts(number, key)[key, source]

    def counts(self, key: Integers, place: Integers) -> Integers:
        """How many places of each source lie before a place of each row: (n, sources)."""
        found = np.zeros((self._sources, len(key)), np.int64)
        for number, era in enumerate(self._eras):
            inside = np.clip(place - era.row, 0, era.rows)
            if not inside.any():
                break
            for first in range(0, len(key), _TOGETHER):
                part = slice(first, first + _TOGETHER)
                self._tree(number).count(key[part], inside[part], found[:, part])
        return found.T

    def _counts(self, number: int, key: Integers) -> Integers:
        """Of which, for the keys that are asked for, what lies before an era is filled in: (lanes, sources)."""
        held = self._before.get(number)
        if held is None:  # untouched pages cost no memory
            held = np.zeros(self._lanes, np.bool_), np.zeros((self._lanes, self._sources), np.int64)
            self._before[number] = held
            while len(self._before) > _HELD:
                self._before.popitem(last=False)
        known, counts = held
        if number and not known[key].all():
            new = np.unique(key[~known[key]])
            counts[new] = self.counts(new, np.full(len(new), self._eras[number].row))
            known[new] = True
        return counts

    def _tree(self, number: int) -> _Tree:
        tree = self._trees.get(number)
        if tree is None:
            tree = self._trees[number] = _Tree(self._eras[number], self._phases)
        self._trees.move_to_end(number)
        while len(self._trees) > _HELD:
            self._trees.popitem(last=False)
        return tree


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
    """

    def __init__(self, era: Era, phases: _Phases) -> None:
        self._leaves = np.flatnonzero(np.array(era.begin) + np.array(era.end))
        self._shape, self._phases = _shape(len(self._leaves)), phases
        self._constant = era.begin == era.end
        self._long = era.rows if self._constant else max(1, era.rows // _STRETCHES)  # rows of a stretch
        self._stretches = era.rows // self._long
        self._unit = 2 * self._stretches * sum(era.begin)
        if era.rows * self._unit >= 1 << 62:
            raise UsageError(
                f"a ramp of {era.rows:,} rows of lanes is too long for these shares",
                hint="use more lanes, shorter ramps, or shares of smaller denominators",
            )
        sums = (np.concatenate(([0], np.cumsum(np.array(of)[self._leaves]))) for of in (era.begin, era.end))
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
