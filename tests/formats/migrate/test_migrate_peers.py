"""Programs that `migrate` prints for what people have: with the other library and with this one, the same samples.

With ``--full`` those run whose library is installed; `tools/foreign/make_golden` says which of them need an environment
of their own.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from tests.diagnose.programs import batches, same_samples, seen, theirs
from tests.formats.catalog.making import jpeg
from tests.formats.migrate.test_migrate import told

COUNT = 12


def compare(url: Any, library: str, **options: Any) -> None:
    """Both programs read the same pictures and labels."""
    found = told(url, batch_size=4, **options)
    assert found.library == library
    assert found.before is not None
    with theirs():
        before = seen(found.before)
    after = seen(found.after)
    assert len(after) == COUNT
    assert same_samples(before, after)


def class_folders(folder: Path) -> Path:
    for row in range(COUNT):
        path = folder / f"class{row % 3}" / f"{row}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(row))
    return folder


def packed(folder: Path) -> Path:
    """A data set of ours, to be exported."""
    with ss.ShardWriter(folder / "ours", shard_size="4kB") as writer:
        for row in range(COUNT):
            writer.write({"__key__": str(row), "jpg": jpeg(row), "cls": row % 3})
    return folder / "ours"


def test_zip(tmp_path: Path) -> None:
    for part in range(2):
        with zipfile.ZipFile(tmp_path / f"part-{part}.zip", "w") as archive:
            for row in range(6 * part, 6 * part + 6):
                archive.writestr(f"all/{row:02d}.jpg", jpeg(row))
                archive.writestr(f"all/{row:02d}.cls", str(row % 5))
    compare(tmp_path, "zipfile")


def test_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pictures = np.broadcast_to(rng.integers(0, 255, (COUNT, 1, 1, 3), np.uint8), (COUNT, 9, 7, 3))
    np.savez(tmp_path / "all.npz", image=pictures, label=np.arange(COUNT) % 3)
    compare(tmp_path, "numpy")


def test_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    pictures = np.broadcast_to(rng.integers(0, 255, (COUNT, 1, 1, 3), np.uint8), (COUNT, 9, 7, 3))
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file["train/image"], file["train/label"] = pictures, np.arange(COUNT) % 3
    ss.index(tmp_path, fields={"image": "train.image", "cls": "train.label"}, workers=1)
    compare(tmp_path, "h5py")


def test_lmdb_of_text_recognition(tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path), map_size=1 << 22) as base, base.begin(write=True) as change:
        for row in range(COUNT):
            change.put(b"image-%09d" % (row + 1), jpeg(row))
            change.put(b"label-%09d" % (row + 1), b"word %d" % row)
        change.put(b"num-samples", b"%d" % COUNT)
    found = told(tmp_path, batch_size=4)
    assert found.library == "lmdb"
    with theirs():
        before = batches(found.before or "")
    words = [sorted(word for batch in one for word in batch[1]) for one in (before, batches(found.after))]
    assert words[0] == words[1] == sorted(f"word {row}" for row in range(COUNT))


def test_tokens_of_nanogpt(tmp_path: Path) -> None:
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    options = {"length": "31", "dtype": "uint16"}
    found = told(tmp_path, reading=ss.SourceOptions(format="nanogpt", options=options), batch_size=4)
    assert found.library == "numpy"
    with theirs():
        before = batches(found.before or "")
    for one in (before, batches(found.after)):
        assert all(tuple(batch[0].shape) == (4, 32) for batch in one)
        assert all((np.diff(np.asarray(batch[0]).astype(int)) == 1).all() for batch in one)
    assert abs(len(before) - len(batches(found.after))) <= 1


# ------------------------------------------------------------------------- libraries that are not in the test group


MP_DATASET = """
import os
import torch
from PIL import Image

class MPDataset(torch.utils.data.IterableDataset):
    def __init__(self, root, transform=None, keep_rgb=False, shuffle=False):
        self.root, self.transform = root, transform

    def set_epoch(self, epoch): ...

    def __iter__(self):
        with open(os.path.join(self.root, "data.csv")) as lines:
            for line in lines:
                path, label = line.rstrip().split(",,")[:2]
                with Image.open(os.path.join(self.root, path)) as image:
                    yield self.transform(image.convert("RGB")), int(label)
"""


def test_mp_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in: ZCls is not to be had from an index, and reads pictures with OpenCV."""
    module = ModuleType("zcls.data.datasets.mp_dataset")
    exec(MP_DATASET, vars(module))
    for name in ("zcls", "zcls.data", "zcls.data.datasets"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for row in range(COUNT):
        (tmp_path / f"{row}.jpg").write_bytes(jpeg(row))
    (tmp_path / "data.csv").write_text("".join(f"{row}.jpg,,{row % 3}\n" for row in range(COUNT)))
    (tmp_path / "cls.csv").write_text("a\nb\nc\n")
    compare(tmp_path, "MPDataset")


@pytest.mark.full
def test_image_folder(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    compare(class_folders(tmp_path), "torchvision's ImageFolder")


@pytest.mark.full
def test_coco_detection(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    pytest.importorskip("pycocotools")
    (tmp_path / "annotations").mkdir()
    (tmp_path / "train2017").mkdir()
    images = [{"id": row, "file_name": f"{row}.jpg", "width": 24, "height": 16} for row in range(COUNT)]
    for row, one in enumerate(images):
        (tmp_path / "train2017" / str(one["file_name"])).write_bytes(jpeg(row))
    boxes = [{"id": row + 1, "image_id": row, "category_id": 1, "bbox": [1, 2, 9, 8], "iscrowd": 0} for row in range(9)]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "annotations/instances_train2017.json").write_text(json.dumps(content))
    found = told(tmp_path, batch_size=4)
    with theirs():
        before = batches(found.before or "")
    after = batches(found.after)
    assert sum(len(batch[0]) for batch in before) == sum(len(batch[0]) for batch in after) == found.samples
    assert after[0][0].shape[1:] == before[0][0][0].shape


@pytest.mark.full
def test_mosaic(tmp_path: Path) -> None:
    pytest.importorskip("streaming")
    ss.export(packed(tmp_path), tmp_path / "mds", to="mds", workers=0)
    compare(tmp_path / "mds", "mosaicml-streaming")


def optimized(row: int) -> dict[str, Any]:
    """A sample of litdata, whose writer calls this in other processes."""
    import io

    from PIL import Image

    return {"image": Image.open(io.BytesIO(jpeg(row))), "label": row % 3}


@pytest.mark.full
def test_litdata(tmp_path: Path) -> None:
    litdata = pytest.importorskip("litdata")
    with theirs():
        litdata.optimize(optimized, list(range(COUNT)), str(tmp_path / "lit"), num_workers=1, chunk_bytes="4KB")
    compare(tmp_path / "lit", "litdata")


@pytest.mark.full
def test_tfrecord(tmp_path: Path) -> None:
    writer = pytest.importorskip("tfrecord").TFRecordWriter(str(tmp_path / "train.tfrecord"))
    for row in range(COUNT):
        writer.write({"image": (jpeg(row), "byte"), "label": (row % 3, "int")})
    writer.close()
    compare(tmp_path, "tfrecord")


@pytest.mark.full
def test_datasets_saved_to_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    rows = {
        "image": [{"bytes": jpeg(row), "path": None} for row in range(COUNT)],
        "label": [row % 3 for row in range(COUNT)],
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")
    compare(tmp_path / "saved", "Hugging Face's datasets")


@pytest.mark.full
def test_datasets_of_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    features = datasets.Features({"image": datasets.Image(), "fine_label": datasets.ClassLabel(names=["a", "b", "c"])})
    for part in range(2):
        rows = range(6 * part, 6 * part + 6)
        columns = {
            "image": [{"bytes": jpeg(row), "path": None} for row in rows],
            "fine_label": [row % 3 for row in rows],
        }
        table = datasets.Dataset.from_dict(columns, features=features)
        table.to_parquet(tmp_path / "data" / f"train-{part:05d}-of-00002.parquet")
    found = told(tmp_path / "data", batch_size=4)
    assert '"fine_label": rows["fine_label"]' in (found.before or "")
    compare(tmp_path / "data", "Hugging Face's datasets")


@pytest.mark.full
def test_datasets_of_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    lines = [json.dumps({"text": f"text {row}", "score": row / 2}) for row in range(COUNT)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    found = told(tmp_path / "rows.jsonl", batch_size=4)
    with theirs():
        before = batches(found.before or "")
    texts = [sorted(text for batch in one for text in batch[0]) for one in (before, batches(found.after))]
    assert texts[0] == texts[1] == sorted(f"text {row}" for row in range(COUNT))
