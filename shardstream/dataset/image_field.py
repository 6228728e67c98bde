"""The virtual field ``image``: whichever image field a sample has.

A directory of images often holds several kinds, and `pack` makes a field of each: ``jpg``, ``png``, ``webp``. A source
called ``image`` stands for all of them, unless a field is stored under that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardstream.errors import FieldError
from shardstream.images.formats import BY_SUFFIX
from shardstream.shards.fields import IMAGE, FieldType

_PLACES = {suffix: place for place, suffix in enumerate(BY_SUFFIX)}


def image_fields(stored: Mapping[str, FieldType]) -> tuple[str, ...]:
    """The stored fields of image files, in the order in which ``image`` prefers them.

    A field called ``image`` is first. Next are those named after a suffix of image files, in the order of
    `shardstream.images.formats`: ``jpg``, ``jpeg``, ``png``, ``webp``, ``gif``, and so on. All others follow as stored.

    Args:
        stored: The stored fields, by name. Fields of plain bytes count if they are named after a suffix.

    Example:
        >>> kinds = {"mask.png": "png", "gif": "bytes", "jpg": "jpg", "cls": "int64"}
        >>> image_fields({name: FieldType.parse(kind) for name, kind in kinds.items()})
        ('jpg', 'gif', 'mask.png')
    """
    images = [name for name, kind in stored.items() if kind.is_image or (_is_named(name) and kind.name == "bytes")]
    return tuple(sorted(images, key=_place))


def virtual_image(stored: Mapping[str, FieldType]) -> tuple[str, ...]:
    """The stored fields that ``image`` stands for, in order of preference; none if nothing says which.

    These are the fields named after suffixes. If there are none, it is the one field of images there is, such as
    ``img`` or ``0.jpg``. A second image beside a named one, such as ``mask.png``, is never among them.

    Example:
        >>> virtual_image({name: FieldType.parse("png") for name in ("left.png", "right.png")})
        ()
    """
    if IMAGE in stored:
        return (IMAGE,)
    images = image_fields(stored)
    return tuple(filter(_is_named, images)) or (images if len(images) == 1 else ())


def matching_fields(source: str, stored: Mapping[str, FieldType]) -> dict[str, FieldType]:
    """The stored fields that one name in ``source=`` stands for, with their types; none if it is not stored.

    Raises:
        FieldError: ``image`` could be any of several fields.

    Example:
        >>> list(matching_fields("image", {name: FieldType.parse(name) for name in ("png", "jpg")}))
        ['jpg', 'png']
    """
    if source in stored:
        return {source: stored[source]}
    if source != IMAGE:
        return {}
    fields = virtual_image(stored)
    if not fields and (images := image_fields(stored)):
        example = f'fields={{"image": ss.decode.Image(source="{";".join(images[:2])}")}}'
        raise FieldError(
            f"'image' could be any of {', '.join(map(repr, images))}",
            field=source,
            hint=f"name those you mean, in order of preference: {example}",
        )
    return {name: kind if (kind := stored[name]).is_image else FieldType.parse(IMAGE) for name in fields}


def image_advice(sources: Sequence[str], stored: Mapping[str, FieldType]) -> str:
    """A hint for whoever asks for these fields and misses an image; ``""`` unless it can be in another field.

    Args:
        sources: The fields that are asked for.
        stored: The stored fields, by name.

    Example:
        >>> image_advice(["cls"], {"cls": FieldType.parse("int64"), "png": FieldType.parse("png")})
        ''
    """
    others = [name for name in virtual_image(stored) if name not in sources]
    if not others or not any(_is_named(name) or name == IMAGE for name in sources):
        return ""
    where = ", ".join(map(repr, others))
    return f'images are in {where}: name the output "image", or give source="image", to take whichever a sample has'


def _is_named(field: str) -> bool:
    """Whether a field is named after a suffix of image files."""
    return field.lower() in _PLACES


def _place(field: str) -> int:
    return -1 if field == IMAGE else _PLACES.get(field.lower(), len(_PLACES))
