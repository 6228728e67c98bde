"""Valid images of a kind that is not read are called unsupported, placeholders missing, and only damage damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pytest

from shardstream.errors import DecodeError, PlaceholderError, UnsupportedError
from shardstream.faults import fault_kind
from shardstream.images.backends import decode
from shardstream.images.damage import check_damage
from shardstream.images.header import probe
from shardstream.testing.pictures import photo, save

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a2146" * 8 + b"\nsize 12345\n"


def jpeg(*, bits: int = 8, frame: int = 0xC0) -> bytes:
    """A JPEG whose header says another precision, or another coding process."""
    data = bytearray(save(photo(16, 16), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 1], data[at + 4] = frame, bits
    return bytes(data)


def jpeg_of_two_components() -> bytes:
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 14, 8, 8, 8, 2) + b"\1\x11\0\2\x11\0"
    return b"\xff\xd8" + frame + b"\xff\xda\0\x0a\2\1\0\2\0\0\x3f\0" + b"\0" * 8 + b"\xff\xd9"


def tiff(bits: list[int], form: int = 1, compression: int = 1) -> bytes:
    """A TIFF of 4 x 4 pixels."""
    samples = len(bits)
    pixels = bytes(2 * sum(bits))
    entries = [(256, [4]), (257, [4]), (258, bits), (259, [compression]), (262, [2 if samples > 2 else 1]), (273, [8])]
    entries += [(277, [samples]), (278, [4]), (279, [len(pixels)]), (339, [form] * samples)]
    directory, far = struct.pack("<H", len(entries)), b""
    end = 8 + len(pixels) + 2 + 12 * len(entries) + 4
    for tag, numbers in entries:
        stored = struct.pack(f"<{len(numbers)}H", *numbers)
        place = stored.ljust(4, b"\0") if len(stored) <= 4 else struct.pack("<I", end + len(far))
        far += stored if len(stored) > 4 else b""
        directory += struct.pack("<HHI", tag, 3, len(numbers)) + place
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + directory + bytes(4) + far


def bmp() -> bytes:
    data = bytearray(save(photo(4, 4), "BMP"))
    data[30:34] = struct.pack("<I", 4)  # a JPEG in a BMP
    return bytes(data)


VALID: dict[str, Callable[[], bytes]] = {
    "12-bit JPEG": partial(jpeg, bits=12),
    "16-bit lossless JPEG": partial(jpeg, bits=16, frame=0xC3),
    "JPEG of two components": jpeg_of_two_components,
    "JPEG-LS": lambda: b"\xff\xd8\xff\xf7\0\x0b\x08\0\x10\0\x10\x01\x01\x11\0\xff\xda\0\0\0",
    "float RGB TIFF": partial(tiff, [32] * 3, form=3),
    "float64 TIFF": partial(tiff, [64], form=3),
    "32-bit RGB TIFF": partial(tiff, [32] * 3),
    "TIFF of five channels": partial(tiff, [8] * 5),
    "TIFF of an unknown compression": partial(tiff, [8] * 3, compression=9999),
    "BMP with a JPEG in it": bmp,
    "Apple's PNG": lambda: b"\x89PNG\r\n\x1a\n\0\0\0\x04CgBI" + bytes(8) + b"\0\0\0\rIHDR" + bytes(17),
    "PSD": lambda: b"8BPS" + bytes(40),
    "JPEG XL": lambda: b"\xff\x0a" + bytes(40),
    "SVG": lambda: b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>',
}
MISSING = {
    "pointer": POINTER,
    "page": b"\n<!DOCTYPE html><html>404",
    "XHTML": b'<?xml version="1.0"?>\n<!DOCTYPE html><html>',
    "error of S3": b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>',
}
DAMAGED = {
    "nothing known": b"no image at all",
    "no bytes": b"",
    "half a JPEG": jpeg()[:300],
    "half a PNG": save(photo(9, 9), "PNG")[:60],
}


def look(data: bytes) -> None:
    check_damage(data, probe(data), decode=True)


@pytest.mark.parametrize("name", VALID)
def test_valid_images_are_called_unsupported(name: str) -> None:
    data = VALID[name]()
    for act in (look, decode, partial(decode, backend="pillow"), partial(decode, tolerant=True)):
        with pytest.raises(UnsupportedError) as raised:
            act(data)
        assert "damag" not in str(raised.value)
        assert "replace it" not in str(raised.value)
        assert fault_kind(raised.value) == "unsupported"


@pytest.mark.parametrize("name", MISSING)
def test_placeholders_are_called_missing(name: str) -> None:
    with pytest.raises(PlaceholderError) as raised:
        look(MISSING[name])
    assert fault_kind(raised.value) == "missing"
    assert "damag" not in str(raised.value)


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_called_damage(name: str) -> None:
    with pytest.raises(DecodeError) as raised:
        look(DAMAGED[name])
    assert fault_kind(raised.value) == "damaged"
    assert "damaged" in str(raised.value)
