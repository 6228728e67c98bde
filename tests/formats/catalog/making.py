"""Small data sets of other libraries, for tests of catalogues."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import shardstream as ss

SAMPLES = 24
COMPRESSED = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}


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


def mds(folder: Path, compression: str = "", shards: int = 3, samples: int = SAMPLES) -> Path:
    """MDS shards with the same fields, compressed (``zstd``, ``gz``, ``bz2``) or not."""
    folder.mkdir(parents=True, exist_ok=True)
    described = []
    for number in range(shards):
        records = []
        for row in range(samples):
            values = jpeg(row), (row + number) % 10, json.dumps({"tar": number, "row": row}).encode()
            sizes = struct.pack("<II", len(values[0]), len(values[2]))
            records.append(sizes + values[0] + struct.pack("<q", values[1]) + values[2])
        ends = np.cumsum([4 + 4 * (samples + 1), *map(len, records)]).astype("<u4")
        data = struct.pack("<I", samples) + ends.tobytes() + b"".join(records)
        raw = {"basename": f"shard.{number:05d}.mds", "bytes": len(data), "hashes": {"sha1": sha1(data)}}
        one = {"raw_data": raw, "samples": samples, "format": "mds", "version": 2, "compression": compression or None}
        one |= {"column_names": ["jpg", "cls", "json"], "column_encodings": ["jpeg", "int", "json"]}
        one |= {"column_sizes": [None, 8, None], "zip_data": None}
        if compression:
            data = COMPRESSED[compression](data)
            name = f"{raw['basename']}.{compression}"
            one["zip_data"] = {"basename": name, "bytes": len(data), "hashes": {"sha1": sha1(data)}}
        (folder / (one["zip_data"] or raw)["basename"]).write_bytes(data)
        described.append(one)
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": described}))
    return folder


def packed_tars(folder: Path, compression: str) -> Path:
    """The tars of `webdataset`, compressed; ``frames``: with zstd, 8 KB a frame."""
    webdataset(folder)
    for path in folder.glob("*.tar"):
        data = path.read_bytes()
        if compression == "frames":
            compress = COMPRESSED["zstd"]
            data = b"".join(compress(data[begin : begin + 8192]) for begin in range(0, len(data), 8192))
        else:
            data = COMPRESSED[compression](data)
        path.with_name(f"{path.name}.{'zst' if compression == 'frames' else compression}").write_bytes(data)
        path.unlink()
    return folder


def zips(folder: Path, compression: int = zipfile.ZIP_STORED) -> Path:
    """The members of the tars of `webdataset` in zip files."""
    webdataset(folder)
    for path in folder.glob("*.tar"):
        with tarfile.open(path) as tar_file, zipfile.ZipFile(path.with_suffix(".zip"), "w", compression) as out:
            for member in tar_file:
                data = tar_file.extractfile(member)
                assert data is not None
                out.writestr(member.name, data.read())
        path.unlink()
    return folder


def sha1(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def batches(url: Any, workers: int = 0, **options: Any) -> list[tuple[list[str], list[int]]]:
    """Keys and labels of an epoch, batch by batch."""
    given = {"batch_size": 8, "fields": ["cls", "json", "jpg"], "shuffle": True, "seed": 5} | options
    loader = ss.Loader(ss.ShardDataset(url, **given), num_workers=workers)
    return [(list(batch["__key__"]), batch["cls"].tolist()) for batch in loader]


def everything(url: Any, **opening: Any) -> dict[str, Mapping[str, Any]]:
    """Every sample by key."""
    return {sample["__key__"]: sample for sample in ss.Reader(url, **opening)}
