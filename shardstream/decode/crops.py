"""Crops: random ones, and those whose box is stored with the sample.

Those that somebody else resizes (on the device, a whole batch at once) leave the worker as a `Cut`. Such a crop is
decoded into memory that its thread uses again, and only its own pixels are copied to where they travel. To decode
straight to there is slower (1,330 images/s for 1,600, photographs on one core), and more would travel: decoders also
give what lies around the crop, in all 1.3 times its pixels of addressable files and 2.3 times of others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardstream.decode.boxes import BoxFormat, check_format, corners
from shardstream.decode.context import SampleContext
from shardstream.decode.pictures import Decoded, SizedPicture
from shardstream.decode.specs import Decoder, Out
from shardstream.decode.usercall import UserCall
from shardstream.errors import DecodeError, UsageError
from shardstream.images import resize
from shardstream.images.geometry import (
    CROP_WORDS,
    Box,
    Geometry,
    Size,
    pair,
    random_resized_box,
    scaled_box,
)
from shardstream.rng import unit

Where: TypeAlias = Literal["worker", "device"]

MOST = 8
"""Pixels of a crop for each of the result, at most, that travel; a larger one is resized by the worker."""
_SCALE = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)


class Cut(NamedTuple):
    """A crop that is not resized yet, of one sample.

    Attributes:
        pixels: uint8 (h, w, 3), upright but not flipped.
        size: (height, width) to resize it to.
        flip: Whether left and right are exchanged then.

    Example:
        >>> cut = Cut(np.zeros((300, 280, 3), np.uint8), size=(224, 224), flip=False)
        >>> cut.pixels.shape, cut.size
        ((300, 280, 3), (224, 224))
    """

    pixels: NDArray[np.uint8]
    size: Size
    flip: bool


@dataclass(frozen=True, kw_only=True)
class Cropping(SizedPicture):
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
            raise UsageError(
                f"resize must be 'worker' or 'device', got {self.resize!r}", hint="say who resizes the crop"
            )
        if self.is_cut and self.layout is not None:
            raise UsageError(
                f'layout={self.layout!r} and resize="device" exclude each other',
                hint="leave layout out: what the device resizes is (B, 3, h, w)",
            )

    @property
    def is_cut(self) -> bool:
        return self.resize == "device"

    def show(self, decoded: Decoded, out: Out, context: SampleContext, name: str) -> Any:
        """The same, or what the device is to resize: the box of a geometry without a window, in memory of the batch."""
        if not self.is_cut:
            return super().show(decoded, out, context, name)
        pixels, geometry, scale, origin, turn = decoded
        take = context.memory.get(name, _new)
        box = scaled_box(geometry.box, scale)
        region = pixels[box._replace(top=box.top - origin[0], left=box.left - origin[1]).slices()]
        size = turn.size(geometry.size)
        height, width = turn.size(region.shape[:2])
        if height * width > MOST * size[0] * size[1]:
            shown = resize.render(pixels, geometry, take(*size), scale=scale, origin=origin, turn=turn)
            return Cut(shown, size, flip=False)
        cut = take(height, width)
        if any(turn):
            resize.turned(region, turn, cut)
        else:
            np.copyto(cut, region)
        return Cut(cut, size, geometry.flip)


@dataclass(frozen=True)
class RandomResizedCrop(Cropping):
    """A random rectangle, resized: torchvision's ``RandomResizedCrop`` with ``antialias=True``.

    Area and ratio are drawn as torchvision's ``get_params`` does, from keyed words instead of torch's generator.

    Args:
        size: (height, width) of the output, or one number for both.
        scale: Bounds of the rectangle's share of the image's area, uniform.
        ratio: Bounds of width / height, log-uniform.
        resize: ``"worker"`` or ``"device"``, see `Cropping`.
        flip: See `Picture`, as are ``upright``, ``tolerant``, ``fast``, ``exact``, ``backend``, ``layout``,
            ``source`` and ``optional``.
        like: Another ``RandomResizedCrop`` output: its rectangle and flip, in this ``size``, as for pairs of
            resolutions. Not together with ``scale``, ``ratio``, ``flip`` or ``upright``.

        >>> fields = {"jpg": RandomResizedCrop(224, flip=True), "view2": RandomResizedCrop(224, source="jpg")}
    """

    scale: tuple[float, float] = _SCALE
    ratio: tuple[float, float] = _RATIO
    like: str | None = None

    replays: ClassVar[str] = "another RandomResizedCrop output"

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, (low, high) in (("scale", self.scale), ("ratio", self.ratio)):
            if not 0 < low <= high or (what == "scale" and high > 1):
                raise UsageError(
                    f"{what} must be two bounds, got {(low, high)}", hint="0 < low <= high, and scale <= 1"
                )
        own = self.flip, self.upright, self.scale, self.ratio
        if self.like is not None and own != (False, False, _SCALE, _RATIO):
            hint = "leave scale, ratio, flip and upright out"
            raise UsageError("RandomResizedCrop(like=) draws nothing itself", hint=hint)

    def can_replay(self, base: Decoder) -> bool:
        return isinstance(base, RandomResizedCrop)

    def place(self, source: Size, context: SampleContext, stream: int) -> Geometry:
        if self.like is not None:
            return context.replayed(self.like, source)._replace(size=pair(self.size))
        words = context.words(stream, CROP_WORDS)
        box = random_resized_box(source, words, scale=self.scale, ratio=self.ratio)
        return Geometry(source, box, pair(self.size), None, unit(words[0]) < self.chance)


@dataclass(frozen=True)
class Crop(Cropping):
    """The rectangle that is stored with the sample, resized: faces, objects, regions of interest.

    Only the rectangle is decoded. Its edges are rounded to whole pixels of the image, and **what reaches outside of
    the image is cut off**, as detectors' boxes often do by some pixels. A box of which nothing is left is an error
    that names the sample.

    Args:
        size: (height, width) of the output, or one number for both: the box is stretched to it.
        box: The stored field with the box: four numbers, as an array, a tensor or JSON. Read beside the image.
        pick: Called with the value of ``box``, whatever its type, and returns the four numbers: one box of many, say.
            A parameter named ``rng`` gets keyed random numbers, as for any callable in ``fields``.
        format: ``"xyxy"``, ``"xywh"`` or ``"cxcywh"``, as of `Boxes`.
        relative: The numbers are shares of the image's width and height.
        resize: ``"worker"`` or ``"device"``, see `Cropping`.
        flip: See `Picture`, as are ``upright``, ``tolerant``, ``fast``, ``exact``, ``backend``, ``layout``,
            ``source`` and ``optional``.

    Raises:
        DecodeError: The sample has no box, or none that lies in the image.

        >>> fields = {"face": Crop(112, box="face.box", source="jpg"), "whole": Resize(64, source="jpg")}
    """

    box: str = field(kw_only=True)
    pick: Callable[..., Any] | None = field(default=None, kw_only=True)
    format: BoxFormat = field(default="xyxy", kw_only=True)
    relative: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_format(self.format)
        if not isinstance(self.box, str):
            raise UsageError(
                f"box={self.box!r} names no field", hint="box= is the name of a stored field; pick= makes a box of it"
            )

    def beside(self, stored: Container[str]) -> tuple[str, ...]:
        return (self.box,)

    @property
    def calls(self) -> tuple[UserCall, ...]:
        return (self.pick,) if isinstance(self.pick, UserCall) else ()

    def steps(self, name: str) -> tuple[Decoder | UserCall, ...]:
        if self.pick is None:
            return (self,)
        return (dataclasses.replace(self, pick=UserCall(self.pick, what=f"pick of fields[{name!r}]")),)

    def place(self, source: Size, context: SampleContext, stream: int) -> Geometry:
        value = context.value_beside(self.box)
        if isinstance(self.pick, UserCall):
            value = self.pick.on_sample(value, context)
        boxes = corners(value, self.format, relative=self.relative, source=source)
        if len(boxes) != 1:
            raise DecodeError(f"{len(boxes)} boxes in {self.box!r} to crop one", hint="pick= chooses one of them")
        box = _within(boxes[0].tolist(), source)
        if box is None:
            left, top, right, bottom = boxes[0].tolist()
            raise DecodeError(
                f"the box from ({left:g}, {top:g}) to ({right:g}, {bottom:g}) in {self.box!r} shows nothing of an "
                f"image of {source[1]} x {source[0]} pixels",
                hint="is it in pixels (else relative=True), and of this image? upright=True is for upright boxes",
            )
        return Geometry(source, box, pair(self.size), flip=self.flipped(context, stream))


def _within(edges: list[float], source: Size) -> Box | None:
    """The whole pixels of a box that lie in the image, at least one; ``None`` where the box is outside or empty."""
    (left, right), (top, bottom) = (
        _whole(start, end, length) for start, end, length in zip(edges[:2], edges[2:], reversed(source), strict=True)
    )
    return None if right <= left or bottom <= top else Box(top, left, bottom - top, right - left)


def _whole(start: float, end: float, length: int) -> tuple[int, int]:
    start, end = max(0.0, start), min(float(length), end)
    if start >= end:
        return 0, 0
    first = math.floor(start + 0.5)
    last = math.floor(end + 0.5)
    if first == last:  # thinner than a pixel: the one it lies in
        first = math.floor((start + end) / 2)
        last = first + 1
    return first, last


def _new(height: int, width: int) -> NDArray[np.uint8]:
    return np.empty((height, width, 3), np.uint8)
