"""``backend=`` of a data set and of its decoders."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.decode import CenterCrop, Image, Job, Mask, RandomResizedCrop, Resize
from shardstream.errors import DecodeError, MissingExtraError, TransformError, UsageError
from shardstream.images.header import ImageInfo
from tests.grouped import grouped

from .making import labels, numbered, photograph, write_dataset


class Plain:
    """Every JPEG is one colour, by the process that decoded it: its parent's number of the shade, or 0."""

    def __init__(self, shade: int) -> None:
        self.shade = shade
        self.process = os.getpid()

    def max_scale(self, info: ImageInfo) -> int:
        return 1 if info.kind == "jpg" else 0

    def decode(self, data: Any, info: ImageInfo, job: Job) -> Any:
        assert job.scale == 1
        return np.full((info.height, info.width, 3), self.shade if os.getpid() != self.process else 0, np.uint8)


class Broken:
    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def max_scale(self, info: ImageInfo) -> int:
        return 8

    def decode(self, data: Any, info: ImageInfo, job: Job) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def shades(loader: Any, name: str = "jpg") -> set[int]:
    return {int(shade) for batch in loader for shade in torch.unique(batch[name])}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_have_the_data_sets_backend(photos: Path, method: str) -> None:
    fields = {
        "jpg": CenterCrop(8),
        "other": Resize((8, 8), source="jpg"),
        "own": CenterCrop(8, source="jpg", backend=Plain(9)),
    }
    dataset = ss.ShardDataset(photos, fields=fields, reads=ss.ReadOptions(backend=Plain(7)), batch_size=32)
    loader = ss.Loader(dataset, num_workers=1, multiprocessing_context=method)
    batches = list(loader)
    assert [shades(batches, name) for name in fields] == [{7}, {7}, {9}]


def test_names_give_the_same_pixels(photos: Path) -> None:
    def first(**options: Any) -> torch.Tensor:
        fields = {"jpg": RandomResizedCrop(24)}
        pixels: torch.Tensor = ss.ShardDataset(
            photos, fields=fields, batch_size=8, shuffle=True, **grouped(options)
        ).peek()["jpg"]
        return pixels

    expected = first()
    for name in ("simplejpeg", "pillow", "opencv"):
        assert torch.equal(first(backend=name), expected)
    # No DCT scales: the crop is resized from full size, so it is close, not equal.
    assert 0 < (first(backend="imageio").int() - expected.int()).abs().float().mean() < 6


def test_images_without_a_decoder_and_replaced_settings(photos: Path) -> None:
    dataset = ss.ShardDataset(photos, reads=ss.ReadOptions(backend=Plain(5)))
    assert not dataset.peek()["jpg"].any()
    assert dataset.replace(reads=ss.ReadOptions(backend="auto")).peek()["jpg"].any()


def test_what_a_backend_does_not_read_goes_the_default_way(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path, numbered([4], jpg=photograph, png=lambda n: labels()))
    fields = {"jpg": Image(), "png": Image(), "mask": Mask(source="png")}
    one = ss.ShardDataset(folder, fields=fields, reads=ss.ReadOptions(backend="simplejpeg")).peek()
    assert np.array_equal(one["png"][..., 0], one["mask"])
    other = ss.ShardDataset(folder, fields=fields, reads=ss.ReadOptions(backend=Broken(ValueError("no")))).replace(
        fields={"mask": fields["mask"]}
    )
    assert np.array_equal(other.peek()["mask"], one["mask"])  # label maps are Pillow's, whoever reads images


def test_a_users_backend_that_fails_says_where(photos: Path) -> None:
    def made(outcome: Any, **options: Any) -> Any:
        fields = {"jpg": Resize((8, 8))}
        return ss.ShardDataset(
            photos, fields=fields, reads=ss.ReadOptions(backend=Broken(outcome)), batch_size=8, **grouped(options)
        ).peek()

    with pytest.raises(TransformError, match="Broken raised KeyError") as caught:
        made(KeyError("x"))
    assert caught.value.place["sample"] == 0
    with pytest.raises(TransformError, match="returned an array of float64"):
        made(np.zeros((72, 80, 3)))
    with pytest.raises(TransformError, match="returned NoneType"):
        made(None)
    with pytest.raises(DecodeError, match=r"decoded to \[1, 1, 3\]"):
        made(np.zeros((1, 1, 3), np.uint8))
    with pytest.raises(DecodeError, match="not mine"):
        made(DecodeError("not mine"))


def test_wrong_backends_are_refused_at_once(photos: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'opencv'"):
        ss.ShardDataset(photos, reads=ss.ReadOptions(backend="opencb"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="decodes nothing"):
        RandomResizedCrop(8, backend=Plain)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="decodes nothing"):
        Image(backend=len)  # type: ignore[arg-type]
    backend = Plain(1)
    backend.process = lambda: 0  # type: ignore[assignment]
    loader = ss.Loader(
        ss.ShardDataset(photos, reads=ss.ReadOptions(backend=backend)), num_workers=1, multiprocessing_context="spawn"
    )
    with pytest.raises(UsageError, match="`backend` cannot be pickled"):
        list(loader)


def test_a_library_that_is_not_installed_is_named_at_once(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accimage", None)
    with pytest.raises(MissingExtraError, match=r"github.com/pytorch/accimage"):
        ss.ShardDataset(photos, reads=ss.ReadOptions(backend="accimage"))
    with pytest.raises(MissingExtraError, match=r"github.com/pytorch/accimage"):
        ss.ShardDataset(photos, fields={"jpg": Image(backend="accimage")})
    assert (
        "cls" in ss.ShardDataset(photos, fields=["cls"], reads=ss.ReadOptions(backend="accimage")).peek()
    )  # no image, no need
