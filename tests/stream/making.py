"""Small data sets for the tests of stream and load, written shard by shard without the pack room."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream.shards.fields import FieldType
from shardstream.storage import open_store
from shardstream.testing.dataset import write_shards

Sample = Mapping[str, Any]


def write_dataset(
    folder: Path, shards: Iterable[Iterable[Sample]], *, format: str = "tar", types: Mapping[str, str] | None = None
) -> Path:
    """A data set of these shards; every sample is a dict with ``__key__``."""
    declared = {name: FieldType.parse(text) for name, text in (types or {}).items()}
    write_shards(open_store(folder), shards, format=format, types=declared)
    return folder


def numbered(sizes: Iterable[int], **fields: Any) -> list[list[dict[str, Any]]]:
    """Shards of these sizes: keys and ``id`` count through; each of ``fields`` is a function of the number."""
    shards, number = [], 0
    for size in sizes:
        shard = []
        for _ in range(size):
            sample = {"__key__": f"k{number:06d}", "id": number}
            shard.append(sample | {name: make(number) for name, make in fields.items()})
            number += 1
        shards.append(shard)
    return shards


def photograph(number: int, width: int = 96, height: int = 72) -> bytes:
    """A smooth image with a pattern of its own, as JPEG."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = [np.sin(x / (7 + number % 5) + k) + np.cos(y / (9 + k) + number) for k in range(3)]
    pixels = ((np.stack(waves, axis=-1) + 2) * 63).astype(np.uint8)
    buffer = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def labels(width: int = 96, height: int = 72) -> bytes:
    """A label map as grey PNG."""
    buffer = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray((np.indices((height, width)).sum(0) % 9 + 1).astype(np.uint8)).save(
        buffer, "PNG"
    )
    return buffer.getvalue()


def square(value: Any) -> Any:
    """A transform that spawn can pickle: the id, squared."""
    return value | {"id": value["id"] ** 2}


def die_at(number: int, how: int, value: Any) -> Any:
    """A transform, once its first two arguments are given, that ends its process at the sample of this number."""
    if value["id"] == number:
        os.kill(os.getpid(), how)
    return value
