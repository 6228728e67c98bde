"""One stored value as a page can show it: a small picture, text, numbers, sound. Nothing stored is handed on but sound.

Pictures are decoded and encoded anew. Which fields belong together is told by their names: a picture field called
``mask``, ``seg``, ``label_map`` or so is laid over the sample's picture of the same size, and rows of four numbers in
a field called ``boxes`` or ``bbox`` are drawn on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.decode.boxes import corners
from shardstream.diagnose.view import look_at
from shardstream.errors import DataError, MissingExtraError
from shardstream.images import backends
from shardstream.images.geometry import Size
from shardstream.images.header import probe
from shardstream.images.thumbnail import thumbnail, thumbnail_size
from shardstream.shards.arrays import tensor_to_numpy
from shardstream.shards.fields import FieldType, ValuesType
from shardstream.shards.manifest import Manifest

Kind: TypeAlias = Literal["picture", "mask", "boxes", "array", "number", "text", "json", "audio", "bytes", "damaged"]
Checked: TypeAlias = Literal["compared", "none", "differs"]

SIDE = 256  # pixels of a picture's longer side
MAX_SOUND = 1_000_000  # bytes of an audio file that is played
_HEAT = 96  # rows and columns of a heat map
_MAX_BOXES = 200
_MAX_PIXELS = 48 << 20  # of a picture that cannot be decoded smaller: three bytes each
_MAX_ENTRIES = 1 << 22  # of an array that is measured; of a larger one, evenly spaced ones
_MASK = re.compile(r"(^|[._-])(masks?|seg(mentation)?|label_?maps?)([._-]|$)", re.IGNORECASE)
_BOXES = re.compile(r"(box|bbox)(es)?$", re.IGNORECASE)
_COLOURS = np.array(
    [(230, 60, 60), (60, 160, 240), (90, 200, 90), (250, 190, 50), (170, 90, 220), (60, 210, 200), (240, 130, 190)],
    np.float32,
)
_HEAT_COLOURS = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], np.float32)


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture.

    Attributes:
        jpeg: A JPEG file, made here.
        height: Its height in pixels.
        width: Its width.
    """

    jpeg: bytes
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Sound:
    """An audio file.

    Attributes:
        file: As stored.
        media: Its media type.
    """

    file: bytes
    media: str


@dataclass(frozen=True, slots=True)
class ShownValue:
    """One value of a sample.

    Attributes:
        name: The field.
        type: Its type.
        kind: How it is shown; ``"damaged"`` is a value that cannot be read, and `text` says why.
        bytes: Bytes of the value, decompressed.
        text: The value in words: of text and JSON the value itself, cut where it is long.
        offset: Where its stored bytes begin in the shard; ``None`` where they are not by themselves in there.
        checked: Whether it was ``"compared"`` with its checksum and equals it, has ``"none"``, or ``"differs"``.
        size: (height, width) of a picture or a mask in pixels, as stored.
        thumbnail: The picture; of a mask laid over the sample's picture, of an array a heat map.
        boxes: (left, top, right, bottom) as shares of the sample's picture, in [0, 1].
        sound: The audio file, if it is one that is played.
    """

    name: str
    type: str
    kind: Kind
    bytes: int
    text: str
    offset: int | None = None
    checked: Checked = "none"
    size: Size | None = None
    thumbnail: Thumbnail | None = None
    boxes: tuple[tuple[float, float, float, float], ...] = ()
    sound: Sound | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What one value may take of a page.

    Attributes:
        picture: Bytes of a thumbnail.
        text: Characters.
        sound: Bytes of an audio file.
    """

    picture: int
    text: int
    sound: int = MAX_SOUND


def show_values(values: Mapping[str, Any], manifest: Manifest, limits: Limits) -> list[ShownValue]:
    """The values of one sample, masks laid over its picture and boxes relative to it.

    Args:
        values: Stored values by field, as `RowBatch.values` has them.
        manifest: Of the data set.
        limits: What each may take.
    """
    shown = {name: show_value(name, manifest.fields[name], value, manifest, limits) for name, value in values.items()}
    under = next((one for one in shown.values() if one.size is not None and not _MASK.search(one.name)), None)
    if under is not None and under.size is not None:
        base = _small(values[under.name])
        for name, one in shown.items():
            if one.size == under.size and _MASK.search(name):
                shown[name] = _laid_over(base, one, values[name], limits)
            elif one.kind == "array" and _BOXES.search(name):
                shown[name] = _drawn(one, numbers_of(manifest.fields[name], values[name]), under.size)
    return list(shown.values())


def show_value(name: str, kind: FieldType, value: Any, manifest: Manifest, limits: Limits) -> ShownValue:
    """One value by itself."""
    looked = look_at(name, kind, value, manifest)
    shown = ShownValue(name, looked.type, "bytes", looked.bytes, looked.text)
    try:
        if kind.kind == "scalar":
            return replace(shown, kind="number")
        if kind.is_image or (kind.name == "bytes" and _is_picture(value)):
            return _picture(shown, value, limits)
        if kind.name in ("str", "json", "msgpack"):
            return _text(shown, kind, value, limits)
        if kind.kind == "fixed" or kind.name in ("array", "tensor") or isinstance(kind, ValuesType):
            return _array(shown, numbers_of(kind, value), limits)
    except (DataError, MissingExtraError) as error:
        return replace(shown, text=f"does not decode: {error.what}")
    media = _media_of(value)
    if media and len(value) <= limits.sound:
        return replace(shown, kind="audio", text=media, sound=Sound(bytes(value), media))
    return replace(shown, text=media or shown.text)


def numbers_of(kind: FieldType, value: Any) -> NDArray[Any]:
    """An array of a stored value that is one; a tensor of a dtype that numpy lacks as float32."""
    if kind.kind == "fixed":
        return np.asarray(value)
    found = kind.decode(value)
    if isinstance(found, np.ndarray):
        return found
    return tensor_to_numpy(found.float() if found.is_floating_point() else found)


def pixels_thumbnail(pixels: NDArray[np.uint8], most: int, side: int = SIDE) -> Thumbnail:
    """Pixels, uint8 (H, W, 3), as a small picture of about ``most`` bytes.

    Raises:
        MissingExtraError: Nothing that encodes JPEG is installed.
    """
    file, (height, width) = thumbnail(pixels, side, most=most)
    return Thumbnail(file, height, width)


def _small(data: memoryview) -> NDArray[np.uint8]:
    info = probe(data)
    return backends.decode(data, min_size=thumbnail_size((info.height, info.width), SIDE))


def _picture(shown: ShownValue, data: memoryview, limits: Limits) -> ShownValue:
    info = probe(data)
    if backends.jpeg_scale(info, (8, 8), (1, 1)) == 1 and info.height * info.width > _MAX_PIXELS:
        return replace(shown, text=f"{shown.text}, too large to be shown")
    small = pixels_thumbnail(_small(data), limits.picture)
    return replace(shown, kind="picture", size=(info.height, info.width), thumbnail=small)


def _laid_over(base: NDArray[np.uint8], mask: ShownValue, data: memoryview, limits: Limits) -> ShownValue:
    """A mask as colours over the picture; as it was where it is no label map."""
    try:
        labels = backends.decode_labels(data)
    except (DataError, MissingExtraError):
        return mask
    rows, columns = (np.arange(n) * have // n for n, have in zip(base.shape[:2], labels.shape, strict=True))
    labels = labels[rows][:, columns]
    there = (labels != 0) & (labels != 255)
    colours = _COLOURS[(labels.astype(np.int64) - 1) % len(_COLOURS)]
    mixed = np.where(there[..., None], 0.45 * base + 0.55 * colours, base).astype(np.uint8)
    found = np.unique(labels)
    text = f"{mask.text}; labels " + ", ".join(map(str, found[:12].tolist())) + (", ..." if len(found) > 12 else "")
    return replace(mask, kind="mask", text=text, thumbnail=pixels_thumbnail(mixed, limits.picture))


def _drawn(shown: ShownValue, boxes: NDArray[Any], source: Size) -> ShownValue:
    """Boxes as shares of the picture; as they were where they are none."""
    if not boxes.size or boxes.shape[-1] != 4 or boxes.ndim > 2 or boxes.dtype.kind not in "iuf":
        return shown
    relative = bool(boxes.dtype.kind == "f" and (boxes <= 1).all())
    try:
        edges = corners(boxes[:_MAX_BOXES], "xyxy", relative=relative, source=source)
    except DataError:
        return shown
    height, width = source
    shares = np.clip(edges / (width, height, width, height), 0, 1).tolist()
    rows = tuple((float(left), float(top), float(right), float(bottom)) for left, top, right, bottom in shares)
    return replace(shown, kind="boxes", boxes=rows, thumbnail=None)


def _text(shown: ShownValue, kind: FieldType, data: memoryview, limits: Limits) -> ShownValue:
    value = kind.decode(data)
    if isinstance(value, str):
        return replace(shown, kind="text", text=_cut(value, limits.text))
    try:
        text = json.dumps(value, ensure_ascii=False, indent=1)
    except (TypeError, ValueError, RecursionError):  # msgpack has bytes and keys of any type
        text = repr(value)
    return replace(shown, kind="json", text=_cut(text, limits.text))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _array(shown: ShownValue, array: NDArray[Any], limits: Limits) -> ShownValue:
    shape = " x ".join(map(str, array.shape)) or "one number"
    text = f"{array.dtype.name} {shape}"
    if array.dtype.kind not in "iufb" or not array.size:
        return replace(shown, kind="array", text=text)
    flat = array.reshape(-1)
    some = flat[:: -(-len(flat) // _MAX_ENTRIES)].astype(np.float64)
    finite = some[np.isfinite(some)]
    if len(finite):
        text += f", {finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}"
    if len(finite) < len(some):
        text += f", {len(some) - len(finite):,} not finite"
    text += ": " + " ".join(f"{one:.6g}" for one in some[:8].tolist()) + (" ..." if len(flat) > 8 else "")
    return replace(shown, kind="array", text=text, thumbnail=_heat_map(array, limits))


def _heat_map(array: NDArray[Any], limits: Limits) -> Thumbnail | None:
    """The array as colours, its last axis across; ``None`` where nothing decodes pictures here, or it is one number."""
    if array.size < 2:
        return None
    rows = array.reshape(-1, array.shape[-1])
    rows = rows[:: -(-rows.shape[0] // _HEAT), :: -(-rows.shape[1] // _HEAT)].astype(np.float64)
    finite = np.isfinite(rows)
    least, most = (rows[finite].min(), rows[finite].max()) if finite.any() else (0.0, 0.0)
    shares = np.where(finite, (rows - least) / max(most - least, 1e-300), 0.0) * (len(_HEAT_COLOURS) - 1)
    low = np.minimum(shares.astype(np.int64), len(_HEAT_COLOURS) - 2)
    part = (shares - low)[..., None]
    colours = ((1 - part) * _HEAT_COLOURS[low] + part * _HEAT_COLOURS[low + 1]).astype(np.uint8)
    across = max(1, 160 // colours.shape[1])
    down = max(1, min(across, 160 // colours.shape[0])) if colours.shape[0] > 1 else 24
    try:
        return pixels_thumbnail(
            np.ascontiguousarray(np.kron(colours, np.ones((down, across, 1), np.uint8))), limits.picture
        )
    except MissingExtraError:
        return None


def _is_picture(data: Any) -> bool:
    """Whether bytes of a field that may hold anything begin as a JPEG, PNG or WebP file."""
    start = bytes(data[:12])
    return start[:3] == b"\xff\xd8\xff" or start[:8] == b"\x89PNG\r\n\x1a\n" or start[:4] + start[8:] == b"RIFFWEBP"


def _media_of(data: Any) -> str:
    """The media type of an audio file, by its first bytes; empty for all else."""
    start = bytes(data[:12])
    if start[:4] == b"RIFF" and start[8:] == b"WAVE":
        return "audio/wav"
    if start[:4] == b"fLaC":
        return "audio/flac"
    mpeg = len(start) > 3 and start[0] == 0xFF and start[1] & 0xE6 == 0xE2 and start[2] & 0xF0 not in (0, 0xF0)
    return "audio/mpeg" if start[:3] == b"ID3" or mpeg else ""
