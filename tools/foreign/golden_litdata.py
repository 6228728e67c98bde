#!/usr/bin/env python3
# needs: litdata==0.2.76 torch==2.13.0 torchvision==0.28.0 pyarrow==26.0.1 zstd==1.5.7.2 cryptography==50.0.2
"""Write LitData data sets with litdata, and what its own reader gives: golden files of `tests/formats`.

    tools/foreign/make_golden litdata              # in an environment of its own
    python tools/foreign/golden_litdata.py FOLDER  # in one that has litdata

The folder is replaced. ``every`` has all serialisers of dictionaries, ``pairs`` tuples, ``single`` lone images,
``tokens`` rows for TokensLoader, ``numpy`` and ``tensors`` arrays of each dtype, ``zstd-LEVEL`` compressed chunks,
``arrow`` the tables that LitData writes where it finds pyarrow, ``encrypted`` and ``pickled`` what their names say.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from litdata import StreamingDataset, TokensLoader
from litdata.streaming import item_loader, serializers
from litdata.streaming.cache import Cache
from litdata.utilities.encryption import FernetEncryption
from PIL import Image
from telling import write_expected

NUMPY: tuple[str, ...] = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMPY += ("float16", "float32", "float64", "complex64", "complex128", "bool")
TORCH: tuple[str, ...] = (
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float16",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
)
TORCH += ("bool", "uint16")


def picture(number: int, mode: str = "L") -> Image.Image:
    """A small picture."""
    pixels = np.random.default_rng(number).integers(0, 256, (7, 11 + number, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def file_of(number: int, kind: str = "JPEG") -> bytes:
    """A picture as a file."""
    out = io.BytesIO()
    picture(number).save(out, kind)
    return out.getvalue()


def opened(data: bytes) -> Image.Image:
    """A picture as users give it to the writer."""
    image = Image.open(io.BytesIO(data))
    image.filename = ""
    return image


def everything(number: int) -> dict[str, Any]:
    """A sample with all kinds of values."""
    rng = np.random.default_rng(number)
    return {
        "bytes": bytes(range(number)),
        "photo": file_of(number),
        "str": "täxt " * number,
        "int": number - 2**40,
        "float": number / 3,
        "bool": number % 2 == 0,
        "nested": {"one": number, "two": {"jpeg": opened(file_of(number))}},
        "pil": picture(number, ("RGB", "L", "1", "RGBA", "LA")[number % 5]),
        "jpegs": [opened(file_of(number)), opened(file_of(number + 1))],
        "numpy": rng.random((2, number), np.float32),
        "row": rng.integers(0, 99, number),
        "tensor": torch.arange(6 * number).reshape(2, 3, number),
        "a/b c": torch.arange(number, dtype=torch.int16),
        "texts": ["a", "ü" * number],
        "boxes": [{"x": 0.5, "n": number, "name": "é", "ok": True, "none": None}] * (number % 3),
        "mixed": [1, "a", {"b": [True, None, 2.5, [[]]]}],
        "map": {"numbers": [1, 2, 3 * number], "reals": [0.5], "flags": [True, False]},
    }


def written(folder: Path, samples: list[Any], *, pyarrow: bool = False, loader: Any = None, **options: Any) -> None:
    """A data set of these samples, four a chunk."""
    item_loader._PYARROW_AVAILABLE = pyarrow
    folder.mkdir(parents=True)
    size = {"chunk_bytes": 100} if loader is not None else {"chunk_size": 4}
    cache = Cache(str(folder), **size, item_loader=loader, **options)
    for number, sample in enumerate(samples):
        cache._add_item(number, sample)
    cache.done()
    cache.merge()
    for leftover in folder.glob("*.lock"):
        leftover.unlink()
    index = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(index | {"updated_at": "0"}, sort_keys=True))


class _File:
    """An image as its file, in place of a decoded one."""

    def __init__(self, data: Any) -> None:
        self.fp = io.BytesIO(bytes(data))


def read(folder: Path, loader: Any = None) -> list[Any]:
    """All samples, by the library's own reader; images that it would decode stay files."""
    serializers.JPEGSerializer.deserialize = lambda self, data: _File(data)
    serializers.ImageSerializer.deserialize = lambda self, data: _File(data)
    dataset = StreamingDataset(str(folder), item_loader=loader)
    return [dataset[row] for row in range(len(dataset))]


def flat(sample: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves by their paths. Lists are leaves, tuples are not, as in the samples above."""
    if isinstance(sample, dict):
        items: Any = sample.items()
    elif isinstance(sample, tuple):
        items = enumerate(sample)
    else:
        return {prefix or "value": sample}
    out: dict[str, Any] = {}
    for key, value in items:
        out |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return out


def main() -> None:
    """Write all data sets."""
    root = Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    plain: dict[str, list[Any]] = {
        "every": [everything(number) for number in range(1, 10)],
        "pairs": [(picture(number, "RGB"), number) for number in range(6)],
        "single": [opened(file_of(number)) for number in range(3)],
        "numpy": [{name: np.ones((2, n), name) for name in NUMPY} | {"r": np.ones(n, "bool")} for n in range(1, 4)],
        "tensors": [
            {name: torch.ones((n, 2), dtype=getattr(torch, name)) for name in TORCH}
            | {f"row_{name}": torch.ones(n, dtype=getattr(torch, name)) for name in TORCH}
            for n in range(1, 4)
        ],
    }
    for name, samples in plain.items():
        written(root / name, samples)
        write_expected(root / name, [flat(sample) for sample in read(root / name)])
    rows = [torch.arange(number, dtype=torch.int32) + 100 * number for number in range(5, 14)]
    written(root / "tokens", rows, loader=TokensLoader())
    write_expected(root / "tokens", [{"tokens": row} for row in read(root / "tokens", TokensLoader(block_size=6))])
    plain_rows = [{"image": file_of(number), "label": number} for number in range(6)]
    pictures = [{"image": opened(file_of(number)), "label": number} for number in range(6)]
    for level in ("chunk", "batch", "sample"):
        written(root / f"zstd-{level}", pictures, compression="zstd", compression_level=level)
    written(root / "arrow", plain_rows, pyarrow=True)
    written(root / "encrypted", plain_rows, encryption=FernetEncryption(password="x", level="sample"))  # noqa: S106 # nobody is to be kept out
    written(root / "pickled", [{"x": {1, 2}}])


if __name__ == "__main__":
    main()
