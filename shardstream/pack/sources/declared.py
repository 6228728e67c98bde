"""Types that users declare, and how values become them: exactly, or not at all.

A type is one of the format, or ``array:DTYPE``: arrays of any shape that all have this dtype. These are stored as
``array``; that they all have it, is seen to here. Bytes that are given for arrays are NPY files; for ``values:DTYPE``
they are that, or the elements themselves.

Lists and tuples of Python have no dtype. Their numbers are taken one by one, as for columns of single numbers: integers
must fit, floats are rounded. Arrays and tensors have one: integers become other integers, or floats, where each is held
exactly, and floats wider ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError
from shardstream.shards.arrays import NPY_MAGIC, is_tensor, npy_array, tensor_to_numpy
from shardstream.shards.fields import SCALAR_TYPES, ArrayType, FieldType, ValuesType
from shardstream.shards.scalars import to_scalar


@dataclass(frozen=True)
class ArrayOf(ArrayType):
    """Arrays of any shape, of one dtype.

    Attributes:
        single: The type of single numbers.
    """

    single: str = ""

    @cached_property
    def elements(self) -> np.dtype[Any]:
        """Dtype of their numbers, little-endian."""
        return np.dtype(self.single).newbyteorder("<")

    @property
    def declared(self) -> str:
        """As it was declared."""
        return f"array:{self.single}"


@lru_cache(maxsize=256)
def parse_type(text: str) -> FieldType:
    """The type that a user declares.

    Raises:
        FieldError: There is no such type.

        >>> parse_type("array:uint16:4").name, parse_type("array:uint16").declared
        ('array:uint16:4', 'array:uint16')
    """
    array, _, elements = text.partition(":")
    if array == "array" and elements in SCALAR_TYPES:
        return ArrayOf("array", single=elements)
    try:
        return FieldType.parse(text)
    except FieldError as error:
        raise FieldError(error.what, hint=f"{error.hint}, or array:DTYPE for arrays of any shape") from None


def type_named(text: str) -> FieldType | None:
    """The same; ``None`` where there is no such type."""
    try:
        return parse_type(text)
    except FieldError:
        return None


def declared_name(kind: FieldType) -> str:
    """A type as it was declared; `parse_type` of it gives the type again."""
    return kind.declared if isinstance(kind, ArrayOf) else str(kind)


def array_dtype(kind: FieldType) -> np.dtype[Any] | None:
    """Of a type of arrays, the dtype of their numbers; ``None`` of other types, and of arrays each of its own dtype."""
    return None if kind.kind == "scalar" else kind.elements


def stored_type(kind: FieldType) -> FieldType:
    """The type of the format in which values of a declared one are stored."""
    return FieldType.parse(kind.name) if isinstance(kind, ArrayOf) else kind


def stored_types(declared: Mapping[str, FieldType]) -> dict[str, FieldType]:
    """The same, by field."""
    return {name: stored_type(kind) for name, kind in declared.items()}


def fitted(kind: FieldType, value: object) -> object:
    """A value as its declared type encodes it: numbers of arrays in the dtype that was declared.

    Raises:
        FieldError: One of them is not held exactly; says which.
    """
    dtype = array_dtype(kind)
    if dtype is None:
        return value
    if isinstance(value, bytes | bytearray | memoryview):  # an encoded value
        if isinstance(kind, ValuesType) and memoryview(value).cast("B")[: len(NPY_MAGIC)] != NPY_MAGIC:
            return value
        value = _decoded(kind, value)
    array = _in_dtype(value, kind, dtype)
    if isinstance(kind, ValuesType) and array.ndim != 1:
        what = f"expected {kind}, numbers in one row, got {list(array.shape)}"
        raise FieldError(what, hint="give a list, or an array of one dimension; 'array' takes any shape")
    return array


def _decoded(kind: FieldType, value: Any) -> NDArray[Any]:
    try:
        return npy_array(memoryview(value).cast("B"))
    except ValueError as error:
        raise FieldError(
            f"bytes that are not valid {kind.name}: {error}", hint="give an array, or an NPY file"
        ) from None


def _in_dtype(value: object, kind: FieldType, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Numbers as an array of the dtype that was declared; FieldError."""
    array = _array(value, kind)
    if isinstance(value, list | tuple | int | float):
        if _plainly(array, dtype):
            return _cast(array, dtype)
        return _one_by_one(value, array.shape, kind, dtype)
    have = array.dtype.kind
    if array.dtype.newbyteorder("<") == dtype:
        return array
    if have in "iu" and dtype.kind in "iuf":
        if _plainly(array, dtype):
            return _cast(array, dtype)
        return _one_by_one(array.tolist(), array.shape, kind, dtype)
    if have == dtype.kind == "f" and array.dtype.itemsize < dtype.itemsize:
        return _cast(array, dtype)
    given = f"an array of {array.dtype.name} {list(array.shape)}" if have in "biufc" else _short(value)
    raise FieldError(
        f"expected {declared_name(kind)}, got {given}",
        hint=f"make it {dtype.name} where it is made, or declare another type",
    )


def _plainly(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a dtype holds all numbers, as far as that is plain without looking at each."""
    have = array.dtype.kind
    if not array.size:
        return True
    if have in "iu" and dtype.kind in "iu":
        if np.can_cast(array.dtype, dtype):
            return True
        info = np.iinfo(dtype)
        return int(info.min) <= int(array.min()) and int(array.max()) <= int(info.max)
    if have in "iu" and dtype.kind == "f":
        exact = 2 << np.finfo(dtype).nmant  # up to which it tells integers apart
        return -exact <= int(array.min()) and int(array.max()) <= exact
    if have == dtype.kind == "f":  # floats, and integers that numpy made floats: exactly, up to 2**53
        kept = _cast(array, dtype) == array
        kept |= (array != np.floor(array)) & (np.abs(array) < np.finfo(dtype).max)
        return bool((~np.isfinite(array) | kept & (np.abs(array) < 1 << 53)).all())
    return have == dtype.kind == "b"


def _array(value: Any, kind: FieldType) -> NDArray[Any]:
    try:
        return tensor_to_numpy(value) if is_tensor(value) else np.asarray(value)
    except ValueError:
        what = f"expected {declared_name(kind)}, got rows of several lengths, {_short(value)}"
        raise FieldError(what, hint="fill them up to one length, or declare json") from None
    except TypeError as error:  # of torch, whose bfloat16 numpy does not have
        what = f"expected {declared_name(kind)}, got {_short(value)}: {error}"
        raise FieldError(what, hint="convert it first") from None


def _short(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 40 else f'{text[:37]}...'} ({type(value).__name__})"


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind != "f":  # floats alone overflow
        return array.astype(dtype)
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _one_by_one(value: Any, shape: tuple[int, ...], kind: FieldType, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers, each as a column of single numbers takes it: numpy makes integers floats beside others."""
    numbers, elements = np.empty(shape, object), FieldType.parse(dtype.name)
    numbers[...] = value
    for place, number in np.ndenumerate(numbers):
        try:
            numbers[place] = to_scalar(elements, number)
        except FieldError as error:
            what = f"{error.what}, at {list(place)} of what was declared {declared_name(kind)}"
            raise FieldError(what, hint=error.hint) from None
    return _cast(numbers, dtype)
