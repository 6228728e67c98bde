"""Single numbers, as columns of scalars hold them: exactly, or not at all."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError
from shardstream.shards.arrays import is_tensor


class ScalarKind(Protocol):
    """A type of single numbers: a `FieldType` that has one in each sample."""

    @property
    def name(self) -> str:
        """Of the numbers' dtype."""
        ...

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """That dtype; ``None`` of types that are not scalar."""
        ...


def to_scalar(kind: ScalarKind, value: object) -> int | float | bool:
    """A value for a scalar column, checked to be representable: ints stay ints, nothing wraps.

    Raises:
        FieldError: A value of another kind, or outside the range of the column.
    """
    dtype = kind.dtype
    assert dtype is not None
    plain: Any = value
    if (isinstance(value, np.generic | np.ndarray) or is_tensor(value)) and plain.ndim == 0:
        plain = plain.item()
    if dtype.kind == "b" and isinstance(plain, bool):
        return plain
    if dtype.kind in "iu" and isinstance(plain, int) and not isinstance(plain, bool):
        low, high = _limits(kind.name)
        if low <= plain <= high:
            return plain
        raise FieldError(f"{plain} does not fit {kind.name} [{low}, {high}]", hint="declare a wider type")
    if dtype.kind == "f" and isinstance(plain, int | float) and not isinstance(plain, bool):
        return _to_float(kind, plain)
    raise FieldError(
        f"expected {kind.name}, got {value!r} ({type(value).__name__})", hint="declare another type, or convert it"
    )


def to_comparables(kind: ScalarKind, numbers: Sequence[float]) -> NDArray[Any]:
    """`to_comparable` of each number, in the column's dtype.

    Raises:
        FieldError: No value of the column is one of them.
    """
    if "int" in kind.name and numbers and set(map(type, numbers)) == {int}:  # ids, of which there may be millions
        for extreme in (min(numbers), max(numbers)):
            to_scalar(kind, extreme)
    else:
        numbers = [to_comparable(kind, number) for number in numbers]
    return np.array(numbers, kind.dtype)


def to_comparable(kind: ScalarKind, number: float) -> int | float | bool:
    """What equals this number in a scalar column, if the column can hold it. ``True``, 1 and 1.0 are one number.

    For a column of floats, a float is rounded as `to_scalar` rounds it: so it equals what was stored of it.

    Raises:
        FieldError: No value of the column is this number.

        >>> to_comparable(FieldType.parse("int64"), 3.0), to_comparable(FieldType.parse("bool"), 1)
        (3, True)
    """
    assert kind.dtype is not None
    whole = int(number) if math.isfinite(number) and number == int(number) else None
    if kind.dtype.kind == "f":
        # The digits of an integer must all be held; a float is rounded, also where it has no fraction.
        return to_scalar(kind, whole if isinstance(number, int) else number)
    if whole is None:
        raise FieldError(f"{number!r} is not an integer, and values are {kind.name}")
    if kind.dtype.kind == "b" and whole in (0, 1):
        return bool(whole)
    return to_scalar(kind, whole)


@lru_cache(maxsize=16)
def _limits(name: str) -> tuple[int, int]:
    info = np.iinfo(np.dtype(name))
    return int(info.min), int(info.max)


def _to_float(kind: ScalarKind, value: float) -> float:
    """Rounded as floats are, but neither an integer loses digits in silence nor a number becomes infinite."""
    assert kind.dtype is not None
    try:
        exact = float(value)
        (held,) = struct.unpack(code := f"<{kind.dtype.char}", struct.pack(code, exact))
    except OverflowError as error:
        raise FieldError(f"{value} does not fit {kind.name}", hint="declare a wider type") from error
    if isinstance(value, int) and held != value:
        raise FieldError(f"the integer {value} has no exact {kind.name}", hint="declare int64 or uint64")
    return exact
