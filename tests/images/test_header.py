from __future__ import annotations

import io
import struct
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from shardstream.errors import DecodeError, UnsupportedError
from shardstream.images.header import ImageInfo, jpeg_scan_offset, probe


def picture(mode: str, kind: str, size: tuple[int, int] = (37, 21), **options) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("mode", "kind", "options", "expected"),
    [
        ("RGB", "JPEG", {}, ("jpg", 37, 21, 3, 8, False, 1, 0, 8)),
        ("RGB", "JPEG", {"progressive": True}, ("jpg", 37, 21, 3, 8, True, 1, 2, 8)),
        ("L", "JPEG", {}, ("jpg", 37, 21, 1, 8, False, 1, 0, 8)),
        ("CMYK", "JPEG", {}, ("jpg", 37, 21, 4, 8, False, 1, 0, 8)),
        ("RGB", "PNG", {}, ("png", 37, 21, 3, 8, False, 1)),
        ("RGBA", "PNG", {}, ("png", 37, 21, 4, 8, False, 1)),
        ("LA", "PNG", {}, ("png", 37, 21, 2, 8, False, 1)),
        ("P", "PNG", {}, ("png", 37, 21, 1, 1, False, 1)),
        ("1", "PNG", {}, ("png", 37, 21, 1, 1, False, 1)),
        ("I;16", "PNG", {}, ("png", 37, 21, 1, 16, False, 1)),
        ("RGB", "WEBP", {}, ("webp", 37, 21, 3, 8, False, 1)),
        ("RGB", "WEBP", {"lossless": True}, ("webp", 37, 21, 3, 8, False, 1)),
    ],
)
def test_every_kind(mode, kind, options, expected):
    data = picture(mode, kind, **options)
    assert probe(data) == ImageInfo(*expected)
    assert probe(memoryview(data)) == probe(bytearray(data)) == ImageInfo(*expected)


@pytest.mark.parametrize("lossless", [False, True])
def test_webp_with_alpha(lossless):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (21, 37, 4), np.uint8)).save(
        buffer, "WEBP", lossless=lossless
    )
    assert probe(buffer.getvalue()) == ImageInfo("webp", 37, 21, 4, 8, False, 1)


def test_webp_animation_has_the_size_of_its_canvas():
    frames = [Image.new("RGB", (40, 30), (value, 0, 0)) for value in (0, 100, 200)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "WEBP", save_all=True, append_images=frames[1:])
    assert probe(buffer.getvalue())[:3] == ("webp", 40, 30)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_exif_orientation(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "a camera"
    data = picture("RGB", kind, exif=exif)
    assert probe(data).orientation == orientation
    for length in range(len(data)):
        found = probed(data[:length])
        assert isinstance(found, int) or found.orientation in (1, orientation)


@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_of_both_byte_orders_and_damaged_ones(order):
    tiff = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IHHHIHH", 8, 1, 0x0112, 3, 1, 6, 0)
    plain = picture("RGB", "JPEG")

    def with_exif(block: bytes) -> bytes:
        return plain[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 8) + b"Exif\0\0" + block + plain[2:]

    assert probe(with_exif(tiff)).orientation == 6
    for length in range(len(tiff)):
        assert probe(with_exif(tiff[:length])).orientation in (1, 6)
    assert probe(with_exif(tiff[:4] + b"\xff\xff\xff\x7f" + tiff[8:])).orientation == 1
    assert probe(with_exif(tiff.replace(struct.pack(order + "H", 6), struct.pack(order + "H", 9)))).orientation == 1


def test_fill_bytes_and_garbage_between_segments_are_skipped():
    data = picture("RGB", "JPEG")
    assert probe(data[:2] + b"\xff\xff\xff" + data[2:]) == probe(data)
    second = 4 + struct.unpack_from(">H", data, 4)[0]
    assert data[second] == 0xFF
    doubtful = probe(data)._replace(sof=None, max_scale=1)  # another reader may find another frame
    assert probe(data[:second] + b"junk\xff\x00junk" + data[second:]) == doubtful


def probed(data: bytes, call=probe) -> ImageInfo | int:
    """What is found, or the offset where nothing is."""
    try:
        return call(memoryview(data))
    except DecodeError as error:
        return int(error.place["offset"])


def test_every_truncation_of_a_header_is_an_error_with_its_place():
    for mode, kind in (("RGB", "JPEG"), ("RGB", "PNG"), ("RGB", "WEBP")):
        data = picture(mode, kind)
        whole = probe(data)
        failed = 0
        for length in range(len(data)):
            found = probed(data[:length])
            if isinstance(found, int):
                assert 0 <= found <= length
                assert failed == length, "a longer beginning must not be worse"
                failed += 1
            else:
                assert found in (
                    whole,
                    whole._replace(sof=None, max_scale=1),
                )  # the frame that comes may be a second one
        assert failed >= 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: b"", "no bytes at all"),
        (lambda d: b"GIF88a" + d, "neither JPEG, PNG nor WebP"),
        (lambda d: d[:16] + b"\0\0\0\0" + d[20:], "wrong checksum"),
        (lambda d: d[:12] + b"JHDR" + d[16:], "IHDR"),
    ],
)
def test_broken_headers(change, message):
    with pytest.raises(DecodeError, match=message):
        probe(change(picture("RGB", "PNG")))


def test_jpeg_without_a_height():
    data = bytearray(picture("RGB", "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 7] = b"\0\0"
    with pytest.raises(UnsupportedError, match="DNL") as caught:
        probe(bytes(data))
    assert caught.value.place["offset"] == frame + 5


STARTS = [
    b"",
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"RIFF\0\0\0\0WEBPVP8 ",
    b"RIFF\0\0\0\0WEBPVP8L",
    b"RIFF\0\0\0\0WEBPVP8X",
]
WHOLE = [picture("RGB", "JPEG"), picture("RGB", "PNG"), picture("RGB", "WEBP"), picture("RGBA", "PNG")]


def only_a_result_or_a_decode_error(data: bytes) -> None:
    for call in (probe, jpeg_scan_offset):
        found = probed(data, call)
        if isinstance(found, int):
            assert 0 <= found <= len(data)
        else:
            assert found.width > 0
            assert found.height > 0


@example(b"", b"MM\x00*")  # read by Pillow, which does not say where it gave up
@given(st.sampled_from(STARTS), st.binary(max_size=400))
def test_any_bytes_give_a_result_or_a_decode_error(start, rest):
    only_a_result_or_a_decode_error(start + rest)


@given(
    st.sampled_from(WHOLE),
    st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), max_size=5),
    st.integers(0, 900),
)
def test_damaged_images_give_a_result_or_a_decode_error(data, changes, length):
    damaged = bytearray(data)
    for at, value in changes:
        damaged[at % len(damaged)] = value
    only_a_result_or_a_decode_error(bytes(damaged[: max(length, 3)]))


def test_garbage_is_skipped_in_linear_time():
    data = b"\xff\xd8\xff\xe0\0\2" + b"\xff\0x" * 300_000
    start = time.perf_counter()
    with pytest.raises(DecodeError):
        probe(memoryview(data))
    assert time.perf_counter() - start < 2
