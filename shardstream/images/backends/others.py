"""OpenCV, torchvision, imageio and accimage: the libraries that decode only where they are named."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import MissingExtraError
from shardstream.extras import require
from shardstream.images.backends.contract import Job, NamedBackend, undecodable
from shardstream.images.formats import Encoded
from shardstream.images.header import LOSSLESS, ImageInfo
from shardstream.images.opening import FAILURES
from shardstream.images.structure import lacks_end

_KINDS = ("png", "webp")  # read besides JPEG; Pillow reads the others, as it is told to


def _dct_scale(info: ImageInfo) -> int:
    """`Backend.max_scale` of a library that decodes JPEG: 0 for lossless ones, some of which have no gray."""
    return info.max_scale if info.kind == "jpg" and info.sof != LOSSLESS else 0


class OpenCv(NamedBackend):
    """JPEG, PNG and WebP. Left alone, OpenCV turns images by EXIF orientation and gives BGR; both are switched off."""

    def __init__(self) -> None:
        self._library = cv2 = require("cv2", extra="opencv", purpose='for backend="opencv"')
        self.library = f"OpenCV {cv2.__version__}"
        rgb = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        # The documented reduced flags are the reduction's own bit (that of the grey ones) and IMREAD_COLOR, which is
        # BGR and may not go together with IMREAD_COLOR_RGB.
        self._flags = {
            1: rgb,
            2: rgb | cv2.IMREAD_REDUCED_GRAYSCALE_2,
            4: rgb | cv2.IMREAD_REDUCED_GRAYSCALE_4,
            8: rgb | cv2.IMREAD_REDUCED_GRAYSCALE_8,
        }

    def max_scale(self, info: ImageInfo) -> int:
        return _dct_scale(info) or int(info.kind in _KINDS)

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        encoded = np.frombuffer(data, np.uint8)
        try:
            pixels: NDArray[np.uint8] | None = self._library.imdecode(encoded, self._flags[job.scale])
        except self._library.error as error:
            raise undecodable(info, error) from error
        if pixels is None:
            raise undecodable(info, "OpenCV does not say why")
        return pixels


def decode_deep(data: Encoded, info: ImageInfo) -> NDArray[np.uint16]:
    """Decode a PNG or TIFF with 16-bit colour, of which Pillow keeps 8 bits only, by OpenCV: uint16 (H, W, 1 or 3)."""
    cv2 = require("cv2", extra="opencv", purpose='for dtype="uint16" of pictures with 16-bit colour')
    flags = cv2.IMREAD_ANYDEPTH | cv2.IMREAD_COLOR  # BGR: with IMREAD_COLOR_RGB, a TIFF of 16 bits comes out wrong
    if info.kind == "png":  # a TIFF is turned upright by everybody
        flags |= cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels: NDArray[Any] | None = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise undecodable(info, error) from error
    if pixels is None or pixels.dtype != np.uint16:
        raise undecodable(info, "OpenCV does not read its 16 bits")
    return np.ascontiguousarray(pixels[..., :1] if info.channels < 3 else pixels[..., ::-1])


class TorchVision(NamedBackend):
    """Full size only, and only JPEG: a damaged PNG ends the process with a segmentation fault (seen with 0.29.2)."""

    def __init__(self) -> None:
        try:
            found = require("torchvision", extra="torchvision", purpose='for backend="torchvision"')
            self._io = require("torchvision.io", extra="torchvision", purpose='for backend="torchvision"')
        except RuntimeError as error:  # its operators need the very build of torch that it was compiled for
            raise MissingExtraError(
                f"torchvision is installed, but does not go with this torch ({error})",
                hint="install the torchvision that belongs to this version and build of torch",
            ) from error
        import torch

        self._torch = torch
        self.library = f"torchvision {found.__version__}"

    def max_scale(self, info: ImageInfo) -> int:
        return min(1, _dct_scale(info))

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        # torch takes read-only memory with a warning only, so the file is copied.
        encoded = self._torch.frombuffer(bytearray(data), dtype=self._torch.uint8)
        try:
            planes = self._io.decode_jpeg(encoded, mode=self._io.ImageReadMode.RGB)
        except RuntimeError as error:
            raise undecodable(info, error) from error
        pixels: NDArray[np.uint8] = planes.permute(1, 2, 0).contiguous().numpy()
        return pixels


class ImageIo(NamedBackend):
    """Pillow behind another interface, at full size only: imageio has no way to Pillow's ``draft``."""

    def __init__(self) -> None:
        self._library = require("imageio.v3", extra="imageio", purpose='for backend="imageio"')
        self.library = f"imageio {importlib.import_module('imageio').__version__}"

    def max_scale(self, info: ImageInfo) -> int:
        return int(info.kind in _KINDS or _dct_scale(info) > 0)

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        mode: str | None = "RGB"
        if info.kind == "png" and info.channels == 1:
            # Dropping a palette's transparency in one step works too, but warns. 16-bit grey is taken as it is: Pillow
            # would clip it.
            mode = None if info.bit_depth == 16 else "RGBA"
        try:
            pixels: NDArray[np.uint8] = self._library.imread(bytes(data), index=0, plugin="pillow", mode=mode)
        except FAILURES as error:
            raise undecodable(info, error) from error
        if pixels.ndim == 2:
            return np.repeat((pixels >> 8).astype(np.uint8)[..., None], 3, axis=2)
        return np.ascontiguousarray(pixels[..., :3])


class AccImage(NamedBackend):
    """libjpeg-turbo and Intel's IPP, which torchvision's ``set_image_backend`` knows. On no package index.

    Its interface since 0.2: ``Image(bytes)`` with ``channels``, ``height``, ``width`` and ``copyto``.
    """

    library = "accimage"  # which does not know its version

    def __init__(self) -> None:
        try:
            self._library = importlib.import_module("accimage")
        except ImportError as error:
            raise MissingExtraError(
                f'accimage is needed for backend="accimage", but cannot be imported ({error})',
                hint="no package index has it: build version 0.2 or newer from github.com/pytorch/accimage",
            ) from error

    def max_scale(self, info: ImageInfo) -> int:
        return min(1, _dct_scale(info)) if info.channels < 4 else 0

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        if not job.tolerant and lacks_end(data):  # libjpeg fills up what is missing, and only warns
            raise undecodable(info, "it has no end")
        try:
            image = self._library.Image(bytes(data))
        except OSError as error:
            raise undecodable(info, error) from error
        planes = np.empty((image.channels, image.height, image.width), np.uint8)
        image.copyto(planes)
        return np.ascontiguousarray(planes.transpose(1, 2, 0))
