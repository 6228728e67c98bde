"""``Numbers``: the dtype that numbers of each output have in a batch, whichever samples are in it.

It follows from what is stored and from the types that users' callables return, never from values: a stored column
keeps its dtype also where its numbers went through a transform as Python's. What it cannot hold is an error, since one
batch with it and one without would differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.decode.dtypes import check_fit, holds_all
from shardstream.decode.plan import DecodePlan
from shardstream.decode.usercall import UserCall
from shardstream.errors import BatchError, FieldError
from shardstream.shards.fields import FieldType
from shardstream.shards.scalars import to_scalar
from shardstream.stream.tensors.slabs import slab_of, torch_dtype

if TYPE_CHECKING:
    import torch

Where: TypeAlias = Callable[[int], Mapping[str, str | int]]
"""Where the sample in a slot lies, for an error."""

_BOOL, _INT, _FLOAT = np.dtype(np.bool_), np.dtype(np.int64), np.dtype(np.float64)
_ONE_TYPE = "make them one type, in `fields` or the transform: float(...), int(...), or numpy's, as in np.float32(...)"


class Numbers:
    """Makes slabs of numbers, with one dtype for each output.

    Args:
        declared: By output, the dtype of what is stored, or of what ``fields`` makes of it.
    """

    def __init__(self, declared: Mapping[str, np.dtype[Any]]) -> None:
        self.declared = declared
        self._seen: dict[str, torch.dtype] = {}

    def begin(self) -> None:
        """Begin an iteration: a transform may return another type than in the one before."""
        self._seen.clear()

    def slab(self, name: str, values: Sequence[Any], where: Where | None) -> torch.Tensor:
        """Numbers, Python's or numpy's, as a tensor (B,).

        Args:
            name: The output.
            values: One a sample.
            where: Where a sample lies, for errors.

        Raises:
            BatchError: They are of several types, or of another than in an earlier batch, or the dtype cannot hold one.
        """
        declared = self.declared.get(name)
        kinds = {kind: _dtype_of(kind, declared) for kind in set(map(type, values))}
        dtype = kinds[type(values[0])]
        if len(set(kinds.values())) > 1:
            slot = next(i for i, value in enumerate(values) if kinds[type(value)] != dtype)
            few = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise _error(name, slot, where, f"numbers of different types cannot become one batch ({few})", _ONE_TYPE)
        self.settle(name, torch_dtype(dtype), where)
        if any(not issubclass(kind, np.generic) for kind in kinds) and not _fit(values, dtype):
            self._check_each(name, values, dtype, where)
        return slab_of(np.array(values, dtype))

    def settle(self, name: str, dtype: torch.dtype, where: Where | None) -> None:
        """Say what an output's numbers or arrays are in a batch.

        Raises:
            BatchError: They were something else in an earlier batch of this iteration.
        """
        before = self._seen.setdefault(name, dtype)
        if before != dtype:
            was, now = (str(one).removeprefix("torch.") for one in (before, dtype))
            raise _error(name, 0, where, f"numbers were {was} in an earlier batch and are {now} now", _ONE_TYPE)

    def lacking(self, name: str, values: Sequence[Any], where: Where | None) -> None:
        """Refuse numbers and fixed arrays of a stored column where some samples have none.

        Raises:
            BatchError: They are that.
        """
        kinds = set(map(type, values))
        if name in self.declared and all(is_number(kind) or kind in (NoneType, np.ndarray) for kind in kinds):
            slots = [i for i, value in enumerate(values) if value is None]
            raise missing_number(name, len(slots), {} if where is None else where(slots[0]))

    def _check_each(self, name: str, values: Sequence[Any], dtype: np.dtype[Any], where: Where | None) -> None:
        kind = FieldType.parse(dtype.name)
        for slot, value in enumerate(values):
            try:
                to_scalar(kind, value)
            except FieldError as error:
                wide = "float64" if dtype.kind == "f" else "uint64" if value >= 1 << 63 else "int64"
                what = f"return numpy's numbers for every sample, as in np.{wide}(...)"
                if name in self.declared:
                    what = f'declare another, as in fields={{"{name}": np.{wide}}}'
                raise _error(name, slot, where, error.what, f"one dtype holds for all batches: {what}") from None


def converted(name: str, values: NDArray[Any], where: Where, out: NDArray[Any]) -> NDArray[Any]:
    """Stored numbers or fixed arrays, (n, ...), in another dtype.

    Args:
        name: The output.
        values: The numbers.
        where: Where the i-th lies, for errors.
        out: Where to write them, of that dtype.

    Raises:
        FieldError: It cannot hold one.
    """
    check_fit(values, out.dtype, lambda i: {**where(i), "field": name})
    np.copyto(out, values, casting="unsafe")  # all of them fit; floats are rounded
    return out


def missing_number(name: str, count: int, location: Mapping[str, Any]) -> BatchError:
    """The error where samples of a batch have no value of a stored column of numbers."""
    return BatchError(
        f"{count} samples of a batch have no {name!r}",
        hint="leave the field out of `fields`, or fill it in a transform, where a missing value is None",
        field=name,
        **location,
    )


def is_number(kind: type) -> bool:
    """Whether values of this type become a tensor of numbers: Python's and numpy's."""
    if issubclass(kind, np.generic):
        return not issubclass(kind, np.flexible | np.object_)
    return issubclass(kind, int | float)


def stored_dtypes(plan: DecodePlan, fields: Mapping[str, FieldType]) -> dict[str, np.dtype[Any]]:
    """By output, the dtype of stored numbers and fixed arrays, also where callables of ``fields`` see them."""
    found = {}
    for output in plan.outputs:
        stored = [fields[source].dtype for source in output.sources]
        if stored and stored[0] is not None and all(isinstance(step, UserCall) for step in output.steps):
            found[output.name] = stored[0].newbyteorder("=")
    return found


def declared_dtypes(plan: DecodePlan, fields: Mapping[str, FieldType]) -> dict[str, np.dtype[Any]]:
    """By output, the dtype of its numbers: the one that ``fields`` names, else that of `stored_dtypes`."""
    named = {output.name: output.dtype for output in plan.outputs if output.dtype is not None}
    return stored_dtypes(plan, fields) | named


def common_dtype(dtypes: Iterable[np.dtype[Any]]) -> np.dtype[Any] | None:
    """The narrowest dtype that holds every value of all of them exactly; ``None`` if there is none."""
    found: np.dtype[Any] | None
    found, *others = dtypes
    for other in others:
        found = None if found is None else _wider(found, other)
    return found


def _wider(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any] | None:
    both = np.promote_types(one, other)
    return both if holds_all(both, one) and holds_all(both, other) else None


def _dtype_of(kind: type, declared: np.dtype[Any] | None) -> np.dtype[Any]:
    """The dtype that values of a type have in a batch: numpy's their own; Python's the declared one, if it is wider."""
    if issubclass(kind, np.generic):
        return np.dtype(kind)
    if issubclass(kind, bool):
        return _BOOL
    if issubclass(kind, int):
        return declared if declared is not None and declared.kind in "iuf" else _INT
    return declared if declared is not None and declared.kind == "f" else _FLOAT


def _fit(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """Whether it is plain that a dtype holds numbers: integers exactly, floats rounded, but finite if they were."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return bool(int(info.min) <= min(values) and max(values) <= int(info.max))
    if not all(issubclass(kind, float) for kind in set(map(type, values))):
        return False
    given = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        return bool((np.isinf(given) == np.isinf(given.astype(dtype))).all())


def _error(name: str, slot: int, where: Where | None, what: str, hint: str) -> BatchError:
    return BatchError(what, hint=hint, field=name, **(dict[str, Any]() if where is None else where(slot)))
