"""Pixels to image files, for writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError, UsageError
from shardstream.images.backends import pillow, simplejpeg
from shardstream.images.opening import module

if TYPE_CHECKING:
    from PIL.Image import Image

EncodedKind = Literal["jpg", "png", "webp"]
Subsampling = Literal["4:2:0", "4:2:2", "4:4:4"]


def encode(
    image: NDArray[Any] | Image,
    kind: EncodedKind,
    *,
    quality: int = 95,
    subsampling: Subsampling = "4:2:0",
    lossless: bool = False,
) -> bytes:
    r"""Encode an image.

    Args:
        image: uint8 (H, W, 3), (H, W, 4) (PNG, WebP) or (H, W); uint16 (H, W) for PNG; or a PIL image of any mode
            that the file format has (for JPEG it is converted to RGB or grey first).
        kind: ``"jpg"``, ``"png"`` (always lossless) or ``"webp"``.
        quality: 1 to 100, of JPEG and lossy WebP. 95 is where repeated training sees no difference; the size grows
            steeply above.
        subsampling: Of JPEG's colour. 4:2:0 as cameras and the usual data sets have it: it decodes a third faster
            than 4:4:4, which is for graphics and saturated edges.
        lossless: Of WebP.

    Raises:
        FieldError: An array that this format cannot hold.
        MissingExtraError: PNG and WebP need Pillow, JPEG simplejpeg or Pillow.

        >>> encode(np.zeros((4, 4, 3), np.uint8), "png")[:4]
        b'\x89PNG'
    """
    if kind not in ("jpg", "png", "webp"):
        raise UsageError(f"no image kind {kind!r}", hint="use 'jpg', 'png' or 'webp'")
    if not 1 <= quality <= 100:
        raise UsageError(f"quality={quality} is not in 1...100", hint="write quality=95, or leave it out")
    if kind == "jpg":
        return _jpeg(_for_jpeg(image), quality, subsampling)
    picture: Any = image if _is_pil(image) else _to_pil(_checked(image, kind))
    options: dict[str, Any] = {} if kind == "png" else {"quality": quality, "lossless": lossless}
    try:
        return pillow.saved(picture, kind, **options)
    except (OSError, ValueError) as error:  # of a mode or a size that such files do not have
        raise FieldError(
            f"a picture of mode {picture.mode} and {picture.width} x {picture.height} pixels cannot be encoded as "
            f"{kind}: {error}",
            hint="convert it before: picture.convert('RGB')",
        ) from error


def _is_pil(image: object) -> bool:
    return not isinstance(image, np.ndarray) and hasattr(image, "mode") and hasattr(image, "getbands")


def _to_pil(array: NDArray[Any]) -> Any:
    return module().fromarray(np.ascontiguousarray(array))


def _for_jpeg(image: Any) -> NDArray[np.uint8]:
    if _is_pil(image):
        image = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    return _checked(image, "jpg")


def _checked(image: Any, kind: EncodedKind) -> NDArray[Any]:
    if isinstance(image, np.ndarray) and image.size:
        channels = image.shape[2:] or (1,)
        allowed = ((1,), (3,)) if kind == "jpg" else ((1,), (3,), (4,))
        if image.dtype == np.uint8 and image.ndim in (2, 3) and channels in allowed:
            return image[..., 0] if image.shape[2:] == (1,) else image
        if image.dtype.newbyteorder("=") == np.uint16 and image.ndim == 2 and kind == "png":
            return image.astype(np.uint16, copy=False)
        given = f"{image.dtype.name} {list(image.shape)}"
    else:
        given = type(image).__name__
    raise FieldError(
        f"{given} cannot be encoded as {kind}",
        hint="give uint8 (H, W, 3) or (H, W), channels last, or encoded bytes; PNG also takes uint16 (H, W)",
    )


def _jpeg(pixels: NDArray[np.uint8], quality: int, subsampling: str) -> bytes:
    library = simplejpeg.module()
    if library is not None:
        pixels = np.ascontiguousarray(pixels)
        if pixels.ndim == 2:
            data = library.encode_jpeg(pixels[..., None], quality, "GRAY", "Gray")
        else:
            data = library.encode_jpeg(pixels, quality, "RGB", subsampling.replace(":", ""))
        return bytes(data)
    return pillow.saved(_to_pil(pixels), "jpg", quality=quality, subsampling=subsampling)
