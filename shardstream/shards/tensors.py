"""Torch tensors as safetensors files, and back, without pickle. Torch is imported at first use only.

https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from numpy.typing import NDArray

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
_MAX_HEADER = 1 << 16
_MAX_EXTENT = 1 << 62  # torch counts strides in int64, even those of empty tensors


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
        ValueError: It is no such file, or its size contradicts its shape.
    """
    import torch

    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(_MAX_HEADER, len(data) - 8):
        raise ValueError(f"a safetensors header of {size} bytes")
    name, shape, start, end = _head(str(data[8 : 8 + size], "utf-8"))
    dtype = getattr(torch, _DTYPES[name])
    body = data[8 + size :]
    expected = dtype.itemsize * math.prod(shape)
    if (start, end) != (0, len(body)) or expected != len(body):
        raise ValueError(f"{len(body)} bytes hold no {name} {shape}")
    if not expected:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(bytearray(body), dtype=torch.uint8)
    return (raw.ne(0) if dtype is torch.bool else raw.view(dtype)).reshape(shape)


def _head(text: str) -> tuple[str, list[int], int, int]:
    try:
        head = json.loads(text)
        head.pop("__metadata__", None)
        (entry,) = head.values()
        name, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a malformed safetensors header ({error!r})") from error
    if not isinstance(name, str) or name not in _DTYPES:
        raise ValueError(f"a tensor of {name!r}")
    if not isinstance(shape, list) or len(shape) > 64 or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"a tensor of shape {shape!r}")
    if math.prod(max(n, 1) for n in shape) >= _MAX_EXTENT:
        raise ValueError(f"a tensor of shape {shape!r}")
    return name, shape, start, end
