"""Values as MDS and LitData encode them, as the bytes of our types: arrays, pixels of PIL, lists of images.

Each function is pure, raises ValueError where the bytes are no such value, and believes no size that they announce.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from shardstream.shards.arrays import npy_bytes, npy_header

_MAX_DIMENSIONS = 32  # of numpy 1
# Modes of PIL as `Image.tobytes` writes them: dtype, and channels; 0 where pixels are single numbers.
_MODES: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("L", "P"), ("|u1", 0)),
    **dict.fromkeys(("LA", "La", "PA"), ("|u1", 2)),
    **dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), ("|u1", 3)),
    **dict.fromkeys(("RGBA", "RGBa", "RGBX", "CMYK"), ("|u1", 4)),
    **dict.fromkeys(("I;16", "I;16L"), ("<u2", 0)),
    "I;16B": (">u2", 0),
    "I": ("<i4", 0),
    "F": ("<f4", 0),
}


def npy_of(body: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """An NPY file of elements in C order."""
    if len(shape) > _MAX_DIMENSIONS or math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError(f"{len(body)} bytes hold no {dtype.name} {list(shape)}")
    return npy_header(dtype, shape) + body


def npy_of_pil(stored: memoryview, _: str) -> bytes:
    """The pixels of a PIL image as an NPY file, (height, width) or (height, width, channels).

    Stored are three uint32 (width, height, length of the mode's name), the mode, and the pixels. Palettes are not.
    """
    if len(stored) < 12:
        raise ValueError(f"{len(stored)} bytes are not a PIL image")
    width, height, length = struct.unpack_from("<III", stored)
    mode = bytes(stored[12 : 12 + length]) if length <= 8 else b""
    body = stored[12 + length :]
    if mode == b"1":
        return npy_bytes(_bits(body, width, height))
    dtype, channels = _MODES.get(mode.decode("latin1"), ("", 0))
    if not dtype:
        raise ValueError(f"a PIL image of mode {mode!r}")
    shape = (height, width, channels) if channels else (height, width)
    if dtype == ">u2" and len(body) == 2 * width * height:
        return npy_bytes(np.frombuffer(body, dtype).reshape(shape))
    return npy_of(body, np.dtype(dtype), shape)


def _bits(body: memoryview, width: int, height: int) -> NDArray[np.bool_]:
    row = -(-width // 8)
    if len(body) != row * height:
        raise ValueError(f"{len(body)} bytes hold no bits of {width} x {height} pixels")
    packed = np.frombuffer(body, np.uint8).reshape(height, row)
    return np.unpackbits(packed, axis=1)[:, :width].astype(np.bool_)


def msgpack_of_jpegs(stored: memoryview, _: str) -> bytes:
    """A msgpack list of image files; stored are a uint32 n, n uint32 sizes, and the files."""
    return _msgpack_of(_elements(stored, 0))


def _elements(stored: memoryview, start: int) -> Iterator[memoryview]:
    """The elements of a list that begins with its length at ``start``."""
    begin = start + 4
    if len(stored) < begin:
        raise ValueError(f"{len(stored)} bytes are not a list")
    (count,) = struct.unpack_from("<I", stored, start)
    if count > (len(stored) - begin) // 4:
        raise ValueError(f"{len(stored)} bytes hold no {count} elements")
    sizes = np.frombuffer(stored, "<u4", count, begin).tolist()
    begin += 4 * count
    if begin + sum(sizes) != len(stored):
        raise ValueError(f"elements of {sum(sizes)} bytes in {len(stored) - begin}")
    for size in sizes:
        yield stored[begin : begin + size]
        begin += size


def _msgpack_of(elements: Iterator[Any]) -> bytes:
    packed: bytes = msgpack.packb([*elements], use_bin_type=True)
    return packed


def msgpack_of_list(stored: memoryview, element: str) -> bytes:
    """A msgpack list of byte strings; stored are a uint32 that means nothing, then as `msgpack_of_jpegs`.

    Args:
        stored: The list.
        element: ``"pil"``, whose elements become NPY files; empty: they stay as they are.
    """
    convert: Callable[[memoryview], bytes | memoryview] = (lambda one: npy_of_pil(one, "")) if element else _as_is
    return _msgpack_of(map(convert, _elements(stored, 4)))


def _as_is(element: memoryview) -> memoryview:
    return element
