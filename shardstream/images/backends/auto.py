"""``auto``: simplejpeg for JPEG, Pillow for the rest. With Pillow alone JPEG works too, more slowly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, MissingExtraError
from shardstream.images.backends.contract import BackendName, Job, NamedBackend
from shardstream.images.backends.pillow import Pillow
from shardstream.images.backends.simplejpeg import SimpleJpeg
from shardstream.images.header import Encoded, ImageInfo


class Auto(NamedBackend):
    """Reads every file, with what is installed. A JPEG that simplejpeg refuses gets a second chance with Pillow."""

    def __init__(self) -> None:
        self._jpeg: SimpleJpeg | None
        self._rest: Pillow | None
        try:
            self._jpeg = SimpleJpeg()
        except MissingExtraError:
            self._jpeg = None
        try:
            self._rest = Pillow()
        except MissingExtraError:
            self._rest = None

    @property
    def library(self) -> str:
        """What it takes files to."""
        return " and ".join(one.library for one in (self._jpeg, self._rest) if one is not None) or "nothing installed"

    def takes(self, info: ImageInfo) -> BackendName:
        """The backend that gets such a file first, installed or not."""
        if info.kind != "jpg" or info.bit_depth != 8:
            return "pillow"
        return "simplejpeg" if self._rest is None or (self._jpeg is not None and info.channels < 4) else "pillow"

    def max_scale(self, info: ImageInfo) -> int:
        return 8 if info.kind == "jpg" and info.bit_depth == 8 else 1

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        if self.takes(info) == "simplejpeg":
            try:
                return (self._jpeg or SimpleJpeg()).decode(data, info, job)
            except DecodeError:
                if self._rest is None:
                    raise
        return (self._rest or Pillow()).decode(data, info, job)
