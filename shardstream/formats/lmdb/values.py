"""What pickles and msgpack objects are read into: plain values, and places of bytes, text and arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.shards.fields import SCALAR_TYPES

LARGEST_NAME = 1024
"""Bytes of a key of a dict, or of the name of a global."""
MAX_NESTING = 32
_CODE = re.compile(r"b1|[iu][1248]|f[248]|c8|c16")


class NotUnderstood(ValueError):
    """What cannot be read of a value, and at which of its bytes.

    Args:
        what: A sentence.
        at: Offset in the value.
    """

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


class EndsEarly(NotUnderstood):
    """A value that ends before what it announces: it is damaged."""


@dataclass(slots=True)  # not frozen: that would take most of the time of reading a pickle
class Blob:
    """Bytes or text in a value.

    Attributes:
        offset: Where they begin in the value.
        length: Bytes.
        kind: ``bytes``; ``text`` in UTF-8; ``latin1``: bytes of which each stands as a character of UTF-8.
    """

    offset: int
    length: int
    kind: Literal["bytes", "text", "latin1"]

    def read(self, data: memoryview) -> bytes:
        """The bytes, or those of the text, given the value; ValueError where there are none."""
        stored = data[self.offset : self.offset + self.length]
        return str(stored, "utf-8").encode("latin1") if self.kind == "latin1" else bytes(stored)

    def text(self, data: memoryview) -> str:
        """The text of a name; NotUnderstood where it is none, or long."""
        if self.length > LARGEST_NAME:
            raise NotUnderstood(f"a name of {self.length} bytes", self.offset)
        try:
            return self.read(data).decode()
        except ValueError:
            raise NotUnderstood("a name that is not text", self.offset) from None


@dataclass(slots=True)
class StoredArray:
    """A numpy array in a value.

    Attributes:
        dtype: Of its elements.
        shape: Its shape.
        raw: Its elements.
        fortran: Whether they lie column by column.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    raw: Blob
    fortran: bool = False

    @property
    def addressed(self) -> str | None:
        """The type of a field in whose values the elements can be read as they lie; ``None`` if there is none."""
        little = self.dtype.newbyteorder("<") == self.dtype and self.dtype.name in SCALAR_TYPES
        if not little or self.fortran or self.raw.kind != "bytes" or not self.raw.length or not self.shape:
            return None
        return f"array:{self.dtype.name}:{','.join(map(str, self.shape))}"

    def read(self, data: memoryview) -> NDArray[Any]:
        """The array, given the value; ValueError where there is none."""
        return np.frombuffer(self.raw.read(data), self.dtype).reshape(self.shape, order="F" if self.fortran else "C")


@dataclass(slots=True)
class Nested:
    """A list or dict of msgpack inside of another, which is a msgpack object of its own.

    Attributes:
        offset: Where it begins in the value.
        length: Bytes.
    """

    offset: int
    length: int


Found: TypeAlias = "int | float | Blob | StoredArray | Nested | list[Any] | tuple[Any, ...] | dict[str, Any] | None"
"""A value; what a list, tuple or dict holds is one too, or is nothing that could be a value."""


def dtype_of(code: str, order: str, at: int) -> np.dtype[Any]:
    """The dtype of a code such as ``f4``; NotUnderstood where it is not plain, as that of Python objects."""
    found = _dtype(code, order)
    if found is None:
        raise NotUnderstood(f"arrays of dtype {order[:8]}{code[:80]}", at)
    return found


@lru_cache(maxsize=64)
def _dtype(code: str, order: str) -> np.dtype[Any] | None:
    plain = _CODE.fullmatch(code) and order in ("<", ">", "=", "|")
    return np.dtype(f"{'<' if order == '=' else order}{code}") if plain else None


def array_of(dtype: np.dtype[Any], shape: Any, raw: Blob, data: memoryview, fortran: bool) -> StoredArray:
    """An array, if its elements are as many as its shape wants; NotUnderstood where they are not."""
    length = raw.length if raw.kind != "latin1" else len(str(data[raw.offset : raw.offset + raw.length], "utf-8"))
    sizes = tuple(shape) if isinstance(shape, list | tuple) else (-1,)
    plain = len(sizes) <= MAX_NESTING and all(type(one) is int and 0 <= one < 1 << 48 for one in sizes)
    expected = dtype.itemsize
    for one in sizes if plain else ():
        expected *= one
    if not plain or expected != length:
        raise NotUnderstood(f"an array of {length} bytes that is not of its shape", raw.offset)
    return StoredArray(dtype, sizes, raw, fortran)


def scalar_of(dtype: np.dtype[Any], raw: Blob, data: memoryview) -> bool | int | float:
    """The number of a numpy scalar."""
    found = raw.read(data)
    if len(found) != dtype.itemsize or dtype.kind not in "biuf":
        raise NotUnderstood(f"a number of dtype {dtype.str} of {len(found)} bytes", raw.offset)
    number: bool | int | float = np.frombuffer(found, dtype)[0].item()
    return number
