"""Valid images of kinds that decoders here do not read: what a file is, where a decoder has refused it."""

from __future__ import annotations

import re
import struct

from shardstream.errors import UnsupportedError
from shardstream.images.formats import Encoded, ImageKind
from shardstream.images.tiff import BITS, COMPRESSION, HEIGHT, SAMPLE_FORMAT, WIDTH, tiff_tags

_CONVERT = "convert the file to an 8- or 16-bit PNG, or an 8-bit JPEG; or leave it out"
_SEGMENT = struct.Struct(">BBH")
# Coding processes of ITU-T T.81, table B.1, that Pillow does not read.
_PROCESSES = {
    **dict.fromkeys((0xC3, 0xCB), "lossless"),
    **dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF), "hierarchical"),
}
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_NO_LENGTH = frozenset((0x01, 0xFF, *range(0xD0, 0xDA)))
_FORMS = {1: "unsigned", 2: "signed", 3: "float", 4: "untyped", 5: "complex integer", 6: "complex float"}
# What Pillow and the libraries below it say of files that they understand and do not read.
_REFUSED = re.compile(
    r"unsupported|not supported|unknown (\w+ )?mode|cannot handle|not implemented|bad configuration|not available",
    re.IGNORECASE,
)


def unsupported(what: str, *, hint: str = _CONVERT, offset: int | None = None) -> UnsupportedError:
    """The error for a valid image that is not read."""
    return UnsupportedError(what, hint=hint, offset=offset)


def find_unsupported(data: Encoded, kind: ImageKind, why: object, *, header: bool) -> UnsupportedError | None:
    """The error for a file that Pillow refused, if it is a valid one of a kind that is not read.

    Args:
        data: The file.
        kind: Its format.
        why: What Pillow said.
        header: Whether it was the header that Pillow did not understand.
    """
    what = None
    if kind == "jpg":
        what = _jpeg(data)
    elif kind == "tiff" and header:
        what = _tiff(data)
    if what is None and _REFUSED.search(str(why)):
        what = f"a {kind} file of a kind that is not read: {why}"
    return None if what is None else unsupported(what)


def _jpeg(data: Encoded) -> str | None:
    """A JPEG by its frame; ``None`` for one that every decoder reads, or without a frame."""
    at = 2
    while at + 5 <= len(data):
        mark, code, length = _SEGMENT.unpack_from(data, at)
        if mark != 0xFF or code in _NO_LENGTH:
            at += 1
        elif code in _FRAMES:
            bits, process = data[at + 4], _PROCESSES.get(code)
            if bits == 8 and process is None:
                return None
            return f"a {process + ' ' if process else ''}{bits}-bit JPEG, which is not read"
        else:
            at += 2 + length
    return None


def _tiff(data: Encoded) -> str | None:
    """A TIFF by its tags; ``None`` if they are not all there."""
    try:
        tags = tiff_tags(data)
        samples = ", ".join(str(bits) for bits in tags.get(BITS, [1]))
        form = _FORMS.get(int(tags.get(SAMPLE_FORMAT, [1])[0]), "unknown")
        compression = int(tags.get(COMPRESSION, [1])[0])
        if not (tags[WIDTH][0] and tags[HEIGHT][0]):
            return None
    except (KeyError, struct.error, ValueError, OverflowError):
        return None
    return f"a TIFF of {form} samples of {samples} bits, compression {compression}, which is not read"
