"""Decoding by whichever backend: which one a name stands for, and what none has to care for itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import (
    DecodeError,
    MissingExtraError,
    ShardStreamError,
    TransformError,
    UnsupportedError,
    UsageError,
    did_you_mean,
)
from shardstream.images.backends import pillow
from shardstream.images.backends.contract import (
    Backend,
    BackendName,
    Job,
    NamedBackend,
    check_process,
    undecodable,
)
from shardstream.images.backends.others import AccImage, ImageIo, OpenCv, TorchVision
from shardstream.images.backends.others import decode_deep as decode_16_bit_colour
from shardstream.images.backends.pillow import Pillow
from shardstream.images.backends.simplejpeg import SimpleJpeg
from shardstream.images.formats import Encoded
from shardstream.images.geometry import Size, covering_scale, scaled_size
from shardstream.images.header import ImageInfo, probe
from shardstream.images.unsupported import unsupported

MAX_PIXELS = 178_956_970
"""Images with more pixels are refused, at the size where Pillow refuses them too."""
NAMES: tuple[BackendName, ...] = get_args(BackendName)

_Named = TypeVar("_Named", bound=NamedBackend)


class Auto(NamedBackend):
    """The default: simplejpeg for JPEG, Pillow for the rest, or Pillow alone where that is all there is: more slowly.

    A JPEG that simplejpeg refuses gets a second chance with Pillow.
    """

    def __init__(self) -> None:
        self._jpeg, self._rest = _installed(SimpleJpeg), _installed(Pillow)
        libraries = [one.library for one in (self._jpeg, self._rest) if one is not None]
        self.library = " and ".join(libraries) or "nothing installed"

    def takes(self, info: ImageInfo) -> BackendName:
        """The backend that gets such a file first, installed or not."""
        if info.kind != "jpg":
            return "pillow"
        by_simplejpeg = self._jpeg is not None and self._jpeg.max_scale(info)
        return "simplejpeg" if by_simplejpeg or self._rest is None else "pillow"

    def max_scale(self, info: ImageInfo) -> int:
        return info.max_scale

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        first: DecodeError | None = None
        if self.takes(info) == "simplejpeg":
            try:
                return (self._jpeg or SimpleJpeg()).decode(data, info, job)
            except DecodeError as error:
                if self._rest is None:
                    raise
                first = error
        try:
            return (self._rest or Pillow()).decode(data, info, job)
        except DecodeError:
            if isinstance(first, UnsupportedError):  # Pillow does not tell this from damage
                raise first from None
            raise


def _installed(kind: Callable[[], _Named]) -> _Named | None:
    try:
        return kind()
    except MissingExtraError:
        return None


_MAKERS: dict[BackendName, Callable[[], NamedBackend]] = {
    "auto": Auto,
    "simplejpeg": SimpleJpeg,
    "pillow": Pillow,
    "opencv": OpenCv,
    "torchvision": TorchVision,
    "imageio": ImageIo,
    "accimage": AccImage,
}


def check_backend(backend: object) -> None:
    """Refuse what is neither a name nor a `Backend`; whether its library is installed is not looked at.

    Raises:
        UsageError: Proposes the nearest name.
    """
    if isinstance(backend, str):
        if backend not in NAMES:
            hint = did_you_mean(backend, NAMES) + "there are " + ", ".join(map(repr, NAMES))
            raise UsageError(f"there is no backend {backend!r}", hint=hint)
    elif isinstance(backend, type) or not isinstance(backend, Backend):
        raise UsageError(
            f"backend={backend!r} decodes nothing",
            hint="give a name, or an object with max_scale and decode (shardstream.decode.Backend)",
        )


def find(backend: Backend | BackendName) -> Backend:
    """The backend of this name, the same object each time; anything but a name is one itself.

    Raises:
        MissingExtraError: Its library is not installed.
    """
    return named(backend) if isinstance(backend, str) else backend


@cache
def named(name: BackendName) -> NamedBackend:
    """The backend of this name.

    Raises:
        MissingExtraError: Its library is not installed.
    """
    return _MAKERS[name]()


def decode(
    data: Encoded,
    *,
    min_size: Size | None = None,
    tolerant: bool = False,
    backend: Backend | BackendName = "auto",
) -> NDArray[np.uint8]:
    """Decode an image file to RGB.

    Args:
        data: A picture of any format of `shardstream.images.formats`, told apart by content.
        min_size: (height, width) that the result must have at least: a JPEG is then decoded at the smallest of its
            cheap DCT scales 1, 1/2, 1/4, 1/8 that still is as large (sizes round up). ``None``: full size.
        tolerant: Accept truncated files and fill up what is missing.
        backend: The library that decodes, by name, or a decoder of one's own.

    Returns:
        uint8 (H, W, 3), newly allocated.

    Raises:
        DecodeError: See the table of `shardstream.images.backends`.
        MissingExtraError: No decoder for this kind of file is installed.

        >>> decode(jpeg_bytes).shape, decode(jpeg_bytes, min_size=(100, 100)).shape
        ((375, 500, 3), (188, 250, 3))
    """
    info = probe(data)
    scale = 1 if min_size is None else jpeg_scale(info, (info.height, info.width), min_size, backend)
    return decode_scaled(data, info, scale=scale, tolerant=tolerant, backend=backend)


def jpeg_scale(info: ImageInfo, have: Size, want: Size, backend: Backend | BackendName = "auto") -> int:
    """The DCT scale 1/n at which ``have`` pixels of this image still cover ``want``; 1 for anything but JPEG.

    Never more than the backend can do, nor than the file's coding process allows.
    """
    if info.kind != "jpg":
        return 1
    most = _reader(info, backend).max_scale(info)
    return min(covering_scale(have, want), most, info.max_scale or 1)


def decode_scaled(
    data: Encoded,
    info: ImageInfo,
    *,
    scale: int = 1,
    tolerant: bool = False,
    reuse: bool = False,
    fast: bool = False,
    backend: Backend | BackendName = "auto",
) -> NDArray[np.uint8]:
    """`decode` for callers that have read the header and chosen the DCT scale.

    Args:
        data: The file.
        info: Its header, from `probe`.
        scale: 1, 2, 4 or 8, at most what `jpeg_scale` says, and no larger than a side. Sizes round up.
        tolerant: As for `decode`.
        reuse: Decode into memory that this thread reuses: the pixels are valid until its next call. Fresh memory
            costs a fifth more, for its page faults.
        fast: Take less accurate pixels of a JPEG, where they come sooner.
        backend: As for `decode`.

    Returns:
        uint8 (ceil(H / scale), ceil(W / scale), 3).

    Raises:
        DecodeError: See the table of `shardstream.images.backends`.
        TransformError: A user's own backend raised something else, or returned no uint8 array.
        MissingExtraError: No decoder for this kind of file is installed.
    """
    check_pixels(info)
    reader = _reader(info, backend)
    if scale > 1 and info.max_scale < scale:  # some libraries would write behind their buffers
        raise unsupported(f"a {info.kind} file that decodes at full size only was asked for at 1/{scale} of it")
    job = Job(scale, tolerant, reuse, fast)
    try:
        pixels = _run(reader, data, info, job)
    except DecodeError:
        if not tolerant or reader is named("auto"):
            raise
        return decode_scaled(data, info, scale=scale, tolerant=True, reuse=reuse)  # auto fills up what is missing
    if pixels.shape != (*scaled_size((info.height, info.width), scale), 3):
        raise _misshapen(pixels, info)
    return pixels


def _misshapen(pixels: NDArray[Any], info: ImageInfo) -> DecodeError:
    return undecodable(info, f"its {info.width} x {info.height} pixels decoded to {list(pixels.shape)}")


def _reader(info: ImageInfo, backend: Backend | BackendName) -> Backend:
    """The backend, or in its place the default for files that it does not read.

    Raises:
        UnsupportedError: Neither reads it.
    """
    chosen = find(backend)
    if chosen.max_scale(info):
        return chosen
    check_process(info)
    return named("auto")


def _run(reader: Backend, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
    name = type(reader).__name__
    try:
        pixels: Any = reader.decode(data, info, job)
    except ShardStreamError:
        raise
    except Exception as error:  # whatever a user's decoder raises gets the place of the sample, as its other code does
        raise TransformError(
            f"the backend {name} raised {type(error).__name__}: {error}",
            hint="for a damaged file a backend raises ss.errors.DecodeError",
        ) from error
    if isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8:
        return pixels
    given = f"an array of {pixels.dtype.name}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
    raise TransformError(f"the backend {name} returned {given}", hint="a backend returns a uint8 array (H, W, 3)")


def decode_labels(data: Encoded, *, tolerant: bool = False) -> NDArray[Any]:
    """Decode a label map: the stored numbers, not colours.

    Palette images give their indices, grey ones their values (1 bit: 0 and 1; 2 and 4 bits stretched to 0...255 as
    Pillow does; 16 bits as they are). Colour is accepted where the three channels are equal, since WebP knows no grey;
    alpha is dropped.

    Returns:
        (H, W), uint8, uint16 for 16 bits, or int32 for a TIFF of 32.

    Raises:
        DecodeError: A coloured image, or damage as for `decode`.
        MissingExtraError: Pillow is not installed (JPEG needs simplejpeg only).
    """
    info = probe(data)
    check_pixels(info)
    if info.kind == "jpg":
        return _grey(decode_scaled(data, info, tolerant=tolerant))
    labels = pillow.decode_raw(data, info, tolerant=tolerant)
    if labels.shape[:2] != (info.height, info.width):
        raise _misshapen(labels, info)
    return labels if labels.ndim == 2 else _grey(labels)


def decode_frames(data: Encoded) -> NDArray[np.uint8]:
    """Decode all frames or pages of a file, by Pillow: uint8 (N, H, W, 3). One frame where it holds a single picture.

    Raises:
        DecodeError: As of `decode`, or frames of different sizes, or more than `MAX_PIXELS` pixels in all.
        MissingExtraError: Pillow is not installed.
    """
    info = probe(data)
    check_pixels(info)
    check_process(info)
    return pillow.decode_frames(data, info, MAX_PIXELS)


def decode_deep(data: Encoded) -> NDArray[np.uint16]:
    """Decode to 16 bits: uint16 (H, W, 1) of grey, (H, W, 3) of colour. What has 8 bits is widened: 255 to 65535.

    Raises:
        DecodeError: As of `decode`, or values of 32 bits that do not fit.
        MissingExtraError: Pillow is not installed; or OpenCV, for PNG and TIFF with 16-bit colour.
    """
    info = probe(data)
    check_pixels(info)
    check_process(info)
    # Of grey with alpha Pillow keeps 8 bits too.
    by_opencv = info.bit_depth == 16 and info.channels > 1 and info.kind in ("png", "tiff")
    pixels = decode_16_bit_colour(data, info) if by_opencv else pillow.decode_deep(data, info)
    if pixels.shape[:2] != (info.height, info.width):
        raise _misshapen(pixels, info)
    return pixels


def check_pixels(info: ImageInfo) -> None:
    """Refuse images too large to be meant.

    Raises:
        DecodeError: More than `MAX_PIXELS`.
    """
    if info.width * info.height > MAX_PIXELS:
        raise UnsupportedError(
            f"an image of {info.width} x {info.height} pixels, more than {MAX_PIXELS}",
            hint="resize it before packing; images this large are mostly decompression bombs",
        )


def _grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    first = pixels[..., 0]
    if (pixels[..., 1] != first).any() or (pixels[..., 2] != first).any():
        raise UnsupportedError(
            "a coloured image where a label map is needed",
            hint="store labels as a palette or grey PNG, or turn colours into labels with a callable",
        )
    return np.ascontiguousarray(first)
