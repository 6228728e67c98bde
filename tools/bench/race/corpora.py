"""The data of the race: the photographs of `bench.data`, large ones made of them, and small samples of one size."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bench.data import HOME, WORKERS, Corpus, list_of

FOLDER = HOME / "race"
STORES = FOLDER / "stores"
PHOTOGRAPHS = 3072  # by default
LARGE, LARGE_BATCH, LARGE_CLASSES = 128, 8, 4
SHEET, PICTURE = 8, (500, 375)  # pictures along both sides of a large one, and their size: 4000 x 3000 together
QUALITY = 90
SMALL = 32_768

Kind: TypeAlias = Literal["tokens", "images"]
SHAPES: dict[Kind, tuple[tuple[int, ...], Any]] = {
    "tokens": ((1024,), np.dtype(np.int32)),
    "images": ((32, 32, 3), np.dtype(np.uint8)),
}


def large(corpus: Corpus) -> Corpus:
    """Sheets of 64 photographs each, as large in pixels and bytes as a camera's pictures; made if not there."""
    folder = FOLDER / f"large-{LARGE}"
    if not list_of(folder).exists():
        shutil.rmtree(folder, ignore_errors=True)
        places = [folder / f"{number % LARGE_CLASSES}" / f"{number:05d}.jpg" for number in range(LARGE)]
        for path in places:
            path.parent.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(WORKERS) as pool:
            list(pool.map(partial(_sheet, [path for path, _ in corpus.entries]), range(LARGE), places))
        lines = [f"{path.relative_to(folder.parent)}\t{number % LARGE_CLASSES}" for number, path in enumerate(places)]
        list_of(folder).write_text("".join(f"{line}\n" for line in lines))
    return Corpus(folder, LARGE)


def _sheet(paths: list[Path], number: int, out: Path) -> None:
    from PIL import Image

    width, height = PICTURE
    sheet = Image.new("RGB", (SHEET * width, SHEET * height))
    for place, path in enumerate(random.Random(number).sample(paths, SHEET * SHEET)):
        with Image.open(path) as picture:
            top, left = divmod(place, SHEET)
            sheet.paste(picture.resize(PICTURE), (left * width, top * height))
    sheet.save(out, quality=QUALITY)


def small(kind: Kind, number: int) -> NDArray[Any]:
    """A small sample: its number in 4 bytes, then what looks like tokens or pixels."""
    shape, dtype = SHAPES[kind]
    sample = np.random.default_rng(number).integers(0, 256 if kind == "images" else 50_000, shape, dtype)
    sample.reshape(-1).view(np.uint8)[:4] = np.array([number], "<u4").view(np.uint8)
    return sample
