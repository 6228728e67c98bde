"""imageio: Pillow behind another interface, for those whose other code reads images with it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.extras import require
from shardstream.images.backends.contract import DAMAGED, Job, NamedBackend
from shardstream.images.backends.pillow import FAILURES
from shardstream.images.header import Encoded, ImageInfo


class ImageIo(NamedBackend):
    """Full size only: imageio has no way to Pillow's ``draft``."""

    def __init__(self) -> None:
        self._library = require("imageio.v3", extra="imageio", purpose='for backend="imageio"')
        self._version = require("imageio", extra="imageio", purpose='for backend="imageio"').__version__

    @property
    def library(self) -> str:
        return f"imageio {self._version}"

    def max_scale(self, info: ImageInfo) -> int:
        return 1

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        try:
            pixels: NDArray[np.uint8] = self._library.imread(bytes(data), index=0, plugin="pillow", mode=_mode(info))
        except FAILURES as error:
            raise DecodeError(f"a {info.kind} file that does not decode: {error}", hint=DAMAGED) from error
        if pixels.ndim == 2:
            return np.repeat((pixels >> 8).astype(np.uint8)[..., None], 3, axis=2)
        return np.ascontiguousarray(pixels[..., :3])


def _mode(info: ImageInfo) -> str | None:
    """What Pillow is to convert to: nothing for 16-bit grey, which it would clip."""
    if info.kind == "png" and info.channels == 1:
        # Dropping a palette's transparency in one step works too, but warns.
        return None if info.bit_depth == 16 else "RGBA"
    return "RGB"
