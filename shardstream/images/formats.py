"""The formats of picture files: those that are read, and those that never are, both known by their first bytes.

What a file is called decides nothing but its field: a GIF in a file called ``a.jpg`` is read as a GIF. Pillow is handed
the one format that the bytes name, so that no file reaches a reader that was not meant for it.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

Encoded: TypeAlias = bytes | bytearray | memoryview
ImageKind: TypeAlias = Literal[
    "jpg", "png", "webp", "gif", "bmp", "tiff", "avif", "jp2", "tga", "ppm", "ico", "heic"
]  # fmt: skip


class Format(NamedTuple):
    """A format of picture files.

    Attributes:
        kind: What we call it; also the field of such files that have no name.
        pillow: What Pillow calls it.
        suffixes: Of its files, without dots, in lower case.
        type: The type of a field whose name ends with such a suffix.
        magic: What its files begin with; none where more than the first bytes are looked at.
    """

    kind: ImageKind
    pillow: str
    suffixes: tuple[str, ...]
    type: str
    magic: tuple[bytes, ...] = ()


FORMATS = (
    Format("jpg", "JPEG", ("jpg", "jpeg"), "jpg", (b"\xff\xd8\xff",)),
    Format("png", "PNG", ("png",), "png", (b"\x89PNG\r\n\x1a\n",)),
    Format("webp", "WEBP", ("webp",), "webp"),
    Format("gif", "GIF", ("gif",), "image", (b"GIF87a", b"GIF89a")),
    Format("bmp", "BMP", ("bmp",), "image", (b"BM",)),
    # With the two that have their byte order the wrong way round, and BigTIFF.
    Format("tiff", "TIFF", ("tif", "tiff"), "image", (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", b"II+\0", b"MM\0+")),
    Format("avif", "AVIF", ("avif",), "image"),
    Format(
        *("jp2", "JPEG2000", ("jp2", "j2k", "j2c", "jpx"), "image"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
    ),
    Format("tga", "TGA", ("tga",), "image"),
    Format("ppm", "PPM", ("ppm", "pgm", "pbm", "pnm"), "image"),
    Format("ico", "ICO", ("ico",), "image", (b"\0\0\1\0",)),
    Format("heic", "HEIF", ("heic", "heif"), "image"),
)
BY_KIND = MappingProxyType({one.kind: one for one in FORMATS})
BY_SUFFIX = MappingProxyType({suffix: one for one in FORMATS for suffix in one.suffixes})

_AVIF = frozenset((b"avif", b"avis"))
_HEIC = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"))
_BRANDS = 64  # of an ISO file that are looked at
_TGA = struct.Struct("<BBBHHBHHHHBB")
_PPM = frozenset(b"123456")
_SPACE = frozenset(b" \t\r\n#")

_PROGRAM = "they are programs, which their reader runs"
_DRAWING = "they hold drawings, not pixels"
_DOCUMENT = "they hold documents, not one picture"
_RARE = "they are too rare to keep a reader open for them"
# What is refused by name: what files begin with, what that is, and why.
_REFUSED: tuple[tuple[bytes, str, str], ...] = (
    (b"%!PS", "EPS", _PROGRAM),
    (b"\xc5\xd0\xd3\xc6", "EPS", _PROGRAM),
    (b"%PDF", "PDF", _DOCUMENT),
    (b"\xd7\xcd\xc6\x9a", "WMF", _DRAWING),
    (b"<svg", "SVG", _DRAWING),
    (b"<?xml", "XML", _DRAWING),
    (b"8BPS", "PSD", _DOCUMENT),
    (b"gimp xcf", "XCF", _DOCUMENT),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "FPX or MIC", _DOCUMENT),
    (b"BLP", "BLP", _RARE),
    (b"BUFR", "BUFR", _RARE),
    (b"DDS ", "DDS", _RARE),
    (b"GRIB", "GRIB", _RARE),
    (b"\x89HDF", "HDF5", _RARE),
    (b"icns", "ICNS", _RARE),
    (b"\0\0\2\0\1\0", "CUR", _RARE),
    (b"SIMPLE", "FITS", _RARE),
    (b"qoif", "QOI", _RARE),
    (b"\0\0\0\x0cJXL ", "JPEG XL", _RARE),
    (b"\xff\x0a", "JPEG XL", _RARE),
    (b"/* XPM */", "XPM", _RARE),
    (b"#define", "XBM", _RARE),
    (b"\x01\xda", "SGI", _RARE),
    (b"\x59\xa6\x6a\x95", "SUN", _RARE),
    (b"\x0a\x05\x01", "PCX", _RARE),
    (b"\xb1\x68\xde\x3a", "DCX", _RARE),
    (b"P0", "PPM of another kind", _RARE),
    (b"P7", "PAM", _RARE),
    (b"Pf", "PFM", _RARE),
    (b"PF", "PFM", _RARE),
)
_SUFFIXES = {
    "eps": ("EPS", _PROGRAM),
    **{name: (name.upper(), _DRAWING) for name in ("wmf", "emf")},
    **{name: (name.upper(), _DOCUMENT) for name in ("psd", "xcf", "fpx")},
}


def format_of(data: Encoded) -> Format | None:
    """The format of a file, by its first bytes; ``None`` if it is none of `FORMATS`.

    >>> format_of(b"GIF89a...").pillow
    'GIF'
    """
    start = bytes(data[:32])
    for one in FORMATS:
        if start.startswith(one.magic):
            return one
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return BY_KIND["webp"]
    if start[4:8] == b"ftyp":
        return _of_brands(data)
    if start[:1] == b"P" and len(start) > 2 and start[1] in _PPM and start[2] in _SPACE:
        return BY_KIND["ppm"]
    return BY_KIND["tga"] if _is_tga(start, len(data)) else None


def _of_brands(data: Encoded) -> Format | None:
    """AVIF or HEIC, by what an ISO base media file says that it is."""
    length = min(int.from_bytes(bytes(data[:4])), 16 + 4 * _BRANDS)
    box = bytes(data[8:length])
    brands = [box[:4], *(box[at : at + 4] for at in range(8, len(box), 4))]
    for brand in brands:  # the main one first
        if brand in _AVIF:
            return BY_KIND["avif"]
        if brand in _HEIC:
            return BY_KIND["heic"]
    return None


def _is_tga(start: bytes, size: int) -> bool:
    """Whether a file can be a TGA, which begins with no mark of its own: by its header, and the size this takes."""
    if len(start) < _TGA.size:
        return False
    numbers: tuple[int, ...] = _TGA.unpack_from(start)
    label, coloured, kind, _, colours, entry, _, _, width, height, depth, flags = numbers
    if coloured > 1 or not (width and height) or flags & 0xC0:
        return False
    if coloured and not (colours and entry in (15, 16, 24, 32)):
        return False
    if depth not in {1: (8,), 2: (16, 24, 32), 3: (1, 8, 16)}.get(kind & 0xF7, ()):
        return False
    pixels = 0 if kind & 8 else (width * depth + 7) // 8 * height  # those of the others are run-length encoded
    return size >= _TGA.size + label + (colours * ((entry + 7) // 8) if coloured else 0) + pixels


def refused(data: Encoded) -> str | None:
    """Why a file that is none of `FORMATS` is refused by name, as a sentence; ``None`` if it is not.

    >>> refused(b"%!PS-Adobe-3.0 EPSF-3.0")
    'EPS files are never opened: they are programs, which their reader runs'
    """
    start = bytes(data[:64])
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[40:44] == b" EMF":
        return _never("EMF", _DRAWING)
    for magic, name, why in _REFUSED:
        if (text if magic[:1] == b"<" else start).startswith(magic):
            return _never(name, why)
    return None


def refused_suffix(suffix: str) -> str | None:
    """Why files with this suffix (without dot, in lower case) are refused by name; ``None`` if they are not.

    Only what names nothing else: a PDF or an SVG may be data of another kind, and MIC a microphone's.
    """
    found = _SUFFIXES.get(suffix)
    return None if found is None else _never(*found)


def _never(name: str, why: str) -> str:
    return f"{name} files are never opened: {why}"
