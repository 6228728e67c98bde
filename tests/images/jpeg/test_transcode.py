"""Files become addressable and come back, to the byte; whatever cannot is kept."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFile

from shardstream.errors import DecodeError
from shardstream.images.jpeg.scan import DRI, NAME, OURS, Unaddressable, read_scan
from shardstream.images.jpeg.tables import Table, encoding, lookup, optimal
from shardstream.images.jpeg.transcode import ADDRESSABLE, SMALL, make_addressable, restore, segment_mcus

# Pillow's encoder optimises tables in a buffer of this size, and small files of much noise do not fit into its own.
ImageFile.MAXBLOCK = 1 << 22

SAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def picture(width: int, height: int, *, noise: int = 20, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Waves with noise, bright and dark enough to need every size of DC difference."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = np.stack([np.sin(x / 17 + k + seed) + np.cos(y / (9 + k)) for k in range(3)], axis=-1)
    pixels = 127 + 90 * waves + np.random.default_rng(seed).normal(0, noise, waves.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def check(data: bytes, **options: Any) -> bytes:
    made = make_addressable(data, **options)
    if made.kind == SMALL:
        assert made.data == data
        return data
    assert made.kind == ADDRESSABLE
    assert restore(made.data) == data
    assert np.array_equal(pixels(made.data), pixels(data))
    return made.data


@given(
    st.integers(1, 300),
    st.integers(1, 120),
    st.sampled_from(list(SAMPLINGS.values())),
    st.sampled_from([1, 30, 75, 95, 100]),
    st.booleans(),
    st.sampled_from(["RGB", "L"]),
    st.sampled_from([8, 32, 64, 128, 100_000]),
    st.integers(0, 3),
)
def test_any_file_becomes_addressable_and_comes_back(
    width, height, sampling, quality, optimize, mode, segment, restarts
) -> None:
    image = picture(width, height, mode=mode, seed=width)
    options = {"subsampling": sampling} if mode == "RGB" else {}
    data = encoded(image, quality=quality, optimize=optimize, restart_marker_blocks=5 * restarts, **options)
    made = check(data, width=segment)
    scan = read_scan(made)
    wanted = segment_mcus(read_scan(data), segment)
    assert scan.mcus[0] % wanted == 0
    if made != data:
        assert scan.interval == wanted
        assert scan.mcus != (wanted, 1)
    else:
        assert scan.mcus == (wanted, 1)


def test_segments_are_as_wide_as_the_nearest_divisor() -> None:
    for width, wanted, mcus in [
        (512, 64, 4),
        (512, 128, 8),
        (500, 64, 4),
        (16 * 35, 64, 5),
        (16 * 31, 64, 31),
        (9, 64, 1),
    ]:
        scan = read_scan(encoded(picture(width, 16), subsampling=2))
        assert segment_mcus(scan, wanted) == mcus


def test_what_is_not_the_scan_stays() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = (
        encoded(picture(200, 100), exif=exif, icc_profile=b"profile" * 5000, comment=b"a comment") + b"behind the end"
    )
    made = check(data)
    assert made.endswith(b"\xff\xd9behind the end")
    again = Image.open(io.BytesIO(made))
    assert again.getexif()[0x0112] == 6
    assert again.info["icc_profile"] == b"profile" * 5000
    assert again.info["comment"] == b"a comment"


def test_twice_is_once() -> None:
    data = encoded(picture(200, 100))
    made = make_addressable(data).data
    assert make_addressable(made) == (made, ADDRESSABLE)
    assert restore(data) == data


def test_a_table_that_lacks_codes_is_replaced() -> None:
    """From grey to white in small steps: all differences are small, but each segment begins with a large one."""
    image = Image.fromarray(np.tile(np.linspace(128, 250, 512).astype(np.uint8), (8, 1)))
    data = encoded(image, quality=100, optimize=True)
    made = check(data)
    old, new = read_scan(data), read_scan(made)
    assert old.dc[0] != new.dc[0]
    assert set(old.dc[0].values) < set(new.dc[0].values)


def arithmetic(data: bytes) -> bytes:
    return data.replace(b"\xff\xc0", b"\xff\xc9", 1)


def deep(data: bytes) -> bytes:
    at = read_scan(data).frame
    return data[: at + 4] + b"\x0c" + data[at + 5 :]


def oddly_sampled(data: bytes) -> bytes:
    at = read_scan(data).frame
    return data[: at + 14] + b"\x21" + data[at + 15 :]


def without_height(data: bytes) -> bytes:
    at = read_scan(data).frame
    return data[: at + 5] + b"\0\0" + data[at + 7 :]


def zero_padded(data: bytes) -> bytes:
    """The last bits before the end as no encoder leaves them."""
    made = bytearray(data)
    assert made[-3] & 1
    made[-3] ^= 1
    return bytes(made)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (arithmetic, "arithmetic"),
        (deep, "12-bit"),
        (oddly_sampled, "with odd sampling"),
        (without_height, "without a height"),
        (zero_padded, "padded unusually"),
        (cut, "damaged"),
    ],
)
def test_other_files_are_kept_and_named(change, kind) -> None:
    data = change(encoded(picture(200, 100, seed=4)))
    assert make_addressable(data) == (data, kind)


def test_progressive_and_cmyk_files_are_kept() -> None:
    data = encoded(picture(200, 100), progressive=True)
    assert make_addressable(data) == (data, "progressive")
    data = encoded(picture(200, 100).convert("CMYK"))
    assert make_addressable(data) == (data, "CMYK")


def test_no_jpeg_is_an_error() -> None:
    for data in (b"", b"\xff", b"\x89PNG\r\n\x1a\n"):
        with pytest.raises(DecodeError, match="not a JPEG"):
            make_addressable(data)


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_damage_never_breaks_a_file(seed: int, draw: random.Random) -> None:
    """What comes of a damaged file is that file, or one that decodes to the same."""
    data = bytearray(encoded(picture(96, 64, seed=seed % 5), restart_marker_blocks=seed % 3 * 4))
    for _ in range(draw.randrange(1, 4)):
        data[draw.randrange(2, len(data))] = draw.randrange(256)
    made = make_addressable(bytes(data))
    if made.kind != ADDRESSABLE:
        assert made.data == data
    else:
        assert restore(made.data) == data


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_a_changed_addressable_file_is_one_error(seed: int, draw: random.Random) -> None:
    data = bytearray(make_addressable(encoded(picture(96, 64, seed=seed % 5))).data)
    data[draw.randrange(2, len(data))] = draw.randrange(256)
    with contextlib.suppress(DecodeError):  # the only one; where the pixels are what changed, there is none
        restore(bytes(data))


def test_a_changed_table_of_ours_is_one_error() -> None:
    data = make_addressable(encoded(Image.linear_gradient("L").resize((640, 64)), optimize=True)).data
    at = data.index(NAME) + len(NAME)
    assert OURS.unpack_from(data, at)[3] == 1, "the file's own table lacks a code"
    values = at + OURS.size + 17
    with pytest.raises(DecodeError, match="changed"):
        restore(data[:values] + data[values + 1 : values + 2] + data[values + 1 :])


def test_an_unknown_version_is_told() -> None:
    data = make_addressable(encoded(picture(96, 64))).data
    at = data.index(b"shardstream\0") + 12
    with pytest.raises(DecodeError, match="unknown version"):
        restore(data[:at] + b"\x02" + data[at + 1 :])


def test_an_old_restart_interval_comes_back_where_it_was() -> None:
    data = encoded(picture(200, 100), restart_marker_rows=1)
    made = check(data)
    places = [one.code for one in read_scan(data).segments].index(DRI)
    assert [one.code for one in read_scan(made).segments][places] == DRI


@given(st.dictionaries(st.integers(0, 11), st.integers(1, 10_000), min_size=1))
def test_tables_for_any_frequencies(frequencies) -> None:
    table = optimal(frequencies)
    codes = table.codes()
    assert codes.keys() == frequencies.keys()
    assert all(code != (1 << length) - 1 for code, length in codes.values())
    words = sorted(format(code, f"0{length}b") for code, length in codes.values())
    assert not any(other.startswith(one) for one, other in itertools.pairwise(words))
    for one, other in itertools.permutations(frequencies, 2):
        assert codes[one][1] >= codes[other][1] or frequencies[one] >= frequencies[other]
    found, written = lookup((table,)), encoding((table,), 12)
    for value, (code, length) in codes.items():
        if length <= 9:
            assert found.fast[0, code << (9 - length)] == 256 * (length + value) + value
        assert (written.codes[0, value], written.bits[0, value]) == (code, length)
    assert np.count_nonzero(written.bits) == len(codes)


def test_tables_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="more codes"):
        Table(bytes([3] + [0] * 15), b"abc").codes()
    with pytest.raises(ValueError, match="one value"):
        Table(bytes([0, 2] + [0] * 14), b"aa").codes()
    with pytest.raises(ValueError, match="more codes"):
        lookup((Table(bytes([3] + [0] * 15), b"abc"),))


def test_segments_that_lie_about_their_length() -> None:
    data = encoded(picture(96, 64))
    at = read_scan(data).frame
    with pytest.raises(Unaddressable, match="damaged"):
        read_scan(data[: at + 2] + struct.pack(">H", 60_000) + data[at + 4 :])
