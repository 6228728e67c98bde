"""``ImageFile``: an encoded image of which parts are decoded, at the price of the part where the file allows that.

An addressable JPEG (`shardstream.images.jpeg`) is cut before it is decoded. The pixels are those of a full decode, bit
for bit, at every DCT scale: the margin for the smoothing of chroma grows with the scale.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.images import backends
from shardstream.images.backends import Backend, BackendName
from shardstream.images.formats import Encoded
from shardstream.images.geometry import Box, scaled_size
from shardstream.images.header import ImageInfo, probe
from shardstream.images.jpeg.cutting import MARGIN, Addressable, CutJpeg, read

_SEQUENTIAL = (0, 1)  # SOFn of the processes that an addressable JPEG may have
_WHOLE = 0.9
"""From this share of the image on, cutting costs more than it saves."""


class CutFunction(Protocol):
    """`Addressable.cut` as a function."""

    def __call__(self, file: Addressable, box: Box, /, *, margin: int) -> CutJpeg:
        """A rectangle of a file as a small file."""


cut: CutFunction = Addressable.cut
"""Who records what takes how long has another one here meanwhile, which is timed."""


class ImagePart(NamedTuple):
    """A part of an image as a file that can be decoded alone, or the whole.

    Attributes:
        data: The file.
        info: What its header says.
        origin: Row and column of the image, at the scale it is to be decoded at, at which it begins.
    """

    data: Encoded
    info: ImageInfo
    origin: tuple[int, int]


class Region(NamedTuple):
    """Decoded pixels that hold a rectangle.

    Attributes:
        pixels: uint8 (H, W, 3).
        origin: Row and column of the image, at this scale, at which they begin.
    """

    pixels: NDArray[np.uint8]
    origin: tuple[int, int]


class ImageFile:
    """An image file with its header read; kept while parts of it are decoded.

    Args:
        data: A JPEG, PNG or WebP file.

    Raises:
        DecodeError: The header is damaged.

        >>> ImageFile(jpeg_bytes).decode(Box(10, 20, 270, 300)).pixels.shape  # not addressable
        (375, 500, 3)
    """

    def __init__(self, data: Encoded) -> None:
        self.data = data
        self.info = probe(data)
        self._addressable: Addressable | None = None
        self._read = self.info.sof not in _SEQUENTIAL

    def decode(
        self,
        box: Box,
        *,
        scale: int = 1,
        tolerant: bool = False,
        fast: bool = False,
        backend: Backend | BackendName = "auto",
    ) -> Region:
        """Decode what a rectangle needs, into memory that this thread reuses at its next call.

        Args:
            box: Lies in the image decoded at this scale, as from `excerpt`.
            scale: DCT scale 1, 2, 4 or 8, from `backends.jpeg_scale`.
            tolerant: Accept truncated files and fill up what is missing.
            fast: Take less accurate pixels of a JPEG, where they come sooner.
            backend: The library that decodes. It gets the piece that was cut out as a file of its own.

        Raises:
            DecodeError: The file is damaged.
        """
        part = self.part(box, scale=scale, tolerant=tolerant)
        return decode_part(part, scale=scale, tolerant=tolerant, fast=fast, backend=backend)

    def part(self, box: Box, *, scale: int = 1, tolerant: bool = False) -> ImagePart:
        """What has to be decoded for a rectangle; the arguments as of `decode`.

        Raises:
            DecodeError: The file is damaged.
        """
        info = self.info
        height, width = scaled_size((info.height, info.width), scale)
        if box.height * box.width < _WHOLE * height * width:
            addressable = self._cuttable(tolerant=tolerant)
            if addressable is not None:
                data, held = cut(addressable, _full(box, scale, info), margin=MARGIN * scale)
                origin = held.top // scale, held.left // scale  # segments begin at multiples of 8
                return ImagePart(data, info._replace(height=held.height, width=held.width), origin)
        return ImagePart(self.data, info, (0, 0))

    def _cuttable(self, *, tolerant: bool) -> Addressable | None:
        if not self._read:
            try:
                self._addressable = read(self.data)
            except DecodeError:
                if not tolerant:
                    raise
            self._read = True
        return self._addressable


def decode_part(
    part: ImagePart,
    *,
    scale: int = 1,
    tolerant: bool = False,
    fast: bool = False,
    backend: Backend | BackendName = "auto",
) -> Region:
    """Decode a part, into memory that this thread reuses at its next call; the arguments as of `ImageFile.decode`.

    Raises:
        DecodeError: The file is damaged.
    """
    data, info, origin = part
    pixels = backends.decode_scaled(data, info, scale=scale, tolerant=tolerant, reuse=True, fast=fast, backend=backend)
    return Region(pixels, origin)


def _full(box: Box, scale: int, info: ImageInfo) -> Box:
    """The box at full scale, as far as the image goes."""
    top, left = box.top * scale, box.left * scale
    return Box(top, left, min(info.height - top, box.height * scale), min(info.width - left, box.width * scale))
