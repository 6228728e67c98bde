"""What columns of each type can hold, in Python's exact integers and fractions: what code is compared with."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from shardstream.shards.fields import SCALAR_TYPES

Number = int | float

# Bits of the significand with its hidden one, and the exponents of the largest and of the smallest normal number.
FLOATS = {"float16": (11, 15, -14), "float32": (24, 127, -126), "float64": (53, 1023, -1022)}
INTEGERS = {name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in SCALAR_TYPES if "int" in name}


def exactly(kind: str, asked: Number) -> Fraction | float | None:
    """The number that a column of this type holds for ``asked``: exact, or infinite; ``None`` if it cannot."""
    if not math.isfinite(asked):
        return asked if kind in FLOATS else None
    number = Fraction(asked)
    if kind in FLOATS:
        held = _rounded(number, *FLOATS[kind])
        return None if isinstance(asked, int) and held != number else held
    low, high = INTEGERS.get(kind, (0, 1))
    return number if number.denominator == 1 and low <= number <= high else None


def _rounded(number: Fraction, bits: int, highest: int, lowest: int) -> Fraction | None:
    """To the nearest number of a format, ties to even."""
    if not number:
        return number
    exponent = math.floor(math.log2(abs(number.numerator))) - math.floor(math.log2(number.denominator))
    while Fraction(2) ** exponent > abs(number):
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= abs(number):
        exponent += 1
    unit = Fraction(2) ** (max(exponent, lowest) - bits + 1)
    rounded = round(number / unit) * unit  # of a fraction: ties to even
    return rounded if abs(rounded) < Fraction(2) ** (highest + 1) else None


def near(kind: str) -> list[Any]:
    """Values of a column where comparing goes wrong: its bounds, those of other types, neighbours."""
    if kind == "bool":
        return [False, True]
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        edges = [0, low, high, *(sign << power for power in (7, 8, 24, 31, 32, 53, 60, 63) for sign in (1, -1))]
        return sorted({n + d for n in edges for d in (-1, 0, 1) if low <= n + d <= high})
    dtype = np.dtype(kind)
    info = np.finfo(dtype)
    few = [0.1, 0.5, 1.0, 2.0**10, 2.0**24, 2.0**53, 2.0**60, float(info.max), float(info.tiny), 1 / 3]
    with np.errstate(over="ignore"):
        held = np.array([*few, *(-x for x in few)], dtype)
        around = np.concatenate([held, np.nextafter(held, dtype.type(0)), np.nextafter(held, dtype.type(np.inf))])
    return [*np.unique(around[np.isfinite(around)]).tolist(), 0.0, -0.0, math.inf, -math.inf, math.nan]
