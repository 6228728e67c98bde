"""Image decoders: bytes to uint8 (H, W, 3), with the crop pushed down into the JPEG decoder.

The geometry is drawn from the header first; then the file is decoded at the smallest cheap DCT scale (1, 1/2, 1/4,
1/8) at which the crop still covers the output, and the crop is resized, antialiased, into the output. Arrays stored as
fields (``array``, ``array:uint8:H,W,3``) take the same road without the decoding.

All of them take ``source=``, ``optional=`` (see `Decoder`) and ``tolerant=`` (accept truncated files). Random numbers
are keyed by (seed, epoch, position) and the output's name, so two outputs draw independently, and none depends on the
others. EXIF orientation is ignored, as torchvision's ``ImageFolder`` does.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shardstream.decode.context import SampleContext
from shardstream.decode.specs import Decoder, Slot
from shardstream.errors import DecodeError, UsageError
from shardstream.images import backends, geometry, resize
from shardstream.images.geometry import Geometry, Size
from shardstream.images.header import probe

_SOURCES = frozenset({"jpg", "png", "webp", "bytes", "array", "fixed"})
_UINT8 = np.dtype(np.uint8)


@dataclass(frozen=True, kw_only=True)
class Picture(Decoder):
    """What the image decoders share: decode by content, then one `Geometry`."""

    tolerant: bool = False

    accepts: ClassVar[frozenset[str]] = _SOURCES
    is_image: ClassVar[bool] = True

    @abstractmethod
    def geometry(self, source: Size, context: SampleContext, stream: int) -> Geometry:
        """What is to be done to an image of this size."""

    def apply(
        self, value: Any, context: SampleContext, *, name: str, stream: int, out: NDArray[Any] | None = None
    ) -> Any:
        if isinstance(value, np.ndarray):
            pixels = _colour(value, name)
            plan = self.geometry(pixels.shape[:2], context, stream)
            context.geometry[name] = plan
            return resize.render(pixels, plan, out)
        info = probe(value)
        plan = self.geometry((info.height, info.width), context, stream)
        context.geometry[name] = plan
        if plan.is_identity and out is None:
            return backends.decode_scaled(value, info, tolerant=self.tolerant)
        scale = backends.jpeg_scale(info, plan.box.size, plan.size)
        pixels = backends.decode_scaled(value, info, scale=scale, tolerant=self.tolerant, reuse=True)
        return resize.render(pixels, plan, out, scale=scale)


@dataclass(frozen=True)
class _Own(Picture):
    """Pictures with a geometry of their own and an optional flip."""

    flip: bool | float = False

    def __post_init__(self) -> None:
        _check_probability(self.flip)

    def geometry(self, source: Size, context: SampleContext, stream: int) -> Geometry:
        plan = self.place(source)
        if self.flip is False or geometry.unit(context.words(stream, geometry.FLIP_WORDS)[0]) >= _chance(self.flip):
            return plan
        return plan._replace(flip=True)

    @abstractmethod
    def place(self, source: Size) -> Geometry:
        """The geometry before any flip."""


@dataclass(frozen=True)
class _Alike(Picture):
    """Pictures that may replay the crop and flip of another output."""

    like: str | None = None

    @property
    def base(self) -> str | None:
        return self.like

    def replayed(self, source: Size, context: SampleContext) -> Geometry:
        """The geometry of the base output."""
        assert self.like is not None
        plan = context.geometry.get(self.like)
        if plan is None:
            raise DecodeError(
                f"like={self.like!r}, but this sample has no {self.like!r}", hint="make this output optional too"
            )
        if plan.source != source:
            height, width = source
            raise DecodeError(
                f"an image of {width} x {height} pixels cannot be cropped like {self.like!r} of "
                f"{plan.source[1]} x {plan.source[0]}",
                hint="store both in the same size",
            )
        return plan


@dataclass(frozen=True)
class Image(_Own, _Alike):
    """The whole image, as large as it is stored: uint8 (H, W, 3) RGB.

    Args:
        flip: Left-right: ``True`` for half of the samples, or a probability.
        like: An output whose random geometry is replayed on this one: same crop, same size, same flip, antialiased
            (for label maps use `Mask`). Its image must be of the same size.
        source: The stored field, or several: ``"jpg;png"``. Default: the output's own name.
        optional: Samples without it are fine.
        tolerant: Accept truncated files.

        >>> fields = {"jpg": RandomResizedCrop(256), "edges": Image(source="edges.png", like="jpg")}
    """

    def slot(self, base: Slot | None) -> Slot | None:
        return base if self.like is not None else None

    def place(self, source: Size) -> Geometry:
        return Geometry(source, geometry.whole(source), source)

    def geometry(self, source: Size, context: SampleContext, stream: int) -> Geometry:
        return super().geometry(source, context, stream) if self.like is None else self.replayed(source, context)


@dataclass(frozen=True)
class Resize(_Own, _Alike):
    """Resized, antialiased bilinear: torchvision's ``Resize``.

    Args:
        size: (height, width), or the length of the short side with the ratio kept (the long side rounds down).
        flip: Left-right: ``True`` for half of the samples, or a probability.
        like: An output whose crop and flip are replayed, in this size: pairs of resolutions. Its image must be of the
            same size.
        source: As for `Image`.
        optional: As for `Image`.
        tolerant: As for `Image`.

        >>> fields = {"large": RandomResizedCrop(256), "small": Resize((64, 64), source="large", like="large")}
    """

    size: int | Size = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.size, int) or self.size < 1:
            _pair("size", self.size)

    def slot(self, base: Slot | None) -> Slot | None:  # noqa: ARG002
        return None if isinstance(self.size, int) else Slot((*self.size, 3), _UINT8)

    def place(self, source: Size) -> Geometry:
        return Geometry(source, geometry.whole(source), geometry.resized_size(source, self.size))
