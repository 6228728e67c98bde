"""Pixels through a `Geometry` into their slot of the batch.

Images are resized by torch's antialiased bilinear operator for uint8 (the fixed-point algorithm of Pillow's ``resize``,
within one grey level of it): straight from a view of the crop into the slot, both channels-last, with nothing copied
and nothing allocated. The result equals ``torch.nn.functional.interpolate(..., mode="bilinear", antialias=True)`` on
the same crop exactly.

Label maps are resized by the nearest pixel *centre*: output pixel i takes source pixel ⌊(i + ½)·in/out⌋, in exact
integer arithmetic. That is Pillow's ``NEAREST`` and torch's ``nearest-exact``, and the only rule that keeps labels
aligned with the bilinear images, whose pixel centres lie at (i + ½)·in/out too; torch's plain ``nearest``,
⌊i·in/out⌋, shifts labels by half an output pixel.
"""

from __future__ import annotations

import math
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shardstream.extras import lacking
from shardstream.images.geometry import UPRIGHT, Box, Excerpt, Geometry, Turn, excerpt

if TYPE_CHECKING:
    from types import ModuleType

    import torch

_SCRATCH = 64 << 20  # bytes of a buffer that is kept; more is not worth it
_held = threading.local()


@cache
def _torch() -> ModuleType:
    # At first use: the headers and the geometry must not cost torch's import.
    import torch

    return torch


def render(
    pixels: NDArray[np.uint8],
    geometry: Geometry,
    out: NDArray[np.uint8] | None = None,
    *,
    scale: int = 1,
    origin: tuple[int, int] = (0, 0),
    turn: Turn = UPRIGHT,
    antialias: bool = True,
    exact: bool = False,
) -> NDArray[np.uint8]:
    """Crop, resize, flip and turn an image.

    Args:
        pixels: uint8 (H, W, 3) or (H, W); a view of any strides. Never written to. They hold at least what is ``seen``
            of the geometry's `excerpt`.
        geometry: What to do; its ``source`` is the size of the image at full scale.
        out: uint8, C-contiguous, of shape ``geometry.output`` (turned), (+ ``(3,)``): written and returned. A new array
            else.
        scale: ``pixels`` were decoded at 1/``scale`` of the source (DCT scaling).
        origin: Row and column of the image, at this scale, at which ``pixels`` begin.
        turn: How the result is turned at last, from `as_stored`.
        antialias: Whether all pixels of the source have a part in a smaller result; else the nearest four of each.
        exact: As of `excerpt`.

        >>> render(pixels, Geometry((375, 500), Box(10, 20, 270, 300), (224, 224)), batch[5]).shape
        (224, 224, 3)
    """
    if any(turn):
        upright = render(pixels, geometry, scale=scale, origin=origin, antialias=antialias, exact=exact)
        return turned(upright, turn, out)
    if out is None:
        out = np.empty(geometry.output + pixels.shape[2:], np.uint8)
    shown = excerpt(geometry, scale, exact=exact)
    region = _resized(pixels, origin, shown)
    if shown.window is None:
        _resample(region, out, antialias=antialias)
    else:
        if region.shape[:2] != shown.size:
            resized = scratch("resized", shown.size + pixels.shape[2:])
            _resample(region, resized, shown.zoom, antialias=antialias)
            region = resized
        _cut(region, shown.window, out)
    if geometry.flip:
        # Reading a numpy view backwards costs as much as the resize; torch flips channels-last bytes with shuffles.
        slot = _planes(out)
        slot.copy_(_torch().flip(slot, (3,)))
    return out


def _resized(pixels: NDArray[np.uint8], origin: tuple[int, int], shown: Excerpt) -> NDArray[np.uint8]:
    """The box of an excerpt, with anything where it was not decoded. The copy is one that torch makes else."""
    box = shown.box
    top, left = box.top - origin[0], box.left - origin[1]
    if top >= 0 and left >= 0:
        return pixels[top : top + box.height, left : left + box.width]
    seen = shown.seen
    region = scratch("region", box.size + pixels.shape[2:])
    inside = seen._replace(top=seen.top - box.top, left=seen.left - box.left)
    region[inside.slices()] = pixels[seen._replace(top=seen.top - origin[0], left=seen.left - origin[1]).slices()]
    return region


def turned(image: NDArray[np.uint8], turn: Turn, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """An image turned, in ``out`` where that is given: uint8 of the size that ``turn.size`` says."""
    if out is None:
        out = np.empty(turn.size(image.shape[:2]) + image.shape[2:], np.uint8)
    planes = _planes(image)
    if turn.transposed:
        planes = planes.transpose(2, 3)
    reversed_ = [axis for axis, asked in ((2, turn.upside_down), (3, turn.mirrored)) if asked]
    _planes(out).copy_(_torch().flip(planes, reversed_) if reversed_ else planes)  # half of numpy's time
    return out


def _planes(image: NDArray[np.uint8]) -> torch.Tensor:
    """(H, W, 3) as (1, 3, H, W) in channels-last strides, (H, W) as (1, 1, H, W): a view."""
    view = image[None].transpose(0, 3, 1, 2) if image.ndim == 3 else image[None, None]  # numpy's views cost a third
    tensor: torch.Tensor = _torch().from_numpy(view)
    return tensor


def _resample(
    region: NDArray[np.uint8],
    out: NDArray[np.uint8],
    zoom: tuple[float | None, float | None] | None = None,
    *,
    antialias: bool,
) -> None:
    if region.shape == out.shape:
        np.copyto(out, region)
        return
    if not region.flags.writeable or min(region.strides) < 0 or region.strides[-1] != 1:
        # Torch takes neither read-only arrays (without a warning) nor reversed ones, and 2.13 gives wrong pixels where
        # images are planar and results narrow.
        region = region.copy()
    height, width = out.shape[:2]
    down, across = zoom or (None, None)
    aten = _torch().ops.aten
    if width == 1 and antialias:  # wrong pixels from torch 2.13, of any dtype
        rows, columns = _weights(region.shape[0], height, down), _weights(region.shape[1], 1, across)
        np.rint(np.einsum("ih,jw,hw...->ij...", rows, columns, region), out=out, casting="unsafe")
        return
    try:
        operator = aten._upsample_bilinear2d_aa.out if antialias else aten.upsample_bilinear2d.out
    except AttributeError as error:
        raise lacking("torch", "aten._upsample_bilinear2d_aa") from error
    operator(_planes(region), [height, width], False, down, across, out=_planes(out))


def _weights(have: int, want: int, zoom: float | None) -> NDArray[np.float64]:
    """What each of ``have`` pixels adds to each of ``want``, (want, have): torch's antialiased bilinear filter."""
    ratio = have / want if zoom is None else 1 / zoom
    centres, reach = ratio * (np.arange(want) + 0.5), max(1.0, ratio)
    distances = np.abs(np.arange(have) + 0.5 - centres[:, None])
    weights = np.maximum(0.0, 1 - distances / reach)
    return weights / weights.sum(1, keepdims=True)  # type: ignore[no-any-return]  # numpy's stubs


def _cut(source: NDArray[Any], window: Box, out: NDArray[Any]) -> None:
    """Copy a window of ``source`` to ``out``, zeros where it reaches outside."""
    top, left = max(0, window.top), max(0, window.left)
    bottom = min(source.shape[0], window.top + window.height)
    right = min(source.shape[1], window.left + window.width)
    inside = Box(top, left, bottom - top, right - left)
    if inside.size != window.size:
        out[:] = 0
    target = inside._replace(top=top - window.top, left=left - window.left)
    out[target.slices()] = source[inside.slices()]


def render_labels(
    labels: NDArray[Any], geometry: Geometry, out: NDArray[Any] | None = None, fill: int = 0
) -> NDArray[Any]:
    """Crop, resize and flip a label map by nearest pixel centres: no value appears that was not there.

    Args:
        labels: (H, W) of any dtype, at full scale.
        geometry: What to do, usually an image's.
        out: (height, width) of ``geometry.output``, any dtype that holds the values. A new array else.
        fill: What lies outside the image.
    """
    box, window = geometry.box, geometry.window or Box(0, 0, *geometry.size)
    rows = _nearest(box.top, box.height, geometry.size[0], window.top, window.height)
    columns = _nearest(box.left, box.width, geometry.size[1], window.left, window.width)
    if geometry.flip:
        columns = columns[::-1]
    if out is None:
        out = np.empty(geometry.output, labels.dtype)
    if labels.size and rows.min() >= 0 and columns.min() >= 0:
        np.copyto(out, labels.take(rows, axis=0).take(columns, axis=1), casting="unsafe")
        return out
    inside = (rows >= 0)[:, None] & (columns >= 0)[None, :]
    picked = labels[rows.clip(0)[:, None], columns.clip(0)[None, :]].astype(out.dtype)
    np.copyto(out, np.where(inside, picked, np.asarray(fill, out.dtype)))
    return out


def _nearest(start: int, length: int, resized: int, first: int, count: int) -> NDArray[np.int64]:
    """Source indices of ``count`` output pixels from ``first`` on, -1 outside."""
    i = np.arange(first, first + count)
    index = start + (2 * i + 1) * length // (2 * resized)
    return np.where((i >= 0) & (i < resized), index, -1)


def scratch(use: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An array with anything in it, which is this thread's until it asks for the same use again.

    For pixels on their way: the system hands out new pages zeroed, one fault each, which for the pixels of a photograph
    takes about as long as a fifth of a resize. So each thread keeps one buffer for each use.

    Args:
        use: What it is for: two arrays that are in use together need two names.
        shape: Of the array, uint8.

        >>> scratch("example", (480, 640, 3)).shape
        (480, 640, 3)
    """
    size = math.prod(shape)
    if size > _SCRATCH:
        return np.empty(shape, np.uint8)
    held: NDArray[np.uint8] | None = getattr(_held, use, None)
    if held is None or held.size < size:
        held = np.empty(1 << (size - 1).bit_length() if size else 0, np.uint8)
        setattr(_held, use, held)
    return held[:size].reshape(shape)
