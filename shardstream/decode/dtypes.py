"""Numbers in another dtype: what integers cannot hold is an error, never wrapped around."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError


class AsType:
    """Numbers and arrays as a dtype; what a numpy type in ``fields`` stands for.

    Args:
        kind: A numpy type, as ``np.int64``.

        >>> AsType(np.int64)(np.uint8(3)).dtype
        dtype('int64')
    """

    def __init__(self, kind: type[np.generic]) -> None:
        self.dtype = np.dtype(kind)

    def __call__(self, value: Any) -> Any:
        """The value in this dtype.

        Raises:
            FieldError: It cannot be held, or is not a number.
        """
        array = np.asarray(value)
        check_fit(array, self.dtype)
        return array.astype(self.dtype)[()]


def dtype_named(part: object) -> np.dtype[Any] | None:
    """The dtype that part of a field spec declares; ``None`` if it is not a numpy type."""
    return np.dtype(part) if isinstance(part, type) and issubclass(part, np.generic) else None


def first_unfit(values: NDArray[Any], dtype: np.dtype[Any]) -> int | None:
    """Where in the flattened values the first one is that a dtype cannot hold; ``None`` where all fit.

    Integers must be held exactly. Floats are rounded, but not to infinity; of those from 2**53 on nobody knows which
    integers they were: they fit none.
    """
    kind = values.dtype.kind
    if np.can_cast(values.dtype, dtype, "safe"):
        return None
    if kind not in "biuf":
        fit = np.zeros(values.shape, np.bool_)
    elif dtype.kind == "f":
        with np.errstate(over="ignore"):
            fit = np.isinf(values) == np.isinf(values.astype(dtype))
    else:
        low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        if kind == "f":
            values = values.astype(np.float64)
            fit = (np.abs(values) < 1 << 53) & (values == np.floor(values)) & (values >= low) & (values <= high)
        else:  # bounds in the values' own dtype, as far as that reaches
            info = np.iinfo(values.dtype)
            least, most = (values.dtype.type(bound) for bound in (max(low, int(info.min)), min(high, int(info.max))))
            fit = (values >= least) & (values <= most)
    return None if fit.all() else int(np.argmin(fit))


def check_fit(
    values: NDArray[Any], dtype: np.dtype[Any], where: Callable[[int], Mapping[str, Any]] = lambda _: {}
) -> None:
    """Refuse values that `first_unfit` finds.

    Args:
        values: Numbers (n, ...).
        dtype: What has to hold them.
        where: The place of the i-th of the n.

    Raises:
        FieldError: There is one; the first is named.
    """
    unfit = first_unfit(values, dtype)
    if unfit is not None:
        value = values.ravel()[unfit : unfit + 1].tolist()[0]
        place = where(unfit * len(values) // values.size if values.ndim else 0)
        raise FieldError(f"{value!r} does not fit {dtype}", hint="declare another type in `fields`", **place)
