"""Image decoders: bytes to uint8 (H, W, 3), with the crop pushed down into the JPEG decoder.

The geometry is drawn from the header first; then the file is decoded at the smallest cheap DCT scale (1, 1/2, 1/4,
1/8) at which the crop still covers the output, and the crop is resized, antialiased, into the output. At a scale of
1/s the crop's edges move to multiples of s, by less than half a pixel of the output, and the moved crop is what others
are ``like``. Arrays stored as fields (``array``, ``array:uint8:H,W,3``) take the same road without the decoding.

Random numbers are keyed by (seed, epoch, position) and the output's name, so two outputs draw independently, and none
depends on the others.

With ``upright=True`` the geometry is drawn in the upright image, moved to where these pixels are stored, decoded there
as ever, and the result is turned into its slot. Images ``like`` it are turned as well, each as its own file says.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shardstream.decode.context import Placed, SampleContext
from shardstream.decode.specs import Decoder, Out, Slot
from shardstream.errors import DecodeError, UsageError
from shardstream.images import backends, resize
from shardstream.images.backends import Backend, BackendName, check_backend
from shardstream.images.backends.pillow import of_pixels
from shardstream.images.formats import Encoded
from shardstream.images.geometry import (
    FLIP_WORDS,
    TURNS,
    UPRIGHT,
    Geometry,
    Size,
    Turn,
    aligned_scale,
    as_stored,
    center_window,
    excerpt,
    on_grid,
    pair,
    resized_size,
    whole,
)
from shardstream.images.region import decode_part
from shardstream.rng import unit

_UINT8, _UINT16 = np.dtype(np.uint8), np.dtype(np.uint16)
Frames: TypeAlias = Literal["first", "all"]
Layout: TypeAlias = Literal["CHW", "HWC"]
"""The order of an image's axes: channels first, or last."""


class Decoded(NamedTuple):
    """Decoded pixels, and what is to become of them: what `resize.render` is given."""

    pixels: NDArray[np.uint8]
    geometry: Geometry
    scale: int = 1
    origin: Size = (0, 0)
    turn: Turn = UPRIGHT


@dataclass(frozen=True, kw_only=True)
class Picture(Decoder):
    """What the image decoders share: decode by content, then one `Geometry`.

    Args:
        flip: Exchange left and right: ``True`` for half of the samples, or a probability.
        upright: Turn the picture as its EXIF orientation says, before everything else: sizes, crops, boxes and masks
            are then those of the upright picture, as most tools for annotation show it. Default: the orientation is
            ignored, as torchvision's ``ImageFolder`` does.
        tolerant: Accept truncated files, and fill up what is missing.
        fast: Trade accuracy for speed, as FFCV does: libjpeg's fast DCT, colour repeated and not interpolated (of the
            backends that have such a choice), and bilinear resizing without antialiasing. A tenth faster; pixels are
            some grey levels off, and small patterns turn into others.
        exact: Decode at full scale, and resize the whole picture even where a window of it is wanted: the pixels are
            those of a full decode and torch's antialiased resize of uint8, as torchvision's on tensors, to the bit
            (turned by ``upright``, within a grey level). Default: a JPEG at least twice as large as the output is
            decoded at a reduced DCT scale, which costs less and is one to two grey levels off on average
            (``docs/decoding.md``). For evaluation, where numbers are compared with others'.
        backend: The library that decodes: ``"simplejpeg"``, ``"pillow"``, ``"opencv"``, ``"torchvision"``,
            ``"imageio"``, ``"accimage"``, or a `Backend` of your own. Files that it does not read are decoded as by
            ``"auto"``: simplejpeg for JPEG, Pillow for the rest. Default: the data set's.
        layout: Axes of one image, in single samples and in batches alike: ``"CHW"``, as torchvision has them, is
            (3, H, W) and (B, 3, H, W); ``"HWC"`` is (H, W, 3) and (B, H, W, 3). Default: (H, W, 3) in single samples,
            transforms and callables, and (B, 3, H, W) in batches. In memory, channels are last in any case.
        source: See `Decoder`.
        optional: See `Decoder`.
    """

    flip: bool | float = False
    upright: bool = False
    tolerant: bool = False
    fast: bool = False
    exact: bool = False
    backend: Backend | BackendName | None = None
    layout: Layout | None = None

    accepts: ClassVar[frozenset[str]] = frozenset({"jpg", "png", "webp", "bytes", "array", "fixed"})
    is_image: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.flip <= 1:
            raise UsageError(
                f"flip must be a number in [0, 1], got {self.flip!r}", hint="give a probability; True is 0.5"
            )
        if self.exact and self.fast:
            raise UsageError("exact=True and fast=True exclude each other", hint="leave one of them out")
        if self.backend is not None:
            check_backend(self.backend)
        if self.layout not in (None, *get_args(Layout)):
            raise UsageError(
                f"layout must be 'CHW' or 'HWC', got {self.layout!r}", hint="'CHW' is (3, H, W), as torchvision has it"
            )

    def with_backend(self, backend: Backend | BackendName) -> Decoder:
        own = self if self.backend is not None else replace(self, backend=backend)
        backends.find(own.backend or "auto")
        return own

    @abstractmethod
    def place(self, source: Size, context: SampleContext, stream: int) -> Geometry:
        """What is to be done to an image of this size, upright if that is asked for."""

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        if isinstance(value, np.ndarray):
            pixels = _colour(value)
            context.geometry[name] = plan = self.place(pixels.shape[:2], context, stream)
            return self.arranged(self.show(Decoded(pixels, plan), out, context, name), out)
        placed = context.placed.pop(name, None) or self._placed(value, context, name, stream)
        geometry, turn, scale, part = placed
        how: dict[str, Any] = {"tolerant": self.tolerant, "fast": self.fast, "backend": self.backend or "auto"}
        if out is None and geometry.is_identity and not any(turn) and not self.is_cut:
            return self.arranged(backends.decode_scaled(part.data, part.info, **how), out)
        pixels, origin = decode_part(part, scale=scale, **how)
        shown = self.show(Decoded(pixels, geometry, scale, origin, turn), out, context, name)
        return shown if out is not None else self.arranged(shown, out)

    def arranged(self, pixels: Any, out: Out) -> Any:
        """Pixels (..., H, W, C) in the layout, as a view; in a slot they stay as they are, and the batch is one."""
        return np.moveaxis(pixels, -1, -3) if self.layout == "CHW" and out is None else pixels

    def _placed(self, value: Encoded, context: SampleContext, name: str, stream: int) -> Placed:
        """What is to be done to an encoded image."""
        file = context.opened(value)
        info = file.info
        turn = UPRIGHT
        if self.upright or self.base in context.upright:
            turn = context.upright[name] = TURNS[info.orientation]
        stored = info.height, info.width
        plan = self.place(turn.size(stored), context, stream)
        stored_plan, rest = as_stored(plan, turn)
        backend = self.backend or "auto"
        scale = 1 if self.exact else backends.jpeg_scale(info, stored_plan.box.size, stored_plan.size, backend)
        if scale > 1 and self.base is not None:
            scale = aligned_scale(stored_plan.box, stored, scale)  # what is replayed stays where it is
        elif scale > 1:
            stored_plan = stored_plan._replace(box=on_grid(stored_plan.box, stored, scale))
            plan = plan._replace(box=turn.box(stored_plan.box, stored))
        context.geometry[name] = plan
        seen = excerpt(stored_plan, scale, exact=self.exact).seen
        return Placed(stored_plan, rest, scale, file.part(seen, scale=scale, tolerant=self.tolerant))

    def begin(self, value: Any, context: SampleContext, *, name: str, stream: int) -> None:
        """Do what `apply` does with encoded bytes before any pixel is decoded; the arguments are its own.

        Called for some samples in turn, before `apply` is for each: what is so small takes half of its time where it
        does not run between decoding one picture and the next, which drives it out of the processor's caches.

        Raises:
            DecodeError: The file is damaged. `apply` raises it again.
        """
        context.placed[name] = self._placed(value, context, name, stream)

    def show(self, decoded: Decoded, out: Out, context: SampleContext, name: str) -> Any:
        """The value that decoded pixels become; the other arguments as of `apply`."""
        pixels, geometry, scale, origin, turn = decoded
        return resize.render(
            pixels, geometry, out, scale=scale, origin=origin, turn=turn, antialias=not self.fast, exact=self.exact
        )

    def flipped(self, context: SampleContext, stream: int) -> bool:
        """The draw of the flip alone."""
        return self.flip > 0 and unit(context.words(stream, FLIP_WORDS)[0]) < self.chance

    @property
    def chance(self) -> float:
        """The probability of a flip."""
        return 0.5 if self.flip is True else float(self.flip)


@dataclass(frozen=True)
class Image(Picture):
    """The whole image, as large as it is stored: uint8 (H, W, 3) RGB; of an animation, the first frame.

    Args:
        like: An output whose random geometry is replayed on this one: same crop, size and flip, antialiased (for
            label maps use `Mask`). Both images must be of the same size. Not together with ``flip`` or ``upright``,
            which are those of the other output.
        frames: ``"all"``: every frame of an animation or page of a TIFF, uint8 (N, H, W, 3), where N may be 1; with
            ``layout="CHW"``, (N, 3, H, W). They are decoded by Pillow, and must be of one size; together they may have
            178,956,970 pixels.
        dtype: ``"uint16"``: 16 bits, uint16 (H, W, 1) of grey and (H, W, 3) of colour; 8 bits are widened, 255 to
            65535. PNG and TIFF with 16-bit colour need OpenCV (``shardstream[opencv]``). Default: ``"uint8"``, to
            which 16 bits are brought by their high byte.
        flip: See `Picture`, as are ``upright``, ``tolerant``, ``fast``, ``exact``, ``backend``, ``layout``,
            ``source`` and ``optional``.

        >>> fields = {"jpg": RandomResizedCrop(256), "depth": Image(source="depth.png", like="jpg")}
    """

    like: str | None = None
    frames: Frames = "first"
    dtype: DTypeLike = "uint8"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.like is not None and (self.flip or self.upright):
            raise UsageError("Image(like=) does what the other output does", hint="leave flip and upright out")
        if self.frames not in get_args(Frames):
            raise UsageError(f"frames must be 'first' or 'all', got {self.frames!r}", hint="'all' decodes an animation")
        if self.dtype not in ("uint8", "uint16", np.uint8, np.uint16, _UINT8, _UINT16):
            raise UsageError(f"dtype must be 'uint8' or 'uint16', got {self.dtype!r}", hint="convert it afterwards")
        if self.frames == "all" and self._deep:
            raise UsageError("frames='all' and dtype='uint16' exclude each other", hint="leave one of them out")
        if not self._plain and (self.like is not None or self.flip or self.upright or self.tolerant or self.fast):
            raise UsageError(
                "frames='all' and dtype='uint16' decode the picture as it is stored",
                hint="leave out like, flip, upright, tolerant and fast; change what comes out in a callable behind it",
            )

    @property
    def _deep(self) -> bool:
        return np.dtype(self.dtype) == _UINT16

    @cached_property  # asked for every sample
    def _plain(self) -> bool:
        """Whether values are uint8 (H, W, 3), as of every other decoder of images."""
        return self.frames == "first" and not self._deep

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        if self._plain:
            return super().apply(value, context, name=name, stream=stream, out=out)
        if isinstance(value, np.ndarray):
            raise DecodeError(
                f"{described(value)} has neither frames nor 16 bits of a file",
                hint="leave out frames= and dtype= for fields that are arrays",
            )
        pixels = backends.decode_deep(value) if self._deep else backends.decode_frames(value)
        source: Size = pixels.shape[:2] if self._deep else pixels.shape[1:3]
        context.geometry[name] = Geometry(source, whole(source), source)
        return self.arranged(pixels, out)

    def begin(self, value: Any, context: SampleContext, *, name: str, stream: int) -> None:
        if self._plain:
            super().begin(value, context, name=name, stream=stream)

    def slot(self, base: Slot | None) -> Slot | None:
        return base if self.like is not None else None

    def place(self, source: Size, context: SampleContext, stream: int) -> Geometry:
        if self.like is not None:
            return context.replayed(self.like, source)
        return Geometry(source, whole(source), source, flip=self.flipped(context, stream))


@dataclass(frozen=True)
class SizedPicture(Picture):
    """What image decoders to a given size share.

    Args:
        size: (height, width) of the output, or one number for both.
    """

    size: int | Size

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_size("size", self.size)

    def slot(self, base: Slot | None) -> Slot | None:
        return Slot((*pair(self.size), 3), _UINT8)


@dataclass(frozen=True)
class Resize(SizedPicture):
    """The whole image resized, antialiased bilinear: torchvision's ``Resize``, to the bit with ``exact=True``.

    Args:
        size: (height, width), or the length of the short side: the ratio is kept, the long side rounds down.
        flip: See `Picture`, as are ``upright``, ``tolerant``, ``fast``, ``exact``, ``backend``, ``layout``,
            ``source`` and ``optional``.

        >>> fields = {"jpg": Resize((256, 256)), "thumbnail": Resize(32, source="jpg")}
    """

    def slot(self, base: Slot | None) -> Slot | None:
        return None if isinstance(self.size, int) else super().slot(base)

    def place(self, source: Size, context: SampleContext, stream: int) -> Geometry:
        return Geometry(source, whole(source), resized_size(source, self.size), flip=self.flipped(context, stream))


@dataclass(frozen=True)
class CenterCrop(SizedPicture):
    """The middle of the image: torchvision's ``Resize`` and ``CenterCrop``, for evaluation with ``exact=True``.

    Args:
        size: (height, width) or one number for both. Where the image is smaller it is padded with zeros.
        resize: Resize first, as `Resize` does: ``CenterCrop(224, resize=256)`` is the usual evaluation pair.
        flip: See `Picture`, as are ``upright``, ``tolerant``, ``fast``, ``exact``, ``backend``, ``layout``,
            ``source`` and ``optional``.

        >>> fields = {"jpg": CenterCrop(224, resize=256, exact=True)}
    """

    resize: int | Size | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize is not None:
            checked_size("resize", self.resize)

    def place(self, source: Size, context: SampleContext, stream: int) -> Geometry:
        size = source if self.resize is None else resized_size(source, self.resize)
        window = center_window(size, pair(self.size))
        return Geometry(source, whole(source), size, window, self.flipped(context, stream))


@dataclass(frozen=True)
class AsPil(Decoder):
    """Pixels as a Pillow image; what ``"pil"`` in ``fields`` stands for. Reads nothing of its own."""

    threaded: ClassVar[bool] = True

    def apply(self, value: Any, context: SampleContext, *, name: str, stream: int, out: Out = None) -> Any:
        """A ``PIL.Image.Image`` of mode RGB, or L of a label map.

        Raises:
            UsageError: There are no such pixels.
        """
        shape = value.shape if isinstance(value, np.ndarray) and value.dtype == np.uint8 else ()
        if len(shape) != 2 and shape[2:] != (3,):
            given = described(value) if isinstance(value, np.ndarray) else f"a value of type {type(value).__name__}"
            raise UsageError(
                f'"pil" makes pictures of uint8 (H, W, 3) or (H, W), not of {given}',
                hint='write it right behind the decoder: fields={"jpg": ["pil", function]}, or [decoder, "pil", ...]',
            )
        return of_pixels(value)


def _colour(array: NDArray[Any]) -> NDArray[np.uint8]:
    """A stored array as (H, W, 3)."""
    if array.dtype == np.uint8 and array.size:
        if array.ndim == 3 and array.shape[2] == 3:
            return array
        if array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1):
            return np.repeat(array.reshape(*array.shape[:2], 1), 3, axis=2)
    raise DecodeError(
        f"expected an image, got {described(array)}", hint="images are uint8 (H, W, 3) or (H, W), channels last"
    )


def described(array: NDArray[Any]) -> str:
    """An array in a few words, for messages."""
    return f"an array of {array.dtype.name} {list(array.shape)}"


def checked_size(name: str, size: object) -> None:
    """Refuse what is neither a positive number nor a pair of them."""
    numbers = size if isinstance(size, tuple) else (size, size)
    if len(numbers) != 2 or not all(type(n) is int and n > 0 for n in numbers):
        raise UsageError(f"{name} must be positive, got {size!r}", hint="give an integer or a tuple (height, width)")
