"""TFRecord files and Examples by a writer of a few lines, which shares nothing with the reader."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Value: TypeAlias = "list[bytes] | list[int] | list[float]"


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def records(payloads: Iterable[bytes], *, sums: bool = True) -> bytes:
    """A file; the checksums of what is in the records are slow to make, and zeros without ``sums``."""
    out = b""
    for one in payloads:
        length = struct.pack("<Q", len(one))
        out += length + masked(length) + one + (masked(one) if sums else bytes(4))
    return out


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def part(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def feature(values: Value | None, *, packed: bool = True, kind: type | None = None) -> bytes:
    if values is None:
        return b""
    kind = kind or type(values[0])
    if kind is bytes:
        return part(1, b"".join(part(1, one) for one in values))
    if kind is float:
        each = [struct.pack("<f", one) for one in values]
        return part(2, part(1, b"".join(each)) if packed else b"".join(b"\x0d" + one for one in each))
    each = [varint(one) for one in values]
    return part(3, part(1, b"".join(each)) if packed else b"".join(b"\x08" + one for one in each))


def feature_map(features: Mapping[str, bytes]) -> bytes:
    return b"".join(part(1, part(1, name.encode()) + part(2, one)) for name, one in features.items())


def example(features: Mapping[str, Value], *, packed: bool = True) -> bytes:
    return part(1, feature_map({name: feature(values, packed=packed) for name, values in features.items()}))


def sequence_example(context: Mapping[str, Value], lists: Mapping[str, list[Value]]) -> bytes:
    framed = {name: b"".join(part(1, feature(frame)) for frame in frames) for name, frames in lists.items()}
    return part(1, feature_map({name: feature(values) for name, values in context.items()})) + part(
        2, feature_map(framed)
    )
