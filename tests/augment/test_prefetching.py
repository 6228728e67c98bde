"""``ImageBatch`` as the transform of a ``DevicePrefetcher``: the key comes from there."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import shardstream as ss

from .references import MEAN, STD


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("photos")
    with ss.ShardWriter(folder / "out") as writer:
        for i in range(40):
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).save(file, "JPEG")
            writer.write({"__key__": str(i), "jpg": file.getvalue(), "cls": i % 3})
    return folder / "out"


def ahead(folder: Path, **settings: Any) -> ss.DevicePrefetcher:
    fields = {"jpg": ss.decode.RandomResizedCrop(16), "cls": None}
    ds = ss.ShardDataset(folder, fields=fields, shuffle=True, batch_size=8, seed=3, **settings)
    augment = ss.augment.ImageBatch(MEAN, STD, flip=True, color_jitter=0.4, mixup=0.2, classes=3)
    return ss.DevicePrefetcher(ss.Loader(ds.to_tuple("jpg", "cls"), num_workers=0), "cpu", transform=augment)


def equal(first: Any, second: Any) -> bool:
    return all(map(torch.equal, first, second))


def test_augmentation_is_the_same_in_every_run_and_another_in_every_epoch(folder: Path) -> None:
    torch.manual_seed(1)
    runs = [list(ahead(folder))]
    torch.manual_seed(2)
    again = ahead(folder)
    runs += [list(again), list(again)]
    assert len(runs[0]) == 5
    assert all(map(equal, runs[0], runs[1]))
    assert not any(map(equal, runs[0], runs[2]))
    images, labels = runs[0][0]
    assert images.shape == (8, 3, 16, 16)
    assert labels.shape == (8, 3)


def test_augmentation_goes_on_after_a_resume(folder: Path) -> None:
    whole = list(ahead(folder))
    stopped = ahead(folder)
    for step, batch in enumerate(stopped):
        assert equal(batch, whole[step])
        if step == 1:
            state = stopped.state_dict()
            break
    resumed = ahead(folder)
    resumed.load_state_dict(state)
    rest = list(resumed)
    assert len(rest) == 3
    assert all(map(equal, rest, whole[2:]))
