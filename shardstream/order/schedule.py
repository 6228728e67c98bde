"""Schedules: the shares of a mixture's sources as functions of the position, piecewise linear."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from shardstream.errors import UsageError
from shardstream.order.quotas import as_fraction, largest_remainders

Shares = tuple[Fraction, ...]

_MOST_TOTAL = 1 << 16  # of quotas: shares of a smaller denominator are exact
_PRECISION = Fraction(1, 100)  # of others
_MOST_KNOTS = 4096
_LAST = 1 << 43  # positions: more than any run has


class Knot(NamedTuple):
    """Shares from a position on.

    Attributes:
        position: Over all ranks, from the beginning of the run.
        shares: Of each source; they add up to 1.
    """

    position: int
    shares: Shares


class Era(NamedTuple):
    """The positions between two knots.

    Attributes:
        position: The first of them, that of the knot.
        rows: How many rows of lanes they fill, rounded up.
        begin: Quotas of the sources at its beginning.
        end: At its end; in between they are linear. They add up to as much.
    """

    position: int
    rows: int
    begin: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Knots, between which shares are linear; behind the last one they stay. Made by `Schedule.of`.

    Attributes:
        knots: In order of position, the first at 0; two at one position are a jump.
    """

    knots: tuple[Knot, ...]

    @classmethod
    def of(cls, knots: Sequence[tuple[Any, Sequence[Any]]]) -> Schedule:
        """The schedule of these knots.

        Args:
            knots: Positions, and a weight for each source, in any unit; see `quotas_of` for what numbers mean.

        Raises:
            UsageError: No knots, positions that do not grow or are none, weights that are none, or all 0; shares
                that are too small to be mixed to 1 %.

        Example::

            >>> Schedule.of([(0, (8, 2)), (1000, (5, 5))]).shares_at(500)
            (Fraction(13, 20), Fraction(7, 20))
        """
        if not knots or len(knots) > _MOST_KNOTS:
            raise UsageError(f"a schedule has 1 to {_MOST_KNOTS} knots, got {len(knots)}", hint="begin with one at 0")
        found = [_knot(number, *knot) for number, knot in enumerate(knots)]
        if found[0].position:
            raise UsageError(f"the first knot is at position {found[0].position}, not at 0", hint="say what holds at 0")
        for before, knot in pairwise(found):
            if knot.position < before.position:
                what = f"a knot at position {knot.position} follows one at {before.position}"
                raise UsageError(what, hint="list knots in order of position")
        made = cls(tuple(_needed(found)))
        for _ in made.eras(1):  # refuses shares that are too small
            pass
        return made

    def shares_at(self, position: int) -> Shares:
        """The shares from a position on."""
        for first, then in pairwise(self.knots):
            if first.position <= position < then.position:
                along = Fraction(position - first.position, then.position - first.position)
                return tuple(a + (b - a) * along for a, b in zip(first.shares, then.shares, strict=True))
        return self.knots[-1].shares

    def in_rows(self, row: int) -> Schedule:
        """The schedule with each knot at the first whole row of so many positions that begins at it or after it."""
        return Schedule(tuple(knot._replace(position=-(-knot.position // row) * row) for knot in self.knots))

    def eras(self, row: int) -> Iterator[Era]:
        """The eras between the knots.

        Args:
            row: Positions of a row of lanes.

        Raises:
            UsageError: A share that is too small.
        """
        for first, then in pairwise((*self.knots, Knot(_LAST, self.knots[-1].shares))):
            if first.position < then.position:
                rows = -(-(then.position - first.position) // row)
                yield Era(first.position, rows, *_quotas(first.shares, then.shares))

    def past(self, position: int) -> tuple[Knot, ...]:
        """The knots that what lies before a position depends on: a ramp depends on both."""
        passed = sum(knot.position < position for knot in self.knots)
        on_ramp = 0 < passed < len(self.knots) and self.knots[passed - 1].shares != self.knots[passed].shares
        return self.knots[: passed + on_ramp]


def plain_knots(knots: Sequence[Knot]) -> list[list[Any]]:
    """Knots for JSON, each a position and whole weights; `Schedule.of` makes the same of them again."""
    totals = (math.lcm(*(share.denominator for share in knot.shares)) for knot in knots)
    return [
        [knot.position, [int(share * total) for share in knot.shares]]
        for knot, total in zip(knots, totals, strict=True)
    ]


def checked_schedule(schedule: Schedule, sources: int) -> Schedule:
    """The schedule.

    Raises:
        UsageError: It is of another number of sources.
    """
    own = len(schedule.knots[0].shares)
    if own != sources:
        raise UsageError(f"the schedule is of {own} sources, not of {sources}", hint="name all in each knot")
    return schedule


def _knot(number: int, position: Any, weights: Sequence[Any]) -> Knot:
    exact = as_fraction(position, f"the position of knot {number}")
    if exact.denominator != 1 or not 0 <= exact < _LAST:
        raise UsageError(
            f"knots are at whole positions from 0 to 2**43, got {position!r}", hint="count samples over all ranks"
        )
    given = [as_fraction(weight, f"weight {i} at position {position}") for i, weight in enumerate(weights)]
    if any(one < 0 for one in given) or not sum(given):
        raise UsageError(
            f"weights at position {position} are {', '.join(map(str, weights))}: none may be negative, nor all 0",
            hint="0 leaves a source out",
        )
    return Knot(int(exact), tuple(one / sum(given) for one in given))


def _needed(knots: Sequence[Knot]) -> Iterator[Knot]:
    """Those that change something: without the ones in the midst of what is constant, and inside a jump."""
    before: list[Knot] = []
    for number, knot in enumerate(knots):
        behind = knots[number + 1] if number + 1 < len(knots) else None
        inside_jump = before and behind is not None and before[-1].position == knot.position == behind.position
        constant = before and before[-1].shares == knot.shares and (behind is None or behind.shares == knot.shares)
        if not (inside_jump or constant):
            before.append(knot)
            yield knot


@lru_cache(maxsize=2 * _MOST_KNOTS)
def _quotas(begin: Shares, end: Shares) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both as whole numbers that add up to the same."""
    total = math.lcm(*(share.denominator for share in (*begin, *end)))
    if total <= _MOST_TOTAL:
        return tuple(int(one * total) for one in begin), tuple(int(one * total) for one in end)
    found = tuple(largest_remainders(shares, _MOST_TOTAL) for shares in (begin, end))
    for shares, quotas in zip((begin, end), found, strict=True):
        for number, (share, quota) in enumerate(zip(shares, quotas, strict=True)):
            if share and abs(Fraction(quota, _MOST_TOTAL) / share - 1) > _PRECISION:
                raise UsageError(
                    f"source {number} has a share of {float(share):.2g} at a knot, too small to mix to 1 %",
                    hint="make it 0 or larger",
                )
    return found[0], found[1]
