"""Payload values as bytes and back. No code in stored bytes is ever run: no pickle, no object arrays, no extensions."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import numpy as np

from shardstream.errors import DecodeError
from shardstream.shards.npy import npy_array, npy_bytes
from shardstream.shards.tensors import bytes_tensor, is_tensor, tensor_bytes

_OPAQUE = ("bytes", "jpg", "png", "webp")


def encode(kind: str, value: object) -> bytes | memoryview:
    """Bytes of ``value`` as payload type ``kind``.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: It does not fit, or would not come back.
    """
    if type(value) is bytes and kind in _OPAQUE:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        data = memoryview(value).cast("B")
        if kind not in _OPAQUE:
            _check(kind, data)
        return data
    if kind == "str" and isinstance(value, str):
        return value.encode()
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if kind == "msgpack":
        packed: bytes = msgpack.packb(value, use_bin_type=True)
        _check(kind, memoryview(packed))  # the packer writes extension types, which nobody may read
        return packed
    if kind == "array":
        return npy_bytes(np.asarray(value))
    if kind == "tensor" and is_tensor(value):
        return tensor_bytes(value)
    raise TypeError(f"expected {'bytes' if kind not in ('str', 'tensor') else kind}")


def _check(kind: str, data: memoryview) -> None:
    try:
        decode(kind, data)
    except DecodeError as error:
        raise ValueError(error.what) from error


def decode(kind: str, data: memoryview) -> Any:
    """The value of payload bytes; DecodeError where they are none of type ``kind``."""
    try:
        return bytes(data) if kind in _OPAQUE else _DECODERS[kind](data)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError, MemoryError) as error:
        raise DecodeError(
            f"stored bytes are no valid {kind}: {error or 'they do not fit into memory'}",
            hint="the sample was written wrongly; pack it again",
        ) from error


def _text(data: memoryview) -> str:
    return str(data, "utf-8")


def _json(data: memoryview) -> Any:
    return json.loads(_text(data))


def _msgpack(data: memoryview) -> Any:
    # Limits follow from the length of the data: no announced size is believed.
    return msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_no_extension)


def _no_extension(code: int, _data: bytes) -> None:
    raise ValueError(f"msgpack extension type {code} is not allowed")


_DECODERS = {"str": _text, "json": _json, "msgpack": _msgpack, "array": npy_array, "tensor": bytes_tensor}
