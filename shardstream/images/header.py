"""Image headers: what a file says about itself, without decoding it.

Of JPEG, PNG and WebP in pure Python, cheap enough for every sample on the hot path (some microseconds); of the other
formats by Pillow. It is also the check that packing does on every image.
Sources: JPEG, ITU-T T.81 annex B; EXIF, CIPA DC-008; PNG, W3C 3rd edition; WebP, RFC 9649.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from shardstream.errors import DecodeError
from shardstream.images.exif import PREAMBLE, XMP_PREAMBLE, orientation
from shardstream.images.formats import Encoded, ImageKind, format_of, refused
from shardstream.images.opening import header
from shardstream.images.unsupported import unsupported
from shardstream.placeholders import find_placeholder

_SEGMENT = struct.Struct(">BBH")
_FRAME = struct.Struct(">BHHB")
_IHDR = struct.Struct(">8sI4sIIBBBBBI")
_CHUNK = struct.Struct(">I4s")
_RIFF_CHUNK = struct.Struct("<4sI")
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# PNG colour type: samples a pixel as stored, allowed bit depths.
_PNG_COLOURS = {0: (1, (1, 2, 4, 8, 16)), 2: (3, (8, 16)), 3: (1, (1, 2, 4, 8)), 4: (2, (8, 16)), 6: (4, (8, 16))}
_PNG_TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt"))
_STANDALONE = frozenset((0x01, *range(0xD0, 0xD8)))  # TEM and RSTn: markers without a length
_NO_SEGMENT = 0, 0, 0
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOFn; DHT, JPG and DAC lie between them
# Segments of a header by B.2.4: frame, tables (DHT, DAC, DQT, DRI), APPn, COM, and the scan. Readers disagree over
# other markers.
SEGMENTS = _FRAMES | {0xC4, 0xCC, 0xDA, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE}
_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
# How far libjpeg-turbo can shrink the files that it decodes, by SOFn. Asked to shrink a lossless one, version 3 writes
# all of its pixels into the smaller buffer, and behind it.
_SCALES = {**dict.fromkeys((0xC0, 0xC1, 0xC2, 0xC9, 0xCA), 8), 0xC3: 1}
LOSSLESS = 3  # of `ImageInfo.sof`
_APP1, _SCAN, _JPEG_LS = 0xE1, 0xDA, 0xF7
_LONGEST_TEXT = 1 << 20  # bytes of a text in a PNG, inflated


class ImageInfo(NamedTuple):
    """What the header of an image says.

    Attributes:
        kind: ``"jpg"``, ``"png"``, ``"webp"``, or another one of `shardstream.images.formats`, by content.
        width: Pixels a row, as stored (before any EXIF orientation).
        height: Rows.
        channels: Samples a pixel as stored: 1 grey or palette index, 2 grey + alpha, 3 colour, 4 colour + alpha
            or CMYK/YCCK (JPEG, TIFF).
        bit_depth: Bits a sample (8; JPEG also 12; PNG 1, 2, 4, 8 or 16; others 1, 8, 16 or 32, as Pillow has them).
        progressive: A progressive JPEG, or an interlaced PNG.
        orientation: EXIF orientation, 1 to 8, as Pillow's ``exif_transpose`` takes it, also from XMP; 1 if there is
            none. A TIFF has none: it is decoded upright, and this size is that of the upright image.
        sof: Number n of a JPEG's frame header SOFn, which names its coding process: 0 baseline, 1 extended,
            2 progressive, 3 lossless, 9 and 10 arithmetic. ``None`` for other formats, and if two readers might find
            different frames: the header has two, bytes outside its segments, or no end.
        max_scale: How far a decoder may shrink the image. 8 for a JPEG of 8 bits whose ``sof`` says that it is coded
            by DCT; 1 for all else, at full size only; 0 for a JPEG that no library here decodes.
    """

    kind: ImageKind
    width: int
    height: int
    channels: int
    bit_depth: int
    progressive: bool
    orientation: int
    sof: int | None = None
    max_scale: int = 1


def probe(data: Encoded) -> ImageInfo:
    """Read an image's header. Nothing is decoded and nothing but the header is checked.

    Args:
        data: The encoded file, a contiguous buffer of bytes. Of a JPEG, PNG or WebP, enough of its beginning is
            enough; all others are looked at by Pillow.

    Raises:
        DecodeError: Not an image of a format that is read, or a damaged or truncated header; ``offset`` says where.
            `UnsupportedError` for a valid image of a kind that isn't read, `PlaceholderError` for a Git LFS pointer or
            a web page.
        MissingExtraError: It is neither JPEG, PNG nor WebP, and what reads it is not installed.

        >>> probe(png_bytes)
        ImageInfo(kind='png', width=640, height=480, channels=3, bit_depth=8, progressive=False, orientation=1, ...)
    """
    start = bytes(data[:12])
    if start[:3] == b"\xff\xd8\xff":
        return _jpeg(data)
    if start[:8] == _PNG_SIGNATURE:
        return _png(data)
    if start[:4] == b"RIFF" and start[8:] == b"WEBP":
        return _webp(data)
    if not start:
        raise _broken("no bytes at all where an image should be", 0)
    return _other(data)


def _other(data: Encoded) -> ImageInfo:
    """The header of whatever Pillow alone reads."""
    found = format_of(data)
    if found is None:
        raise not_read(data)
    width, height, channels, depth, orientation = header(data, found.kind)
    if not (width > 0 and height > 0):
        raise _broken(f"a {found.kind} file of {width} x {height} pixels", 0)
    return ImageInfo(found.kind, width, height, channels, depth, False, orientation)


def jpeg_scan_offset(data: Encoded) -> int:
    """Where the first scan (SOS marker) of a JPEG lies.

    Raises:
        DecodeError: There is none.
    """
    at = 2
    while True:
        at, code, length = _segment(data, at)
        if code == 0xDA:
            return at
        at += 2 + length


def find_refusal(data: Encoded) -> DecodeError | None:
    """The error for a file that is a placeholder, or of a format that is refused by name; ``None`` for any other."""
    known = find_placeholder(data, offset=0)
    what = None if known is not None else refused(data)
    if what is not None:
        return unsupported(what, hint="convert the file to a PNG or a JPEG, or leave it out", offset=0)
    return known


def not_read(data: Encoded) -> DecodeError:
    """The error for a file that is of none of the formats that are read."""
    start = bytes(data[:12]).hex(" ")
    what = f"neither JPEG, PNG nor WebP, nor of another format that is read: begins with {start}"
    return find_refusal(data) or _broken(what, 0)


def _broken(what: str, offset: int) -> DecodeError:
    return DecodeError(what, hint="the file is damaged or no image; replace it or leave it out", offset=offset)


def _segment(data: Encoded, at: int) -> tuple[int, int, int]:
    """The next marker segment of a JPEG: its offset, code and length (0 for markers without one)."""
    size = len(data)
    while at + 4 <= size:
        mark, code, length = _SEGMENT.unpack_from(data, at)
        if mark == 0xFF and 0x00 < code < 0xFF:
            if code in _STANDALONE:
                return at, code, 0
            if code == 0xD9:
                break
            if length < 2:
                raise _broken(f"JPEG segment ff{code:02x} of impossible length {length}", at)
            return at, code, length
        # Fill bytes, or garbage between segments: libjpeg skips it, so do we, in one step.
        if mark != 0xFF or code == 0x00:
            data = data if isinstance(data, bytes) else bytes(data)
            found = data.find(b"\xff", at + 1)
            at = size if found < 0 else found
        else:
            at += 1
    raise _broken("JPEG header ends without a frame (SOF)", min(at, size))


def _jpeg(data: Encoded) -> ImageInfo:
    at, exif, xmp = 2, b"", b""
    info: ImageInfo | None = None
    plain = True  # a chain of segments that all readers walk alike
    end = len(data) - _SEGMENT.size
    while True:
        mark, code, length = _SEGMENT.unpack_from(data, at) if at <= end else _NO_SEGMENT
        if mark != 0xFF or code not in SEGMENTS or length < 2:
            begin = at
            try:
                at, code, length = _segment(data, at)
            except DecodeError:
                if info is None:
                    raise
                code, length, plain = _SCAN, 0, False  # only the beginning of the file is here
            plain = plain and code in SEGMENTS and not bytes(data[begin:at]).strip(b"\xff")  # fill bytes are legal
        if code == _SCAN:
            if info is None:
                raise _broken("JPEG scan (SOS) before any frame (SOF)", at)
            if exif or xmp:
                info = info._replace(orientation=orientation(exif, xmp))
            if not plain:
                return info._replace(sof=None, max_scale=int(info.bit_depth == 8))
            return info if info.sof != LOSSLESS or _is_rgb(data, info.channels, at) else info._replace(max_scale=0)
        if code in _FRAMES:
            plain = plain and info is None
            info = info or _frame(data, at, code, length)
        elif code == _JPEG_LS and info is None:
            raise unsupported("a JPEG-LS file, which is not read", offset=at)
        elif code == _APP1:
            block = bytes(data[at + 4 : at + 2 + length])
            if block.startswith(PREAMBLE):  # a block that one segment cannot hold goes on in the next one
                exif += block[len(PREAMBLE) :] if exif else block
            elif block.startswith(XMP_PREAMBLE):
                xmp = block
        at += 2 + length


def _is_rgb(data: Encoded, channels: int, end: int) -> bool:
    """Whether a lossless JPEG stores its colors as they are: libjpeg-turbo converts no lossless YCbCr or YCCK."""
    at, jfif, transform = 2, False, 0
    while at < end:
        at, code, length = _segment(data, at)
        content = bytes(data[at + 4 : at + 2 + length])
        jfif |= code == 0xE0 and content.startswith(b"JFIF\0")
        if code == 0xEE and content.startswith(b"Adobe") and len(content) >= 12:
            transform = content[11]
        at += 2 + length
    return channels == 1 or not (transform or (jfif and channels == 3))


def _frame(data: Encoded, at: int, code: int, length: int) -> ImageInfo:
    if length < 8 or at + 2 + length > len(data):
        raise _broken("JPEG frame header (SOF) is cut short", at)
    depth, height, width, channels = _FRAME.unpack_from(data, at + 4)
    if not channels or length != 8 + 3 * channels:
        raise _broken(f"JPEG frame header with {channels} components in {length} bytes", at)
    if not 2 <= depth <= 16:
        raise _broken(f"JPEG with {depth} bits a sample", at + 4)
    if width == 0:
        raise _broken(f"JPEG of {width} x {height} pixels", at + 5)
    if height == 0:
        raise unsupported("a JPEG whose height follows its scan (DNL), which is not read", offset=at + 5)
    if channels not in (1, 3, 4):
        raise unsupported(f"a JPEG of {channels} components, which is not read", offset=at)
    scale = _SCALES.get(code, 0) if depth == 8 else 0
    return ImageInfo("jpg", width, height, channels, depth, code in _PROGRESSIVE, 1, code & 0x0F, scale)


def _png(data: Encoded) -> ImageInfo:
    if len(data) < _IHDR.size:
        raise _broken("PNG header is cut short", len(data))
    _, length, name, width, height, depth, colour, compression, filtering, interlace, checksum = _IHDR.unpack_from(data)
    if name == b"CgBI":
        hint = "convert it: pngcrush -revert-iphone-optimizations OLD NEW (or xcrun on a Mac)"
        raise unsupported("a PNG of Apple's own kind (CgBI), which is not read", hint=hint, offset=8)
    if length != 13 or name != b"IHDR":
        raise _broken("PNG does not begin with IHDR", 8)
    if zlib.crc32(data[12:29]) != checksum:
        raise _broken("PNG header with a wrong checksum", 29)
    channels, depths = _PNG_COLOURS.get(colour, (0, ()))
    if depth not in depths or compression or filtering or interlace > 1:
        raise _broken(f"PNG with colour type {colour}, {depth} bits, interlace {interlace}", 24)
    if not (0 < width < 1 << 31 and 0 < height < 1 << 31):
        raise _broken(f"PNG of {width} x {height} pixels", 16)
    return ImageInfo("png", width, height, channels, depth, bool(interlace), _png_orientation(data))


def _png_orientation(data: Encoded) -> int:
    """By the chunks of the first image, also those behind its pixels, as far as they are here."""
    at, size = _IHDR.size, len(data)
    exif, profile, xmp, pixels = b"", b"", b"", False
    while at + 8 <= size:
        length, name = _CHUNK.unpack_from(data, at)
        if name == b"IEND" or (pixels and name == b"fcTL"):
            break
        pixels |= name == b"IDAT"
        if name == b"eXIf":
            exif = PREAMBLE + bytes(data[at + 8 : at + 8 + length])
        elif name in _PNG_TEXTS:
            keyword, text = _png_text(name, bytes(data[at + 8 : at + 8 + length]))
            if keyword == b"XML:com.adobe.xmp":
                xmp = text
            elif keyword == b"Raw profile type exif":
                profile = text
        at += 12 + length
    if profile and not exif:
        try:
            exif = bytes.fromhex(b"".join(profile.split(b"\n")[3:]).decode())
        except ValueError:
            exif = b""
    return orientation(exif, xmp) if exif or xmp else 1


def _png_text(name: bytes, chunk: bytes) -> tuple[bytes, bytes]:
    """Keyword and text of a chunk of text; no text if it is damaged."""
    keyword, _, text = chunk.partition(b"\0")
    compressed = name == b"zTXt"
    if name == b"iTXt":
        compressed = text[:1] != b"\0"
        text = text[2:].split(b"\0", 2)[-1]  # after the language, and the keyword in that
    elif compressed:
        text = text[1:]
    if not compressed:
        return keyword, text
    try:
        return keyword, zlib.decompressobj().decompress(text, _LONGEST_TEXT)
    except zlib.error:
        return keyword, b""


def _webp(data: Encoded) -> ImageInfo:
    head = bytes(data[:30])
    chunk = head[12:16]
    if chunk == b"VP8X" and len(head) == 30:
        width = int.from_bytes(head[24:27], "little") + 1
        height = int.from_bytes(head[27:30], "little") + 1
        flags = head[20]
        return ImageInfo("webp", width, height, 4 if flags & 0x10 else 3, 8, False, _webp_orientation(data, flags))
    if chunk == b"VP8L" and len(head) >= 25 and head[20] == 0x2F:
        bits = int.from_bytes(head[21:25], "little")
        channels = 4 if bits >> 28 & 1 else 3
        return ImageInfo("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, channels, 8, False, 1)
    if chunk == b"VP8 " and len(head) == 30 and head[23:26] == b"\x9d\x01\x2a" and not head[20] & 1:
        width, height = (size & 0x3FFF for size in struct.unpack_from("<HH", head, 26))
        if width and height:
            return ImageInfo("webp", width, height, 3, 8, False, 1)
    raise _broken("WebP header is damaged or cut short", 12)


def _webp_orientation(data: Encoded, flags: int) -> int:
    """By the first chunk of each kind that the header announces."""
    at, size = 12, len(data)
    blocks = {name: b"" for name, flag in ((b"EXIF", 0x08), (b"XMP ", 0x04)) if flags & flag}
    missing = set(blocks)
    while missing and at + 8 <= size:
        name, length = _RIFF_CHUNK.unpack_from(data, at)
        if name in missing:
            blocks[name] = bytes(data[at + 8 : at + 8 + length])
            missing.discard(name)
        at += 8 + length + (length & 1)
    return orientation(blocks.get(b"EXIF", b""), blocks.get(b"XMP ", b""))
