"""Pictures with labels or boxes in the layouts that people have in buckets, for tests of these."""

from __future__ import annotations

import json
from pathlib import Path

from .making import jpeg

COUNT = 40
CLASSES = ("ant", "cat", "dog é")


def make(kind: str, root: Path) -> str:
    """Write a data set of `COUNT` pictures below a folder; returns what of it is opened, ``""`` for all."""
    return _MAKERS[kind](root)


def _picture(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jpeg(number) + bytes(number))  # of as many sizes as there are


def _folder(root: Path) -> str:
    for number in range(COUNT):
        _picture(root / CLASSES[number % 3] / f"p {number:03d}.jpg", number)
    return ""


def _csv(root: Path) -> str:
    for number in range(COUNT):
        _picture(root / "images" / f"{number:03d}.jpg", number)
    lines = (f"images/{number:03d}.jpg,{CLASSES[number % 3]}\n" for number in range(COUNT))
    (root / "train.csv").write_text("path,label\n" + "".join(lines))
    return "train.csv"


def _jsonl(root: Path) -> str:
    _csv(root)
    lines = ({"path": f"images/{number:03d}.jpg", "label": number % 3, "note": f"n{number}"} for number in range(COUNT))
    (root / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "train.jsonl"


def _coco(root: Path) -> str:
    for number in range(COUNT):
        _picture(root / "val2017" / f"{number:03d}.jpg", number)
    images = [{"id": 7 * number, "file_name": f"{number:03d}.jpg"} for number in range(COUNT)]
    annotations = [
        {
            "id": number,
            "image_id": 7 * (number % COUNT),
            "category_id": 3 + number % 4,
            "bbox": [1, 2, 3 + number, 4],
            "segmentation": [[1, 2, 3, 4, 5, number]],
        }
        for number in range(2 * COUNT)
        if number % 5
    ]
    categories = [{"id": 3 + number, "name": f"c{number}"} for number in range(4)]
    (root / "annotations").mkdir()
    found = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations/instances_val2017.json").write_text(json.dumps(found))
    return "annotations/instances_val2017.json"


def _yolo(root: Path) -> str:
    for number in range(COUNT):
        _picture(root / "images/train" / f"{number:03d}.jpg", number)
        labels = root / "labels/train" / f"{number:03d}.txt"
        labels.parent.mkdir(parents=True, exist_ok=True)
        labels.write_text("".join(f"{one} 0.5 0.5 0.25 0.5\n" for one in range(number % 3)))
    (root / "data.yaml").write_text("train: images/train\nnames: [a, b, c]\n")
    return "data.yaml"


_MAKERS = {"folder": _folder, "csv": _csv, "jsonl": _jsonl, "coco": _coco, "yolo": _yolo}
KINDS = tuple(_MAKERS)
