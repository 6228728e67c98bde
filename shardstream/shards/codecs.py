"""Payload values as bytes and back. No code in stored bytes is ever run: no pickle, no object arrays, no extensions."""

from __future__ import annotations

import ast
import json
import struct
from functools import lru_cache
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError

_NPY_MAGIC = b"\x93NUMPY"
# torch dtypes by their safetensors names.
_TENSOR_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U16": "uint16", "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16",
    "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}
_TENSOR_NAMES = {torch_name: name for name, torch_name in _TENSOR_DTYPES.items()}
_MAX_HEADER = 1 << 16


def encode(kind: str, value: object) -> bytes | memoryview:
    """Bytes of ``value`` as payload type ``kind``; TypeError or ValueError where it does not fit."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = memoryview(value).cast("B")
        if kind not in ("bytes", "jpg", "png", "webp"):
            _check(kind, data)
        return data
    if kind == "str" and isinstance(value, str):
        return value.encode()
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if kind == "msgpack":
        return msgpack.packb(value, use_bin_type=True)  # type: ignore[no-any-return]
    if kind == "array":
        return npy_bytes(np.asarray(value))
    if kind == "tensor" and is_tensor(value):
        return _tensor_bytes(value)
    raise TypeError(f"expected {'bytes' if kind not in ('str', 'tensor') else kind}")


def _check(kind: str, data: memoryview) -> None:
    try:
        decode(kind, data)
    except DecodeError as error:
        raise ValueError(error.what) from error


def decode(kind: str, data: memoryview) -> Any:
    """The value of payload bytes; DecodeError where they are none of type ``kind``."""
    try:
        if kind == "str":
            return str(data, "utf-8")
        if kind == "json":
            return json.loads(bytes(data))
        if kind == "msgpack":
            return msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_no_extension)
        if kind == "array":
            return npy_array(data)
        if kind == "tensor":
            return _tensor(data)
    except (ValueError, msgpack.UnpackException, RecursionError, struct.error) as error:
        raise DecodeError(
            f"stored bytes are no valid {kind}: {error}", hint="the sample was written wrongly; pack it again"
        ) from error
    return bytes(data)


def _no_extension(code: int, _data: bytes) -> None:
    raise ValueError(f"msgpack extension type {code} is not allowed")


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of an NPY 1.0 file, padded to a multiple of 64 bytes: the same bytes with every numpy version.

    https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
    """
    text = repr({"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape})
    length = -(-(10 + len(text) + 1) // 64) * 64 - 10
    return _NPY_MAGIC + b"\x01\x00" + struct.pack("<H", length) + text.encode("latin1").ljust(length - 1) + b"\n"


def npy_bytes(array: NDArray[Any]) -> bytes:
    """A whole NPY file."""
    if array.dtype.hasobject or array.dtype.fields is not None:
        raise TypeError(f"arrays of {array.dtype} cannot be stored")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return npy_header(little.dtype, little.shape) + np.ascontiguousarray(little).tobytes()


def npy_array(data: memoryview) -> NDArray[Any]:
    """The array of an NPY file: an own, writable copy."""
    if bytes(data[:6]) != _NPY_MAGIC or len(data) < 12:
        raise ValueError("no NPY magic")
    major = data[6]
    size = 10 if major == 1 else 12
    (length,) = struct.unpack_from("<H" if major == 1 else "<I", data, 8)
    if major not in (1, 2, 3) or length > _MAX_HEADER or size + length > len(data):
        raise ValueError(f"an NPY header of version {major} and {length} bytes")
    dtype, shape, fortran = _npy_head(bytes(data[size : size + length]))
    body = data[size + length :]
    if dtype.itemsize * int(np.prod(shape, dtype=object)) != len(body):
        raise ValueError(f"{len(body)} bytes hold no {dtype.name} {list(shape)}")
    array = np.frombuffer(body, dtype).reshape(shape, order="F" if fortran else "C")
    return array.copy(order="C")


@lru_cache(maxsize=1024)
def _npy_head(text: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    # Headers repeat from sample to sample, so the slow literal parser runs once a shape.
    try:
        head = ast.literal_eval(text.decode("latin1"))
        dtype, shape, fortran = np.dtype(head["descr"]), tuple(head["shape"]), bool(head["fortran_order"])
    except (SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise ValueError(f"a malformed NPY header ({error})") from error
    if dtype.hasobject or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ValueError(f"an NPY array of {dtype} {shape}")
    return dtype, shape, fortran


def is_tensor(value: object) -> bool:
    """Whether this is a torch tensor, without importing torch."""
    return any(base.__module__.startswith("torch") and base.__name__ == "Tensor" for base in type(value).__mro__)


def tensor_to_numpy(value: object) -> NDArray[Any]:
    """A torch tensor as numpy, for dtypes that numpy has."""
    return value.detach().cpu().numpy()  # type: ignore[attr-defined, no-any-return]


def _tensor_bytes(value: Any) -> bytes:
    import torch

    tensor = value.detach().cpu().contiguous()
    name = _TENSOR_NAMES.get(str(tensor.dtype).removeprefix("torch."))
    if name is None or tensor.layout is not torch.strided:
        raise TypeError(f"tensors of {tensor.dtype}, {tensor.layout} cannot be stored")
    body = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    head = {"value": {"dtype": name, "shape": list(tensor.shape), "data_offsets": [0, len(body)]}}
    text = json.dumps(head, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return struct.pack("<Q", len(text)) + text + body


def _tensor(data: memoryview) -> Any:
    import torch

    (length,) = struct.unpack_from("<Q", data)
    if length > min(_MAX_HEADER, len(data) - 8):
        raise ValueError(f"a safetensors header of {length} bytes")
    try:
        head = json.loads(bytes(data[8 : 8 + length]))["value"]
        dtype = getattr(torch, _TENSOR_DTYPES[head["dtype"]])
        shape, (start, end) = [int(n) for n in head["shape"]], head["data_offsets"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"a malformed safetensors header ({error!r})") from error
    body = data[8 + length :]
    expected = dtype.itemsize * int(np.prod(shape, dtype=object))
    if start != 0 or end != len(body) or expected != len(body) or any(n < 0 for n in shape):
        raise ValueError(f"{len(body)} bytes hold no {head['dtype']} {shape}")
    if not expected:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(body), dtype=torch.uint8).view(dtype).reshape(shape)
