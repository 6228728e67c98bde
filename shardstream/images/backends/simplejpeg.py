"""simplejpeg: libjpeg-turbo on numpy arrays. The fastest, for JPEG only."""

from __future__ import annotations

import re
from functools import cache, partial
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import MissingExtraError
from shardstream.extras import require
from shardstream.images.backends.contract import Job, NamedBackend, undecodable
from shardstream.images.formats import Encoded
from shardstream.images.geometry import scaled_size
from shardstream.images.header import LOSSLESS, ImageInfo
from shardstream.images.resize import scratch
from shardstream.images.structure import lacks_end
from shardstream.images.unsupported import unsupported

# What libjpeg warns of where no pixel is lost, as of stray bytes before a segment of the header. All else is damage:
# its other warnings, and its errors about a marker in the middle of a scan, behind which it has filled up the rest.
_HARMLESS = re.compile(
    "Unknown Adobe color transform|Warning: unknown JFIF revision|Invalid SOS parameters for sequential"
    "|Corrupt JPEG data: (?:bad ICC|.* before marker 0x(?:c[0-3]|d[bd]|e.|fe))"
)
# Processes and colors that libjpeg-turbo has no code for. Pillow reads some of them.
_UNSUPPORTED = re.compile("^Unsupported|not implemented|Could not determine subsampling")


@cache
def module() -> ModuleType | None:
    """The module, where it is installed."""
    try:
        return _required()
    except MissingExtraError:
        return None


def _required() -> ModuleType:
    return require("simplejpeg", extra="images", purpose="to decode JPEG")


class SimpleJpeg(NamedBackend):
    """Decodes DCT files of gray and RGB.

    Pillow gets CMYK, whose conversion here is some grey levels off, and lossless files, of which gray ones are not read
    here. `decode` takes both all the same.
    """

    def __init__(self) -> None:
        self._library = _required()
        self.library = f"simplejpeg {self._library.__version__}"

    def max_scale(self, info: ImageInfo) -> int:
        return info.max_scale if info.kind == "jpg" and info.channels < 4 and info.sof != LOSSLESS else 0

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        height, width = scaled_size((info.height, info.width), job.scale)
        shape = (height * width * 3,)  # simplejpeg refuses to write more
        buffer = scratch("decoded", shape) if job.reuse else np.empty(shape, np.uint8)
        # The least size and factor together allow this scale only; left alone, it also takes the slow 7/8 ... 3/8.
        least = (height, width, job.scale) if job.scale > 1 else (0, 0, 1)
        decode = self._library.decode_jpeg
        try:
            try:
                pixels = decode(data, "RGB", job.fast, job.fast, *least, buffer)
            except ValueError as error:
                # Strict decoding stops at what libjpeg calls a warning. Lack of data is an error of ours, the rest is
                # not. libjpeg reports its first warning only, so the end marker is looked for as well.
                if not job.tolerant and ("Premature end of JPEG file" in str(error) or lacks_end(data)):
                    raise
                pixels = decode(data, "RGB", job.fast, job.fast, *least, buffer, False)
        except ValueError as error:
            if _UNSUPPORTED.search(str(error)):
                raise unsupported(f"a JPEG that is not read: {error}") from error
            raise undecodable(info, error) from error
        return pixels  # type: ignore[no-any-return]

    def check(self, data: Encoded, info: ImageInfo) -> bool:
        """Decode a file whole, and strictly: where libjpeg warns that pixels are lost, it is damaged.

        At an eighth of its size where it can be, which takes half the time: what is read of the file is the same.

        Returns:
            Whether it was decoded. If not, it is of a kind that is left to others, or libjpeg warned of something else.

        Raises:
            DecodeError: It is damaged.
        """
        scale = max(n for n in (1, 2, 4, 8) if n <= min(info.width, info.height, self.max_scale(info) or 1))
        height, width = scaled_size((info.height, info.width), scale)
        buffer = scratch("decoded", (height * width * 3,))
        least = (height, width, scale) if scale > 1 else (0, 0, 1)
        decode = partial(self._library.decode_jpeg, data, "RGB", True, True, *least, buffer)
        try:
            decode()
        except ValueError as error:
            if _HARMLESS.match(str(error)):
                return False
            try:
                decode(False)
            except ValueError:  # what it refuses whole may be of a kind that it does not know
                return False
            raise undecodable(info, error) from error
        return True
