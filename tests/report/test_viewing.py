"""What a page shows of training is what training gets, to the byte."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.errors import UsageError
from shardstream.testing import make_dataset


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("view") / "set", samples=50, shards=3)


def trained(loader: Any, epochs: int) -> dict[tuple[int, str], torch.Tensor]:
    """The image of every sample, by epoch and key, as a loop of training gets them."""
    found = {}
    for epoch in range(epochs):
        for batch in loader:
            for key, image in zip(batch["__key__"], batch["jpg"], strict=True):
                found[epoch, key] = image.clone()
    return found


def brighter(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    sample["jpg"] = sample["jpg"].astype(np.float32) + np.float32(rng.random())
    return sample


@pytest.mark.one_in(5)
@pytest.mark.parametrize("way", ["decoded", "sample by sample", "batch by batch"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_draws_are_those_of_the_loader(url: Path, way: str, num_workers: int) -> None:
    fields = {"jpg": ss.decode.RandomResizedCrop(32, flip=True), "cls": None}
    options: dict[str, Any] = {"fields": fields, "shuffle": True, "seed": 7, "batch_size": 8}
    if way == "sample by sample":
        options["transform"] = brighter
    elif way == "batch by batch":
        options["batch_transform"] = ss.augment.ImageBatch(mean=(0.5,) * 3, std=(0.2,) * 3, flip=True, image="jpg")
    loader = ss.Loader(ss.ShardDataset(url, **options), num_workers=num_workers)
    shown = ss.view(loader, draws=3, samples=5)
    assert loader.epoch == 0, "nothing has moved on"
    expected = trained(loader, 3)
    keys = {one.number: one.key for one in shown.overview.samples}
    assert len(keys) == 5
    assert sum(map(len, shown.draws.values())) >= 12, "the tail of an epoch is left out"
    for number, draws in shown.draws.items():
        for draw in draws:
            image = expected.pop((draw.epoch, keys[number]))
            assert torch.equal(torch.as_tensor(draw.value), image)
            assert draw.crop is not None


def test_the_samples_of_a_batch_of_any_rank(url: Path) -> None:
    ds = ss.ShardDataset(url, fields=["cls"], shuffle=True, seed=3, batch_size=4)
    for rank in (0, 1):
        one = ds.replace(ranks=(rank, 2))
        one.set_epoch(2)
        expected = [batch["__key__"] for batch in ss.Loader(one, num_workers=0)][3]
        shown = ss.view(one, epoch=2, step=3)
        assert sorted(sample.key for sample in shown.overview.samples) == sorted(expected)
        assert {(draw.epoch, draw.step, draw.rank) for own in shown.draws.values() for draw in own} == {(2, 3, rank)}
    with pytest.raises(UsageError, match="no step 99") as caught:
        ss.view(ds, step=99)
    assert "12 steps" in str(caught.value)


def test_samples_of_a_view_are_found_by_their_stored_numbers(url: Path) -> None:
    ds = ss.ShardDataset(url, fields=["jpg", "cls"], where={"cls": [1, 3]}, batch_size=2)
    shown = ss.view(ds, draws=1, samples=2)
    assert [sample.key for sample in shown.overview.samples] == ["000001", "000003"]
    with pytest.raises(UsageError, match="sample 2 is not trained on"):
        ss.view(ds, [2], draws=1)


def test_the_crop_is_what_was_cut_out(url: Path) -> None:
    shown = ss.view(ss.ShardDataset(url, fields={"jpg": ss.decode.CenterCrop(20)}, batch_size=5), [0], draws=1)
    (draw,) = shown.draws[0]
    assert draw.text.startswith("uint8 3 x 20 x 20")
    assert draw.crop is not None
    left, top, right, bottom = draw.crop
    assert 0 <= left < right <= 1
    assert 0 <= top < bottom <= 1
    page = shown.html
    assert page.count("as stored") == 1
    assert "epoch 0, step 0" in page


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(url: Path, tmp_path: Path) -> None:
    shown = ss.view(str(url), samples=4, seed=1)
    assert repr(shown) == f"view of {url}: 4 samples of 50"
    frame = shown._repr_html_()
    assert re.match(r'<iframe srcdoc="[^"]*" sandbox="allow-scripts" ', frame)
    assert "<script" not in frame
    shown.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == shown.html
    assert base64.b64encode(shown.overview.samples[0].values[1].thumbnail.jpeg).decode() in shown.html  # type: ignore[union-attr] # a picture


def test_what_cannot_be_viewed_says_so(url: Path) -> None:
    with pytest.raises(UsageError, match="not of a URL"):
        ss.view(url, draws=2)
    twice = ss.ShardDataset([url, url], fields=["cls"], batch_size=2)
    with pytest.raises(UsageError, match="one data set"):
        ss.view(twice, draws=1)


@pytest.mark.parametrize("part", [{"where": {"cls": [1, 3]}}, {"split": ("val", {"train": 0.8, "val": 0.2})}])
def test_a_view_shows_samples_that_it_has(url: Path, part: dict[str, Any]) -> None:
    ds = ss.ShardDataset(url, **part)
    everything = {sample["__key__"] for sample in ds}
    assert {sample.key for sample in ss.view(ds).overview.samples} == everything
    assert {sample.key for sample in ss.view(ds, samples=4).overview.samples} < everything
    with pytest.raises(UsageError, match="no sample is trained on"):
        ss.view(ss.ShardDataset(url, where={"cls": [99]}))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_crop_is_drawn_on_a_picture_as_it_is_stored(orientation: int, tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.repeat(np.repeat(np.arange(32, dtype=np.uint8).reshape(4, 8) * 8, 16, 0), 16, 1)
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(pixels).convert("RGB").save(file, "JPEG", exif=exif, quality=95)
    ss.pack([{"__key__": "a", "jpg": file.getvalue()}], tmp_path / "set", images=ss.ImageOptions(jpeg="keep"))
    crop = ss.decode.RandomResizedCrop(16, scale=(0.05, 0.1), upright=True)
    shown = ss.view(ss.ShardDataset(tmp_path / "set", fields={"jpg": crop}, batch_size=1, seed=3), draws=1)
    (value,) = shown.overview.samples[0].values
    assert value.size == (64, 128)
    assert value.text.startswith("128 x 64")
    assert ("which upright=True follows" in value.text) == (orientation > 1)
    (draw,) = shown.draws[0]
    assert draw.crop is not None
    left, top, right, bottom = (round(one * side) for one, side in zip(draw.crop, (128, 64) * 2, strict=True))
    cut = pixels[top:bottom, left:right]
    assert abs(float(draw.value.float().mean()) - cut.mean()) < 6
