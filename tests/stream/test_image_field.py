"""A directory of images of several kinds, in place and packed: one program reads whichever image a sample has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as Pil

import shardstream as ss
from shardstream import decode

KINDS = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP", "tif": "TIFF"}
CROPS = {"image": decode.RandomResizedCrop(24, flip=True), "cls": None}
EACH = 6


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, mostly of JPEG files; every color says which file it is."""
    folder = tmp_path_factory.mktemp("photos")
    for label in range(2):
        (folder / f"class{label}").mkdir()
        kinds = ["jpg"] * EACH + list(KINDS)[label::2]
        for number, kind in enumerate(kinds):
            color = (20 * number, 200 * label, 90)
            Pil.new("RGB", (40, 30), color).save(folder / f"class{label}" / f"{number:02}.{kind}", KINDS[kind])
    return folder


@pytest.fixture(scope="module", params=["in place", "tar", "record"])
def images(request: pytest.FixtureRequest, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "in place":
        return photos
    out = tmp_path_factory.mktemp("packed") / request.param
    ss.pack(photos, out, format=request.param, workers=0)
    return out


def colors(image: torch.Tensor | np.ndarray, channels: int) -> tuple[float, ...]:
    axes = tuple(axis for axis in range(image.ndim) if axis != channels)
    return tuple(np.asarray(image, float).mean(axis=axes))


def assert_right(key: str, label: int, got: tuple[float, ...]) -> None:
    number = int(key.rpartition("/")[2])
    assert np.abs(np.array(got) - (20 * number, 200 * label, 90)).max() < 6, key


def test_batches_and_single_samples(images: Path) -> None:
    ds = ss.ShardDataset(images, fields=CROPS, shuffle=True, tail="exact")
    expected = sorted(ss.ShardDataset(images, fields=["cls"]), key=lambda one: one["__key__"])
    batches = list(ss.Loader(ds, batch_size=5, num_workers=0))
    assert all(batch["image"].shape[1:] == (3, 24, 24) and batch["image"].dtype == torch.uint8 for batch in batches)
    assert sorted(key for batch in batches for key in batch["__key__"]) == [one["__key__"] for one in expected]
    for batch in batches:
        for key, label, image in zip(batch["__key__"], batch["cls"].tolist(), batch["image"], strict=True):
            assert_right(key, label, colors(image, 0))
    for sample in ds:
        assert_right(sample["__key__"], sample["cls"], colors(sample["image"], 2))


def test_under_another_name_as_tuples_and_by_number(images: Path) -> None:
    ds = ss.ShardDataset(images, fields={"x": decode.Resize((8, 8), source="image"), "cls": None}, batch_size=4)
    assert {batch[0].shape[1:] for batch in ds.to_tuple("x", "cls")} == {(3, 8, 8)}
    reader = ss.Reader(images, fields=["image", "cls"])
    for sample in reader[:]:
        assert sample["image"].shape == (30, 40, 3)
        assert_right(sample["__key__"], sample["cls"], colors(sample["image"], 2))


def test_crops_for_the_device_and_a_mixture(images: Path, photos: Path, tmp_path: Path) -> None:
    cut = {"image": decode.RandomResizedCrop(24, resize="device"), "cls": None}
    batch = ss.ShardDataset(images, fields=cut, batch_size=16).peek()
    assert ss.augment.resized(batch)["image"].shape == (16, 3, 24, 24)
    ss.pack(photos / "class0", tmp_path / "plain", transform=as_array, workers=0)
    plain = ss.ShardDataset(tmp_path / "plain", fields=CROPS)
    sources = {"files": (ss.ShardDataset(images, fields=CROPS), 1), "arrays": (plain, 1)}
    mixed = ss.Mixture(sources, batch_size=8, epoch=32)
    assert [batch["image"].shape for batch in ss.Loader(mixed, num_workers=0)] == [(8, 3, 24, 24)] * 4


def as_array(sample: dict) -> dict:
    """A sample with a stored field ``image`` of pixels."""
    return {"__key__": sample["__key__"], "image": np.zeros((30, 40, 3), np.uint8), "cls": 0}


def test_what_is_missing_names_it(images: Path) -> None:
    jpg = {"jpg": decode.Image()}
    with pytest.raises((ss.errors.FieldError, ss.errors.DecodeError), match=r"no (field )?'jpg'") as caught:
        list(ss.ShardDataset(images, fields=jpg))
    assert 'source="image"' in caught.value.hint


def test_to_tuple_of_all_fields_says_to_name_it(photos: Path, tmp_path: Path) -> None:
    ss.pack(photos, tmp_path, workers=0)
    with pytest.raises(ss.errors.FieldError, match="no field 'image'") as caught:
        ss.ShardDataset(tmp_path).to_tuple("image", "cls")
    assert "fields=['image', 'cls']" in caught.value.hint


def test_a_notebook_shows_images_of_every_kind(images: Path) -> None:
    page = ss.Reader(images)._repr_html_()
    assert page.count("<img") == min(12, 2 * EACH + len(KINDS))
