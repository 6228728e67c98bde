"""Columns of some samples, as they travel from a process that reads by a package: numbers as they are, and lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MESSAGE = 32 << 20
"""Bytes of samples that are sent at once, about."""
NUMBERS = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
)
"""Names of dtypes that can be a field's."""


def wanted(request: Any, ask: Callable[[Any], Any]) -> Callable[[str], bool]:
    """Whether a column is to be read: one of those that a request names, else of those that whoever asks chose."""
    names = request["fields"]
    if names is not None:
        return set(names).__contains__
    return ask if request["chosen"] else lambda name: True


def of_numbers(values: NDArray[Any]) -> dict[str, Any]:
    """A column of numbers, or of arrays of one shape."""
    values = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
    return {"dtype": values.dtype.str, "shape": list(values.shape[1:]), "data": values.tobytes()}


def of_arrays(values: Iterable[NDArray[Any] | None], dtype: str) -> dict[str, Any]:
    """A column of arrays with one axis, of any length."""
    return {"dtype": dtype, "arrays": [None if one is None else one.astype(dtype).tobytes() for one in values]}


def of_values(values: Sequence[Any]) -> dict[str, Any]:
    """A column of text, bytes, or what JSON has."""
    return {"values": list(values)}


def values_of(column: dict[str, Any]) -> list[Any]:
    """The values, a sample each; ``None`` where there is none."""
    if "values" in column:
        return list(column["values"])
    if "arrays" in column:
        return [None if one is None else np.frombuffer(one, column["dtype"]) for one in column["arrays"]]
    dtype, shape = np.dtype(column["dtype"]), column["shape"]
    if not shape:
        return list(np.frombuffer(column["data"], dtype).tolist())
    return list(np.frombuffer(column["data"], dtype).reshape(-1, *shape))
