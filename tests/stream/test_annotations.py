"""Boxes, placements and stored crops in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss

from .making import numbered, photograph, write_dataset

CROP = ss.decode.RandomResizedCrop(64, scale=(0.3, 1), flip=True)
FIELDS: dict[str, Any] = {
    "jpg": CROP,
    "boxes": ss.decode.Boxes(like="jpg"),
    "labels": ss.decode.PerBox(like="boxes"),
    "order": ss.decode.PerBox(like="boxes"),
    "where": ss.decode.Placement(like="jpg"),
    "size": ss.decode.SourceSize(like="jpg"),
    "first": ss.decode.Crop(24, box="face", source="jpg"),
    "any": ss.decode.Crop(24, box="boxes", pick=lambda boxes, rng: boxes[rng.integers(1, len(boxes))], source="jpg"),
    "id": None,
}


def some_boxes(number: int) -> np.ndarray[Any, Any]:
    """From one box, of everything, to three."""
    corner = np.random.default_rng(number).uniform(0, 40, (number % 3, 2))
    return np.concatenate([np.array([[0, 0, 96, 72]]), np.hstack([corner, corner + 20])]).astype(np.float32)


@pytest.fixture(scope="module")
def detections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 photographs with one to four boxes each, and one without."""
    shards = numbered(
        (25, 35),
        jpg=photograph,
        boxes=lambda number: np.concatenate([some_boxes(number), [[8, 8, 80, 60]]]).astype(np.float32),
        labels=lambda number: np.arange(number % 3 + 2) + 100 * number,
        order=lambda number: list(range(number % 3 + 2)),
        face=lambda number: np.array([number, 5, number + 30, 35], np.float32),
    )
    shards[0][7] |= {"boxes": np.zeros((0, 4), np.float32), "labels": np.zeros(0, np.int64), "order": []}
    types = {"face": "array:float32:4"}
    return write_dataset(tmp_path_factory.mktemp("detections"), shards, types=types)


def without_any() -> dict[str, Any]:
    return {name: spec for name, spec in FIELDS.items() if name != "any"}


def test_batches_for_a_detector(detections: Path) -> None:
    dataset = ss.ShardDataset(detections, fields=without_any(), batch_size=20, shuffle=True, seed=3)
    samples = {
        sample["id"]: sample for sample in ss.ShardDataset(detections, fields=without_any(), shuffle=True, seed=3)
    }
    seen = 0
    for batch in dataset:
        boxes, labels = batch["boxes"], batch["labels"]
        assert isinstance(boxes, ss.Ragged)
        assert batch["where"].shape == (20, 2, 3)
        assert batch["where"].dtype == torch.float32
        assert batch["size"].tolist() == [[72, 96]] * 20
        assert batch["first"].shape == (20, 3, 24, 24)
        for i, number in enumerate(batch["id"].tolist()):
            assert boxes[i].dtype == torch.float32
            assert boxes[i].shape == (len(labels[i]), 4)
            kept = batch["order"][i]
            assert kept.dtype == torch.int64
            assert (labels[i] - 100 * number).equal(kept)
            if number == 7:
                assert len(kept) == 0
                continue
            stored = np.concatenate([some_boxes(number), [[8, 8, 80, 60]]]).reshape(-1, 2, 2)
            matrix = batch["where"][i].numpy()
            moved = np.sort(stored @ matrix[:, :2].T + matrix[:, 2], axis=1).clip(0, 64).reshape(-1, 4)
            assert np.allclose(boxes[i].numpy(), moved[kept], atol=1e-3)
            seen += len(kept)
    assert seen > 90
    assert set(samples) == set(range(60))
    assert all(sample["boxes"].shape == (len(sample["labels"]), 4) for sample in samples.values())


def test_workers_and_transforms_change_nothing(detections: Path) -> None:
    chosen = {"where": {"id": list(range(8, 60))}, "batch_size": 13, "shuffle": True}
    plain = list(ss.ShardDataset(detections, fields=FIELDS, **chosen))
    worked = list(ss.Loader(ss.ShardDataset(detections, fields=without_any(), **chosen), num_workers=2))
    through = list(ss.ShardDataset(detections, fields=FIELDS, transform=dict, **chosen))
    assert len(plain) == len(worked) == len(through) == 4
    for one, two, three in zip(plain, worked, through, strict=True):
        for name in FIELDS:
            for other in (three, two) if name != "any" else (three,):
                if isinstance(one[name], ss.Ragged):
                    assert isinstance(other[name], ss.Ragged)
                    assert one[name].values.equal(other[name].values)
                    assert one[name].offsets.equal(other[name].offsets)
                else:
                    same = one[name] == other[name]
                    assert same.all() if isinstance(same, torch.Tensor) else same


def test_a_callable_behind_boxes_decides_what_they_are(detections: Path) -> None:
    def five(boxes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.concatenate([boxes, np.zeros((5 - len(boxes), 4), np.float32)])

    fields = {"jpg": CROP, "boxes": [ss.decode.Boxes(like="jpg"), five]}
    batch = next(iter(ss.ShardDataset(detections, fields=fields, batch_size=6)))
    assert batch["boxes"].shape == (6, 5, 4)


def test_batches_without_a_single_box(tmp_path: Path) -> None:
    shards = numbered((3,), jpg=photograph, boxes=lambda _: np.zeros((0, 4)), labels=lambda _: np.zeros(0, np.int64))
    fields = {name: FIELDS[name] for name in ("jpg", "boxes", "labels")}
    batch = next(iter(ss.ShardDataset(write_dataset(tmp_path, shards), fields=fields, batch_size=3)))
    assert [tuple(boxes.shape) for boxes in batch["boxes"]] == [(0, 4)] * 3
    assert [len(labels) for labels in batch["labels"]] == [0] * 3


def test_a_missing_image_has_no_placement(tmp_path: Path) -> None:
    shards = numbered((4,), jpg=photograph)
    del shards[0][2]["jpg"]
    fields = {
        "jpg": ss.decode.Resize((32, 48), optional=True),
        "where": ss.decode.Placement(like="jpg", optional=True),
    }
    batch = next(iter(ss.ShardDataset(write_dataset(tmp_path, shards), fields=fields, batch_size=4)))
    assert batch["where.__valid__"].tolist() == batch["jpg.__valid__"].tolist() == [True, True, False, True]
    assert batch["where"][0].tolist() == [[0.5, 0, 0], [0, float(np.float32(32 / 72)), 0]]
    assert not batch["where"][2].any()


def test_a_bad_box_is_skipped_like_other_damage(tmp_path: Path) -> None:
    shards = numbered((5,), jpg=photograph, face=lambda n: np.array([0, 0, 30, 30] if n != 2 else [500, 0, 600, 9.0]))
    root = write_dataset(tmp_path, shards)
    fields = {"face": ss.decode.Crop(16, box="face", source="jpg"), "id": None}
    with pytest.raises(ss.errors.DecodeError, match="shows nothing of an image of 96 x 72") as caught:
        list(ss.ShardDataset(root, fields=fields, batch_size=5))
    assert caught.value.place["key"] == "k000002"
    dataset = ss.ShardDataset(root, fields=fields, batch_size=5, on_error="skip")
    assert next(iter(dataset))["id"].tolist() == [0, 1, 3, 4]
