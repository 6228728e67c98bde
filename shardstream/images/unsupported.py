"""Valid images of kinds that decoders here do not read: what a file is, where a decoder has refused it."""

from __future__ import annotations

import re
import struct

from shardstream.errors import UnsupportedError
from shardstream.images.formats import Encoded, ImageKind
from shardstream.images.tiff import BITS, COMPRESSION, HEIGHT, SAMPLE_FORMAT, WIDTH, tiff_tags

_CONVERT = "convert the file to an 8- or 16-bit PNG, or an 8-bit JPEG; or leave it out"
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
    what = _tiff(data) if kind == "tiff" and header else None
    if what is None and _REFUSED.search(str(why)):
        what = f"a {kind} file of a kind that is not read: {why}"
    return None if what is None else unsupported(what)


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
