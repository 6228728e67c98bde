"""Orientation: what every legal encoding of the tag means is what Pillow's ``exif_transpose`` does with it."""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from PIL import Image as Pillow
from PIL import ImageOps

from shardstream.decode import CenterCrop, Image
from shardstream.images.header import probe
from shardstream.images.jpeg.segments import stripped
from shardstream.images.shrink import shrink

from .making import made

TYPES = {1: "B", 2: "B", 3: "H", 4: "I", 5: "II", 6: "b", 7: "B", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d", 13: "I"}
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def value(order: str, kind: int, numbers) -> bytes:
    return b"".join(struct.pack(order + TYPES[kind], number, *([1] * (kind in (5, 10)))) for number in numbers)


def tiff(order: str, entries, *, at: int = 8, swapped: bool = False) -> bytes:
    """A TIFF block: its directory at ``at``, values of more than four bytes behind it."""
    head = {"<": (b"II*\0", b"II\0*"), ">": (b"MM\0*", b"MM*\0")}[order][swapped]
    table, outside = struct.pack(order + "H", len(entries)), b""
    behind = at + 2 + 12 * len(entries) + 4
    for tag, kind, numbers in entries:
        data = value(order, kind, numbers)
        count = len(data) // struct.calcsize(order + TYPES[kind])
        table += struct.pack(order + "HHI", tag, kind, count)
        if len(data) > 4:
            table += struct.pack(order + "I", behind + len(outside))
            outside += data
        else:
            table += data.ljust(4, b"\0")
    return (head + struct.pack(order + "I", at)).ljust(at, b"\xa5") + table + b"\0\0\0\0" + outside


def turned(number: int = 6, order: str = ">") -> bytes:
    return tiff(order, [(0x0112, 3, [number])])


def xmp(number: int = 8, form: str = 'tiff:Orientation="{}"') -> bytes:
    return b"<x:xmpmeta><rdf:Description " + form.format(number).encode() + b"/></x:xmpmeta>"


def saved(kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    Pillow.fromarray(PIXELS).save(buffer, kind, **options)
    return buffer.getvalue()


def app1(*blocks: bytes) -> bytes:
    return b"".join(b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block for block in blocks)


EXIF, XAP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"


def jpeg(*blocks: bytes, before: bytes = b"", place: str = "SOI") -> bytes:
    """A JPEG with APP1 segments; ``before`` comes in front of them."""
    data = saved("JPEG")
    at = {"SOI": 2, "SOF": data.index(b"\xff\xc0"), "SOS": data.index(b"\xff\xda")}[place]
    return data[:at] + before + app1(*blocks) + data[at:]


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(*chunks: bytes, place: bytes = b"IDAT") -> bytes:
    data = saved("PNG")
    at = data.index(place) - 4
    return data[:at] + b"".join(chunks) + data[at:]


def webp(*chunks: tuple[bytes, bytes], flags: int) -> bytes:
    data = saved("WEBP", lossless=True)
    head = struct.pack("<4sIB3x", b"VP8X", 10, flags) + (29).to_bytes(3, "little") + (19).to_bytes(3, "little")
    body = b"WEBP" + head + data[12:]
    body += b"".join(name + struct.pack("<I", len(one)) + one + b"\0" * (len(one) & 1) for name, one in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def raw_profile(block: bytes) -> bytes:
    return b"\nexif\n%8d\n%s\n" % (len(block), block.hex().encode())


LARGE = tiff(">", [(0x010F, 2, b"x" * 9), (0x0112, 3, [7])], at=40)
FILES = {
    "jpeg, not first": jpeg(EXIF + turned(), before=b"\xff\xe0\0\x10JFIF\0\1\1" + bytes(7) + b"\xff\xfe\0\4ab"),
    "jpeg, fill bytes": jpeg(EXIF + turned(5), before=b"\xff\xff\xff"),
    "jpeg, two blocks": jpeg(EXIF + turned(6), EXIF + turned(3)),
    "jpeg, two blocks, the second turns": jpeg(EXIF + tiff("<", [(0x010F, 2, b"abc")]), EXIF + turned(6)),
    "jpeg, one block in two segments": jpeg(EXIF + LARGE[:41], EXIF + LARGE[41:]),
    "jpeg, preamble twice": jpeg(EXIF + EXIF + turned(4)),
    "jpeg, behind the frame": jpeg(EXIF + turned(8), place="SOF"),
    "jpeg, in front of the scan": jpeg(EXIF + turned(8), place="SOS"),
    "jpeg, xmp": jpeg(XAP + xmp(6)),
    "jpeg, xmp as an element": jpeg(XAP + xmp(5, "><tiff:Orientation>{}</tiff:Orientation><x")),
    "jpeg, xmp out of range": jpeg(XAP + xmp(9)),
    "jpeg, xmp in front of exif": jpeg(XAP + xmp(8), EXIF + turned(6)),
    "jpeg, xmp and exif without the tag": jpeg(EXIF + tiff("<", [(0x010F, 2, b"abc")]), XAP + xmp(8)),
    "jpeg, xmp and exif out of range": jpeg(EXIF + turned(0), XAP + xmp(8)),
    "jpeg, another APP1": jpeg(b"EXIF\0\0" + turned(6)),
    "jpeg, empty": jpeg(EXIF),
    "png": png(chunk(b"eXIf", turned(6))),
    "png, behind the pixels": png(chunk(b"eXIf", turned(6)), place=b"IEND"),
    "png, twice": png(chunk(b"eXIf", turned(6)), chunk(b"eXIf", turned(3))),
    "png, with preamble": png(chunk(b"eXIf", EXIF + turned(6))),
    "png, profile": png(chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(raw_profile(EXIF + turned(7))))),
    "png, profile as text": png(chunk(b"tEXt", b"Raw profile type exif\0" + raw_profile(EXIF + turned(7)))),
    "png, profile and eXIf": png(
        chunk(b"eXIf", turned(6)), chunk(b"tEXt", b"Raw profile type exif\0" + raw_profile(EXIF + turned(7)))
    ),
    "png, xmp": png(chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(6))),
    "png, xmp compressed": png(
        chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0en\0x\0" + zlib.compress(xmp(5))), place=b"IEND"
    ),
    "webp": webp((b"EXIF", turned(6)), flags=8),
    "webp, preamble": webp((b"EXIF", EXIF + turned(6)), flags=8),
    "webp, not announced": webp((b"EXIF", turned(6)), flags=0),
    "webp, xmp": webp((b"XMP ", xmp(7)), flags=4),
    "webp, both": webp((b"XMP ", xmp(7)), (b"EXIF", turned(8)), flags=12),
    "webp, twice": webp((b"EXIF", turned(2)), (b"EXIF", turned(8)), flags=8),
    "tiff": saved("TIFF", tiffinfo={0x0112: 6}),
    "tiff, xmp": saved("TIFF", tiffinfo={700: xmp(6)}),
}


def by_pillow(data: bytes) -> np.ndarray:
    with warnings.catch_warnings(), Pillow.open(io.BytesIO(data)) as image:
        warnings.simplefilter("ignore")
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def field_of(data: bytes) -> str:
    kind = probe(data).kind
    return kind if kind in ("jpg", "png", "webp") else "image"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("backend", ["simplejpeg", "pillow", "opencv"])
def test_upright_images_and_crops_of_every_encoding_are_pillows(name, backend, sample):
    data = FILES[name]
    upright = by_pillow(data)
    field = field_of(data)
    fields = {
        field: Image(upright=True, backend=backend),
        "crop": CenterCrop((7, 11), source=field, upright=True, backend=backend),
    }
    got = made(fields, {field: data}, sample())
    assert np.array_equal(got[field], upright)
    top, left = round((upright.shape[0] - 7) / 2), round((upright.shape[1] - 11) / 2)
    assert np.array_equal(got["crop"], upright[top : top + 7, left : left + 11])


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("tiff")])
@pytest.mark.parametrize("metadata", [False, True])
def test_the_orientation_stays_in_smaller_and_stripped_files(name, metadata):
    data = FILES[name]
    info = probe(data)
    small = shrink(data, 15, quality=90, metadata=metadata)
    assert small is not None
    assert probe(small).orientation == info.orientation
    if info.kind == "jpg":
        assert probe(stripped(data)).orientation == info.orientation


ENTRIES = st.tuples(
    st.sampled_from((0x010F, 0x0112, 0x0112, 0x011A)),
    st.sampled_from(sorted(TYPES)),
    st.lists(st.integers(0, 9), max_size=3),
)


@example("<", [(0x0112, 4, [6])], 8, False)
@example(">", [(0x0112, 1, [6])], 8, False)
@example(">", [(0x0112, 3, [6, 3, 1])], 8, False)
@example("<", [(0x0112, 3, [6])], 9, True)
@example(">", [(0x0112, 3, [0]), (0x0112, 3, [6])], 300, False)
@example(">", [(0x010F, 12, [1, 2, 3]), (0x0112, 3, [6])], 8, False)
@given(st.sampled_from("<>"), st.lists(ENTRIES, max_size=3), st.integers(8, 60), st.booleans())
def test_any_type_count_and_place_of_the_tag_is_read_as_pillow_does(order, entries, at, swapped):
    repeated = len({tag for tag, _, _ in entries}) < len(entries)
    assume(not repeated or int(Pillow.__version__.partition(".")[0]) >= 13)  # older ones take the last
    data = jpeg(EXIF + tiff(order, entries, at=at, swapped=swapped), XAP + xmp(4))
    with warnings.catch_warnings(), Pillow.open(io.BytesIO(data)) as image:
        warnings.simplefilter("ignore")
        stored = image.getexif().get(0x0112, 1)
    assert probe(data).orientation == dict(zip(range(2, 9), range(2, 9), strict=True)).get(stored, 1)
