"""Image bytes to uint8 RGB pixels.

JPEG goes to simplejpeg (libjpeg-turbo, accurate DCT, fancy upsampling: the pixels that Pillow and torchvision give),
everything else to Pillow. Both release the GIL. With Pillow alone JPEG works too, more slowly.

=====================================  ======================================================================
file                                   becomes
=====================================  ======================================================================
grey (JPEG, PNG)                       three equal channels
palette (PNG)                          its colours; transparency is dropped
alpha (PNG, WebP)                      dropped, not composed: ``Image.convert("RGB")``, as torchvision's loader
16-bit PNG                             scaled: the high byte (Pillow's own ``convert`` clips 16-bit grey)
CMYK, YCCK JPEG                        Pillow's conversion; without Pillow libjpeg-turbo's, some grey levels apart
animation (WebP, PNG)                  the first frame
EXIF orientation                       ignored, as torchvision's ``ImageFolder`` does; `probe` reports it, and
                                       ``upright=True`` of the decoders turns what was decoded
truncated file                         ``DecodeError``, for JPEG also where only the end marker lacks.
                                       ``tolerant=True`` takes what there is of a JPEG or PNG, grey or black below
JPEG damage that libjpeg only warns    decoded as libjpeg does, like Pillow and torchvision. Bytes that changed since
of (bad Huffman code, stray bytes)     they were packed never come this far: their checksum differs
12-bit, lossless JPEG                  ``DecodeError``
more than `MAX_PIXELS`                 ``DecodeError``, before anything is allocated
=====================================  ======================================================================
"""

from __future__ import annotations

import threading
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, MissingExtraError
from shardstream.extras import require
from shardstream.images import pillow
from shardstream.images.geometry import Size, covering_scale, scaled_size
from shardstream.images.header import Encoded, ImageInfo, jpeg_scan_offset, probe

MAX_PIXELS = 178_956_970
"""Images with more pixels are refused, at the size where Pillow refuses them too."""

_SCRATCH_LIMIT = 64 << 20
_scratch = threading.local()


def decode(data: Encoded, *, min_size: Size | None = None, tolerant: bool = False) -> NDArray[np.uint8]:
    """Decode an image file to RGB.

    Args:
        data: A JPEG, PNG or WebP file, told apart by content.
        min_size: (height, width) that the result must have at least: a JPEG is then decoded at the smallest of its
            cheap DCT scales 1, 1/2, 1/4, 1/8 that still is as large (sizes round up). ``None``: full size.
        tolerant: Accept truncated files and fill up what is missing.

    Returns:
        uint8 (H, W, 3), newly allocated.

    Raises:
        DecodeError: See the table of this module.
        MissingExtraError: No decoder for this kind of file is installed.

        >>> decode(jpeg_bytes).shape, decode(jpeg_bytes, min_size=(100, 100)).shape
        ((375, 500, 3), (188, 250, 3))
    """
    info = probe(data)
    scale = 1 if min_size is None else jpeg_scale(info, (info.height, info.width), min_size)
    return decode_scaled(data, info, scale=scale, tolerant=tolerant)


def jpeg_scale(info: ImageInfo, have: Size, want: Size) -> int:
    """The DCT scale 1/n at which ``have`` pixels of this image still cover ``want``; 1 for anything but JPEG."""
    return covering_scale(have, want) if info.kind == "jpg" else 1


def decode_scaled(
    data: Encoded, info: ImageInfo, *, scale: int = 1, tolerant: bool = False, reuse: bool = False
) -> NDArray[np.uint8]:
    """`decode` for callers that have read the header and chosen the DCT scale.

    Args:
        data: The file.
        info: Its header, from `probe`.
        scale: 1, 2, 4 or 8, from `jpeg_scale`: other than 1 for JPEG only, and no larger than a side. Sizes round up.
        tolerant: As for `decode`.
        reuse: Decode into memory that this thread reuses: the pixels are valid until its next call. Fresh memory
            costs a fifth more, for its page faults.

    Returns:
        uint8 (ceil(H / scale), ceil(W / scale), 3).
    """
    check_pixels(info)
    if info.kind == "jpg" and info.bit_depth == 8:
        library = simplejpeg()
        if library is not None and (info.channels < 4 or not pillow.available()):
            return _decode_jpeg(library, data, info, scale, tolerant=tolerant, reuse=reuse)
        if library is None and not pillow.available():
            require("simplejpeg", extra="images", purpose="to decode JPEG")
    return pillow.decode_rgb(data, info, scale=scale, tolerant=tolerant)


def decode_labels(data: Encoded, *, tolerant: bool = False) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Decode a label map: the stored numbers, not colours.

    Palette images give their indices, grey ones their values (1 bit: 0 and 1; 2 and 4 bits stretched to 0...255 as
    Pillow does; 16 bits as they are). Colour is accepted where the three channels are equal, since WebP knows no grey;
    alpha is dropped.

    Returns:
        (H, W), uint8, or uint16 for 16-bit PNG.

    Raises:
        DecodeError: A coloured image, or damage as for `decode`.
        MissingExtraError: Pillow is not installed (JPEG needs simplejpeg only).
    """
    info = probe(data)
    check_pixels(info)
    if info.kind == "jpg":
        return _grey(decode_scaled(data, info, tolerant=tolerant))
    labels = pillow.decode_raw(data, info, tolerant=tolerant)
    return labels if labels.ndim == 2 else _grey(labels)


def check_pixels(info: ImageInfo) -> None:
    """Refuse images too large to be meant.

    Raises:
        DecodeError: More than `MAX_PIXELS`.
    """
    if info.width * info.height > MAX_PIXELS:
        raise DecodeError(
            f"an image of {info.width} x {info.height} pixels, more than {MAX_PIXELS}",
            hint="resize it before packing; sizes like this are mostly damage or decompression bombs",
        )


def _grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    first = pixels[..., 0]
    if (pixels[..., 1] != first).any() or (pixels[..., 2] != first).any():
        raise DecodeError(
            "a coloured image where a label map is needed",
            hint="store labels as a palette or grey PNG, or turn colours into labels with a callable",
        )
    return np.ascontiguousarray(first)


@cache
def simplejpeg() -> ModuleType | None:
    """The module, where it is installed."""
    try:
        return require("simplejpeg", extra="images", purpose="to decode JPEG")
    except MissingExtraError:
        return None


def _buffer(size: int) -> NDArray[np.uint8] | None:
    """This thread's decode buffer of at least ``size`` bytes; ``None`` for sizes not worth keeping."""
    held: NDArray[np.uint8] | None = getattr(_scratch, "buffer", None)
    if held is not None and held.size >= size:
        return held
    if size > _SCRATCH_LIMIT:
        return None
    _scratch.buffer = held = np.empty(1 << (size - 1).bit_length(), np.uint8)
    return held


def _decode_jpeg(
    library: ModuleType, data: Encoded, info: ImageInfo, scale: int, *, tolerant: bool, reuse: bool
) -> NDArray[np.uint8]:
    height, width = scaled_size((info.height, info.width), scale)
    buffer = _buffer(height * width * 3) if reuse else None
    # The least size and factor together allow this scale only; left alone, simplejpeg also takes the slow 7/8 ... 3/8.
    least = (height, width, scale) if scale > 1 else (0, 0, 1)
    try:
        try:
            pixels = library.decode_jpeg(data, "RGB", False, False, *least, buffer)
        except ValueError as error:
            # Strict decoding stops at what libjpeg calls a warning. Lack of data is an error of ours, the rest is not.
            if not tolerant and _is_truncated(data, error):
                raise
            pixels = library.decode_jpeg(data, "RGB", False, False, *least, buffer, False)
    except ValueError as error:
        if pillow.available():
            return pillow.decode_rgb(data, info, scale=scale, tolerant=tolerant)
        raise DecodeError(f"a JPEG that does not decode: {error}", hint=pillow.DAMAGED) from error
    if pixels.shape != (height, width, 3):
        raise DecodeError(
            f"a JPEG of {info.width} x {info.height} pixels decoded to {pixels.shape[1]} x {pixels.shape[0]}",
            hint=pillow.DAMAGED,
        )
    return pixels  # type: ignore[no-any-return]


def _is_truncated(data: Encoded, error: ValueError) -> bool:
    # libjpeg reports its first warning only, so the end marker is looked for as well.
    return "Premature end of JPEG file" in str(error) or bytes(data).rfind(b"\xff\xd9") < jpeg_scan_offset(data)
