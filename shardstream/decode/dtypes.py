"""Numbers in another dtype: what integers cannot hold is an error, never wrapped around.

`AsType` looks at each value; `Array` takes only dtypes that hold every value there can be, so that none is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shardstream.decode.context import SampleContext
from shardstream.decode.specs import Decoder, Out
from shardstream.errors import FieldError, UsageError
from shardstream.shards.arrays import check_unmasked
from shardstream.shards.fields import FieldType


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
        check_unmasked(value)
        array = np.asarray(value)
        check_fit(array, self.dtype)
        return array.astype(self.dtype)[()]


@dataclass(frozen=True)
class Array(Decoder):
    """Stored numbers and arrays in a wider dtype, written so into the batch: tokens stored as uint16, as int64.

    Only where that dtype holds every value of the stored one exactly, such as uint16 as int32, int64 or float32,
    float16 as float32, or bool as any. Everything else (float64 as float32, int64 as float64, floats as integers) is
    an error when the data set is opened, whatever values there are, so that no run ends at the one value that does not
    fit. A numpy type, ``fields={"x": np.float32}``, takes those too: it looks at each value, and rounds floats.

    Fields of type ``array`` may hold another dtype in each sample, so theirs are looked at sample by sample; a batch of
    them, or of ``values:DTYPE``, is `Ragged`.

    Args:
        dtype: Of the output: bool, an integer or a float, as ``"int64"``.
        source: See `Decoder`.
        optional: See `Decoder`.

    Raises:
        UsageError: There is no such dtype.
        FieldError: When the data set is opened: ``dtype`` does not hold every value of the stored one.

        >>> fields = {"tokens": Array("int64"), "mask": Array("float32")}
    """

    dtype: DTypeLike

    accepts: ClassVar[frozenset[str]] = frozenset({"array", "fixed", "scalar", "values"})

    def __post_init__(self) -> None:
        given: object = self.dtype  # numpy takes None for float64
        try:
            named = None if given is None else np.dtype(self.dtype).newbyteorder("=")
        except TypeError:
            named = None
        if named is None or named.kind not in "biuf" or named.itemsize > 8:
            raise UsageError(
                f"Array takes the dtype of the output, got {self.dtype!r}", hint='write Array("int64"), for example'
            )
        object.__setattr__(self, "dtype", named)

    def check_stored(self, field: str, stored: Mapping[str, FieldType]) -> None:
        """Refuse also a stored dtype of which this one does not hold every value."""
        super().check_stored(field, stored)
        if (dtype := stored[field].elements) is not None:
            self._check_dtype(dtype, field)

    def _check_dtype(self, stored: np.dtype[Any], field: str) -> None:
        assert isinstance(self.dtype, np.dtype)
        if not holds_all(self.dtype, stored):
            write = "leave the decoder out for what is stored"
            if stored.kind in "biuf":
                write = (
                    f'{{"{field}": np.{self.dtype.type.__name__}}} in `fields` looks at each value instead; or '
                    "write a wider dtype"
                )
            raise FieldError(
                f"{self.dtype} does not hold every value of {stored.newbyteorder('=')} exactly", field=field, hint=write
            )

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        if not isinstance(value, np.ndarray | np.generic):
            raise FieldError(
                f"expected a number or an array of numpy, got a {type(value).__name__}",
                hint="make an array of it in the callable before: np.asarray(value, np.int64)",
            )
        check_unmasked(value)
        self._check_dtype(value.dtype, name)
        if out is None:
            return value.astype(self.dtype)
        out[...] = value
        return out


def dtype_named(part: object) -> np.dtype[Any] | None:
    """The dtype that part of a field spec declares; ``None`` if it is neither a numpy type nor `Array`."""
    if isinstance(part, Array):
        assert isinstance(part.dtype, np.dtype)
        return part.dtype
    return np.dtype(part) if isinstance(part, type) and issubclass(part, np.generic) else None


def holds_all(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Whether a dtype holds every value of another one exactly.

    >>> holds_all(np.dtype("float32"), np.dtype("uint16")), holds_all(np.dtype("float64"), np.dtype("int64"))
    (True, False)
    """
    if narrow.kind not in "biuf" or np.promote_types(wide, narrow) != wide:
        return False
    # Of what numpy promotes, only integers to floats lose anything.
    return wide.kind != "f" or narrow.kind not in "iu" or np.iinfo(narrow).bits <= np.finfo(wide).nmant + 1


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
