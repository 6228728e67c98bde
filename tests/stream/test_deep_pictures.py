"""Frames and 16 bits in batches; pictures that are stored as bytes, through crops and masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import shardstream as ss
from shardstream.errors import DecodeError, UsageError
from shardstream.testing.pictures import photo, save

VALUES = (np.arange(600, dtype=np.uint16) * 109).reshape(20, 30)


def animation(count: int) -> bytes:
    pages = [Image.fromarray(photo(20, 30, seed)) for seed in range(count)]
    return save(pages[0], "TIFF", save_all=True, append_images=pages[1:])


def written(folder: Path, *values: bytes | NDArray[np.uint8], field: str = "tif") -> Path:
    with ss.ShardWriter(folder) as writer:
        for number, value in enumerate(values):
            writer.write({"__key__": str(number), field: value})
    return folder


def batch(folder: Path, decoder: ss.decode.Decoder, size: int = 2) -> dict[str, object]:
    fields = {"x": decoder}
    found: dict[str, object] = next(iter(ss.ShardDataset(folder, fields=fields, batch_size=size, shuffle=False)))
    return found


def test_frames_are_stacked_or_rows(tmp_path: Path) -> None:
    decoder = ss.decode.Image(source="tif", frames="all")
    found = batch(written(tmp_path / "equal", animation(3), animation(3)), decoder)["x"]
    assert isinstance(found, torch.Tensor)
    assert (found.shape, found.dtype) == ((2, 3, 20, 30, 3), torch.uint8)
    np.testing.assert_array_equal(found[1, 2].numpy(), photo(20, 30, 2))
    rows = batch(written(tmp_path / "ragged", animation(3), animation(1)), decoder)["x"]
    assert isinstance(rows, ss.Ragged)
    assert [tuple(row.shape) for row in rows] == [(3, 20, 30, 3), (1, 20, 30, 3)]


def test_16_bits_are_channels_first_like_all_pictures(tmp_path: Path) -> None:
    grey, colour = save(Image.fromarray(VALUES), "TIFF"), save(photo(20, 30), "TIFF")
    found = batch(written(tmp_path / "grey", grey, grey), ss.decode.Image(source="tif", dtype="uint16"))["x"]
    assert isinstance(found, torch.Tensor)
    assert (found.shape, found.dtype) == ((2, 1, 20, 30), torch.uint16)
    np.testing.assert_array_equal(found[0, 0].numpy(), VALUES)
    found = batch(written(tmp_path / "colour", colour, colour), ss.decode.Image(source="tif", dtype=np.uint16))["x"]
    assert isinstance(found, torch.Tensor)
    assert (found.shape, found.dtype) == ((2, 3, 20, 30), torch.uint16)


def test_crops_and_what_is_like_them(tmp_path: Path) -> None:
    pixels = photo(64, 80)
    folder = written(tmp_path / "x", save(pixels, "TIFF"), save(pixels, "GIF"))
    fields = {"x": ss.decode.CenterCrop(32, source="tif"), "y": ss.decode.RandomResizedCrop(16, source="tif")}
    one = next(iter(ss.ShardDataset(folder, fields=fields, batch_size=1, shuffle=False)))
    np.testing.assert_array_equal(one["x"][0].permute(1, 2, 0).numpy(), pixels[16:48, 24:56])
    assert one["y"].shape == (1, 3, 16, 16)
    whole = {"x": ss.decode.Image(source="tif", dtype="uint16"), "mask": ss.decode.Mask(source="gif", like="x")}
    with ss.ShardWriter(tmp_path / "y") as writer:
        writer.write({"__key__": "0", "tif": save(pixels, "TIFF"), "gif": save(pixels[..., 0], "GIF")})
    sample = ss.Reader(tmp_path / "y", fields=whole)[0]
    assert (sample["x"].shape, sample["mask"].shape) == ((64, 80, 3), (64, 80))


def test_arrays_have_no_frames(tmp_path: Path) -> None:
    folder = written(tmp_path / "x", photo(8, 8), field="array")
    with pytest.raises(DecodeError, match="neither frames nor 16 bits"):
        ss.Reader(folder, fields={"x": ss.decode.Image(source="array", frames="all")})[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"frames": "every"}, "frames must be 'first' or 'all', got 'every'"),
        ({"dtype": "float32"}, "dtype must be 'uint8' or 'uint16', got 'float32'"),
        ({"dtype": "no such type"}, "dtype must be 'uint8' or 'uint16'"),
        ({"dtype": None}, "dtype must be 'uint8' or 'uint16'"),
        ({"frames": "all", "dtype": "uint16"}, "exclude each other"),
        ({"frames": "all", "flip": True}, "as it is stored"),
        ({"dtype": "uint16", "like": "jpg"}, "as it is stored"),
        ({"dtype": "uint16", "upright": True}, "as it is stored"),
    ],
)
def test_arguments_that_cannot_work(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ss.decode.Image(**arguments)  # type: ignore[arg-type]
