"""Crops that workers leave to the device: the same pixels as theirs, once they are resized."""

from __future__ import annotations

import functools
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import shardstream as ss
from shardstream.augment import resize_crops, resized
from shardstream.decode import Crop, Cut, Mask, RandomResizedCrop, Resize
from shardstream.decode.crops import MOST
from shardstream.errors import BatchError, FieldError, UsageError
from shardstream.images.header import probe
from shardstream.images.jpeg.transcode import make_addressable
from shardstream.stream.tensors.slabs import SharedSlabPool
from tests.grouped import grouped

from ..load.lending import is_lent, lent_ranges
from .making import labels, numbered, photograph, write_dataset


def turned(data: bytes, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(data)) as image:
        image.save(buffer, "JPEG", quality=90, exif=exif)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 photographs, some addressable, some on their side, with masks, boxes and the pixels of others."""

    def photo(n: int) -> bytes:
        data = turned(photograph(n, 400 if n % 2 else 300, 280), n % 9 or 1)
        return make_addressable(data).data if n % 3 else data

    def mask(n: int) -> bytes:
        info = probe(photo(n))
        return labels(info.width, info.height)

    shards = numbered(
        [50, 30],
        jpg=photo,
        png=mask,
        raw=lambda n: np.random.default_rng(n).integers(0, 256, (40 + n, 50, 3), np.uint8),
        box=lambda n: np.array([10 + n, 20, 200 + n / 2, 150], np.float32),
    )
    return write_dataset(tmp_path_factory.mktemp("scenes"), shards, types={"raw": "array"})


def fields(where: Any) -> dict[str, Any]:
    crop = functools.partial(RandomResizedCrop, resize=where)
    return {
        "jpg": crop((48, 64), flip=True),
        "view2": crop(24, flip=True, source="jpg"),
        "wide": crop(32, like="jpg", source="jpg"),
        "upright": crop(40, flip=True, upright=True, source="jpg"),
        "face": Crop(32, box="box", flip=0.5, source="jpg", resize=where),
        "pixels": crop(24, flip=True, source="raw"),
        "mask": Mask(source="png", like="jpg"),
        "small": Resize((16, 16), source="jpg"),
        "id": None,
    }


CUT = ("jpg", "view2", "wide", "upright", "face", "pixels")


def data(url: Path, where: str, **arguments: Any) -> ss.ShardDataset:
    arguments = {"fields": fields(where), "batch_size": 16, "shuffle": True} | arguments
    return ss.ShardDataset(url, **grouped(arguments))


def same(one: Any, other: Any) -> bool:
    """Whether two batches are, but for ``upright``: what is turned before it is resized is a grey level off."""
    if isinstance(one, dict):
        pairs = [(one[name], other.get(name)) for name in one if name != "upright"]
        turned = "upright" not in one or int((one["upright"].int() - other["upright"].int()).abs().max()) <= 1
        return one.keys() == other.keys() and turned and all(same(*pair) for pair in pairs)
    return bool((one == other).all()) if isinstance(one, torch.Tensor) else bool(one == other)


@pytest.fixture(scope="module")
def expected(scenes: Path) -> list[Any]:
    """What workers make of the data set."""
    return list(data(scenes, "worker"))


def test_the_pixels_are_those_of_the_worker(scenes: Path, expected: list[Any]) -> None:
    batches = list(data(scenes, "device"))
    assert len(batches) == len(expected) == 5
    for batch in batches:
        assert [name for name, value in batch.items() if isinstance(value, ss.Crops)] == list(CUT)
    assert all(map(same, map(resized, batches), expected))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_through_workers_on_lent_memory(scenes: Path, expected: list[Any], method: str) -> None:
    loader = ss.Loader(data(scenes, "device"), num_workers=2, multiprocessing_context=method)
    for batch, wanted in zip(loader, expected, strict=True):
        assert all(
            is_lent(batch[name].values) == (len(batch[name].values) * 3 >= SharedSlabPool.smallest) for name in CUT
        )
        assert same(resized(batch), wanted)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_prefetcher_resizes_before_its_transform(scenes: Path, expected: list[Any], workers: int) -> None:
    def transform(batch: dict[str, Any]) -> dict[str, Any]:
        assert all(batch[name].is_contiguous(memory_format=torch.channels_last) for name in CUT)
        return batch

    loader = ss.Loader(data(scenes, "device"), num_workers=workers)
    batches = list(ss.DevicePrefetcher(loader, "cpu", transform=transform))
    assert all(map(same, batches, expected))


def test_lent_memory_is_used_again(scenes: Path) -> None:
    loader = ss.Loader(data(scenes, "device", fields={"jpg": fields("device")["jpg"]}).repeat(12), num_workers=1)
    before = len(lent_ranges())
    seen = [len(lent_ranges()) - before for _ in loader]
    assert len(seen) == 60
    assert max(seen[20:]) <= 8  # some batches are on their way, and few slabs are outgrown at the beginning


def test_a_plain_dataloader(scenes: Path, expected: list[Any]) -> None:
    loader = DataLoader(data(scenes, "device"), batch_size=None, num_workers=2)
    assert all(map(same, map(resized, loader), expected))


def test_threads(scenes: Path, expected: list[Any]) -> None:
    batches = list(data(scenes, "device", threads=3))
    assert all(map(same, map(resized, batches), expected))


def of_arrays(url: Path, where: str, size: int) -> ss.ShardDataset:
    wanted = RandomResizedCrop(size, scale=(0.9, 1), flip=True, source="raw", resize=where)  # type: ignore[arg-type]
    return data(url, where, fields={"jpg": wanted}, shuffle=False)


def test_slabs_that_are_too_small(scenes: Path) -> None:
    batches = list(of_arrays(scenes, "device", 28))  # crops become larger from batch to batch: 4 to 7 times the result
    assert [len(batch["jpg"].values) / 784 / 16 > 2 for batch in batches] == [True] * 5
    assert all(map(same, map(resized, batches), of_arrays(scenes, "worker", 28)))


def test_memory_is_bounded(scenes: Path) -> None:
    batches = list(of_arrays(scenes, "device", 20))
    shapes = torch.cat([batch["jpg"].shapes for batch in batches])
    assert 4 * 400 < int(shapes.prod(1).max()) <= MOST * 400
    assert shapes.tolist().count([20, 20]) > 20  # resized by the worker
    assert all(map(same, map(resized, batches), of_arrays(scenes, "worker", 20)))


def test_transforms(scenes: Path) -> None:
    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"id": -sample["id"], "kind": type(sample["jpg"]).__name__}

    def count(batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"crops": len(batch["jpg"])}

    one, other = (
        data(scenes, where, transform=transform, batch_transform=count).peek() for where in ("device", "worker")
    )
    assert one.pop("kind") == ["Cut"] * 16
    assert other.pop("kind") == ["ndarray"] * 16
    assert one["crops"] == 16
    assert same(resized(one), other)
    tuples = data(scenes, "device", transform=lambda sample: (sample["jpg"], sample["id"])).peek()
    assert same(resized(tuples)[0], data(scenes, "worker").peek()["jpg"])


def test_transforms_must_agree(scenes: Path) -> None:
    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | ({"jpg": None} if sample["id"] % 2 else {})

    with pytest.raises(BatchError, match="NoneType"):
        data(scenes, "device", transform=transform).peek()

    def sized(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"jpg": sample["jpg"]._replace(size=(8 + sample["id"] % 2, 9))}

    with pytest.raises(BatchError, match=r"\(8, 9\) and \(9, 9\)"):
        data(scenes, "device", transform=sized).peek()


@pytest.mark.full
def test_mixtures(scenes: Path) -> None:
    def mixed(one: str, other: str, **changes: Any) -> ss.Mixture:
        parts = data(scenes, one), data(scenes, other, fields=fields(other) | changes)
        return ss.Mixture({"a": (parts[0], 0.5), "b": (parts[1], 0.5)}, batch_size=16)

    other = {"small": Resize((16, 16), source="jpg", fast=True)}  # so that samples are put together
    for changes in ({}, other):
        batches = map(resized, mixed("device", "device", **changes))
        assert all(map(same, batches, mixed("worker", "worker", **changes)))
    with pytest.raises(BatchError, match="ndarray"):
        list(mixed("device", "worker"))


@pytest.mark.parametrize("dropped", ["short", "repeat"])
def test_broken_samples_leave_a_batch_or_repeat_a_good_one(tmp_path: Path, dropped: Any) -> None:
    shards = numbered([40], jpg=lambda n: photograph(n)[: 700 if n in (13, 14, 30) else None])
    write_dataset(tmp_path, shards)
    for threads in (1, 3):
        one, other = (
            list(
                ss.ShardDataset(
                    tmp_path,
                    fields={"jpg": RandomResizedCrop(16, resize=where), "id": None},
                    batch_size=20,
                    on_error="skip",
                    reads=ss.ReadOptions(threads=threads),
                    dropped=dropped,
                )
            )
            for where in ("device", "worker")
        )
        assert all(map(same, map(resized, one), other))
        if dropped == "repeat":
            assert [int((~batch["__valid__"]).sum()) for batch in one] == [2, 1]
        else:
            assert [len(batch["jpg"]) for batch in one] == [len(batch["id"]) for batch in one] == [18, 19]


def test_missing_images_are_black_and_marked(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "set") as writer:
        for n in range(8):
            writer.write({"__key__": str(n), "jpg": photograph(n) if n % 3 else None})
    one, other = (
        ss.ShardDataset(
            tmp_path / "set", fields={"jpg": RandomResizedCrop(16, optional=True, resize=where)}, batch_size=8
        ).peek()
        for where in ("device", "worker")
    )
    assert one["jpg.__valid__"].tolist() == [n % 3 > 0 for n in range(8)]
    assert one["jpg"].shapes[0].tolist() == [0, 0]
    assert same(resized(one), other)


def test_crops_are_views(scenes: Path) -> None:
    crops = data(scenes, "device").peek()["jpg"]
    assert len(crops) == 16
    assert [tuple(crop.shape[:2]) for crop in crops] == list(map(tuple, crops.shapes.tolist()))
    assert crops[-1].data_ptr() == crops.values[crops.offsets[-1] :].data_ptr()
    with pytest.raises(IndexError):
        crops[16]
    assert repr(crops) == f"Crops(16 to 48 x 64, {len(crops.values)} pixels, cpu)"
    copied = pickle.loads(pickle.dumps(crops))
    assert torch.equal(resize_crops(copied), resize_crops(crops))
    away = crops.to("meta")
    assert away.values.is_meta
    assert away.shapes is crops.shapes


@pytest.mark.gpu
def test_crops_are_pinned_and_moved(scenes: Path) -> None:
    batch = next(iter(ss.Loader(data(scenes, "device"), num_workers=1, pin_memory=True)))
    assert batch["jpg"].values.is_pinned()
    there = batch["jpg"].to("cuda", non_blocking=True)
    assert int((resize_crops(there).cpu().int() - resize_crops(batch["jpg"]).int()).abs().max()) <= 1


def move(batch: dict[str, Any]) -> dict[str, Any]:
    return batch | {"jpg": batch["jpg"].to("meta")}


def test_workers_cannot_hand_out_what_lies_on_a_device(scenes: Path) -> None:
    loader = ss.Loader(data(scenes, "device", batch_transform=move), num_workers=1)
    with pytest.raises(UsageError, match="meta"):
        list(loader)


def test_single_samples_are_refused(scenes: Path) -> None:
    single = data(scenes, "device", batch_size=None)
    for ask in (
        single.peek,
        lambda: list(single),
        lambda: list(ss.Loader(single, num_workers=1)),
        lambda: list(DataLoader(single, batch_size=4)),
        lambda: list(ss.Loader(data(scenes, "device"), collate_fn=list, num_workers=1)),
        lambda: ss.Reader(scenes, fields=fields("device")),
    ):
        with pytest.raises(UsageError, match="works on batches only"):
            ask()
    assert len(list(ss.Loader(single, batch_size=16, num_workers=0))) == 5


def test_nothing_follows_in_a_list(scenes: Path) -> None:
    crop = RandomResizedCrop(24, resize="device")
    for parts in ([crop, np.asarray], [crop, Resize(8)], [crop, None]):
        with pytest.raises(FieldError, match="nothing can follow"):
            data(scenes, "worker", fields={"jpg": parts})
    negative = data(scenes, "worker", fields={"jpg": [np.invert, crop]}).peek()
    assert isinstance(negative["jpg"], ss.Crops)


def test_like_a_crop_behind_a_callable(scenes: Path) -> None:
    one, other = (
        data(scenes, where, fields=fields(where) | {"jpg": [np.invert, fields(where)["jpg"]]}).peek()
        for where in ("device", "worker")
    )
    assert same(resized(one), other)


def test_the_choice_is_checked() -> None:
    with pytest.raises(UsageError, match="gpu"):
        RandomResizedCrop(24, resize="gpu")  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(fields("device"))) == fields("device")
    assert Cut._fields == ("pixels", "size", "flip")
