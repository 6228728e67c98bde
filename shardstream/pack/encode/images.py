"""What becomes of image files as they are packed: made smaller, stripped, made addressable, or kept."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

from shardstream.errors import DecodeError, MissingExtraError, UnsupportedError, UsageError
from shardstream.extras import require
from shardstream.faults import fault_kind
from shardstream.images import opening
from shardstream.images.backends import simplejpeg
from shardstream.images.damage import check_damage
from shardstream.images.formats import Encoded, format_of
from shardstream.images.header import ImageInfo, not_read, probe
from shardstream.images.jpeg.segments import stripped
from shardstream.images.jpeg.transcode import DEFAULT_WIDTH, make_addressable
from shardstream.images.shrink import shrink
from shardstream.options import PACK, check_choices, option
from shardstream.pack.sources.base import File
from shardstream.sizes import size as told_size

Jpeg: TypeAlias = Literal["addressable", "keep"]
Damaged: TypeAlias = Literal["reject", "keep"]
Check: TypeAlias = Literal["header", "decode"]
DEFAULT_QUALITY = 90
"""Of images that ``max_side`` makes smaller: 10 % larger than at 85, and nearly as good to look at as 95."""


DECODING_S = 60.0
"""Processor time that decoding an image of `DEFAULT_MAX_PIXELS` may take: the slowest formats take a third of it."""
ANY_PIXELS = 65_535**2
DEFAULT_MAX_PIXELS = 89_478_485
"""Pillow's limit, a quarter of a GiB at three bytes a pixel: a file of kilobytes can claim to hold any number."""
_PIXEL = 16
"""Bytes that a pixel of a JPEG file takes at most: four channels of 16 bits, twice."""
_BESIDE = 256 << 20
"""Bytes that may stand beside the pixels of a JPEG file: profiles, a depth map, the video of a motion photo."""
_CHANGING = (*PACK, "repack")
"""The verbs that change images."""


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """What becomes of images, as ``images=`` of `pack`, `repack`, and `ShardWriter`, which takes ``check`` alone.

    Attributes:
        jpeg: ``"addressable"`` rewrites JPEG files, losslessly, so that a crop costs only its own decoding; any decoder
            reads them, and the original can be had back to the byte. Files for which that cannot be done (progressive,
            CMYK, ...) are kept, and counted in the report. ``"keep"`` stores all files as they are. Default:
            ``"addressable"``; of `repack`, ``"keep"``.
        max_side: Make larger images smaller, to this many pixels of the longer side: filtered, and encoded anew; gray
            and palette PNG, which may hold labels, by nearest pixel centers. Default: as large as they are.
        quality: Of JPEG and WebP files made smaller by ``max_side``, 1 to 100. Default 90.
        strip: Drop EXIF (but for the orientation), color profiles and comments of JPEG files.
        check: How damaged pictures are found. ``"header"`` (default) sees files that are cut short, and what is not a
            picture, at no cost to speak of. ``"decode"`` decodes every picture as well, and takes for damage what
            readers would refuse, or fill up with gray (``docs/packing.md`` says what it costs). Not for `repack`.
        max_pixels: Images of more pixels are rejected: a file of kilobytes can claim to hold any number. The default is
            Pillow's limit, for 256 MiB in memory.
        segment_width: Pixels across of the parts that can be decoded alone, about: they divide a row of the image
            evenly. Narrower ones cut crops closer and take more bytes: 64 takes 2 to 3 % (``docs/jpeg.md``).

    Raises:
        UsageError: A value that is not allowed.

    Example:
        >>> images = ss.ImageOptions(max_side=512, quality=85)
    """

    jpeg: Jpeg | None = option(
        None,
        "addressable rewrites JPEG files, losslessly, so that crops decode alone; keep does not. "
        "(default: addressable; repack: keep)",
        verbs=_CHANGING,
    )
    max_side: int | None = option(
        None,
        "Make larger images smaller, to this longer side; they are encoded anew.",
        metavar="PIXELS",
        verbs=_CHANGING,
    )
    quality: int | None = option(None, "Of images made smaller, 1 to 100. (default: 90)", metavar="N", verbs=_CHANGING)
    strip: bool = option(False, "Drop EXIF, profiles and comments of JPEG files.", verbs=_CHANGING)
    check: Check = option(
        "header",
        "How damage is found: header sees files that are cut short, decode decodes every picture.",
        verbs=(*PACK, "ShardWriter"),
    )
    max_pixels: int = option(DEFAULT_MAX_PIXELS, "Reject images of more pixels.", metavar="PIXELS", verbs=_CHANGING)
    segment_width: int = option(
        DEFAULT_WIDTH, "Pixels across of what can be decoded alone.", metavar="PIXELS", verbs=_CHANGING
    )

    def __post_init__(self) -> None:
        check_choices(self)
        _check_number("segment_width", self.segment_width, 8, 65_535)
        _check_number("max_pixels", self.max_pixels, 1, ANY_PIXELS)
        if self.max_side is not None:
            _check_number("max_side", self.max_side, 1, 65_535)
        if self.quality is not None:
            _check_number("quality", self.quality, 1, 100)
            if self.max_side is None:
                raise UsageError(
                    "`quality` without `max_side` changes nothing",
                    hint="images=ImageOptions(max_side=..., quality=...), or leave `quality` out",
                )


@dataclass(frozen=True, kw_only=True)
class ImageHandling(ImageOptions):
    """What becomes of images as they are packed: options, and what becomes of damaged ones.

    Attributes:
        damaged: ``"reject"`` damaged files, or ``"keep"`` them as they are.

    Raises:
        UsageError: A value that is not allowed.
    """

    damaged: Damaged = "reject"

    @classmethod
    def of(cls, options: ImageOptions, damaged: Damaged) -> ImageHandling:
        """The same options, JPEG files being addressable unless they say otherwise."""
        return cls(**vars(options) | {"jpeg": options.jpeg or "addressable", "damaged": damaged})

    @classmethod
    def as_found(cls, damaged: Damaged, check: Check = "header") -> ImageHandling:
        """Files of any size, stored as they are found, but for damaged ones."""
        return cls(jpeg="keep", max_pixels=ANY_PIXELS, damaged=damaged, check=check)

    @property
    def unchanged(self) -> ImageHandling:
        """The same for files that are stored as they are, for a time."""
        check = self.check if self.damaged == "reject" else "header"
        return replace(self, jpeg="keep", max_side=None, quality=None, strip=False, check=check)

    @property
    def unchecked(self) -> ImageHandling:
        """The same for files that were decoded before."""
        return replace(self, check="header")

    def check_packages(self) -> None:
        """Say early which package is missing, whatever there is to pack."""
        if self.max_side is not None:
            require("PIL.Image", extra="pillow", purpose="to make images smaller")

    @property
    def lacks_numba(self) -> bool:
        """Whether JPEG files are to be rewritten, and numba is not there to do it."""
        return self.jpeg == "addressable" and find_spec("numba") is None  # to import it takes half a second

    def check_values(self, values: Iterable[object]) -> None:
        """Say that numba is missing, if one of these values is a JPEG file that it is to rewrite.

        Args:
            values: Of samples: contents of files, or files by their names. Looked at only where there is no numba.
        """
        if self.lacks_numba and any(map(_is_jpeg, values)):
            require(
                "numba", extra="pack", purpose="to make JPEG files addressable (ImageOptions(jpeg='keep') does without)"
            )

    @property
    def identity(self) -> dict[str, Any]:
        """JSON of what changes a byte of the data set."""
        found: dict[str, Any] = {"jpeg": self.jpeg}
        if self.jpeg == "addressable":
            found["segment_width"] = self.segment_width
        if self.strip:
            found["strip"] = True
        if self.max_pixels != DEFAULT_MAX_PIXELS:
            found["max_pixels"] = self.max_pixels
        if self.max_side is not None:
            found |= {"max_side": self.max_side, "quality": self.quality or DEFAULT_QUALITY}
        if self.damaged != "reject":
            found["damaged"] = self.damaged
        if self.check != "header":
            found["check"] = self.check
        return found

    @property
    def decoding(self) -> ImageDecoding | None:
        """The part of `prepare` that decodes, which is done in another process; ``None``: nothing is decoded."""
        if self.check != "decode" and self.max_side is None:
            return None
        return ImageDecoding(
            self.check == "decode",
            self.max_side,
            self.quality or DEFAULT_QUALITY,
            not self.strip,
            DECODING_S * max(1.0, self.max_pixels / DEFAULT_MAX_PIXELS),
        )

    def check_start(self, start: bytes, size: int) -> None:
        """Refuse a large image file by its first bytes, before all of it is read. Small ones are read at once.

        Args:
            start: Its first bytes, some 64 KB.
            size: Bytes of all of it.

        Raises:
            DecodeError: It is no image, or too large for one of so many pixels.
        """
        if self.damaged != "reject":
            return
        kind = format_of(start)
        if kind is None:
            raise not_read(start)
        if kind.kind != "jpg":  # others may have any number of frames
            return
        try:
            info = probe(start)
        except DecodeError:  # what comes before the image may be longer than this
            return
        self._check_pixels(info)
        if size > info.width * info.height * _PIXEL + _BESIDE:
            raise DecodeError(f"{told_size(size)} are too many for an image of {info.width} × {info.height} pixels")

    def _check_pixels(self, info: ImageInfo) -> None:
        if info.width * info.height > self.max_pixels:
            raise UnsupportedError(
                f"the image has {info.width} × {info.height} pixels, more than max_pixels={self.max_pixels}"
            )

    def prepare(self, data: bytes) -> Generator[bytes, bytes | None, tuple[bytes, str | None]]:
        """An image file as it is to be stored.

        A generator: it yields what `decoding` is to be called with, and is sent the result, or thrown the error.

        Returns:
            The file; and for JPEG ``"addressable"``, or what kind of file was kept as it is. ``None`` for other files,
            and where that was not asked for. For a file of any kind that would have been rejected, its `FaultKind`.

        Raises:
            DecodeError: It is not an image, is damaged, or has too many pixels.
            MissingExtraError: A package is not installed that is needed to look at it.
        """
        try:
            info = probe(data)
        except (DecodeError, MissingExtraError) as error:
            return self._kept(data, error)
        self._check_pixels(info)
        try:
            if self.decoding is None:
                check_damage(data, info, decode=False)
                smaller = None
            else:
                smaller = yield data
            return self._rewritten(data if smaller is None else smaller, info)
        except DecodeError as error:
            return self._kept(data, error)

    def _kept(self, data: bytes, error: DecodeError | MissingExtraError) -> tuple[bytes, str | None]:
        """A file that is damaged, or cannot be looked at here: as it is, or the error."""
        if self.damaged == "reject":
            raise error
        return data, fault_kind(error) if isinstance(error, DecodeError) else None

    def _rewritten(self, data: bytes, info: ImageInfo) -> tuple[bytes, str | None]:
        if info.kind != "jpg":
            return data, None
        if self.strip:
            data = stripped(data)
        if self.jpeg == "keep":
            return data, None
        return make_addressable(data, width=self.segment_width)


@dataclass(frozen=True, slots=True)
class ImageDecoding:
    """Decode an image file, to see whether it is damaged or to make it smaller.

    Attributes:
        check: Whether to decode all of it.
        max_side: As of `ImageOptions`.
        quality: As of `ImageOptions`.
        metadata: As of `shrink`.
        seconds: Processor time that it may take: a heap that a decoder has overrun may keep it busy for ever.
    """

    check: bool = True
    max_side: int | None = None
    quality: int = DEFAULT_QUALITY
    metadata: bool = True
    seconds: float = DECODING_S

    def __call__(self, data: Encoded) -> bytes | None:
        """The smaller file; ``None`` if it stays as it is.

        Raises:
            DecodeError: It is damaged.
            MissingExtraError: A package is not installed that decodes it.
        """
        check_damage(data, probe(data), decode=self.check)
        if self.max_side is None:
            return None
        return shrink(data, self.max_side, quality=self.quality, metadata=self.metadata)

    def prepare(self) -> None:
        """Import the decoders that most files take."""
        simplejpeg.module()
        with suppress(MissingExtraError):
            opening.module()

    def ended(self, how: str) -> DecodeError:
        """The error for a file over which the decoder crashed."""
        return DecodeError(f"decoding it {how}", hint="leave the file out, and report it to the decoder's maintainers")


def _is_jpeg(value: object) -> bool:
    if isinstance(value, File):
        return value.path.lower().endswith((".jpg", ".jpeg"))
    return isinstance(value, bytes | memoryview) and bytes(value[:2]) == b"\xff\xd8"


def _check_number(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(
            f"{name} must be an integer from {low} to {high}, got {value!r}", hint="leave it out for the default"
        )
