"""OpenCV: JPEG, PNG and WebP, through one call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.extras import require
from shardstream.images.backends.contract import DAMAGED, Job, NamedBackend
from shardstream.images.header import Encoded, ImageInfo


class OpenCv(NamedBackend):
    """Left alone, OpenCV turns images by their EXIF orientation and gives BGR; both is asked off."""

    def __init__(self) -> None:
        self._library = cv2 = require("cv2", extra="opencv", purpose='for backend="opencv"')
        rgb = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        # The documented reduced flags are the reduction's own bit (that of the grey ones) and IMREAD_COLOR, which is
        # BGR and may not go together with IMREAD_COLOR_RGB.
        self._flags = {
            1: rgb,
            2: rgb | cv2.IMREAD_REDUCED_GRAYSCALE_2,
            4: rgb | cv2.IMREAD_REDUCED_GRAYSCALE_4,
            8: rgb | cv2.IMREAD_REDUCED_GRAYSCALE_8,
        }

    @property
    def library(self) -> str:
        return f"OpenCV {self._library.__version__}"

    def max_scale(self, info: ImageInfo) -> int:
        return 8 if info.kind == "jpg" else 1

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        try:
            pixels: NDArray[np.uint8] | None = self._library.imdecode(
                np.frombuffer(data, np.uint8), self._flags[job.scale]
            )
        except self._library.error as error:
            raise DecodeError(f"a {info.kind} file that does not decode: {error}", hint=DAMAGED) from error
        if pixels is None:
            raise DecodeError(f"a {info.kind} file that does not decode: OpenCV does not say why", hint=DAMAGED)
        return pixels
