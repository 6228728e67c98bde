#!/usr/bin/env python3
# needs: mosaicml-streaming==0.13.0 torch==2.15.0 torchvision==0.29.2 pillow==13.0.0
"""Write MDS data sets with mosaicml-streaming, and what its own reader gives: golden files of `tests/formats`.

    tools/foreign/make_golden mds              # in an environment of its own
    python tools/foreign/golden_mds.py FOLDER  # in one that has mosaicml-streaming

The folder is replaced. ``every`` has all encodings, ``merged`` an index over sub-folders and a shard without samples,
``splits`` two data sets, ``packed-CODEC`` compressed shards with hashes, ``pickled`` a pickle.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from streaming import MDSWriter
from streaming.base.format import reader_from_json
from streaming.base.util import merge_index
from telling import write_expected

DTYPES = ("uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64", "int64", "float64")
MODES = ("RGB", "L", "1", "RGBA", "LA", "P", "CMYK", "YCbCr", "I", "F", "I;16", "HSV", "LAB")
CODECS = ("zstd:3", "gz", "br:5", "bz2", "snappy")


def picture(number: int, mode: str = "RGB") -> Image.Image:
    """A small picture of a mode, wider than high, and of a width that is no multiple of 8."""
    rng = np.random.default_rng(number)
    width, height = 11 + number, 7
    if mode in ("I", "F", "I;16"):
        dtype = {"I": "int32", "F": "float32", "I;16": "uint16"}[mode]
        return Image.fromarray(rng.integers(0, 60000, (height, width)).astype(dtype))
    colours = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    if mode == "LAB":
        return Image.merge("LAB", colours.split())
    return colours.convert("RGBA").convert(mode) if mode in ("LA", "RGBA") else colours.convert(mode)


def file_of(number: int, kind: str = "JPEG", mode: str = "L") -> bytes:
    """A picture as a file."""
    out = io.BytesIO()
    picture(number, mode).save(out, kind)
    return out.getvalue()


def opened(data: bytes) -> Image.Image:
    """A picture as users give it to the writer."""
    return Image.open(io.BytesIO(data))


def everything(number: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Encodings and values of a sample that has all of them."""
    rng = np.random.default_rng(number)
    shape = (3, number + 1)
    columns: dict[str, tuple[str, Any]] = {
        "bytes": ("bytes", bytes(range(number))),
        "photo": ("bytes", file_of(number)),
        "str": ("str", "täxt " * number),
        "int": ("int", number - 2**40),
        "ndarray": ("ndarray", rng.integers(0, 99, shape).astype(DTYPES[number % len(DTYPES)])),
        "wide": ("ndarray", np.arange(300 + number, dtype=np.int16)),
        "ndarray typed": ("ndarray:float32", rng.random((number + 1,), np.float32)),
        "fixed/array": ("ndarray:int16:2,3", np.full((2, 3), -number, np.int16)),
        "str_int": ("str_int", number - 3),
        "str_float": ("str_float", [0.1, -1e300, float("inf"), 1 / 3, 5e-324][number % 5]),
        "str_decimal": ("str_decimal", Decimal("3.14159265358979323846264338327950288") * number),
        "pil": ("pil", picture(number, MODES[number % len(MODES)])),
        "jpeg": ("jpeg", opened(file_of(number))),
        "png": ("png", opened(file_of(number, "PNG"))),
        "jpeg_array": ("jpeg_array", [file_of(number), file_of(number + 1)]),
        "jpegarray": ("jpegarray", [file_of(number)]),
        "jpegs": ("list[jpeg]", [opened(file_of(other)) for other in range(number % 3)]),
        "pngs": ("list[png]", [opened(file_of(number, "PNG"))]),
        "pils": ("list[pil]", [picture(number), picture(number, "L")]),
        "json": ("json", {"a": [1, None, {"b": "ü"}], "n": number}),
    }
    for dtype in DTYPES:
        columns[dtype] = (dtype, np.dtype(dtype).type(number * 7))
    return {name: one for name, (one, _) in columns.items()}, {name: value for name, (_, value) in columns.items()}


def written(folder: Path, count: int, columns: dict[str, str] | None = None, **options: Any) -> None:
    """A data set of so many samples; of all encodings, or of labels and photographs."""
    with MDSWriter(out=str(folder), columns=columns or everything(0)[0], progress_bar=False, **options) as writer:
        for number in range(count):
            sample = everything(number)[1]
            if columns is not None:
                sample = {"image": file_of(number, mode="RGB"), "label": number, "text": f"photograph {number}"}
            writer.write({name: sample[name] for name in columns or sample})


def read(folder: Path) -> list[dict[str, Any]]:
    """All samples, by the library's own reader of shards."""
    index = json.loads((folder / "index.json").read_text())
    samples = []
    for shard in index["shards"]:
        reader = reader_from_json(str(folder), "", shard)
        samples += [reader[row] for row in range(reader.size)]
    return samples


def main() -> None:
    """Write all data sets."""
    root = Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    photographs = {"image": "jpeg", "label": "int", "text": "str"}
    written(root / "every", 13, size_limit=20000)
    for part, limit in enumerate(
        (500, 2000)
    ):  # a first sample above the limit leaves a shard without samples before it
        written(root / "merged" / str(part), 3, photographs, size_limit=limit, hashes=["xxh64"])
    merge_index(str(root / "merged"), keep_local=True)
    written(root / "splits" / "train", 2, photographs)
    written(root / "splits" / "val", 1, photographs)
    for codec in CODECS:
        written(root / f"packed-{codec.partition(':')[0]}", 4, photographs, compression=codec, hashes=["sha1", "xxh64"])
    with MDSWriter(out=str(root / "pickled"), columns={"x": "pkl"}, progress_bar=False) as writer:
        writer.write({"x": {1, 2}})
    for name in ("every", "merged"):
        write_expected(root / name, read(root / name))


if __name__ == "__main__":
    main()
