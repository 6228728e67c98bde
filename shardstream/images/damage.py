"""Whether a picture file is damaged, as packing and ``verify`` ask: by its structure, or by decoding all of it."""

from __future__ import annotations

from shardstream.images.backends import check_pixels, decode_scaled, simplejpeg
from shardstream.images.formats import Encoded
from shardstream.images.header import ImageInfo
from shardstream.images.structure import check_structure


def check_damage(data: Encoded, info: ImageInfo, *, decode: bool) -> None:
    """Refuse a damaged picture file.

    Args:
        data: The file.
        info: Its header, from `probe`.
        decode: Decode it whole besides, as readers do by default, and take for damage what they would refuse, and what
            libjpeg fills up with a warning.

    Raises:
        DecodeError: It is damaged; or has more than `MAX_PIXELS`, and would have been decoded.
        MissingExtraError: Nothing that decodes it is installed.

        >>> from shardstream.images.header import probe
        >>> check_damage(jpeg_bytes, probe(jpeg_bytes), decode=True)
    """
    check_structure(data, info)
    if not decode:
        return
    check_pixels(info)
    if info.kind == "jpg" and simplejpeg.module() is not None:
        backend = simplejpeg.SimpleJpeg()
        if backend.max_scale(info) and backend.check(data, info):
            return
    decode_scaled(data, info, reuse=True)
