"""What a decoder of images has to offer, ours or a user's."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.images.formats import Encoded
from shardstream.images.header import LOSSLESS, ImageInfo
from shardstream.images.opening import damaged
from shardstream.images.unsupported import unsupported

BackendName: TypeAlias = Literal["auto", "simplejpeg", "pillow", "opencv", "torchvision", "imageio", "accimage"]


class Job(NamedTuple):
    """How one file is to be decoded.

    Attributes:
        scale: 1, 2, 4 or 8, never more than the backend's ``max_scale``: the result is as large as the image divided
            by it, rounded up.
        tolerant: Fill up what a truncated file lacks. A backend that cannot raises ``DecodeError`` as ever, and
            ``"auto"`` takes the file.
        reuse: The caller is done with the pixels before it asks this thread for others, so they may lie in memory
            that is used again. Else they must be the caller's own.
        fast: The caller takes less accurate pixels of a JPEG where they come sooner: the fast DCT, colour that is
            repeated and not interpolated. A backend that has no such choice decodes as ever.

    Example:
        >>> Job(scale=2)
        Job(scale=2, tolerant=False, reuse=False, fast=False)
    """

    scale: int = 1
    tolerant: bool = False
    reuse: bool = False
    fast: bool = False


@runtime_checkable
class Backend(Protocol):
    """A library that decodes images; an object of your own will do. Pickled to workers, used by several threads.

    Example:
        >>> class Grey:
        ...     def max_scale(self, info):
        ...         return 1 if info.kind == "png" else 0
        ...     def decode(self, data, info, job):
        ...         return np.full((info.height, info.width, 3), 128, np.uint8)
        >>> ds = ss.ShardDataset("out/", reads=ss.ReadOptions(backend=Grey()))
    """

    def max_scale(self, info: ImageInfo) -> int:
        """How far it can shrink such a file while decoding.

        Args:
            info: What the file's header says.

        Returns:
            8, 4 or 2: it decodes at 1/8, 1/4, 1/2 and so on down to full size, more cheaply (a JPEG's DCT scales);
            1: at full size only; 0: it does not read such files, and ``"auto"`` does in its place. More than
            ``info.max_scale`` is never asked for.
        """

    def decode(self, data: Encoded, info: ImageInfo, job: Job) -> NDArray[np.uint8]:
        """Decode a file that `max_scale` did not turn down.

        Args:
            data: The file: bytes or a read-only buffer of them.
            info: Its header. Its size was checked against `shardstream.images.backends.MAX_PIXELS`.
            job: How.

        Returns:
            uint8 (ceil(H / scale), ceil(W / scale), 3), RGB, by the rules of the table in
            `shardstream.images.backends`.

        Raises:
            DecodeError: The file is damaged. Whatever else is raised ends the iteration, also under
                ``on_error="skip"``.
        """


class NamedBackend(Backend, Protocol):
    """One of those that have a name; making it raises ``MissingExtraError`` where its library is not installed.

    Attributes:
        library: The library with its version.
    """

    library: str


_PROCESSES: dict[int | None, str] = {
    **dict.fromkeys((LOSSLESS, 11), "lossless "),
    **dict.fromkeys((5, 6, 7, 13, 14, 15), "hierarchical "),
}


def check_process(info: ImageInfo) -> None:
    """Refuse a JPEG that no library decodes.

    Raises:
        UnsupportedError: It is hierarchical, lossless with colors as YCbCr, or has other than 8 bits a sample.
    """
    if not info.max_scale:
        colors = " with colors as YCbCr" if info.sof == LOSSLESS and info.bit_depth == 8 else ""
        raise unsupported(f"a {_PROCESSES.get(info.sof, '')}{info.bit_depth}-bit JPEG{colors}, which is not read")


def undecodable(info: ImageInfo, why: object) -> DecodeError:
    """The error for a damaged file."""
    return damaged(info.kind, why)
