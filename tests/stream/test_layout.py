"""``layout=`` of image decoders: one order of axes in single samples and in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from torch.utils.data import DataLoader

import shardstream as ss
from shardstream.testing.pictures import photo, save

from .making import numbered, photograph, write_dataset

ORDERS = {"CHW": (-1, -3), "HWC": (-3, -3), None: (-3, -3)}  # of pixels (..., H, W, 3), as `np.moveaxis` is told
DECODERS: dict[str, Any] = {
    "image": lambda **options: ss.decode.Image(source="jpg", **options),
    "resize": lambda **options: ss.decode.Resize(20, source="jpg", **options),
    "crop": lambda **options: ss.decode.RandomResizedCrop((24, 16), flip=True, source="jpg", **options),
    "center": lambda **options: ss.decode.CenterCrop(24, resize=30, source="jpg", **options),
    "box": lambda **options: ss.decode.Crop((8, 12), box="box", source="jpg", **options),
    "array": lambda **options: ss.decode.CenterCrop(6, source="array", **options),
}


def box(number: int) -> np.ndarray[Any, Any]:
    return np.array([10, 10, 40 + number, 50], np.float32)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def array(number: int) -> np.ndarray[Any, Any]:
        return photo(8, 9, number)

    shards = numbered([5, 3], jpg=photograph, box=box, array=array)
    return write_dataset(tmp_path_factory.mktemp("layout"), shards)


def as_it_is(value: Any) -> Any:
    return value


def inverted(pixels: Any) -> Any:
    return 255 - pixels


def read(photos: Path, make: Any, layout: str | None, **arguments: Any) -> ss.ShardDataset:
    return ss.ShardDataset(photos, fields={"x": make(layout=layout)}, seed=3, **arguments)


@pytest.mark.parametrize("layout", ORDERS)
@pytest.mark.parametrize("make", DECODERS.values(), ids=DECODERS)
def test_samples_and_batches_have_the_same_pixels_in_their_layout(photos: Path, make: Any, layout: str | None) -> None:
    pixels = [sample["x"] for sample in read(photos, make, None)]
    samples = [sample["x"] for sample in read(photos, make, layout)]
    for one, expected in zip(samples, pixels, strict=True):
        np.testing.assert_array_equal(one, np.moveaxis(expected, *ORDERS[layout]))
    reader = ss.Reader(photos, fields={"x": make(layout=layout)}, seed=3)
    assert reader[0]["x"].shape == samples[0].shape

    expected = np.stack(pixels)
    expected = expected if layout == "HWC" else np.moveaxis(expected, -1, -3)
    for transform in (None, as_it_is):  # straight into slabs, and put together from samples
        (batch,) = read(photos, make, layout, batch_size=8, transform=transform)
        assert isinstance(batch["x"], torch.Tensor)
        np.testing.assert_array_equal(batch["x"].numpy(), expected)
        last = batch["x"] if layout == "HWC" else batch["x"].permute(0, 2, 3, 1)
        assert last.is_contiguous()


@pytest.mark.parametrize("layout", ORDERS)
def test_a_callable_behind_a_decoder_gets_its_layout_and_keeps_it(photos: Path, layout: str | None) -> None:
    decoder = ss.decode.Resize((20, 30), source="jpg", layout=layout)
    fields = {"x": [decoder, inverted]}
    for value in (sample["x"] for sample in ss.ShardDataset(photos, fields=fields)):
        assert value.shape == ((3, 20, 30) if layout == "CHW" else (20, 30, 3))
    batch = ss.ShardDataset(photos, fields=fields, batch_size=8).peek()["x"]
    plain = ss.ShardDataset(photos, fields={"x": decoder}, batch_size=8).peek()["x"]
    assert torch.equal(batch, 255 - plain)


def test_torchs_dataloader_of_single_samples_gives_what_our_batches_are(photos: Path) -> None:
    fields = {"x": ss.decode.RandomResizedCrop(24, source="jpg", layout="CHW"), "id": None}
    for workers in (0, 1):
        (batch,) = DataLoader(ss.ShardDataset(photos, fields=fields), batch_size=8, num_workers=workers)
        own = ss.ShardDataset(photos, fields=fields, batch_size=8).peek()
        assert torch.equal(batch["x"], own["x"])
        assert batch["x"].shape == (8, 3, 24, 24)


def test_frames_and_16_bits_have_a_layout_too(tmp_path: Path) -> None:
    pages = [Pillow.fromarray(photo(20, 30, seed)) for seed in range(2)]
    with ss.ShardWriter(tmp_path / "d") as writer:
        for key in "ab":
            data = save(pages[0], "TIFF", save_all=True, append_images=pages[1:])
            writer.write({"__key__": key, "tif": data})
    for options, first, last in (
        ({"frames": "all"}, (2, 3, 20, 30), (2, 20, 30, 3)),
        ({"dtype": "uint16"}, (3, 20, 30), (20, 30, 3)),
    ):
        for layout, shape in (("CHW", first), ("HWC", last)):
            fields = {"x": ss.decode.Image(source="tif", layout=layout, **options)}
            assert next(iter(ss.ShardDataset(tmp_path / "d", fields=fields)))["x"].shape == shape
            assert ss.ShardDataset(tmp_path / "d", fields=fields, batch_size=2).peek()["x"].shape == (2, *shape)


def test_masks_and_images_follow_a_crop_of_any_layout(photos: Path) -> None:
    def made(layout: str | None, like: str | None) -> Any:
        crop = ss.decode.RandomResizedCrop(24, flip=True, source="jpg", layout=layout)
        fields = {"x": crop, "y": ss.decode.Image(like="x", source="jpg", layout=like)}
        return ss.ShardDataset(photos, fields=fields, batch_size=8).peek()

    for layout, like in (("CHW", None), ("HWC", "CHW"), (None, "HWC")):
        batch = made(layout, like)
        x, y = (
            value if order == "HWC" else value.permute(0, 2, 3, 1)
            for value, order in ((batch["x"], layout), (batch["y"], like))
        )
        assert torch.equal(x, y)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        (lambda: {"x": ss.decode.Image(layout="NCHW")}, "'CHW' or 'HWC', got 'NCHW'"),
        (lambda: {"x": ss.decode.RandomResizedCrop(8, layout="CHW", resize="device")}, "exclude each other"),
        (lambda: {"x": [ss.decode.Image(source="jpg", layout="CHW"), "pil"]}, "last decoder"),
        (lambda: {"x": [ss.decode.Image(source="jpg", layout="CHW"), ss.decode.CenterCrop(8)]}, "last decoder"),
    ],
    ids=["unknown", "device", "pil", "decoder"],
)
def test_a_layout_that_cannot_be_is_refused(photos: Path, fields: Any, match: str) -> None:
    with pytest.raises(ss.errors.UsageError, match=match) as caught:
        ss.ShardDataset(photos, fields=fields())
    assert "layout" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("by", ["samples", "batches"])
def test_sources_of_a_mixture_have_one_layout(photos: Path, by: Any) -> None:
    crops = {layout: ss.decode.CenterCrop(8, source="jpg", layout=layout) for layout in ORDERS}
    sources = {name: ss.ShardDataset(photos, fields={"x": crop}) for name, crop in crops.items()}
    for layouts in (("CHW", "HWC"), ("CHW", None), ("HWC", None)):
        with pytest.raises(ss.errors.FieldError, match="layout=") as caught:
            ss.Mixture({f"source {layout}": sources[layout] for layout in layouts}, by=by)
        assert 'layout="CHW"' in str(caught.value.hint)
    same = ss.Mixture({"a": sources["HWC"], "b": sources["HWC"]}, by=by, batch_size=4)
    assert same.peek()["x"].shape == (4, 8, 8, 3)
