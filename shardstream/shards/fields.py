"""Field types: what a stored value is, and how it becomes bytes and comes back.

A type is written as a short string, in ``dataset.json`` and in every index:

=====================  =========  ==================================================================
name                   kind       stored as
=====================  =========  ==================================================================
``int64`` ... ``bool``  scalar     one element of a dense column in the index (any numpy int or float)
``array:DTYPE:SHAPE``  fixed      C-order little-endian elements, all samples the same size
``jpg png webp``       payload    the image file as it is; decoded by its content, not by its name
``bytes``              payload    as it is
``image``              payload    ``bytes`` that are image files of any format, which the manifest says beside the type
``values:DTYPE``       payload    ``bytes`` that are elements one after another, little-endian, which manifest and
                                  index say beside the type
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
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, TypeAlias

import msgpack
import numpy as np
from numpy.typing import NDArray

from shardstream.encodings import read_text
from shardstream.errors import DecodeError, FieldError, UnsupportedError
from shardstream.placeholders import find_placeholder
from shardstream.shards.arrays import (
    bytes_tensor,
    is_tensor,
    npy_array,
    npy_bytes,
    raw_array,
    tensor_bytes,
    tensor_to_numpy,
)
from shardstream.shards.scalars import to_scalar
from shardstream.text import read_strict_json, strict_json

FieldKind: TypeAlias = Literal["scalar", "fixed", "payload"]
Encoded: TypeAlias = "bytes | memoryview | int | float | bool | NDArray[Any]"

SCALAR_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
IMAGE = "image"
VALUES = "values"
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


@dataclass(frozen=True, eq=False)
class FieldType(ABC):
    """The stored type of a field. Make one with `FieldType.parse`; each kind of type is a class.

    Types of one name are equal. ``image`` is ``bytes`` that are known to be image files.

    Attributes:
        name: The canonical string; of ``image`` that of ``bytes``.
        kind: ``"scalar"`` (dense column in the index), ``"fixed"`` (equal-sized arrays) or ``"payload"``.
        dtype: Element type of scalars and fixed arrays, little-endian; ``None`` for payloads.
        shape: Shape of one value: ``()`` for scalars, ``None`` for payloads.
        roles: Arrays that a column of this type has in an index, see `Column`; not all of them always.
        is_image: Whether values are image files.
    """

    name: str
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    kind: ClassVar[FieldKind]
    roles: ClassVar[tuple[str, ...]]
    is_image: ClassVar[bool] = False

    @staticmethod
    def parse(text: str) -> FieldType:
        """The type that ``text`` names.

        Raises:
            FieldError: No such type.

            >>> FieldType.parse("array:float32:2,3").width
            24
        """
        return _parse(str(text))

    @cached_property
    def is_encoded(self) -> bool:
        """Whether decoders get values as they are stored: files of images, and plain bytes."""
        return self.is_image or self.name == "bytes"

    @property
    def stored(self) -> str:
        """The type that is written for it, and that fingerprints hold; `meant_type` is the way back."""
        return self.name

    @property
    def elements(self) -> np.dtype[Any] | None:
        """Dtype of its numbers, little-endian; ``None`` where values are not numbers, or each may have its own."""
        return self.dtype

    @cached_property
    def width(self) -> int:
        """Bytes of one scalar or fixed value."""
        if self.dtype is None or self.shape is None:
            raise TypeError(f"values of {self.name!r} have no common size")
        return self.dtype.itemsize * math.prod(self.shape)

    @abstractmethod
    def encode(self, value: object) -> Encoded:
        """A value as shard writers take it; FieldError where it does not fit this type."""

    def decode(self, stored: Any) -> Any:
        """The Python value of what `FieldValues` holds of a sample; DecodeError where that is none of this type."""
        return stored

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, FieldType) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)


class ScalarType(FieldType):
    """Numbers, in a dense column in the index."""

    kind: ClassVar[FieldKind] = "scalar"
    roles: ClassVar[tuple[str, ...]] = ("values",)

    def encode(self, value: object) -> int | float | bool:
        return to_scalar(self, value)


class FixedType(FieldType):
    """Arrays of one dtype and shape."""

    kind: ClassVar[FieldKind] = "fixed"
    roles: ClassVar[tuple[str, ...]] = ("offsets", "checksums")

    def encode(self, value: object) -> NDArray[Any]:
        return to_fixed(self, value)


class PayloadType(FieldType):
    """Values of any size, encoded one by one; this class itself: bytes as they are.

    No code in stored bytes is ever run: no pickle, no object arrays, no extensions.
    """

    kind: ClassVar[FieldKind] = "payload"
    roles: ClassVar[tuple[str, ...]] = ("offsets", "lengths", "raw_lengths", "checksums")
    checked: ClassVar[bool] = False
    """Whether bytes that are given as encoded are decoded once, to see that they are."""

    def encode(self, value: object) -> bytes | memoryview:
        return to_bytes(self, value)

    def decode(self, stored: Any) -> Any:
        return from_bytes(self, stored)

    def pack(self, value: Any) -> bytes:
        """The bytes of a value; TypeError, ValueError, OverflowError or RecursionError where it would not come back."""
        raise TypeError("expected bytes")

    def unpack(self, data: memoryview) -> Any:
        """The value of bytes, as a copy; ValueError, TypeError or RecursionError where there is none."""
        return bytes(data)


class ImageType(PayloadType):
    """Image files, which the decode room turns into pixels."""

    is_image = True


class AnyImageType(ImageType):
    """Image files of any format, stored as ``bytes``: older readers know no other type that would take them."""

    def __str__(self) -> str:
        return IMAGE


class TextType(PayloadType):
    """Text in UTF-8."""

    checked = True

    def pack(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError("expected str")
        return value.encode()

    def unpack(self, data: memoryview) -> str:
        return read_text(data)


class JsonType(PayloadType):
    """JSON, compact and in UTF-8."""

    checked = True

    def pack(self, value: Any) -> bytes:
        return strict_json(value).encode()

    def unpack(self, data: memoryview) -> Any:
        return read_strict_json(str(data, "utf-8"))


class MsgpackType(PayloadType):
    """One msgpack object without extension types."""

    checked = True

    def pack(self, value: Any) -> bytes:
        packed: bytes = msgpack.packb(value, use_bin_type=True)
        self.decode(memoryview(packed))  # the packer writes extension types, which nobody may read
        return packed

    def unpack(self, data: memoryview) -> Any:
        # Limits follow from the length of the data: no announced size is believed.
        return msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_no_extension)


class ArrayType(PayloadType):
    """numpy arrays of any shape, as NPY files."""

    checked = True

    def pack(self, value: Any) -> bytes:
        return npy_bytes(np.asarray(value))

    def unpack(self, data: memoryview) -> NDArray[Any]:
        return npy_array(data)


class ValuesType(PayloadType):
    """Rows of numbers, of one dtype and of any length, without a header.

    Stored as ``bytes``: older readers know no other type that would take them.
    """

    checked = True

    @cached_property
    def elements(self) -> np.dtype[Any]:
        """Their dtype, little-endian."""
        return np.dtype(self.name.partition(":")[2]).newbyteorder("<")

    @property
    def stored(self) -> str:
        return "bytes"

    def pack(self, value: Any) -> bytes:
        array = tensor_to_numpy(value) if is_tensor(value) else np.asarray(value)
        if array.dtype.newbyteorder("<") != self.elements or array.ndim != 1:
            given = f"{array.dtype.name} {list(array.shape)}"
            raise TypeError(f"expected one dimension of {self.elements.name}, got {given}")
        return array.astype(self.elements, copy=False).tobytes()

    def unpack(self, data: memoryview) -> NDArray[Any]:
        return raw_array(data, self.elements)


class TensorType(PayloadType):
    """Torch tensors, as safetensors files."""

    checked = True

    def pack(self, value: Any) -> bytes:
        if not is_tensor(value):
            raise TypeError("expected tensor")
        return tensor_bytes(value)

    def unpack(self, data: memoryview) -> Any:
        return bytes_tensor(data)


_PAYLOADS: dict[str, type[PayloadType]] = {
    "jpg": ImageType,
    "png": ImageType,
    "webp": ImageType,
    "bytes": PayloadType,
    "str": TextType,
    "json": JsonType,
    "msgpack": MsgpackType,
    "array": ArrayType,
    "tensor": TensorType,
}
PAYLOAD_TYPES = tuple(_PAYLOADS)


def _no_extension(code: int, _data: bytes) -> None:
    raise UnsupportedError(f"msgpack extension type {code} is not read", hint="write plain values")


@lru_cache(maxsize=256)
def _parse(text: str) -> FieldType:
    name = _ALIASES.get(text, text)
    if name in _PAYLOADS:
        return _PAYLOADS[name](name)
    if name == IMAGE:
        return AnyImageType("bytes")
    family, _, elements = name.partition(":")
    if family == VALUES and elements in SCALAR_TYPES:
        return ValuesType(name)
    if name in SCALAR_TYPES:
        return ScalarType(name, np.dtype(name).newbyteorder("<"), ())
    match = re.fullmatch(r"array:([a-z0-9]+):([0-9]{1,10}(?:,[0-9]{1,10})*)", name)
    if match and match[1] in SCALAR_TYPES:
        return _fixed(np.dtype(match[1]).newbyteorder("<"), tuple(int(part) for part in match[2].split(",")))
    raise FieldError(
        f"unknown field type {text!r}",
        hint="types are "
        + ", ".join((*PAYLOAD_TYPES, IMAGE, *SCALAR_TYPES))
        + ", array:DTYPE:SHAPE (array:float32:3,224,224) and values:DTYPE (values:uint16)",
    )


def meant_type(stored: str, meaning: object) -> FieldType:
    """The type of a field, of what stands for it in a manifest or an index.

    Args:
        stored: The stored type.
        meaning: What is written beside it, under ``as``; one that is not known is ignored.

    Raises:
        FieldError: There is no such stored type.

        >>> str(meant_type("bytes", "values:uint16")), str(meant_type("bytes", "values of the future"))
        ('values:uint16', 'bytes')
    """
    kind = FieldType.parse(stored)
    if not isinstance(meaning, str):
        return kind
    try:
        meant = FieldType.parse(meaning)
    except FieldError:
        return kind
    return meant if meant.stored == kind.stored else kind


def agree(one: FieldType, other: FieldType) -> bool:
    """Whether two places mean one type: also where one of them says what is stored, and not what it means."""
    return one == other or one.stored == str(other) or str(one) == other.stored


def _fixed(dtype: np.dtype[Any], shape: tuple[int, ...]) -> FieldType:
    found = FixedType(name := f"array:{dtype.name}:{','.join(map(str, shape))}", dtype, shape)
    # numpy multiplies the others where one is 0.
    spanned = dtype.itemsize * math.prod(max(size, 1) for size in shape)
    if len(shape) > _MAX_DIMENSIONS or spanned > _MAX_FIXED_BYTES:
        raise FieldError(f"values of {name!r} are too large for a fixed array", hint="use 'array', or several fields")
    return found


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
        if value.dtype.name in SCALAR_TYPES:
            return FieldType.parse(value.dtype.name)
        hint = "use one of " + ", ".join(SCALAR_TYPES)
        raise FieldError(f"a numpy {value.dtype.name} has no field type", field=name, hint=hint)
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


def to_fixed(kind: FieldType, value: object) -> NDArray[Any]:
    """A value for a fixed-size array column: C-contiguous, little-endian, of exactly this dtype and shape.

    Raises:
        FieldError: Another dtype or shape; nothing is cast or broadcast in silence.
    """
    array = tensor_to_numpy(value) if is_tensor(value) else np.asarray(value)
    assert kind.dtype is not None
    if array.dtype.newbyteorder("<") != kind.dtype or array.shape != kind.shape:
        raise FieldError(
            f"expected {kind.name}, got an array of {array.dtype.name} {list(array.shape)}",
            hint="convert it, or declare 'array' for shapes that vary",
        )
    return np.ascontiguousarray(array, dtype=kind.dtype)


def to_bytes(kind: FieldType, value: object) -> bytes | memoryview:
    """The stored bytes of a payload value. Bytes given for any payload type count as encoded, and are checked.

    Raises:
        FieldError: The value does not fit the type.
    """
    assert isinstance(kind, PayloadType)
    try:
        if not isinstance(value, bytes | bytearray | memoryview):
            return kind.pack(value)
        if kind.checked:
            kind.decode(data := memoryview(value).cast("B"))
            return data
        return value if type(value) is bytes else memoryview(value).cast("B")
    except DecodeError as error:
        raise FieldError(error.what, hint="declare the field's type") from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FieldError(
            f"a {type(value).__name__} that is not valid {kind.name}: {error}", hint="declare the field's type"
        ) from error


def from_bytes(kind: FieldType, data: memoryview) -> Any:
    """The Python value of stored payload bytes; copies, so that it outlives the buffer.

    Images come back as bytes here; the decode room turns them into pixels.

    Raises:
        DecodeError: The bytes are not a valid value of this type.
    """
    assert isinstance(kind, PayloadType)
    try:
        return kind.unpack(data)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError, MemoryError) as error:
        raise find_placeholder(data) or DecodeError(
            f"stored bytes are not valid {kind.name}: {error or 'they do not fit into memory'}",
            hint="the sample was written wrongly; pack it again",
        ) from error
