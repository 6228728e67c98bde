"""What is seen of damage without decoding, and what is not taken for damage."""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image, features

from shardstream.errors import DecodeError
from shardstream.images.backends import decode
from shardstream.images.damage import check_damage
from shardstream.images.formats import format_of
from shardstream.images.header import probe
from shardstream.images.structure import check_structure, damage_of
from shardstream.testing.pictures import photo, save

JPEG = ("baseline", "progressive", "thumbnail", "restarts")
PNG = ("PNG", "palette", "interlaced", "APNG")
WEBP = ("WebP", "lossless", "animated", "alpha")
KINDS = (*JPEG, *PNG, *WEBP)


def whole(data: bytes) -> None:
    """Raise where a file is found to be damaged by its structure."""
    check_structure(data, probe(data))


@cache
def picture(kind: str) -> bytes:
    """A good file of each kind."""
    small = Image.fromarray(photo(48, 64))
    frames = [Image.fromarray(photo(48, 64, seed)) for seed in (1, 2)]
    match kind:
        case "baseline":
            return save(small, "JPEG")
        case "progressive":
            return save(small, "JPEG", progressive=True)
        case "thumbnail":
            return with_thumbnail(save(small, "JPEG"), save(small.resize((16, 12)), "JPEG"))
        case "restarts":
            return save(small, "JPEG", restart_marker_blocks=1)
        case "PNG":
            return save(small, "PNG")
        case "palette":
            return save(small.convert("P"), "PNG")
        case "interlaced":
            return interlaced()
        case "APNG":
            return save(small, "PNG", save_all=True, append_images=frames)
        case "WebP":
            return save(small, "WEBP")
        case "lossless":
            return save(small, "WEBP", lossless=True)
        case "animated":
            return save(small, "WEBP", save_all=True, append_images=frames)
        case _:
            return save(small.convert("RGBA"), "WEBP")


def with_thumbnail(data: bytes, thumbnail: bytes) -> bytes:
    """A JPEG with a whole one inside of its EXIF segment."""
    content = b"Exif\0\0" + thumbnail
    return data[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(content)) + content + data[2:]


def interlaced() -> bytes:
    """An Adam7 PNG of 2 x 2 grey pixels, which Pillow cannot write."""
    rows = b"\0\1" + b"\0\2" + b"\0\3\4"
    header = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_file_is_whole(kind: str) -> None:
    data = picture(kind)
    decode(data)  # it is one
    whole(data)
    check_damage(data, probe(data), decode=True)
    check_structure(memoryview(data), probe(data))


@given(kind=st.sampled_from(KINDS), share=st.floats(0, 1, exclude_max=True), trailing=st.binary(max_size=40))
@example(kind="baseline", share=0.9999999, trailing=b"")
@example(kind="PNG", share=0.9999999, trailing=b"")
@example(kind="WebP", share=0.9999999, trailing=b"")
def test_a_file_that_is_cut_short_anywhere_is_found(kind: str, share: float, trailing: bytes) -> None:
    data = picture(kind)
    with pytest.raises(DecodeError):
        whole(data[: int(share * len(data))])
    whole(data + trailing)  # but bytes behind the end are no damage


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_lacks_its_last_bytes_is_found(kind: str) -> None:
    data = picture(kind)
    for missing in range(1, 24):
        with pytest.raises(DecodeError, match="truncated"):
            whole(data[:-missing])


@pytest.mark.parametrize(
    "trailer",
    [b"\0" * 4000, picture("baseline"), picture("baseline")[:300], b"\xff" * 7, b"SEFH\x6a\0\0\0SEFT"],
    ids=["zeros", "MPO", "half of a second picture", "fill", "Samsung"],
)
def test_what_cameras_append_is_no_damage(trailer: bytes) -> None:
    data = picture("thumbnail") + trailer
    decode(data)
    whole(data)


def test_a_real_mpo_file() -> None:
    buffer = io.BytesIO()
    frames = [Image.fromarray(photo(48, 64, seed)) for seed in (1, 2, 3)]
    frames[0].save(buffer, "MPO", save_all=True, append_images=frames[1:])
    whole(buffer.getvalue())
    whole(buffer.getvalue()[:-50])  # the first picture, which is the one that is read, is there


def test_fill_bytes_before_markers_are_no_damage() -> None:
    data = picture("baseline")
    scan = data.index(b"\xff\xda")
    filled = data[:scan] + b"\xff\xff\xff" + data[scan:-2] + b"\xff\xff\xff" + data[-2:]
    decode(filled)
    whole(filled)


def test_an_arithmetic_file() -> None:
    """One that nothing here decodes is judged by its markers all the same."""
    data = picture("baseline").replace(b"\xff\xc0", b"\xff\xc9", 1)
    whole(data)
    with pytest.raises(DecodeError, match="no end marker"):
        whole(data[:-2])


def test_a_cut_behind_the_thumbnail_of_a_truncated_file_is_found() -> None:
    data = picture("thumbnail")
    end = data.index(b"\xff\xd9")
    with pytest.raises(DecodeError):
        whole(data[: end + 2])
    zeros = data[: end + 600] + bytes(len(data) - end - 600)  # a download that filled up its file
    with pytest.raises(DecodeError, match="truncated"):
        whole(zeros)


def test_png_without_pixels_and_with_stray_bytes() -> None:
    data = picture("interlaced")
    with pytest.raises(DecodeError, match="no pixels"):
        whole(data[: data.index(b"IDAT") - 4] + chunk(b"IEND", b""))
    stray = data[: data.index(b"IEND") - 4] + b"stray bytes" + data[data.index(b"IEND") - 4 :]
    decode(stray)
    whole(stray)


def test_a_wrong_checksum_of_png_pixels_is_no_damage_for_pillow_nor_here() -> None:
    data = bytearray(picture("interlaced"))
    data[data.index(b"IEND") - 5] ^= 1
    decode(bytes(data))
    whole(bytes(data))


def test_webp_of_odd_size() -> None:
    files = (save(photo(47, 63, seed), "WEBP", lossless=True) for seed in range(99))
    odd = next(data for data in files if struct.unpack_from("<I", data, 16)[0] % 2)
    decode(odd)
    whole(odd)
    with pytest.raises(DecodeError, match="truncated"):
        whole(odd[:-1])  # the byte that pads its last chunk; libwebp refuses it, too
    with pytest.raises(DecodeError):
        decode(odd[:-1])


@pytest.mark.parametrize(
    ("kind", "begin", "end"), [("baseline", 60, 100), ("progressive", 20, 40), ("restarts", 60, 100)]
)
def test_decoding_finds_what_libjpeg_only_warns_of(kind: str, begin: int, end: int) -> None:
    data = picture(kind)
    at = data.index(b"\xff\xda")
    broken = data[: at + begin] + data[at + end :]
    whole(broken)
    with pytest.raises(DecodeError, match="does not decode"):
        check_damage(broken, probe(broken), decode=True)


@pytest.mark.parametrize("marker", [b"\xff\x7b", b"\xff\xc4\xff\xc4", b"\xff\xdb\0\4\x0f\0"])
def test_decoding_finds_a_marker_in_the_middle_of_a_scan(marker: bytes) -> None:
    """libjpeg fills up the rest with grey, and then says what it thinks of the marker, not that pixels are lost."""
    data = picture("baseline")
    at = data.index(b"\xff\xda") + 300
    broken = data[:at] + marker + data[at + len(marker) :]
    whole(broken)
    with pytest.raises(DecodeError, match="does not decode"):
        check_damage(broken, probe(broken), decode=True)


def test_decoding_takes_no_warning_about_headers_for_damage() -> None:
    data = picture("baseline")
    unknown = data.replace(b"JFIF\0\1", b"JFIF\0\7", 1)
    stray = data.replace(b"\xff\xdb", b"junk\xff\xdb", 1)
    for one in (unknown, stray):
        assert one != data
        check_damage(one, probe(one), decode=True)


@cache
def other(kind: str) -> bytes:
    """A good file of a format that Pillow alone reads."""
    small = Image.fromarray(photo(48, 64))
    frames = [Image.fromarray(photo(48, 64, seed)) for seed in (1, 2)]
    match kind.split("-"):
        case ["GIF", "animated"]:
            return save(small, "GIF", save_all=True, append_images=frames)
        case ["BMP", mode]:
            return save(small.convert(mode), "BMP")
        case ["TIFF", "1"]:
            return save(small.convert("1"), "TIFF", compression="group4")
        case ["TIFF", "pages"]:
            return save(small, "TIFF", save_all=True, append_images=frames)
        case ["TIFF", compression]:
            return save(small, "TIFF", compression=compression)
        case ["BigTIFF", compression]:
            return save(small, "TIFF", compression=compression, big_tiff=True)
    return save(small, kind)


OTHERS = ["GIF", "GIF-animated", *(f"BMP-{mode}" for mode in ("RGB", "L", "P", "1")), "TIFF", "TIFF-pages"]
LIBTIFF = features.check("libtiff")  # Pillow-SIMD may be built without
OTHERS += ["TIFF-1", "TIFF-tiff_lzw", "TIFF-jpeg", "TIFF-packbits", "BigTIFF-tiff_lzw"] if LIBTIFF else []
OTHERS += ["BigTIFF-raw"]
OTHERS += ["AVIF"] if "avif" in features.get_supported() else []


def found(data: bytes, kind: str) -> str | None:
    known = format_of(other(kind))
    assert known is not None
    return damage_of(data, known.kind)


def opens(data: bytes) -> bool:
    """Whether Pillow decodes it."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except Exception:  # whatever Pillow's readers raise
        return False
    return True


@pytest.mark.parametrize("kind", OTHERS)
def test_other_formats(kind: str) -> None:
    data = other(kind)
    assert found(data, kind) is None
    assert found(data + b"\1 something behind its end", kind) is None
    assert found(memoryview(data), kind) is None  # type: ignore[arg-type] # as stored values come
    for share in (0.1, 0.2, 0.3):  # before the end of the first of several pages
        assert "truncated" in str(found(data[: int(share * len(data))], kind))


@given(kind=st.sampled_from([kind for kind in OTHERS if kind != "GIF-animated"]), missing=st.integers(3, 4000))
def test_what_pillow_decodes_is_never_taken_for_damage(kind: str, missing: int) -> None:
    """But for an animation that is cut behind its first picture."""
    data = other(kind)
    cut = data[: max(30, len(data) - missing)]
    assert not (opens(cut) and found(cut, kind))


def test_a_gif_without_its_trailer_lacks_no_pixel() -> None:
    assert found(other("GIF")[:-1], "GIF") is None
    assert found(other("GIF")[:-3], "GIF") is not None


@pytest.mark.skipif(not LIBTIFF, reason="this Pillow writes no compressed TIFF")
def test_a_tiff_tag_without_a_value_raises_nothing() -> None:
    data = bytearray(other("TIFF-tiff_lzw"))
    at = data.index(struct.pack("<HHI", 259, 3, 1))  # its compression
    struct.pack_into("<I", data, at + 4, 0)
    assert found(bytes(data), "TIFF") is None


@given(data=st.binary(max_size=80), kind=st.sampled_from(OTHERS))
def test_rubbish_raises_nothing(data: bytes, kind: str) -> None:
    found(other(kind)[:8] + data, kind)
    found(data, kind)
