"""Subsets without rewriting: which rows of each shard a part of a split has, and the first n samples.

A subset is a range of rows a shard, computed from the samples of the shards alone. Nothing here depends on seeds or
ranks, and what was said of a shard stays true when others are appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UsageError, did_you_mean
from shardstream.order.lanes import Integers
from shardstream.order.line import checked_counts
from shardstream.order.quotas import as_fraction

SplitBy: TypeAlias = Literal["samples", "shards"]
"""What a split deals out: ``"samples"``, a range of every shard to each part, or ``"shards"``, whole ones."""

_INT64 = 1 << 63


def take_counts(counts: NDArray[np.int64], n: int) -> Integers:
    """How many samples of each shard are among the first n in stored order.

    Args:
        counts: Samples of each shard, shape (shards,).
        n: How many to take; more than there are takes all.

    Returns:
        int64, shape (shards,).

    Raises:
        UsageError: A negative number.

    Example::

        >>> take_counts(np.array([3, 0, 4, 5]), 5)
        array([3, 0, 2, 0])
    """
    if n < 0:
        raise UsageError(f"cannot take {n} samples", hint="pass a number from 0 on")
    counts = checked_counts(counts)
    before = np.cumsum(counts) - counts
    taken: Integers = np.minimum(np.maximum(min(n, _INT64 - 1) - before, 0), counts)
    return taken


def split_ranges(
    counts: NDArray[np.int64],
    fractions: Mapping[str, float | str | Fraction],
    part: str,
    *,
    by: SplitBy = "samples",
) -> tuple[Integers, Integers]:
    """The rows of each shard that one part of a split has.

    The parts are cut off one after another, the last-named first. Each takes the last ⌊f·C(s+1)⌋ − ⌊f·C(s)⌋ samples of
    what is left of each shard s, where C counts what is left of the shards before, and f is the part's share of what is
    left. So the parts are disjoint and complete, each has the size that was asked for to within one sample a cut, no
    shard favours one of them, and appended shards change nothing for those that are there.

    Args:
        counts: Samples of each shard, shape (shards,).
        fractions: Share of each part by name; floats count as the decimals that they are written as (0.1 is 1/10), and
            strings may be decimals or fractions ("1/3").
        part: Which part.
        by: ``"shards"`` deals out whole shards by the same formula, an empty one like any other: for data whose
            neighbours belong together. Sizes in samples are then right only on average.

    Returns:
        First row and number of rows in each shard: int64, shape (shards,) each.

    Raises:
        UsageError: No such part, or shares that are not positive or do not add up to 1.

    Example::

        >>> split_ranges(np.array([10, 10, 10]), {"train": 0.75, "val": 0.25}, "val")
        (array([8, 7, 8]), array([2, 3, 2]))
    """
    shares = _exact_shares(fractions)
    if part not in shares:
        raise UsageError(
            f"no part of the split is called {part!r}",
            hint=did_you_mean(str(part), shares) + f"parts are {', '.join(map(repr, shares))}",
        )
    if by not in get_args(SplitBy):
        hint = did_you_mean(str(by), get_args(SplitBy)) + "use 'samples' or 'shards'"
        raise UsageError(f"a split is by samples or by shards, got by={by!r}", hint=hint)
    counts = checked_counts(counts)
    if by == "shards":
        _, held = _cut_off(np.ones_like(counts), shares, part)
        return np.zeros_like(counts), counts * held
    return _cut_off(counts, shares, part)


def _cut_off(counts: Integers, shares: dict[str, Fraction], part: str) -> tuple[Integers, Integers]:
    left, whole = counts, Fraction(1)
    first_named = next(iter(shares))
    for name in reversed(shares):
        if name == first_named:
            break
        edges = _floor_of_share(np.concatenate(([0], np.cumsum(left))), shares[name] / whole)
        taken = np.diff(edges)
        left = left - taken
        if name == part:
            return left, taken
        whole -= shares[name]
    return np.zeros_like(left), left


def _floor_of_share(totals: Integers, share: Fraction) -> Integers:
    """⌊share · total⌋ of each total, exactly; share in [0, 1]."""
    p, q = share.numerator, share.denominator
    if q < _INT64 and int(totals[-1]) * p < _INT64:  # totals ascend
        return totals * p // q
    if p * q < _INT64:
        whole, rest = divmod(totals, q)
        return whole * p + rest * p // q
    return (totals.astype(object) * p // q).astype(np.int64)


def _exact_shares(fractions: Mapping[str, float | str | Fraction]) -> dict[str, Fraction]:
    shares: dict[str, Fraction] = {}
    for name, given in fractions.items():
        shares[name] = as_fraction(given, f"the share of {name!r}")
        if not 0 < shares[name] <= 1:
            raise UsageError(
                f"the share of {name!r} must be in (0, 1], got {given}", hint="leave out a part without a share"
            )
    total = sum(shares.values())
    if total != 1:
        terms = " + ".join(map(str, fractions.values())) or "nothing"
        raise UsageError(
            f"the shares of a split must add up to 1, but {terms} is {float(total)}",
            hint="write shares as decimals (0.98 and 0.02), or as fractions ('1/3')",
        )
    return shares
