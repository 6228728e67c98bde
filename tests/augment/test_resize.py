"""Crops resized a batch at once are those that torch resizes one by one."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import shardstream as ss
from shardstream.augment import resize as module
from shardstream.augment import resize_crops, resized
from shardstream.augment.resize import by_products
from shardstream.decode import Cut
from shardstream.stream.tensors.crops import gathered

from .conftest import Photo

SIZES = [(1, 1), (1, 300), (300, 1), (17, 31), (96, 64), (95, 65), (224, 224), (375, 500), (500, 333), (448, 597)]


Pictures = list[NDArray[np.uint8]]


@pytest.fixture(scope="module")
def pictures(photo: Photo) -> Pictures:
    return [photo(500, 600, number) for number in range(3)]


def some(pictures: Pictures, shapes: Sequence[tuple[int, int]], size: tuple[int, int], seed: int = 0) -> ss.Crops:
    """Crops of these shapes from anywhere in photographs; half of them are to be flipped."""
    rng = np.random.default_rng(seed)
    cuts = []
    for height, width in shapes:
        top, left = rng.integers(501 - height), rng.integers(601 - width)
        pixels = pictures[rng.integers(3)][top : top + height, left : left + width]
        cuts.append(Cut(pixels, size, bool(rng.integers(2))))
    return gathered(cuts, size)


def one_by_one(crops: ss.Crops, kind: torch.dtype) -> torch.Tensor:
    """By torch's own operator: uint8, or float32 in 0...255."""
    images = []
    for crop, flip in zip(crops, crops.flips, strict=True):
        planes = crop.permute(2, 0, 1)[None].contiguous().to(kind)
        image = functional.interpolate(planes, crops.size, mode="bilinear", antialias=True)[0]
        images.append(image.flip(2) if flip else image)
    return torch.stack(images)


def greys(one: torch.Tensor, other: torch.Tensor) -> int:
    return int((one.int() - other.int()).abs().max())


def random_shapes(count: int, seed: int) -> list[tuple[int, int]]:
    """As random resized crops are: from far smaller to far larger than the result."""
    rng = np.random.default_rng(seed)
    sides = np.exp(rng.uniform(np.log(10), np.log(120), (count, 1)))
    return [(int(h), int(w)) for h, w in (sides * np.exp(rng.uniform(-0.15, 0.15, (count, 2)))).clip(1, 500)]


@pytest.mark.parametrize("size", [(96, 64), (224, 224), (1, 1), (7, 300)])
def test_products_equal_torch(pictures: Pictures, size: tuple[int, int]) -> None:
    crops = some(pictures, SIZES, size)
    images = by_products(crops, torch.float32)
    assert images.shape == (len(SIZES), 3, *size)
    assert float((images - one_by_one(crops, torch.float32) / 255).abs().max()) < 1e-4
    if size[1] > 1:  # torch 2.13's operator for uint8 is wrong there: it takes one column for contiguous planes
        assert greys(by_products(crops, torch.uint8), one_by_one(crops, torch.uint8)) <= 1


@pytest.mark.full
def test_thousands_of_crops(pictures: Pictures) -> None:
    for seed, size in enumerate([(32, 32), (24, 40)] * 4):
        crops = some(pictures, random_shapes(256, seed), size, seed)
        exact = one_by_one(crops, torch.float32)
        assert float((by_products(crops, torch.float32) - exact / 255).abs().max()) < 1e-4
        images = by_products(crops, torch.uint8)
        assert float((images - exact).abs().max()) < 0.51
        assert greys(images, one_by_one(crops, torch.uint8)) <= 1
        assert torch.equal(resize_crops(crops), one_by_one(crops, torch.uint8))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=9), st.integers(1, 40), st.integers(2, 40))
def test_any_shapes(pictures: Pictures, shapes: list[tuple[int, int]], height: int, width: int) -> None:
    crops = some(pictures, shapes, (height, width))
    images = by_products(crops, torch.float32)
    assert images.shape == (len(shapes), 3, height, width)
    if shapes:
        assert float((images - one_by_one(crops, torch.float32) / 255).abs().max()) < 1e-4
        assert torch.equal(resize_crops(crops), one_by_one(crops, torch.uint8))


@pytest.mark.parametrize("limit", [1, 100_000])
def test_groups_change_nothing(pictures: Pictures, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    crops = some(pictures, SIZES * 8, (32, 32))
    before = by_products(crops, torch.float32)
    monkeypatch.setattr(module, "_PIXELS", limit)
    assert torch.allclose(by_products(crops, torch.float32), before, atol=1e-6)


def test_memory_is_channels_last(pictures: Pictures) -> None:
    crops = some(pictures, SIZES, (32, 48))
    for dtype in (torch.uint8, torch.float32):
        images = resize_crops(crops, dtype=dtype)
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert images.dtype == dtype


def test_half_types_are_rounded_once(pictures: Pictures) -> None:
    crops = some(pictures, SIZES, (32, 48))
    exact = resize_crops(crops, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        for dtype in (torch.bfloat16, torch.float16):
            assert torch.equal(resize_crops(crops, dtype=dtype), exact.to(dtype))


def test_a_flip_is_a_mirror(pictures: Pictures) -> None:
    crops = some(pictures, SIZES, (32, 48))
    for dtype in (torch.uint8, torch.float32):
        images = resize_crops(crops, dtype=dtype)
        mirrored = ss.Crops(crops.values, crops.offsets, crops.shapes, ~crops.flips, crops.size)
        assert torch.equal(resize_crops(mirrored, dtype=dtype), images.flip(3))


def test_what_is_missing_is_black() -> None:
    white: NDArray[np.uint8] = np.full((5, 6, 3), 255, np.uint8)
    crops = gathered([None, Cut(white, (4, 4), flip=True), None], (4, 4))
    for images in (by_products(crops, torch.uint8), resize_crops(crops)):
        assert images.float().mean((1, 2, 3)).tolist() == [0, 255, 0]
    nothing = gathered([None, None], (4, 4))
    for dtype in (torch.uint8, torch.float32):
        assert resize_crops(nothing, dtype=dtype).tolist() == torch.zeros(2, 3, 4, 4).tolist()


def test_crops_in_any_order_and_twice(pictures: Pictures) -> None:
    crops = some(pictures, SIZES, (32, 32))
    picked = torch.tensor([4, 1, 1, 7])
    other = ss.Crops(crops.values, crops.offsets[picked], crops.shapes[picked], crops.flips[picked], crops.size)
    assert torch.equal(resize_crops(other), resize_crops(crops)[picked])
    assert greys(by_products(other, torch.uint8), resize_crops(other)) <= 1


def test_nested_batches(pictures: Pictures) -> None:
    Pair = namedtuple("Pair", "views label")  # what users have
    crops = some(pictures, SIZES, (16, 16))
    label = torch.arange(3)
    batch = {"a": crops, "rest": [Pair((crops, crops), label), "text", None], "keys": ["k0"]}
    done = resized(batch)
    images = resize_crops(crops)
    assert torch.equal(done["a"], images)
    pair, text, nothing = done["rest"]
    assert isinstance(pair, Pair)
    assert all(torch.equal(view, images) for view in pair.views)
    assert pair.label is label
    assert (text, nothing, done["keys"]) == ("text", None, ["k0"])
    assert resized(crops, dtype=torch.float16).dtype == torch.float16
    assert batch["a"] is crops
    others = {"label": label, "rest": [pair]}
    assert resized(others) is others


def test_other_dtypes_are_refused(pictures: Pictures) -> None:
    with pytest.raises(ss.errors.UsageError, match="int64"):
        resize_crops(some(pictures, SIZES, (8, 8)), dtype=torch.int64)


@pytest.mark.gpu
def test_cuda_gives_what_the_cpu_gives_and_never_waits(pictures: Pictures) -> None:
    crops = some(pictures, random_shapes(300, 1) + SIZES, (224, 224))
    exact = by_products(crops, torch.float32)
    there = crops.pin_memory().to("cuda", non_blocking=True)
    resize_crops(there)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        images, floats = resize_crops(there), resize_crops(there, dtype=torch.float32)
        with torch.autocast("cuda", torch.bfloat16):
            half = resize_crops(there, dtype=torch.bfloat16)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert images.is_cuda
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert float((floats.cpu() - exact).abs().max()) < 1e-4
    assert greys(images.cpu(), resize_crops(crops)) <= 1
    assert torch.equal(half, floats.to(torch.bfloat16))


@pytest.mark.gpu
def test_cuda_with_tf32(pictures: Pictures) -> None:
    crops = some(pictures, SIZES, (224, 224))
    torch.set_float32_matmul_precision("high")
    try:
        assert greys(resize_crops(crops.to("cuda")).cpu(), resize_crops(crops)) <= 1
    finally:
        torch.set_float32_matmul_precision("highest")
