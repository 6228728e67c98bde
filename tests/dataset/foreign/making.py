"""Small data sets of other libraries, for tests of catalogues."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss

SAMPLES = 24


def jpeg(number: int) -> bytes:
    """A picture of one colour."""
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.new("RGB", (24, 16), (number * 7 % 256, number * 13 % 256, 50)).save(out, "jpeg")
    return out.getvalue()


def tar(path: Path, keys: list[str], **fields: Any) -> None:
    """A tar of WebDataset; a field is a function of the sample's number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
        for number, key in enumerate(keys):
            for name, make in fields.items():
                data = make(number)
                data = data if isinstance(data, bytes) else str(data).encode()
                member = tarfile.TarInfo(f"{key}.{name}")
                member.size = len(data)
                out.addfile(member, io.BytesIO(data))


def webdataset(folder: Path, tars: int = 3, samples: int = SAMPLES, start: int = 0) -> Path:
    """Tars ``part-0.tar``, ... with a picture, a label and JSON each."""
    for number in range(start, start + tars):
        tar(
            folder / f"part-{number}.tar",
            [f"t{number}/{row:03d}" for row in range(samples)],
            jpg=jpeg,
            cls=lambda row, number=number: (row + number) % 10,
            json=lambda row, number=number: json.dumps({"tar": number, "row": row}),
        )
    return folder


def batches(url: Any, workers: int = 0, **options: Any) -> list[tuple[list[str], list[int]]]:
    """Keys and labels of an epoch, batch by batch."""
    given = {"batch_size": 8, "fields": ["cls", "json", "jpg"], "shuffle": True, "seed": 5} | options
    loader = ss.Loader(ss.ShardDataset(url, **given), num_workers=workers)
    return [(list(batch["__key__"]), batch["cls"].tolist()) for batch in loader]


def everything(url: Any, **opening: Any) -> dict[str, Mapping[str, Any]]:
    """Every sample by key."""
    return {sample["__key__"]: sample for sample in ss.Reader(url, **opening)}
