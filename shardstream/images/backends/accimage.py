"""accimage: libjpeg-turbo and Intel's IPP, which torchvision's ``set_image_backend`` knows. On no package index."""

from __future__ import annotations

import importlib

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, MissingExtraError
from shardstream.images.backends.contract import DAMAGED, Job, NamedBackend, lacks_end
from shardstream.images.header import Encoded, ImageInfo


class AccImage(NamedBackend):
    """Its interface since 0.2: ``Image(bytes)`` with ``channels``, ``height``, ``width`` and ``copyto``."""

    def __init__(self) -> None:
        try:
            self._library = importlib.import_module("accimage")
        except ImportError as error:
            raise MissingExtraError(
                f'accimage is needed for backend="accimage", but cannot be imported ({error})',
                hint="no package index has it: build version 0.2 or newer from github.com/pytorch/accimage",
            ) from error

    @property
    def library(self) -> str:
        """The library, which does not know its version."""
        return "accimage"

    def max_scale(self, info: ImageInfo) -> int:
        return 1 if info.kind == "jpg" and info.bit_depth == 8 and info.channels < 4 else 0

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        if not job.tolerant and lacks_end(data):  # libjpeg fills up what is missing, and only warns
            raise DecodeError("a JPEG that does not decode: it has no end", hint=DAMAGED)
        try:
            image = self._library.Image(bytes(data))
        except OSError as error:
            raise DecodeError(f"a JPEG that does not decode: {error}", hint=DAMAGED) from error
        planes = np.empty((image.channels, image.height, image.width), np.uint8)
        image.copyto(planes)
        return np.ascontiguousarray(planes.transpose(1, 2, 0))
