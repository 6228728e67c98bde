"""Rectangles of addressable files equal the same rectangles of a full decode, bit for bit."""

from __future__ import annotations

import contextlib
import io
import struct

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardstream.errors import DecodeError
from shardstream.images.geometry import Box
from shardstream.images.jpeg.cutting import Addressable, is_addressable, read
from shardstream.images.jpeg.scan import NAME, OURS
from shardstream.images.jpeg.transcode import make_addressable, restore

from .test_transcode import encoded, picture

SIMPLE = {"4:4:4": "444", "4:2:2": "422", "4:2:0": "420", "4:4:0": "440", "4:1:1": "411"}


def opened(data: bytes) -> Addressable:
    found = read(data)
    assert found is not None
    return found


def full(data: bytes) -> np.ndarray:
    return np.asarray(simplejpeg.decode_jpeg(data, "RGB", fastdct=False, fastupsample=False))


@given(
    st.integers(1, 400),
    st.integers(1, 200),
    st.sampled_from([*SIMPLE, "grey"]),
    st.sampled_from([40, 90, 100]),
    st.sampled_from([16, 64, 128]),
    st.data(),
)
def test_a_rectangle_is_that_of_the_whole_bit_for_bit(width, height, sampling, quality, segment, data) -> None:
    image = np.asarray(picture(width, height, seed=height))
    if sampling == "grey":
        file = simplejpeg.encode_jpeg(np.ascontiguousarray(image[:, :, :1]), quality, "GRAY", "Gray")
    else:
        file = simplejpeg.encode_jpeg(image, quality, "RGB", SIMPLE[sampling])
    made = make_addressable(file, width=segment)
    assert made.kind in ("addressable", "too small")
    if made.kind == "too small":
        assert read(made.data) is None
        return
    whole = full(file)
    addressable = opened(made.data)
    for _ in range(4):
        left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
        box = Box(top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left)))
        part = addressable.cut(box)
        decoded = full(part.data)
        assert decoded.shape[:2] == (part.box.height, part.box.width)
        x, y = box.left - part.box.left, box.top - part.box.top
        assert x >= 0
        assert y >= 0
        inside = decoded[y : y + box.height, x : x + box.width]
        assert inside.shape[:2] == (box.height, box.width)
        assert np.array_equal(inside, whole[top : top + box.height, left : left + box.width])


@pytest.mark.parametrize("sampling", ["4:2:2", "4:2:0"])
@pytest.mark.parametrize("width", [5, 17, 19, 20, 21, 35, 195])
def test_the_last_columns_are_smoothed_as_in_the_whole(width, sampling) -> None:
    """libjpeg smooths chroma only where it has more than two columns; the last segment may have fewer."""
    for height in range(1, 20):
        file = simplejpeg.encode_jpeg(np.asarray(picture(width, height, seed=height)), 40, "RGB", SIMPLE[sampling])
        made = make_addressable(file, width=16)
        if made.kind == "too small":
            continue
        whole, addressable = full(file), opened(made.data)
        for left in range(max(0, width - 6), width):
            part = addressable.cut(Box(0, left, 1, width - left))
            assert np.array_equal(full(part.data)[:1, left - part.box.left :], whole[:1, left:])


def test_a_small_rectangle_takes_few_bytes() -> None:
    file = make_addressable(encoded(picture(1600, 1200), quality=90)).data
    part = opened(file).cut(Box(500, 500, 100, 100))
    assert len(part.data) < len(file) / 40
    assert part.box.width <= 100 + 2 * (64 + 2)
    assert part.box.height <= 100 + 2 * (16 + 2)


def test_profiles_are_left_behind_and_the_colours_are_not() -> None:
    rgb = io.BytesIO()
    picture(300, 200).save(rgb, "JPEG", icc_profile=b"p" * 50_000, keep_rgb=True)
    file = make_addressable(rgb.getvalue())
    part = opened(file.data).cut(Box(100, 100, 60, 60))
    assert len(part.data) < 20_000
    whole, decoded = full(rgb.getvalue()), full(part.data)
    y, x = 100 - part.box.top, 100 - part.box.left
    assert np.array_equal(decoded[y : y + 60, x : x + 60], whole[100:160, 100:160])


def test_all_of_it() -> None:
    file = make_addressable(encoded(picture(333, 222))).data
    part = opened(file).cut(Box(0, 0, 222, 333))
    assert part.box == Box(0, 0, 222, 333)
    assert np.array_equal(full(part.data), full(file))


def without_lengths(file: bytes) -> bytes:
    """The file as it is where the lengths of its segments do not fit into the header."""
    at = file.index(NAME) - 4
    (length,) = struct.unpack_from(">H", file, at + 2)
    kept = 2 + len(NAME) + OURS.size
    return file[: at + 2] + struct.pack(">H", kept) + file[at + 4 : at + 2 + kept] + file[at + 2 + length :]


def test_segments_are_found_where_their_lengths_are_not_told() -> None:
    file = make_addressable(encoded(picture(333, 222))).data
    bare = without_lengths(file)
    assert len(bare) == len(file) - 2 * 7 * 14
    assert restore(bare) == restore(file)
    for box in (Box(0, 0, 222, 333), Box(100, 200, 40, 40), Box(221, 332, 1, 1)):
        assert opened(bare).cut(box) == opened(file).cut(box)


def test_lengths_that_lie_are_an_error() -> None:
    file = bytearray(make_addressable(encoded(picture(333, 222))).data)
    at = file.index(NAME) + len(NAME) + OURS.size
    one, other = struct.unpack_from(">HH", file, at)
    struct.pack_into(">HH", file, at, one + 1, other - 1)
    with pytest.raises(DecodeError, match="not where it says"):
        opened(bytes(file)).cut(Box(0, 0, 40, 40))
    struct.pack_into(">HH", file, at, one + 1, other)
    with pytest.raises(DecodeError, match="segments"):
        read(bytes(file))


def test_files_of_a_later_version_are_decoded_whole() -> None:
    file = bytearray(make_addressable(encoded(picture(333, 222))).data)
    file[file.index(NAME) + len(NAME)] = 2
    assert read(bytes(file)) is None


def test_which_files_are_addressable() -> None:
    plain = encoded(picture(333, 222))
    assert is_addressable(make_addressable(plain).data)
    for other in (plain, encoded(picture(333, 222), progressive=True), b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\0\0" * 3):
        assert not is_addressable(other)
        assert read(other) is None


@given(st.integers(0, 100_000), st.integers(0, 255))
def test_damage_is_one_error_or_another_picture(at: int, value: int) -> None:
    file = bytearray(make_addressable(encoded(picture(200, 100))).data)
    file[at % len(file)] = value
    try:
        found = read(bytes(file))
        if found is None:
            return
        part = found.cut(Box(10, 10, 50, 50))
    except DecodeError:
        return
    with contextlib.suppress(OSError, SyntaxError, ValueError):  # what decoders say of damaged files
        Image.open(io.BytesIO(part.data)).load()
