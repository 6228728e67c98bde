"""LMDB databases by the package lmdb, and what hostile ones are made of."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 2
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))


def jpeg(number: int, size: int = 200) -> bytes:
    """Bytes that begin as a JPEG file, of a size of their own."""
    return JPEG[:4] + struct.pack("<I", number) + bytes((number + i) % 251 for i in range(size + number % 50))


def write(
    place: Path, entries: Mapping[bytes, bytes], *, db: bytes | None = None, folder: bool = True, **how: Any
) -> Path:
    """A database of these entries, all of them in one transaction."""
    with lmdb.open(str(place), subdir=folder, map_size=1 << 25, max_dbs=8) as environment:
        named = environment.open_db(db, **how) if db is not None else None
        with environment.begin(write=True, db=named) as change:
            for key, value in entries.items():
                assert change.put(key, value)
    return place


def folder_of(place: Path, *files: tuple[str, bytes]) -> Path:
    """A folder of these files."""
    shutil.rmtree(place, ignore_errors=True)
    for name, data in files:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return place


def content(place: Path) -> dict[bytes, bytes]:
    """What the package lmdb reads, in its order."""
    with lmdb.open(str(place), readonly=True, lock=False) as environment, environment.begin() as reading:
        return dict(reading.cursor())


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def datum(
    data: bytes = b"",
    shape: tuple[int, int, int] = (0, 0, 0),
    label: int | None = None,
    *,
    encoded: bool = False,
    floats: Any = (),
    packed: bool = False,
) -> bytes:
    """A Datum of Caffe, as protobuf writes it."""
    out = b"".join(varint(number << 3) + varint(one) for number, one in enumerate(shape, 1) if one)
    if data:
        out += varint(4 << 3 | 2) + varint(len(data)) + data
    if label is not None:
        out += varint(5 << 3) + varint(label)
    numbers = np.asarray(floats, "<f4")
    if packed:
        out += varint(6 << 3 | 2) + varint(numbers.nbytes) + numbers.tobytes()
    else:
        out += b"".join(varint(6 << 3 | 5) + one.tobytes() for one in numbers)
    return out + (varint(7 << 3) + varint(1) if encoded else b"")


def packed_array(array: Any) -> dict[bytes, Any]:
    """An array as msgpack-numpy writes it."""
    return {
        b"nd": True, b"type": array.dtype.str.encode(), b"kind": b"", b"shape": list(array.shape),
        b"data": array.tobytes(),
    }  # fmt: skip
