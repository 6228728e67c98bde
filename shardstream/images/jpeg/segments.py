"""What a JPEG's header carries beside the picture: dropped on request, or carried over to a file encoded anew.

Source: ITU-T T.81, B.1.1.4; EXIF (CIPA DC-008), 4.6.4; ICC.1, B.4.
"""

from __future__ import annotations

import struct

from shardstream.images.exif import PREAMBLE, exif_block
from shardstream.images.formats import Encoded
from shardstream.images.header import probe
from shardstream.images.jpeg.scan import APP9, NAME, Unaddressable, read_segments

_APP0, _APP1, _APP2, _APP14, _APP15, _COM = 0xE0, 0xE1, 0xE2, 0xEE, 0xEF, 0xFE
_ICC = b"ICC_PROFILE\0"
_TURN = b"tiff:Orientation"  # in an XMP packet
# Without them a decoder would take other colours, or what we put in could not be undone.
_NEEDED = ((_APP0, b"JFIF\0"), (_APP14, b"Adobe"), (APP9, NAME))


def stripped(data: Encoded) -> bytes:
    """A JPEG file without EXIF, profiles, thumbnails and comments; the pixels and the orientation stay.

    A file whose header is not a plain chain of segments is returned as it is.
    """
    orientation = probe(data).orientation
    chain = _chain(data)
    if chain is None:
        return bytes(data)
    segments, end = chain
    kept = [one for one in segments if not _APP0 <= one[1] <= _APP15 and one[1] != _COM]
    needed = [one for one in segments if any(one[1] == code and one[4:].startswith(name) for code, name in _NEEDED)]
    return b"".join((b"\xff\xd8", *needed, *_turn(orientation), *kept, bytes(data[end:])))


def with_metadata(data: Encoded, source: Encoded, *, exif: bool, profile: bool) -> bytes:
    """A JPEG file with the orientation of another one, and its EXIF block and color profile if asked for."""
    own, chain = _chain(data), _chain(source)
    if own is None:
        return bytes(data)
    segments = [] if chain is None else chain[0]
    carried = [one for one in segments if exif and one[1] == _APP1 and (one[4:].startswith(PREAMBLE) or _TURN in one)]
    carried = carried or _turn(probe(source).orientation)
    carried += [one for one in segments if profile and one[1] == _APP2 and one[4:].startswith(_ICC)]
    first = [one for one in own[0] if one[1] == _APP0]
    rest = [one for one in own[0] if one[1] != _APP0]
    return b"".join((b"\xff\xd8", *first, *carried, *rest, bytes(data[own[1] :])))


def _chain(data: Encoded) -> tuple[list[bytes], int] | None:
    """The segments before the first scan, and its offset; ``None`` where they are not a plain chain."""
    try:
        *found, scan = read_segments(data)
    except Unaddressable:
        return None
    return [bytes(data[one.begin : one.end]) for one in found], scan.begin


def _turn(orientation: int) -> list[bytes]:
    """The segment that says how the image is turned; none if it is upright."""
    if orientation == 1:
        return []
    content = exif_block(orientation)
    return [struct.pack(">BBH", 0xFF, _APP1, 2 + len(content)) + content]
