"""Values from Python, typed and encoded as a shard writer takes them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from shardstream.pack.sources.declared import fitted, is_array, stored_type
from shardstream.shards.fields import Encoded, FieldType, check_field_name, infer_type
from shardstream.shards.writing import encode_value

KEY = "__key__"
# Types of Python whose values all have one type under one name, with such a value.
_PLAIN: dict[type, bytes | str | float] = {bytes: b"", str: "", int: 0, float: 0.0, bool: False}


def encode(name: str, value: object, declared: FieldType | None = None) -> tuple[FieldType, Encoded]:
    """The type and the encoded value of a field. Pixels given for an image type are encoded as such a file.

    Args:
        name: The field.
        value: Its value.
        declared: Its type; ``None`` takes the value's own (see `infer_type`).

    Returns:
        The type that it is stored as, and the value.

    Raises:
        FieldError: A name that cannot be one, or a value that does not fit.
    """
    if declared is None:
        plain = _PLAIN.get(type(value))
        declared = _checked_type_of(name, value) if plain is None else _type_of_plain(name, plain)
    elif is_array(declared):
        value, declared = fitted(declared, value), stored_type(declared)
    return declared, encode_value(name, declared, _image_bytes(declared, value))


@lru_cache(maxsize=256, typed=True)
def _type_of_plain(name: str, value: bytes | str | float) -> FieldType:
    return _checked_type_of(name, value)


def _checked_type_of(name: str, value: object) -> FieldType:
    check_field_name(name)
    return type_of(name, value)


def type_of(name: str, value: object) -> FieldType:
    """The type of a value without one; pixels under an image's name are such an image."""
    by_name = infer_type(name, b"")
    return by_name if by_name.is_image and _is_pixels(value) else infer_type(name, value)


def _is_pixels(value: object) -> bool:
    """Whether this is an image that is not encoded yet: numpy, or Pillow (which is not imported for this)."""
    return isinstance(value, np.ndarray) or any(base.__module__ == "PIL.Image" for base in type(value).__mro__)


def _image_bytes(kind: FieldType, value: object) -> object:
    if not kind.is_image or not _is_pixels(value):
        return value
    from shardstream.images.encode import encode as encode_image

    return encode_image(value, kind.name)  # type: ignore[arg-type] # an image type's name is an image kind
