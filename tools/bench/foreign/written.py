"""Formats whose libraries are hard to come by, written by a few lines of our own: RecordIO and beton."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bench.foreign.corpora import Sample

_MAGIC = struct.pack("<I", 0xCED7230A)
_INT, _IMAGE, _BYTES = 1, 2, 3  # FFCV's types of fields
_PAGE = 1 << 21


def recordio(out: Path, samples: Iterable[Sample]) -> None:
    """Records as MXNet's ``im2rec`` writes them, and their index."""
    with out.with_suffix(".rec").open("wb") as file, out.with_suffix(".idx").open("w") as index:
        for number, sample in enumerate(samples):
            payload = struct.pack("<IfQQ", 0, sample.label, number, 0) + sample.octets
            if any(payload[at : at + 4] == _MAGIC for at in range(0, len(payload) - 3, 4)):
                raise ValueError(f"{sample.key} holds the magic number, and would be a record in parts")
            index.write(f"{number}\t{file.tell()}\n")
            file.write(_MAGIC + struct.pack("<I", len(payload)) + payload + bytes(-len(payload) % 4))


def beton(out: Path, samples: Iterable[Sample], *, images: bool) -> None:
    """Version 2, a field of JPEG files or bytes, and a label; without FFCV's gaps between pages."""
    found = list(samples)
    first = [("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("ptr", "<u8")] if images else _PLACE
    rows = np.zeros(len(found), np.dtype([("x0", np.dtype(first)), ("x1", "<i8")], align=True))
    head, fields = 24, [(_IMAGE, b"image") if images else (_BYTES, b"bytes"), (_INT, b"label")]
    start = head + 1041 * len(fields) + rows.nbytes
    sizes = np.array([len(sample.octets) for sample in found], np.uint64)
    places = start + np.concatenate([np.zeros(1, np.uint64), sizes.cumsum()[:-1]]).astype(np.uint64)
    rows["x0"]["ptr"], rows["x1"] = places, [sample.label for sample in found]
    if not images:
        rows["x0"]["size"] = sizes
    allocations = np.stack([np.arange(len(found), dtype=np.uint64), places, sizes], axis=1)
    with out.with_suffix(".beton").open("wb") as file:
        file.write(struct.pack("<HHIQQ", 2, len(fields), _PAGE, len(found), start + int(sizes.sum())))
        for kind, name in fields:
            file.write(struct.pack("<B16s1024s", kind, name, b""))
        file.write(rows.tobytes())
        file.writelines(sample.octets for sample in found)
        file.write(allocations.tobytes())


_PLACE = [("ptr", "<u8"), ("size", "<u8")]
