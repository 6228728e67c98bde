"""Values from Python, typed and encoded as a shard writer takes them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from shardstream.errors import FieldError
from shardstream.images.formats import BY_SUFFIX, format_of, refused_suffix
from shardstream.pack.sources.declared import array_dtype, fitted, stored_type
from shardstream.shards.arrays import check_unmasked
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import IMAGE, Encoded, FieldType, infer_type
from shardstream.shards.writing import encode_value

KEY = "__key__"
# Types of Python whose values all have one type under one name, with such a value. Bytes have not under all names.
_PLAIN: dict[type, bytes | str | float] = {bytes: b"", str: "", int: 0, float: 0.0, bool: False}
_PICTURE_NAMES = frozenset(("image", "images", "img", "imgs", "picture", "pictures", "photo", "photos"))


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
    try:
        check_unmasked(value)
    except FieldError as error:
        raise error.at(field=name) from None
    if declared is None:
        plain = None if isinstance(value, bytes) and is_picture_name(name) else _PLAIN.get(type(value))
        declared = _checked_type_of(name, value) if plain is None else _type_of_plain(name, plain)
    elif array_dtype(declared) is not None:
        value, declared = fitted(declared, value), stored_type(declared)
    return declared, encode_value(name, declared, _image_bytes(declared, value))


@lru_cache(maxsize=256, typed=True)
def _type_of_plain(name: str, value: bytes | str | float) -> FieldType:
    return _checked_type_of(name, value)


def _checked_type_of(name: str, value: object) -> FieldType:
    check_field_name(name)
    return type_of(name, value)


@lru_cache(maxsize=256)
def is_picture_name(name: str) -> bool:
    """Whether a field is called like a picture, of no format in particular: its bytes may be one or not."""
    return _last(name) in _PICTURE_NAMES


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1].lower()


def type_of(name: str, value: object) -> FieldType:
    """The type of a value without one: for bytes by the field's last extension, and under a picture's name by content.

    Pixels under the name of a format that we write are such an image.

    Raises:
        FieldError: No type holds such a value, or it is called like a format that is never opened.
    """
    by_name = infer_type(name, b"")
    if by_name.is_image and _is_pixels(value):
        return by_name
    if not isinstance(value, bytes | bytearray | memoryview):
        return infer_type(name, value)
    never = refused_suffix(_last(name))
    if never is not None:
        hint = f"to store such files unopened, declare what they are: fields={{{name!r}: 'bytes'}}"
        raise FieldError(never, field=name, hint=hint)
    found = BY_SUFFIX.get(_last(name)) or (format_of(value) if is_picture_name(name) else None)
    if found is None:
        return by_name
    return by_name if by_name.is_image else FieldType.parse(IMAGE)


def _is_pixels(value: object) -> bool:
    """Whether this is an image that is not encoded yet: numpy, or Pillow (which is not imported for this)."""
    return isinstance(value, np.ndarray) or any(base.__module__ == "PIL.Image" for base in type(value).__mro__)


def _image_bytes(kind: FieldType, value: object) -> object:
    if not kind.is_image or not _is_pixels(value):
        return value
    from shardstream.images.encode import encode as encode_image

    # An image type's name is a kind that is written; what may be any image becomes a file that loses nothing.
    return encode_image(value, "png" if str(kind) == IMAGE else kind.name)  # type: ignore[arg-type]
