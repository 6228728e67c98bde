"""torchvision's own JPEG decoder (``torchvision.io``), at full size only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, MissingExtraError
from shardstream.extras import require
from shardstream.images.backends.contract import DAMAGED, Job, NamedBackend
from shardstream.images.header import Encoded, ImageInfo


class TorchVision(NamedBackend):
    """Only JPEG: a damaged PNG ends the process with a segmentation fault (seen with 0.29.2)."""

    def __init__(self) -> None:
        try:
            self._library = require("torchvision", extra="torchvision", purpose='for backend="torchvision"')
            self._io = require("torchvision.io", extra="torchvision", purpose='for backend="torchvision"')
        except RuntimeError as error:  # its operators need the very build of torch that it was compiled for
            raise MissingExtraError(
                f"torchvision is installed, but does not go with this torch ({error})",
                hint="install the torchvision that belongs to this version and build of torch",
            ) from error
        import torch

        self._torch = torch

    @property
    def library(self) -> str:
        return f"torchvision {self._library.__version__}"

    def max_scale(self, info: ImageInfo) -> int:
        return 1 if info.kind == "jpg" and info.bit_depth == 8 else 0

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        # torch takes read-only memory with a warning only, so the file is copied.
        encoded = self._torch.frombuffer(bytearray(data), dtype=self._torch.uint8)
        try:
            planes = self._io.decode_jpeg(encoded, mode=self._io.ImageReadMode.RGB)
        except RuntimeError as error:
            raise DecodeError(f"a JPEG that does not decode: {error}", hint=DAMAGED) from error
        pixels: NDArray[np.uint8] = planes.permute(1, 2, 0).contiguous().numpy()
        return pixels
