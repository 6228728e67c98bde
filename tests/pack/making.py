"""Small sources to pack, and data sets to compare."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import shardstream as ss
from shardstream.images.encode import encode
from shardstream.pack.options import PackOptions
from shardstream.pack.run import run_pack
from shardstream.shards.key_table import key_table_name
from shardstream.shards.manifest import Manifest
from shardstream.storage import MappedBuffers, open_store

PYTHON = [sys.executable, "-W", "error"]


@cache
def jpeg(number: int) -> bytes:
    """A small photograph unlike the others."""
    pixels = np.full((8, 8, 3), number % 256, np.uint8)
    return encode(pixels, "jpg") + b"\xff" * (number % 7)


def photos(root: Path, count: int, *, classes: int = 3, start: int = 0) -> list[str]:
    """Write ``c0/00000.jpg`` and so on; returns their paths relative to ``root``."""
    paths = []
    for i in range(start, start + count):
        path = root / f"c{i % classes}" / f"{i:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(i))
        paths.append(str(path.relative_to(root)))
    return paths


def make(folder: Path, text: str | bytes, name: str = "list.tsv") -> Path:
    """A list in a file."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def photo_list(root: Path, count: int, *, classes: int = 3) -> Path:
    """Photographs with a list of them."""
    lines = [f"{path}\t{i % classes}\n" for i, path in enumerate(photos(root, count, classes=classes))]
    path = root / "list.tsv"
    path.write_text("".join(lines))
    return path


def tree(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        os.path.relpath(os.path.join(folder, name), root): Path(folder, name).read_bytes()
        for folder, _, names in os.walk(root)
        for name in names
    }


def objects(manifest: Manifest) -> set[str]:
    """Names of everything that `pack` leaves where nothing was rejected."""
    tables = {manifest.table_name, key_table_name(manifest.fingerprint)}
    return {*map(manifest.shard_name, range(manifest.shards)), "dataset.json", "report.json"} | tables


def samples(url: Path, fields: Sequence[str] | None = None) -> dict[str, dict[str, object]]:
    """Every sample of a data set by key, in stored order."""
    manifest, store = Manifest.load(url), open_store(url)
    out: dict[str, dict[str, object]] = {}
    for number in range(manifest.shards):
        index = manifest.reader.scan(store, manifest.shard_name(number))
        names = [name for name in fields or manifest.fields if name in index.columns]
        values = manifest.reader.extract(index, MappedBuffers(store), np.arange(index.samples), names)
        for i, key in enumerate(index.keys):
            out[key] = {}
            for name in names:
                column = values[name]
                if column.valid is None or column.valid[i]:
                    value = column.data[i]
                    out[key][name] = bytes(value) if isinstance(value, memoryview) else value
    return out


def packed(out: Path, source: Any, fields: dict[str, str] | None, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """Pack a source here; its samples by key, and ``line: reason`` of each reject."""
    workers = options.pop("workers", 0)
    run_pack(source, out, PackOptions(fields=fields, shard_size="2kB", **options), workers=workers)
    path = out / "rejects.jsonl"
    rejects = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {one["__key__"]: one for one in ss.Reader(out)}, [f"{one['line']}: {one['reason']}" for one in rejects]


def types(out: Path) -> dict[str, str]:
    """The types of a data set's fields by their names."""
    return {name: kind.name for name, kind in ss.Manifest.load(out).fields.items()}
