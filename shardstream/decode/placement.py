"""What was done to an image, for whoever transforms more than pixels."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shardstream.decode.context import SampleContext
from shardstream.decode.specs import Decoder, Out, Slot
from shardstream.errors import UsageError
from shardstream.images.geometry import Geometry


@dataclass(frozen=True)
class _Derived(Decoder):
    """What is known of an image without a stored value of its own."""

    like: str

    is_derived: ClassVar[bool] = True
    one: ClassVar[Slot]

    def __post_init__(self) -> None:
        if self.source is not None:
            kind = type(self).__name__
            raise UsageError(f"{kind}(source=): it is made of no stored field", hint="like= names the image")

    def slot(self, base: Slot | None) -> Slot | None:
        return self.one

    @abstractmethod
    def known(self, plan: Geometry) -> Any:
        """The numbers."""

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        if out is None:
            out = np.empty(*self.one)
        out[...] = self.known(context.replayed(self.like))
        return out


@dataclass(frozen=True)
class Placement(_Derived):
    """What was done to an image: the affine matrix from its own pixels to those of the output, float32 (2, 3).

    ``[x', y'] = matrix @ [x, y, 1]``. Coordinates are (x, y), across and down, and count from the outer edge of the
    first pixel: pixel i covers [i, i + 1) and its centre is i + 1/2, before and after (of OpenCV's and Pillow's pixel
    *numbers*, take the half off). The matrix has a crop, a resize, a padding and a flip in it, with ``upright=True``
    from the upright image; not what callables behind the decoder do. Its inverse takes predictions back to the image.
    Rounded to float32 it moves a point by less than a thousandth of a pixel.

    Args:
        like: The image output.
        optional: Zeros where the sample lacks the image.

        >>> fields = {"jpg": RandomResizedCrop(512, flip=True), "placement": Placement(like="jpg")}
    """

    one: ClassVar[Slot] = Slot((2, 3), np.dtype(np.float32))

    def known(self, plan: Geometry) -> Any:
        return plan.matrix


@dataclass(frozen=True)
class SourceSize(_Derived):
    """How large an image was before anything was done to it: int64 (2,), (height, width).

    It comes from the image's header: nothing more is read or decoded. With ``upright=True``, of the upright image.

    Args:
        like: The image output.
        optional: Zeros where the sample lacks the image.

        >>> fields = {"jpg": Resize((512, 512)), "size": SourceSize(like="jpg")}
    """

    one: ClassVar[Slot] = Slot((2,), np.dtype(np.int64))

    def known(self, plan: Geometry) -> Any:
        return plan.source
