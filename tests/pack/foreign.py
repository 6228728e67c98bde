"""Small data sets of other libraries, and what is stored in a data set, wherever it lies."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.opening import open_dataset

from .making import jpeg

COUNT = 24
GOLDEN = Path(__file__).parent.parent / "golden/foreign"


def stored(url: Any, **opening: Any) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The stored values of every sample by key, and the types of fields."""
    dataset = open_dataset(url, **opening)
    found = {}
    for batch in DatasetRows(dataset).read_shards(range(dataset.manifest.shards)):
        for i, key in enumerate(batch.keys):
            values = {name: value for name, value in batch.values(i).items() if value is not None}
            found[key] = {name: _plain(value) for name, value in values.items()}
    return found, {name: str(kind) for name, kind in dataset.manifest.fields.items()}


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value.tobytes() if hasattr(value, "tobytes") else value


def tar_bytes(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def members(first: int, count: int) -> dict[str, bytes]:
    """Samples of WebDataset."""
    found = {}
    for i in range(first, first + count):
        found |= {f"a/{i:03d}.jpg": jpeg(i), f"a/{i:03d}.cls": b"%d" % (i % 3), f"a/{i:03d}.txt": b"text %d" % i}
    return found


def webdataset(folder: Path, tars: int = 2) -> Path:
    folder.mkdir(parents=True)
    for number in range(tars):
        (folder / f"part-{number}.tar").write_bytes(tar_bytes(members(number * COUNT, COUNT)))
    (folder / "README.md").write_text("tars")
    return folder


def tar_of_tars(folder: Path) -> Path:
    folder.mkdir()
    inner = {f"n{c}.tar": tar_bytes({f"n{c}_{i}.JPEG": jpeg(10 * c + i) for i in range(5)}) for c in range(3)}
    (folder / "train.tar").write_bytes(tar_bytes(inner))
    return folder / "train.tar"


def zipped(folder: Path) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        for name, data in members(0, COUNT).items():
            archive.writestr(name, data)
    return folder / "all.zip"


def lmdb_database(folder: Path) -> Path:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(folder), map_size=1 << 24) as environment, environment.begin(write=True) as change:
        for i in range(COUNT):
            change.put(b"%03d" % i, jpeg(i))
    return folder


def text_recognition(folder: Path) -> Path:
    """An LMDB database with a label for each image, and their number."""
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(folder), map_size=1 << 24) as environment, environment.begin(write=True) as change:
        change.put(b"num-samples", b"%d" % COUNT)
        for i in range(1, COUNT + 1):
            change.put(b"image-%09d" % i, jpeg(i))
            change.put(b"label-%09d" % i, b"word %d" % i)
    return folder


def recordio(folder: Path) -> Path:
    folder.mkdir()
    out = b""
    for i in range(COUNT):
        payload = struct.pack("<IfQQ", 0, i % 3, i, 0) + jpeg(i)
        out += struct.pack("<II", 0xCED7230A, len(payload)) + payload + bytes(-len(payload) % 4)
    (folder / "train.rec").write_bytes(out)
    return folder / "train.rec"


def megatron(folder: Path) -> Path:
    """An indexed data set of tokens, copied from the golden files."""
    folder.mkdir()
    for suffix in ("bin", "idx"):
        shutil.copy(GOLDEN / f"megatron/uint16.{suffix}", folder)
    return folder


def beton(folder: Path) -> Path:
    folder.mkdir()
    (folder / "jpg.beton").write_bytes(gzip.decompress((GOLDEN / "beton/jpg.beton.gz").read_bytes()))
    return folder / "jpg.beton"


def array(folder: Path) -> Path:
    folder.mkdir()
    np.save(folder / "vectors.npy", np.arange(60, dtype=np.float32).reshape(20, 3))
    return folder / "vectors.npy"


def datasets(folder: Path) -> Path:
    """What ``save_to_disk`` of `datasets` writes."""
    folder.mkdir(parents=True)
    images = [{"bytes": jpeg(i), "path": "same.jpg"} for i in range(COUNT)]
    table = pa.table({"image": images, "label": [i % 3 for i in range(COUNT)], "tags": [["a", "b"]] * COUNT})
    for part in range(2):
        rows = table.slice(part * COUNT // 2, COUNT // 2)
        with pa.ipc.new_stream(str(folder / f"data-{part}.arrow"), table.schema) as writer:
            writer.write_table(rows, max_chunksize=5)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": f"data-{i}.arrow"} for i in range(2)]}))
    return folder


def coco(folder: Path) -> Path:
    (folder / "annotations").mkdir(parents=True)
    (folder / "val2017").mkdir()
    for row in range(COUNT):
        (folder / f"val2017/{row:03d}.jpg").write_bytes(jpeg(row))
    seen = [{"image_id": row, "category_id": 2, "bbox": [0, 1, row, 3], "segmentation": [[row]]} for row in range(9)]
    images = [{"id": row, "file_name": f"{row:03d}.jpg"} for row in range(COUNT)]
    about = {"images": images, "annotations": seen * 2, "categories": [{"id": 2, "name": "cat"}]}
    (folder / "annotations/instances_val2017.json").write_text(json.dumps(about))
    return folder


def yolo(folder: Path) -> Path:
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for row in range(COUNT):
        (folder / f"images/{row:03d}.jpg").write_bytes(jpeg(row))
        if row % 3:
            (folder / f"labels/{row:03d}.txt").write_text("1 0.5 0.5 0.25 0.5\n" * (row % 3))
    return folder


WRITERS: dict[str, Callable[[Path], Path]] = {
    one.__name__: one
    for one in (
        webdataset,
        tar_of_tars,
        zipped,
        lmdb_database,
        text_recognition,
        recordio,
        megatron,
        beton,
        array,
        datasets,
        coco,
        yolo,
    )
}
