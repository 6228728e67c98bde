"""Label maps: stored numbers that follow an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from shardstream.decode.context import SampleContext
from shardstream.decode.dtypes import first_unfit
from shardstream.decode.pictures import Picture, described
from shardstream.decode.specs import Decoder, Out, Slot
from shardstream.errors import DecodeError, UsageError
from shardstream.images import backends, resize
from shardstream.images.geometry import Geometry, Size, whole


@dataclass(frozen=True)
class Mask(Decoder):
    """A label map (H, W): the stored numbers, never interpolated.

    A PNG gives its palette indices or grey values; an array field of two dimensions gives itself. Resized by the
    nearest pixel centre, which keeps it aligned with the image (see `shardstream.images.resize`). Pillow decodes it
    whatever the data set's ``backend``: others give the colours of a palette in place of its indices.

    Args:
        like: The image output whose random geometry is replayed. Both must be of the same size. ``None``: as stored.
        fill: What a missing mask of a batch holds, and what lies outside the image (``CenterCrop`` of small ones).
        dtype: Of the output. ``"int64"`` saves the conversion before a cross entropy, at eight times the bytes.
        tolerant: Accept truncated files.
        source: See `Decoder`.
        optional: See `Decoder`.

        >>> fields = {"jpg": RandomResizedCrop(512, flip=True), "mask": Mask(source="png", like="jpg")}
    """

    like: str | None = None
    dtype: DTypeLike = "uint8"
    fill: int = 0
    tolerant: bool = False

    accepts: ClassVar[frozenset[str]] = Picture.accepts
    threaded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if np.dtype(self.dtype).kind not in "iu":
            raise UsageError(f"dtype={self.dtype!r} holds no labels", hint="use an integer type")
        bounds = np.iinfo(np.dtype(self.dtype))
        if not bounds.min <= self.fill <= bounds.max:
            raise UsageError(f"fill={self.fill} does not fit {bounds.dtype}", hint="use a wider dtype")

    def slot(self, base: Slot | None) -> Slot | None:
        return None if base is None else Slot(base.shape[:2], np.dtype(self.dtype))

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        labels = value if isinstance(value, np.ndarray) else backends.decode_labels(value, tolerant=self.tolerant)
        if labels.ndim != 2 or labels.dtype.kind not in "iub":
            raise DecodeError(f"expected a label map, got {described(labels)}", hint="store integers (H, W)")
        unfit = first_unfit(labels, np.dtype(self.dtype))
        if unfit is not None:
            what = f"a label {labels.flat[unfit]} does not fit {np.dtype(self.dtype)}"
            raise DecodeError(what, hint='give Mask(dtype="int32")')
        source: Size = labels.shape
        plan = Geometry(source, whole(source), source) if self.like is None else context.replayed(self.like, source)
        context.geometry[name] = plan
        return resize.render_labels(labels, plan, np.empty(plan.output, self.dtype) if out is None else out, self.fill)

    def missing(self, out: Out = None) -> Any:
        if out is not None:
            out.fill(self.fill)
        return out
