"""Arrays as NPY files, and back, without numpy's own reader: no pickle, no structured types, sizes checked first.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
import math
import re
import struct
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 4096  # a plain dtype and 64 dimensions need a third of it
# bool, integers, floats, complex numbers, bytes, text, times. No objects, no void, nothing of a platform's own size.
_DESCR = re.compile(r"[<>|](b1|[iu][1248]|f[248]|c8|c16|[SU][1-9][0-9]{0,8}|[mM]8(\[[0-9]{0,6}[A-Za-z]{1,2}\])?)")


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of an NPY 1.0 file, padded to a multiple of 64 bytes: the same bytes with every numpy version."""
    text = repr({"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape})
    length = -(-(10 + len(text) + 1) // 64) * 64 - 10
    return _MAGIC + b"\x01\x00" + struct.pack("<H", length) + text.encode("latin1").ljust(length - 1) + b"\n"


def npy_bytes(array: NDArray[Any]) -> bytes:
    """A whole NPY file, little-endian and in C order.

    Raises:
        TypeError: Elements of this dtype cannot be stored.
    """
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if not _DESCR.fullmatch(little.dtype.str):
        raise TypeError(f"arrays of {array.dtype} cannot be stored")
    return npy_header(little.dtype, little.shape) + np.ascontiguousarray(little).tobytes()


def npy_array(data: memoryview) -> NDArray[Any]:
    """The array of an NPY file: an own copy, in the machine's byte order and C order.

    Raises:
        ValueError: It is no NPY file, or one of another size, or of elements that are not plain.
    """
    if bytes(data[:6]) != _MAGIC or len(data) < 12:
        raise ValueError("this is no NPY file")
    major = data[6]
    size, start = (
        (int.from_bytes(data[8:10], "little"), 10) if major == 1 else (int.from_bytes(data[8:12], "little"), 12)
    )
    if major not in (1, 2, 3) or size > min(_MAX_HEADER, len(data) - start):
        raise ValueError(f"an NPY header of version {major} and {size} bytes")
    dtype, shape, fortran = _head(bytes(data[start : start + size]))
    body = data[start + size :]
    if dtype.itemsize * math.prod(shape) != len(body):
        raise ValueError(f"{len(body)} bytes hold no {dtype.name} {list(shape)}")
    stored = np.frombuffer(body, dtype).reshape(shape, order="F" if fortran else "C")
    if dtype.kind == "b" and np.any(stored.view(np.uint8) > 1):
        raise ValueError("bytes that are neither true nor false")
    return stored.astype(dtype.newbyteorder("="), order="C", copy=True)


@lru_cache(maxsize=256)
def _head(text: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    # Headers repeat from sample to sample, so the slow literal parser runs once a shape.
    try:
        head = ast.literal_eval(text.decode("latin1").strip())
        descr, shape, fortran = head["descr"], head["shape"], head["fortran_order"]
    except (SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise ValueError(f"a malformed NPY header ({error})") from error
    if not isinstance(descr, str) or not _DESCR.fullmatch(descr):
        raise ValueError(f"an NPY file of {descr!r}")
    if type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape) or type(fortran) is not bool:
        raise ValueError(f"an NPY file of shape {shape!r}")
    try:
        return np.dtype(descr), shape, fortran
    except (TypeError, OverflowError) as error:
        raise ValueError(f"an NPY file of {descr!r}: {error}") from error
