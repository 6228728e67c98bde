"""Field types: what a stored value is, and how it becomes bytes and comes back.

A type is written as a short string, in ``dataset.json`` and in every index:

=====================  =========  ==================================================================
name                   kind       stored as
=====================  =========  ==================================================================
``int64`` ... ``bool``  scalar     one element of a dense column in the index (any numpy int or float)
``array:DTYPE:SHAPE``  fixed      C-order little-endian elements, all samples the same size
``jpg png webp``       payload    the image file as it is; decoded by its content, not by its name
``bytes``              payload    as it is
``str``                payload    UTF-8
``json``               payload    compact UTF-8 JSON
``msgpack``            payload    one msgpack object without extension types
``array``              payload    an NPY file (version 1.0, no Python objects)
``tensor``             payload    a safetensors file with one tensor
=====================  =========  ==================================================================

``int`` and ``float`` are accepted for ``int64`` and ``float64``, ``jpeg`` for ``jpg``. Nothing is ever unpickled.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError
from shardstream.shards import codecs
from shardstream.shards.tensors import is_tensor, tensor_to_numpy

FieldKind: TypeAlias = Literal["scalar", "fixed", "payload"]

IMAGE_TYPES = ("jpg", "png", "webp")
PAYLOAD_TYPES = (*IMAGE_TYPES, "bytes", "str", "json", "msgpack", "array", "tensor")
SCALAR_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
_ALIASES = {"int": "int64", "float": "float64", "jpeg": "jpg"}
# What a field of stored bytes is by its name, as files are by their extension.
_EXTENSIONS = {
    "jpg": "jpg",
    "jpeg": "jpg",
    "png": "png",
    "webp": "webp",
    "txt": "str",
    "text": "str",
    "json": "json",
    "msgpack": "msgpack",
    "mp": "msgpack",
    "npy": "array",
    "safetensors": "tensor",
}
_MAX_DIMENSIONS = 32  # of numpy 1
_MAX_FIXED_BYTES = (1 << 31) - 1  # of an element of a numpy array, as which a fixed array is gathered
_FIELD_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class FieldType:
    """The stored type of a field. Make one with `FieldType.parse`.

    Attributes:
        name: The canonical string.
        kind: ``"scalar"`` (dense column in the index), ``"fixed"`` (equal-sized arrays) or ``"payload"``.
        dtype: Element type of scalars and fixed arrays, little-endian; ``None`` for payloads.
        shape: Shape of one value: ``()`` for scalars, ``None`` for payloads.
    """

    name: str
    kind: FieldKind
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None

    @staticmethod
    def parse(text: str) -> FieldType:
        """The type that ``text`` names.

        Raises:
            FieldError: No such type.

            >>> FieldType.parse("array:float32:2,3").width
            24
        """
        return _parse(str(text))

    @property
    def is_image(self) -> bool:
        """Whether values are image files."""
        return self.name in IMAGE_TYPES

    @property
    def width(self) -> int:
        """Bytes of one scalar or fixed value."""
        if self.dtype is None or self.shape is None:
            raise TypeError(f"values of {self.name!r} have no common size")
        return self.dtype.itemsize * math.prod(self.shape)

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=256)
def _parse(text: str) -> FieldType:
    name = _ALIASES.get(text, text)
    if name in PAYLOAD_TYPES:
        return FieldType(name, "payload")
    if name in SCALAR_TYPES:
        return FieldType(name, "scalar", np.dtype(name).newbyteorder("<"), ())
    match = re.fullmatch(r"array:([a-z0-9]+):([0-9]{1,10}(?:,[0-9]{1,10})*)", name)
    if match and match[1] in SCALAR_TYPES:
        return _fixed(np.dtype(match[1]).newbyteorder("<"), tuple(int(part) for part in match[2].split(",")))
    raise FieldError(
        f"no field type is called {text!r}",
        hint="types are "
        + ", ".join((*PAYLOAD_TYPES, *SCALAR_TYPES))
        + " and array:DTYPE:SHAPE (array:float32:3,224,224)",
    )


def _fixed(dtype: np.dtype[Any], shape: tuple[int, ...]) -> FieldType:
    name = f"array:{dtype.name}:{','.join(map(str, shape))}"
    if len(shape) > _MAX_DIMENSIONS or dtype.itemsize * math.prod(shape) > _MAX_FIXED_BYTES:
        raise FieldError(f"values of {name!r} are too large for a fixed array", hint="use 'array', or several fields")
    return FieldType(name, "fixed", dtype, shape)


def check_field_name(name: str) -> None:
    """Refuse names that cannot be a member extension or a keyword.

    Raises:
        FieldError: Empty, other characters than letters, digits, ``_ - .``, or leading double underscore.
    """
    if not _FIELD_NAME.fullmatch(name) or name.startswith("__"):
        raise FieldError(
            f"{name!r} cannot be a field name",
            field=name,
            hint="use letters, digits, '_', '-' and inner dots; names that begin with '__' are reserved",
        )


def type_of_extension(extension: str) -> FieldType:
    """The type of a file with this extension (without dot, any case); ``bytes`` where it is not known."""
    return FieldType.parse(_EXTENSIONS.get(extension.lower(), "bytes"))


def infer_type(name: str, value: object) -> FieldType:
    """The type of a value that was given none: by its Python type, and for bytes by the field's last extension.

    Raises:
        FieldError: No type holds such a value.

        >>> infer_type("cls", 3).name, infer_type("jpg", b"...").name, infer_type("emb", np.ones(3)).name
        ('int64', 'jpg', 'array')
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return type_of_extension(name.rsplit(".", 1)[-1])
    if isinstance(value, str):
        return FieldType.parse("str")
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return _numpy_scalar_type(name, value.dtype)
    if isinstance(value, bool):
        return FieldType.parse("bool")
    if isinstance(value, int):
        return FieldType.parse("int64")
    if isinstance(value, float):
        return FieldType.parse("float64")
    if isinstance(value, np.ndarray):
        return FieldType.parse("array")
    if isinstance(value, dict | list | tuple):
        return FieldType.parse("json")
    if is_tensor(value):
        return FieldType.parse("tensor")
    raise FieldError(
        f"a {type(value).__name__} has no field type",
        field=name,
        hint="store bytes, str, int, float, bool, dict, list, a numpy array or a torch tensor",
    )


def _numpy_scalar_type(name: str, dtype: np.dtype[Any]) -> FieldType:
    if dtype.name in SCALAR_TYPES:
        return FieldType.parse(dtype.name)
    raise FieldError(
        f"a numpy {dtype.name} has no field type", field=name, hint="use one of " + ", ".join(SCALAR_TYPES)
    )


def to_scalar(kind: FieldType, value: object) -> int | float | bool:
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
        f"{value!r} ({type(value).__name__}) is no {kind.name}", hint="declare another type, or convert it"
    )


def to_comparables(kind: FieldType, numbers: Sequence[float]) -> NDArray[Any]:
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


def to_comparable(kind: FieldType, number: float) -> int | float | bool:
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
        raise FieldError(f"{number!r} is no integer, but values are {kind.name}")
    if kind.dtype.kind == "b" and whole in (0, 1):
        return bool(whole)
    return to_scalar(kind, whole)


@lru_cache(maxsize=16)
def _limits(name: str) -> tuple[int, int]:
    info = np.iinfo(np.dtype(name))
    return int(info.min), int(info.max)


def _to_float(kind: FieldType, value: float) -> float:
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


def to_fixed(kind: FieldType, value: object) -> NDArray[Any]:
    """A value for a fixed-size array column: C-contiguous, little-endian, of exactly this dtype and shape.

    Raises:
        FieldError: Another dtype or shape; nothing is cast or broadcast in silence.
    """
    array = tensor_to_numpy(value) if is_tensor(value) else np.asarray(value)
    assert kind.dtype is not None
    if array.dtype.newbyteorder("<") != kind.dtype or array.shape != kind.shape:
        raise FieldError(
            f"an array of {array.dtype.name} {list(array.shape)} is no {kind.name}",
            hint="convert it, or declare 'array' for shapes that vary",
        )
    return np.ascontiguousarray(array, dtype=kind.dtype)


def to_bytes(kind: FieldType, value: object) -> bytes | memoryview:
    """The stored bytes of a payload value. Bytes given for any payload type count as encoded, and are checked.

    Raises:
        FieldError: The value does not fit the type.
    """
    try:
        return codecs.encode(kind.name, value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FieldError(
            f"a {type(value).__name__} is no valid {kind.name}: {error}", hint="declare the field's type"
        ) from error


def from_bytes(kind: FieldType, data: memoryview) -> Any:
    """The Python value of stored payload bytes; copies, so that it outlives the buffer.

    Images come back as bytes here; the decode room turns them into pixels.

    Raises:
        DecodeError: The bytes are no valid value of this type.
    """
    return codecs.decode(kind.name, data)
