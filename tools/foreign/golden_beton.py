#!/usr/bin/env python3
# needs: numpy torch opencv-python-headless numba tqdm psutil terminaltables fastargs assertpy pillow
"""Write .beton files with FFCV, and what its own loader gives: golden files of `tests/formats`.

    git clone https://github.com/libffcv/ffcv FFCV && git -C FFCV checkout 3a12966
    PYTHONPATH=FFCV python tools/foreign/golden_beton.py tests/golden/foreign/beton

FFCV's part in C++ (crops and fast JPEG) rarely builds, and neither its writer nor its simple decoders need more of it
than a copy of bytes, which stands in its place here. A .beton has pages of 2 MiB that are nearly all zeros: the files
are kept compressed with gzip.
"""

from __future__ import annotations

import gzip
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

stand_in: Any = types.ModuleType("ffcv.libffcv")


def memcpy(source: np.ndarray, dest: np.ndarray) -> None:
    """All bytes of one array into another, which may be longer; compiled by FFCV."""
    flat = dest.reshape(-1)
    for i in range(source.size):
        flat[i] = source[i]


stand_in.memcpy = memcpy
stand_in.read = stand_in.imdecode = stand_in.resize_crop = stand_in.ctypes_resize = None
sys.modules["ffcv.libffcv"] = stand_in

import ffcv.fields as fields  # noqa: E402
from ffcv.loader import Loader, OrderOption  # noqa: E402
from ffcv.reader import Reader  # noqa: E402
from ffcv.writer import DatasetWriter  # noqa: E402

SAMPLES = 7


class Everything:
    """Every field that FFCV knows, but for images."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        i = int(index)
        return (
            i * i - 3,
            i / 4,
            np.arange(i + 1, dtype=np.uint8),
            {"name": f"n{i} é", "list": [i] * i},
            np.arange(6, dtype="<f4").reshape(2, 3) + i,
            torch.arange(4) * i,
        )


class Pictures:
    """Images of one size, or of several."""

    def __init__(self, equal: bool) -> None:
        self.equal = equal

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        i = int(index)
        height, width = (8, 12) if self.equal else (8 + i, 20 - i)
        return np.random.default_rng(i).integers(0, 255, (height, width, 3), np.uint8), i % 3


def write(path: Path, dataset: Any, described: dict[str, Any]) -> None:
    """One file, kept compressed; its pages as small as FFCV makes them."""
    DatasetWriter(str(path), described, page_size=1 << 21, num_workers=1).from_indexed_dataset(dataset, chunksize=3)
    Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def loaded(path: Path, names: list[str]) -> dict[str, Any]:
    """The values of some fields by FFCV's loader, in order."""
    loader = Loader(str(path), batch_size=1, num_workers=1, order=OrderOption.SEQUENTIAL, os_cache=True)
    place = {name: i for i, name in enumerate(loader.reader.field_names)}
    found: dict[str, Any] = {name: [] for name in names}
    for batch in loader:
        for name in names:
            found[name].append(np.asarray(batch[place[name]])[0].tolist())
    return found


def main(folder: Path) -> None:
    """Writes all files."""
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "label": fields.IntField(),
        "score": fields.FloatField(),
        "raw": fields.BytesField(),
        "about": fields.JSONField(),
        "box": fields.NDArrayField(np.dtype("<f4"), (2, 3)),
        "tensor": fields.TorchTensorField(torch.int64, (4,)),
    }
    write(folder / "every.beton", Everything(), described)
    pictures = {"image": fields.RGBImageField("raw"), "label": fields.IntField()}
    write(folder / "raw.beton", Pictures(True), pictures)
    write(folder / "sizes.beton", Pictures(False), pictures)
    write(folder / "jpg.beton", Pictures(False), {**pictures, "image": fields.RGBImageField("jpg")})
    np.random.seed(3)  # noqa: NPY002 # FFCV draws with it
    write(folder / "mixed.beton", Pictures(True), {**pictures, "image": fields.RGBImageField("proportion")})
    expected = loaded(folder / "every.beton", list(described))
    sizes = Reader(str(folder / "every.beton")).metadata["f2"]["size"]
    expected["raw"] = [one[:size] for one, size in zip(expected["raw"], sizes.tolist(), strict=True)]
    expected["about"] = [fields.JSONField.unpack(np.array(one, np.uint8)) for one in expected["about"]]
    expected["images"] = [Pictures(True)[i][0].tolist() for i in range(SAMPLES)]
    table = Reader(str(folder / "jpg.beton"))
    places = {int(ptr): int(size) for _, ptr, size in table.alloc_table.tolist()}
    data = (folder / "jpg.beton").read_bytes()
    starts = table.metadata["f0"]["data_ptr"].tolist()
    expected["jpg"] = [data[ptr : ptr + places[ptr]].hex() for ptr in starts]
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    for path in folder.glob("*.beton"):
        path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
