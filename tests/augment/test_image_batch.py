"""``ImageBatch``: what goes in and comes out, exact normalisation, keys, and errors."""

from __future__ import annotations

import copy
import pickle
from typing import NamedTuple

import pytest
import torch

import shardstream as ss
from shardstream.augment import ColorJitter, GaussianBlur, ImageBatch, RandomCrop, RandomErasing, chain
from shardstream.errors import UsageError

from . import references
from .references import MEAN, STD

LABELS = torch.arange(24)
EVERYTHING = {
    "flip": True,
    "crop": RandomCrop(32, padding=4),
    "color_jitter": (0.4, 0.4, 0.4, 0.1),
    "grayscale": 0.2,
    "blur": GaussianBlur(0.5, kernel_size=7),
    "erase": 0.25,
    "mixup": 0.2,
    "cutmix": 1.0,
    "classes": 24,
}


@pytest.fixture(scope="module")
def values():
    """Every value there is in every channel, channels last: (2, 3, 16, 16)."""
    levels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1)
    return torch.cat([levels, levels.flip(1)]).expand(2, 16, 16, 3).contiguous().permute(0, 3, 1, 2)


class Pair(NamedTuple):
    images: torch.Tensor
    labels: torch.Tensor


def both_layouts(images):
    return images.contiguous(memory_format=torch.channels_last), images.contiguous()


@pytest.mark.parametrize("options", [{}, {"flip": 1e-9}, {"erase": RandomErasing(1e-9)}], ids=str)
def test_normalisation_is_torchvisions_to_the_bit(values, options):
    expected = torch.stack([references.normalized(image) for image in values])
    for images in both_layouts(values):
        result = ImageBatch(MEAN, STD, **options)(images, key=0)
        assert torch.equal(result, expected)
        assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("flip", [0, 1e-9])
def test_other_types_are_rounded_once_from_float32(values, dtype, flip):
    expected = torch.stack([references.normalized(image) for image in values])
    result = ImageBatch(MEAN, STD, flip=flip, dtype=dtype)(values, key=0)
    assert torch.equal(result, expected.to(dtype))
    exact = (values.double() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    ulp = (
        torch.nextafter(result.abs(), torch.tensor(torch.inf, dtype=dtype)) - result.abs()
        if dtype.itemsize == 2
        else 1e-6
    )
    assert bool(((result.double() - exact).abs() <= ulp).all())


def test_all_operations_in_their_order(photos):
    """The chain is its operations one by one, with the same key."""
    operations = {name: value for name, value in EVERYTHING.items() if name not in ("mixup", "cutmix", "classes")}
    result = ImageBatch(MEAN, STD, **operations)(photos, key=9)
    step = RandomCrop(32, padding=4)(photos, key=9)
    for operation in (
        ss.augment.RandomHorizontalFlip(),
        ColorJitter(0.4, 0.4, 0.4, 0.1),
        ss.augment.RandomGrayscale(0.2),
        GaussianBlur(0.5, kernel_size=7),
    ):
        step = operation(step, key=9)
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in (MEAN, STD))
    step = RandomErasing(0.25)(step.sub(mean).div(std), key=9)
    torch.testing.assert_close(result, step, rtol=0, atol=1e-5)


@pytest.mark.parametrize("block", [1, 5, 24])
def test_blocks_change_nothing(photos, block, monkeypatch):
    augment = ImageBatch(MEAN, STD, **EVERYTHING)
    whole = augment((photos, LABELS), key=4)
    monkeypatch.setattr(chain, "_BLOCK", block * 12 * 40 * 48)
    for part, expected in zip(augment((photos, LABELS), key=4), whole, strict=True):
        torch.testing.assert_close(part, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [None, *EVERYTHING])
def test_input_stays_and_the_result_is_its_own(photos, name, dtype):
    options = EVERYTHING if name is None else {name: EVERYTHING[name]} | {"classes": 24}
    augment = ImageBatch(MEAN, STD, dtype=dtype, **options)
    for images in (*both_layouts(photos), *both_layouts(photos / 255)):
        before, labels = images.clone(), LABELS.clone()
        result = augment((images, labels), key=2)[0]
        assert torch.equal(images, before)
        assert torch.equal(labels, LABELS)
        assert result.data_ptr() != images.data_ptr()
        assert result.dtype == dtype
        assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", [None, *EVERYTHING])
def test_the_key_decides_on_values_of_any_layout_and_type(photos, name):
    options = EVERYTHING if name is None else {name: EVERYTHING[name]} | {"classes": 24}
    augment = ImageBatch(MEAN, STD, **options)
    results = [augment((images, LABELS), key=7)[0] for images in (*both_layouts(photos), *both_layouts(photos / 255))]
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=0, atol=1e-5)
    assert torch.equal(augment((photos, LABELS), key=7)[0], results[0])
    if name != "classes":
        assert not torch.equal(augment((photos, LABELS), key=8)[0], results[0])


def test_one_operation_more_changes_none_of_the_others(photos):
    flipped = ImageBatch(MEAN, STD, flip=True)(photos, key=1)
    also_erased = ImageBatch(MEAN, STD, flip=True, erase=1.0)(photos, key=1)
    assert bool(((also_erased == flipped) | (also_erased == 0)).all())
    assert not torch.equal(also_erased, flipped)


def test_samples_of_one_batch_differ(photos):
    same = photos[:1].expand(24, -1, -1, -1)
    result = ImageBatch(MEAN, STD, color_jitter=0.4)(same, key=1)
    assert len(result.flatten(1).unique(dim=0)) == 24


def test_structures_come_back_as_they_went(photos):
    augment = ImageBatch(MEAN, STD)
    images = augment(photos)
    for batch in ((photos, LABELS, "x"), [photos, LABELS], Pair(photos, LABELS)):
        result = augment(batch)
        assert type(result) is type(batch)
        assert torch.equal(result[0], images)
        assert result[1] is LABELS
    batch = {"__key__": ["a"] * 24, "jpg": photos, "cls": LABELS, "mask": photos[:, :1], "x": torch.zeros(24, 3, 4, 4)}
    result = augment(batch)
    assert list(result) == list(batch)
    assert torch.equal(result["jpg"], images)
    assert all(result[name] is batch[name] for name in batch if name != "jpg")
    assert batch["jpg"] is photos


def test_soft_labels_where_they_are_asked_for(photos):
    augment = ImageBatch(MEAN, STD, label_smoothing=0.1, classes=24)
    batch = {"jpg": photos, "cls": LABELS, "__shard__": LABELS, "weight": torch.ones(24), "__valid__": LABELS > 0}
    result = augment(batch)
    assert result["cls"].dtype == torch.float32
    assert torch.equal(result["cls"].argmax(1), LABELS)
    assert result["__shard__"] is LABELS
    assert torch.equal(augment((photos, LABELS))[1], result["cls"])
    named = ImageBatch(MEAN, STD, label_smoothing=0.1, classes=24, image="b", label="y")
    assert torch.equal(named({"a": photos, "b": photos, "x": LABELS, "y": LABELS})["y"], result["cls"])
    placed = ImageBatch(MEAN, STD, label_smoothing=0.1, classes=24, image=1, label=-1)
    assert torch.equal(placed((photos[:, :1], photos, LABELS))[2], result["cls"])


TWO = {"jpg": torch.zeros(2, 3, 4, 4, dtype=torch.uint8), "png": torch.zeros(2, 3, 4, 4, dtype=torch.uint8)}
ONE = {"jpg": TWO["jpg"]}


@pytest.mark.parametrize(
    ("options", "batch", "told"),
    [
        ({}, TWO, r"'jpg' and 'png' could all be the image of the batch\n  hint: name it: image="),
        ({}, {"cls": LABELS}, r"none of \['cls'\] can be the image"),
        ({}, {"jpg": torch.zeros(2, 8, 8, 3, dtype=torch.uint8)}, r"'jpg' is \(B, H, W, 3\).*layout=\"CHW\""),
        ({"image": "jpeg"}, ONE, r"no 'jpeg'"),
        ({"image": 2}, (LABELS, LABELS), "image=2"),
        ({"image": "jpg"}, (LABELS, LABELS), "image='jpg'"),
        ({}, (LABELS, LABELS), r"int64 \(24,\), no batch of images"),
        ({}, "batch", "expected a batch, got a str"),
        ({}, (), "batch of 0 parts"),
        ({"mixup": 1}, TWO["jpg"], "no labels to soften"),
        ({"mixup": 1}, ONE, r"none of \['jpg'\] can be the label"),
        ({"mixup": 1}, ONE | {"a": LABELS, "b": LABELS}, "'a' and 'b' could all be the label"),
        ({"mixup": 1}, (TWO["jpg"],), "label=1 is outside of a batch of 1 parts"),
    ],
)
def test_batches_in_which_nothing_is_found(options, batch, told):
    with pytest.raises(UsageError, match=told):
        ImageBatch(MEAN, STD, classes=3, **options)(batch)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mean": (0.5,)}, "three channels"),
        ({"std": (0.2, 0, 0.2)}, "three channels"),
        ({"dtype": torch.uint8}, "dtype=torch.uint8"),
        ({"classes": 0}, "classes must be at least 1, got 0"),
        ({"flip": 2}, r"p must be a number in \[0, 1\], got 2"),
        ({"label_smoothing": 1.5}, "label_smoothing must be .*got 1.5"),
        ({"mixup": -1}, "mixup must be .*got -1"),
        ({"color_jitter": (0.4, 0.4)}, r"color_jitter=\(0.4, 0.4\)"),
    ],
)
def test_arguments_out_of_range_are_named(options, told):
    with pytest.raises(UsageError, match=told):
        ImageBatch(**{"mean": MEAN, "std": STD} | options)


def test_short_forms_are_the_objects():
    short = ImageBatch(MEAN, STD, flip=True, crop=8, color_jitter=0.4, grayscale=0.2, blur=0.5, erase=0.25)
    for told in (
        "RandomCrop(size=8, padding=0)",
        "RandomHorizontalFlip(p=0.5)",
        "ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.0, p=1.0)",
        "RandomGrayscale(p=0.2)",
        "GaussianBlur(p=0.5, kernel_size=23",
        "RandomErasing(p=0.25",
    ):
        assert told in repr(short)


def test_empty_and_odd_batches(photos):
    augment = ImageBatch(MEAN, STD, **EVERYTHING)
    images, labels = augment((photos[:0], LABELS[:0]), key=1)
    assert images.shape == (0, 3, 32, 32)
    assert labels.shape == (0, 24)
    every_other = augment((photos[::2], LABELS[::2]), key=1)
    torch.testing.assert_close(every_other, augment((photos[::2].clone(), LABELS[::2]), key=1))


def test_autocast_changes_nothing(photos):
    augment = ImageBatch(MEAN, STD, **EVERYTHING)
    expected = augment((photos, LABELS), key=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(map(torch.equal, augment((photos, LABELS), key=1), expected))


def test_it_is_a_module_like_others(photos):
    augment = ImageBatch(MEAN, STD, **EVERYTHING)
    assert not list(augment.parameters())
    assert not augment.state_dict()
    expected = augment((photos, LABELS), key=3)
    for other in (pickle.loads(pickle.dumps(augment)), copy.deepcopy(augment), augment.half(), augment.eval()):
        assert torch.equal(other((photos, LABELS), key=3)[0], expected[0])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [None, *EVERYTHING])
def test_a_gpu_gives_what_the_cpu_gives(photos, name, dtype):
    options = EVERYTHING if name is None else {name: EVERYTHING[name]} | {"classes": 24}
    augment = ImageBatch(MEAN, STD, dtype=dtype, **options)
    tolerance = 2e-5 if dtype == torch.float32 else 2**-6
    for images in both_layouts(photos):
        expected, soft = augment((images, LABELS), key=5)
        result, labels = augment((images.cuda(), LABELS.cuda()), key=5)
        assert result.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=tolerance)
        torch.testing.assert_close(labels.cpu(), soft)


@pytest.mark.gpu
def test_normalisation_on_a_gpu_is_torchvisions_to_the_bit(values):
    expected = torch.stack([references.normalized(image) for image in values])
    for images in both_layouts(values.cuda()):
        assert torch.equal(ImageBatch(MEAN, STD)(images).cpu(), expected)


@pytest.mark.gpu
def test_the_cpu_never_waits_for_a_gpu(photos):
    augment = ImageBatch(MEAN, STD, **EVERYTHING)
    batch = photos.cuda(), LABELS.cuda()
    augment(batch, key=1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        augment(batch, key=2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
