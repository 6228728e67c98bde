"""``make_dataset``: small data sets of any fields, for tests."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DestinationError, UsageError
from shardstream.images.encode import encode
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import IMAGE, FieldType, ValuesType, infer_type
from shardstream.shards.framings import Format, framing_of, writer_of
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.shards.manifest import Manifest
from shardstream.shards.writing import encode_value
from shardstream.storage import PathOrUrl, Store, open_store

Dest = TypeVar("Dest", bound=PathOrUrl)
FieldSpec: TypeAlias = "str | Callable[[int], Any]"
"""A field type by name, or a function of a sample's number."""

_FIELDS: dict[str, FieldSpec] = {"jpg": "jpg", "cls": "int64"}
_WORDS = ("a", "red", "green", "blue", "large", "small", "cat", "dog", "house", "tree", "on", "under", "the", "hill")


def make_dataset(
    dest: Dest,
    *,
    samples: int = 64,
    fields: Mapping[str, FieldSpec] | None = None,
    classes: int | Sequence[str] = 10,
    shards: int = 2,
    format: Format = "tar",
    image_size: tuple[int, int] = (48, 64),
    seed: int = 0,
) -> Dest:
    """Write a small data set of made-up samples. The same arguments give the same samples.

    Keys are ``000000``, ``000001``, ... in stored order. Without a function, values are made by type: integers are the
    sample's number (``cls``: modulo the number of classes), images are patches of colour unlike those of other
    samples, all else is made of noise that depends on seed, field and number.

    Args:
        dest: A folder, made where missing, a URL, or a store, such as a `MemoryStore`.
        samples: How many.
        fields: By name, the type as ``dataset.json`` writes it (``"jpg"``, ``"int32"``, ``"array:float32:8"``,
            ``"array"`` for varying shapes, ``"str"``, ``"json"``, ...), or a function that gets the number of a sample
            and returns its value; ``None`` leaves the value out. Default: ``{"jpg": "jpg", "cls": "int64"}``.
        classes: How many labels there are in the field ``cls``, or their names, which the manifest then holds.
        shards: The samples are divided among so many, as evenly as can be.
        format: ``"tar"`` or ``"record"``.
        image_size: Height and width in pixels of the smallest image; others are up to half as large again, so that a
            loop that forgets to crop fails, as it would with photographs.
        seed: Of the noise; any integer.

    Returns:
        ``dest``, as it was given.

    Raises:
        UsageError: ``samples`` or ``classes`` or ``shards`` that cannot be.
        FieldError: No such type, or a value that has none.
        DestinationError: There is a data set already.
        MissingExtraError: A field is an image of a kind that nothing installed encodes; names the extra.

    Example:
        >>> make_dataset("made/", fields={"jpg": "jpg", "cls": "int32", "txt": "str"}, samples=10)
        'made/'
        >>> ss.Manifest.load("made/").samples
        10
    """
    for name, number, least in (("samples", samples, 0), ("shards", shards, 1)):
        if number < least:
            raise UsageError(f"{name} must be at least {least}, got {number}")
    names = None if isinstance(classes, int) else tuple(classes)
    count = classes if isinstance(classes, int) else len(classes)
    if count < 1:
        raise UsageError(f"there must be at least one class, got {classes!r}")
    values = [_maker(name, spec, count, image_size, seed) for name, spec in (fields or _FIELDS).items()]

    def part(shard: int) -> Iterator[dict[str, Any]]:
        for number in range(shard * samples // shards, (shard + 1) * samples // shards):
            made = {value.name: value(number) for value in values}
            yield {"__key__": f"{number:06d}"} | {name: value for name, value in made.items() if value is not None}

    store = open_store(dest)
    if store.exists(MANIFEST_NAME):
        raise DestinationError("there is a data set already", url=store.url, hint="use an empty folder or store")
    types = {value.name: value.kind for value in values if value.kind is not None}
    write_shards(store, map(part, range(shards)), format=format, types=types, classes=names)
    return dest


def write_shards(
    store: Store,
    shards: Iterable[Iterable[Mapping[str, Any]]],
    *,
    format: Format = "tar",
    types: Mapping[str, FieldType] | None = None,
    classes: Sequence[str] | None = None,
) -> Manifest:
    """Write a data set of exactly these shards, in place of one that is there.

    Args:
        store: Where.
        shards: The samples of each, dicts with ``__key__``.
        format: ``"tar"`` or ``"record"``.
        types: Of fields that are not to take the type of their values.
        classes: Names of the labels.

    Raises:
        FieldError: A value that does not fit its type.
    """
    pattern, summaries = f"shard-{{:06d}}{framing_of(format).suffix}", []
    for number, samples in enumerate(shards):
        with store.create(pattern.format(number)) as out:
            writer = writer_of(format)(out)
            for sample in samples:
                values = {name: value for name, value in sample.items() if name != "__key__"}
                kinds = {name: (types or {}).get(name) or infer_type(name, value) for name, value in values.items()}
                encoded = {name: (kinds[name], encode_value(name, kinds[name], values[name])) for name in values}
                writer.write(sample["__key__"], encoded)
            summaries.append(writer.finish())
    manifest = Manifest.of(summaries, pattern, framing=format, classes=classes)
    manifest = dataclasses.replace(manifest, fields=dict(manifest.fields) | dict(types or {}))
    manifest.save(store)
    return manifest


def _maker(name: str, spec: FieldSpec, classes: int, image_size: tuple[int, int], seed: int) -> _Values:
    check_field_name(name)
    if callable(spec):
        return _Values(name, None, spec)
    kind = FieldType.parse(spec)
    noise = _Noise(name, seed)
    if name == "cls" and kind.dtype is not None and kind.dtype.kind in "iu":
        return _Values(name, kind, lambda number: number % classes)
    return _Values(name, kind, lambda number: _value(kind, number, noise, image_size))


@dataclasses.dataclass(frozen=True, slots=True)
class _Values:
    """The values of one field."""

    name: str
    kind: FieldType | None  # `None`: that of the values
    make: Callable[[int], Any]

    def __call__(self, number: int) -> Any:
        return self.make(number)


@dataclasses.dataclass(frozen=True, slots=True)
class _Noise:
    """Bytes by number: the same in every Python, unlike what generators of random numbers promise."""

    field: str
    seed: int

    def __call__(self, number: int, count: int) -> NDArray[np.uint8]:
        digest = hashlib.shake_128(f"{self.seed}/{self.field}/{number}".encode())
        return np.frombuffer(digest.digest(count), np.uint8)


def _value(kind: FieldType, number: int, noise: _Noise, image_size: tuple[int, int]) -> Any:
    if kind.is_image:
        # The name of an image type is a kind that is written; what may be any image is a PNG.
        written = "png" if str(kind) == IMAGE else kind.name
        return encode(_picture(noise(number, 50), image_size), written)  # type: ignore[arg-type]
    if kind.dtype is not None and kind.shape is not None:
        if not kind.shape:
            return _scalar(kind.dtype, number, noise)
        return _elements(noise(number, int(np.prod(kind.shape))), kind.dtype).reshape(kind.shape)
    words = [_WORDS[byte % len(_WORDS)] for byte in noise(number, 3 + number % 6)]
    if isinstance(kind, ValuesType):
        return _elements(noise(number, number % 64), kind.elements)
    match kind.name:
        case "bytes":
            return noise(number, 16 + number % 48).tobytes()
        case "str":
            return " ".join(words)
        case "array":
            return _elements(noise(number, 1 + number % 4), np.dtype("<f4"))
        case "tensor":
            import torch

            return torch.from_numpy(_elements(noise(number, 1 + number % 4), np.dtype("<f4")))
        case _:  # json, msgpack
            return {"number": number, "words": words}


def _scalar(dtype: np.dtype[Any], number: int, noise: _Noise) -> int | float | bool:
    if dtype.kind in "iu":
        return number % (int(np.iinfo(dtype).max) + 1)
    found = _elements(noise(number, 1), dtype)[0].item()
    return bool(found) if dtype.kind == "b" else float(found)


def _elements(noise: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Floats in [0, 1), integers from 0 to 127, or booleans."""
    if dtype.kind == "f":
        return (noise / 256).astype(dtype)
    return (noise % (2 if dtype.kind == "b" else 128)).astype(dtype)


def _picture(noise: NDArray[np.uint8], least: tuple[int, int]) -> NDArray[np.uint8]:
    """4 x 4 patches of colour."""
    height, width = (side + side // 2 * int(byte) // 255 for side, byte in zip(least, noise[:2], strict=True))
    rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    return np.ascontiguousarray(noise[2:].reshape(4, 4, 3)[rows[:, None], columns[None, :]])
