"""Crops that workers cut out and somebody else resizes: on the device, a whole batch at once.

A crop is decoded into memory that its thread uses again, and only its own pixels are copied to where they travel. To
decode straight to there is slower (1,330 images/s for 1,600, photographs on one core), and more would travel: decoders
also give what lies around the crop, in all 1.3 times its pixels of addressable files and 2.3 times of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.decode.context import SampleContext
from shardstream.decode.pictures import Picture
from shardstream.errors import UsageError
from shardstream.images import resize
from shardstream.images.geometry import UPRIGHT, Geometry, Size, Turn, scaled_box

Where: TypeAlias = Literal["worker", "device"]

MOST = 8
"""Pixels of a crop for each of the result, at most, that travel; a larger one is resized by the worker."""


class Cut(NamedTuple):
    """A crop that is not resized yet, of one sample.

    Attributes:
        pixels: uint8 (h, w, 3), upright but not flipped.
        size: (height, width) to resize it to.
        flip: Whether left and right are exchanged then.
    """

    pixels: NDArray[np.uint8]
    size: Size
    flip: bool


@dataclass(frozen=True, kw_only=True)
class Cropping(Picture):
    """What decoders of a crop share: the choice of who resizes it.

    Args:
        resize: ``"worker"``: as it is decoded. ``"device"``: later, all of a batch at once, by `DevicePrefetcher` or
            `shardstream.augment.resize_crops`; the batch has `shardstream.Crops` until then. ``fast`` then is about the
            decoding only. Crops of more than 8 times the pixels of the result (of PNG, of arrays, of very large
            photographs) are resized by the worker all the same, which bounds the memory of a batch.
    """

    resize: Where = "worker"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize not in ("worker", "device"):
            raise UsageError(f"resize={self.resize!r} is nobody who resizes", hint='"worker" or "device"')

    @property
    def is_cut(self) -> bool:
        return self.resize == "device"

    def show(
        self,
        pixels: NDArray[np.uint8],
        geometry: Geometry,
        out: NDArray[np.uint8] | None,
        context: SampleContext,
        name: str,
        *,
        scale: int = 1,
        origin: Size = (0, 0),
        turn: Turn = UPRIGHT,
    ) -> Any:
        if not self.is_cut:
            return super().show(pixels, geometry, out, context, name, scale=scale, origin=origin, turn=turn)
        return _cut_out(pixels, geometry, context.memory.get(name, _new), scale=scale, origin=origin, turn=turn)


def _new(height: int, width: int) -> NDArray[np.uint8]:
    return np.empty((height, width, 3), np.uint8)


def _cut_out(
    pixels: NDArray[np.uint8],
    geometry: Geometry,
    take: Callable[[int, int], NDArray[np.uint8]],
    *,
    scale: int,
    origin: Size,
    turn: Turn,
) -> Cut:
    """The box of a geometry without a window; arguments as of `resize.render`, memory from ``take(height, width)``."""
    box = scaled_box(geometry.box, scale)
    region = pixels[box._replace(top=box.top - origin[0], left=box.left - origin[1]).slices()]
    size = turn.size(geometry.size)
    height, width = turn.size(region.shape[:2])
    if height * width > MOST * size[0] * size[1]:
        shown = resize.render(pixels, geometry, take(*size), scale=scale, origin=origin, turn=turn)
        return Cut(shown, size, flip=False)
    out = take(height, width)
    if any(turn):
        resize.turned(region, turn, out)
    else:
        np.copyto(out, region)
    return Cut(out, size, geometry.flip)
