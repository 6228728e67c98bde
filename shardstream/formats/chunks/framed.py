"""LitData's chunks of zstd frames (``LDFZ01``): a table of offsets and one of frames, then frames of some records each.

Shown inflated, an object keeps its head as it is, and its records follow, whose offsets count from there.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.formats.blocks import BlockList
from shardstream.formats.blocks.found_blocks import FoundBlocks
from shardstream.formats.scans.object_bytes import ObjectBytes

_MAGIC = b"LDFZ01\0\0"
_HEAD = struct.Struct("<8sHHIII")  # magic, version, flags, records, records a frame, frames
_FRAME = np.dtype([("first", "<u4"), ("count", "<u4"), ("offset", "<u8"), ("length", "<u4"), ("size", "<u4")])
_VERSION = 1


class _Head(NamedTuple):
    """What the head says, and its bytes."""

    records: int
    frames: int
    length: int


def is_framed(data: ObjectBytes) -> bool:
    """Whether an object is of this kind, as it is stored or inflated."""
    return data.size >= _HEAD.size and bytes(data.get(0, len(_MAGIC))) == _MAGIC


def _head(data: ObjectBytes) -> _Head:
    _, version, flags, records, _, frames = _HEAD.unpack(data.get(0, _HEAD.size))
    if version != _VERSION or flags:
        hint = "write the data set again without compression"
        raise data.unsupported(f"frames of version {version} with flags {flags} are not known", 8, hint=hint)
    length = _HEAD.size + 4 * (records + 1) + _FRAME.itemsize * frames
    if length > data.size:
        raise data.damaged(f"{records} records in {frames} frames are not in {data.size} bytes", 12)
    return _Head(records, frames, length)


def frames_of(data: ObjectBytes) -> FoundBlocks:
    """The frames as blocks, behind the head.

    Raises:
        FormatError: The tables contradict the object.
        StorageError: It cannot be read.
    """
    head = _head(data)
    at = head.length - _FRAME.itemsize * head.frames
    table = np.frombuffer(data.get(at, head.length - at), _FRAME)
    blocks = BlockList()
    blocks.add("none", 0, head.length, head.length)
    for number, (_, _, offset, length, size) in enumerate(table.tolist()):
        if offset < head.length or offset + length > data.size:
            raise data.damaged(f"frame {number} reaches past the object", at + _FRAME.itemsize * number)
        try:
            blocks.add("zstd", offset, length, size)
        except ValueError as error:
            raise data.damaged(str(error), at + _FRAME.itemsize * number) from error
    return FoundBlocks(blocks.of(data.size))


def framed_table(data: ObjectBytes, samples: int) -> NDArray[np.int64]:
    """Where records begin in the inflated object, and where the last one ends.

    Raises:
        FormatError: The table contradicts the object, or ``samples``, which its index announces.
    """
    head = _head(data)
    if head.records != samples:
        raise data.damaged(f"it holds {head.records} samples, and its index.json says {samples}", 12)
    table = data.array("<u4", samples + 1, _HEAD.size).astype(np.int64) + head.length
    wrong = np.flatnonzero(table[1:] < table[:-1])
    if table[0] != head.length or len(wrong) or table[-1] != data.size:
        row = int(wrong[0]) + 1 if len(wrong) else 0
        raise data.damaged("its table of offsets does not fit what its frames inflate to", _HEAD.size + 4 * row)
    return table
