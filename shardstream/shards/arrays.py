"""Arrays as NPY files and torch tensors as safetensors files, and back: no pickle, sizes checked before all else.

numpy's own reader is not used, for it takes pickles and structured types. Torch is imported at first use only.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import ast
import json
import math
import re
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FieldError, UnsupportedError

NPY_MAGIC = b"\x93NUMPY"
_MAX_NPY_HEADER = 4096  # a plain dtype and 64 dimensions need a third of it
NPY_HEAD = 12 + _MAX_NPY_HEADER
"""Bytes of an NPY file that are sure to hold its head."""
# bool, integers, floats, complex numbers, bytes, text, times. No objects, no void, nothing of a platform's own size.
_DESCR = re.compile(r"[<>|](b1|[iu][1248]|f[248]|c8|c16|[SU][1-9][0-9]{0,8}|[mM]8(\[[0-9]{0,6}[A-Za-z]{1,2}\])?)")
_OBJECTS = re.compile(r"[|<>=]?O[0-9]*")
_PLAIN = "write it as an array of plain numbers: numpy.save(path, array.astype('float32')), for example"
# torch dtypes by their safetensors names.
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
_NAMES = {torch_name: name for name, torch_name in _DTYPES.items()}
_MAX_TENSOR_HEADER = 1 << 16
_MAX_EXTENT = 1 << 62  # torch counts strides in int64, even those of empty tensors


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of an NPY 1.0 file, padded to a multiple of 64 bytes: the same bytes with every numpy version."""
    text = repr({"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape})
    length = -(-(10 + len(text) + 1) // 64) * 64 - 10
    return NPY_MAGIC + b"\x01\x00" + struct.pack("<H", length) + text.encode("latin1").ljust(length - 1) + b"\n"


def npy_bytes(array: NDArray[Any]) -> bytes:
    """A whole NPY file, little-endian and in C order.

    Raises:
        TypeError: Elements of this dtype cannot be stored.
    """
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if not _DESCR.fullmatch(little.dtype.str):
        raise TypeError(f"arrays of {array.dtype} cannot be stored")
    return npy_header(little.dtype, little.shape) + np.ascontiguousarray(little).tobytes()


class NpyHead(NamedTuple):
    """What an NPY file says of its array.

    Attributes:
        dtype: Of its elements, in the byte order that they are stored in.
        shape: Of the array.
        fortran: Whether the first axis varies fastest.
        start: Where the elements begin.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int


def npy_head(data: memoryview) -> NpyHead:
    """The head of an NPY file, of its first bytes; `NPY_HEAD` of them are enough.

    Raises:
        ValueError, TypeError: It is not an NPY file.
        UnsupportedError: Its elements are not plain.
    """
    if bytes(data[:6]) != NPY_MAGIC or len(data) < 12:
        raise ValueError("not an NPY file")
    major = data[6]
    start = 10 if major == 1 else 12
    size = int.from_bytes(data[8:start], "little")
    if major not in (1, 2, 3) or size > min(_MAX_NPY_HEADER, len(data) - start):
        raise ValueError(f"an NPY header of version {major} and {size} bytes")
    return NpyHead(*_npy_head(bytes(data[start : start + size])), start + size)


def npy_array(data: memoryview) -> NDArray[Any]:
    """The array of an NPY file: an own copy, in the machine's byte order and C order.

    Raises:
        ValueError, TypeError: It is not an NPY file, or one of another size.
        UnsupportedError: Its elements are not plain.
    """
    dtype, shape, fortran, start = npy_head(data)
    body = data[start:]
    if dtype.itemsize * math.prod(shape) != len(body):
        raise ValueError(f"{len(body)} bytes hold no {dtype.name} {list(shape)}")
    stored = _elements(body, dtype).reshape(shape, order="F" if fortran else "C")
    return stored.astype(dtype.newbyteorder("="), order="C", copy=True)


def raw_array(data: memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The elements that are all of ``data``, (n,): an own copy, in the machine's byte order.

    Raises:
        ValueError: There is a part of one left over, or they are not elements of this dtype.
    """
    if len(data) % dtype.itemsize:
        raise ValueError(f"{len(data)} bytes are not a multiple of {dtype.itemsize}")
    return _elements(data, dtype).astype(dtype.newbyteorder("="), copy=True)


def _elements(data: memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    stored = np.frombuffer(data, dtype)
    if dtype.kind == "b" and np.any(stored.view(np.uint8) > 1):
        raise ValueError("bytes that are neither true nor false")
    return stored


@lru_cache(maxsize=256)
def _npy_head(text: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    # Headers repeat from sample to sample, so the slow literal parser runs once a shape.
    try:
        head = ast.literal_eval(text.decode("latin1").strip())
        descr, shape, fortran = head["descr"], head["shape"], head["fortran_order"]
    except (SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise ValueError(f"a malformed NPY header ({error})") from error
    if isinstance(descr, list):
        raise UnsupportedError("an NPY file of structures, which are not read", hint=_PLAIN)
    if isinstance(descr, str) and _OBJECTS.fullmatch(descr):
        raise UnsupportedError("an NPY file of Python objects, which are never unpickled", hint=_PLAIN)
    if not isinstance(descr, str):
        raise TypeError(f"an NPY file of {descr!r}")
    if not _DESCR.fullmatch(descr):
        raise UnsupportedError(f"an NPY file of elements {descr!r}, which are not read", hint=_PLAIN)
    if type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape) or type(fortran) is not bool:
        raise ValueError(f"an NPY file of shape {shape!r}")
    try:
        dtype = np.dtype(descr)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"an NPY file of {descr!r}: {error}") from error
    if dtype.itemsize < 0:  # numpy 1 counts it in 31 bits, and wraps around
        raise ValueError(f"an NPY file of {descr!r}: its elements are too large")
    return dtype, shape, fortran


def is_masked(value: object) -> bool:
    """Whether this is a masked array of numpy, or a list that holds one: numpy drops the mask without a word."""
    if isinstance(value, np.ma.MaskedArray):
        return True
    if not isinstance(value, list | tuple):
        return False
    kinds = set(map(type, value))
    return any(issubclass(kind, np.ma.MaskedArray | list | tuple) for kind in kinds) and any(map(is_masked, value))


def check_unmasked(value: object) -> None:
    """Refuse masked arrays, whose mask no field type holds; FieldError."""
    if is_masked(value):
        raise FieldError(
            "a masked array (numpy.ma) has no field type: its mask would be lost",
            hint="store value.filled(0), for example, and the mask as a field of its own: np.ma.getmaskarray(value)",
        )


def is_tensor(value: object) -> bool:
    """Whether this is a torch tensor, without importing torch."""
    return any(base.__module__.startswith("torch") and base.__name__ == "Tensor" for base in type(value).__mro__)


def tensor_to_numpy(value: Any) -> NDArray[Any]:
    """A torch tensor as numpy, for dtypes that numpy has."""
    array: NDArray[Any] = value.detach().cpu().numpy()
    return array


def tensor_bytes(value: Any) -> bytes:
    """A safetensors file with the one tensor ``value``.

    Raises:
        TypeError: Sparse, quantised or complex tensors have no place there.
    """
    import torch

    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    name = _NAMES.get(str(tensor.dtype).removeprefix("torch."))
    if name is None or tensor.layout is not torch.strided:
        raise TypeError(f"tensors of {tensor.dtype}, {tensor.layout} cannot be stored")
    body: bytes = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    head = {"value": {"dtype": name, "shape": list(tensor.shape), "data_offsets": [0, len(body)]}}
    text = json.dumps(head, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return struct.pack("<Q", len(text)) + text + body


def bytes_tensor(data: memoryview) -> Any:
    """The tensor of a safetensors file that holds one, whatever its name: an own copy.

    Raises:
        ValueError, TypeError: It is not such a file, or its size contradicts its shape.
        UnsupportedError: Its dtype is not one of torch's.
    """
    import torch

    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(_MAX_TENSOR_HEADER, len(data) - 8):
        raise ValueError(f"a safetensors header of {size} bytes")
    name, shape, start, end = _tensor_head(str(data[8 : 8 + size], "utf-8"))
    dtype = getattr(torch, _DTYPES[name])
    body = data[8 + size :]
    expected = dtype.itemsize * math.prod(shape)
    if (start, end) != (0, len(body)) or expected != len(body):
        raise ValueError(f"{len(body)} bytes hold no {name} {shape}")
    if not expected:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(bytearray(body), dtype=torch.uint8)
    return (raw.ne(0) if dtype is torch.bool else raw.view(dtype)).reshape(shape)


def _tensor_head(text: str) -> tuple[str, list[int], int, int]:
    try:
        head = json.loads(text)
        head.pop("__metadata__", None)
        (entry,) = head.values()
        name, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a malformed safetensors header ({error!r})") from error
    if not isinstance(name, str):
        raise TypeError(f"a tensor of {name!r}")
    if name not in _DTYPES:
        raise UnsupportedError(f"a tensor of {name!r}, which is not read", hint="store it with a dtype that torch has")
    plain = isinstance(shape, list) and len(shape) <= 64 and all(type(n) is int and n >= 0 for n in shape)
    if not plain or math.prod(max(n, 1) for n in shape) >= _MAX_EXTENT:
        raise ValueError(f"a tensor of shape {shape!r}")
    return name, shape, start, end
