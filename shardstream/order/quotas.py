"""Quotas: the weights of a mixture as small integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from shardstream.errors import UsageError

_MOST_EXACT = 1024  # a block of labels so long is exact; beyond, blocks are as short as one percent allows
_LEAST_BLOCK, _MOST_BLOCK = 256, 65536  # a lane holds one permutation of a block, and a worker up to 256 lanes
_PRECISION = Fraction(1, 100)


def quotas_of(weights: Sequence[float | int | str | Fraction]) -> tuple[int, ...]:
    """How many samples of each source a block of a mixture has.

    Exact where the exact common denominator of the shares is at most 1,024. Otherwise the smallest power of two from
    256 to 65,536 that gives every share within 1 % of what was asked, by largest remainders.

    Args:
        weights: Weight of each source, in any unit; floats count as the decimals that they are written as (0.1 is
            1/10), and strings may be decimals or fractions ("1/3").

    Raises:
        UsageError: A weight that is not positive and finite, or a share that is too small.

    Example::

        >>> quotas_of([0.7, 0.3])
        (7, 3)
        >>> quotas_of(["1/3", "2/3"])
        (1, 2)
        >>> quotas_of([1_281_167, 500_000])
        (184, 72)
    """
    exact = [_exact(number, weight) for number, weight in enumerate(weights)]
    if not exact:
        raise UsageError("a mixture needs at least one weight", hint="name a source")
    shares = [weight / sum(exact) for weight in exact]
    total = math.lcm(*(share.denominator for share in shares))
    if total <= _MOST_EXACT:
        return tuple(int(share * total) for share in shares)
    total = _LEAST_BLOCK
    while total <= _MOST_BLOCK:
        quotas = largest_remainders(shares, total)
        if all(
            abs(Fraction(quota, total) / share - 1) <= _PRECISION for quota, share in zip(quotas, shares, strict=True)
        ):
            return quotas
        total *= 2
    least = min(range(len(shares)), key=shares.__getitem__)
    raise UsageError(
        f"weight {weights[least]!r} of source {least} is {float(shares[least]):.2g} of all, too small to mix to 1 %",
        hint="leave the source out, or make its weight larger",
    )


def checked_quotas(quotas: Sequence[int], sources: int) -> tuple[int, ...]:
    """``quotas`` as a tuple.

    Raises:
        UsageError: Not one positive integer for each of ``sources``, or more than 65,536 together.
    """
    if len(quotas) != sources or not quotas or min(quotas) < 1 or sum(quotas) > _MOST_BLOCK:
        raise UsageError(
            f"quotas must be {sources} positive integers, together at most {_MOST_BLOCK}, got {tuple(quotas)}",
            hint="`quotas_of` makes them of weights",
        )
    return tuple(map(int, quotas))


def _exact(number: int, weight: float | str | Fraction) -> Fraction:
    exact = as_fraction(weight, f"the weight of source {number}")
    if exact <= 0:
        raise UsageError(f"weights must be positive, got {weight!r} for source {number}", hint="leave out the source")
    return exact


def as_fraction(given: float | str | Fraction, what: str) -> Fraction:
    """A number as it is written: 0.1 is 1/10. ``UsageError`` names ``what`` where it is not finite."""
    try:
        return given if isinstance(given, Fraction) else Fraction(str(given))
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(f"{what} must be a finite number, got {given!r}", hint="pass 0.25, '0.25' or '1/4'") from error


def largest_remainders(shares: Sequence[Fraction], total: int) -> tuple[int, ...]:
    """Quotas that add up to ``total``: floors, and one more for the largest remainders, the first of equal ones."""
    quotas = [int(share * total) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda number: quotas[number] - shares[number] * total)
    for number in by_remainder[: total - sum(quotas)]:
        quotas[number] += 1
    return tuple(quotas)
