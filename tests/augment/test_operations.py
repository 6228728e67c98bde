"""Each operation, sample for sample, against a plain formula for one image, with the numbers that were drawn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardstream.augment import (
    ColorJitter,
    GaussianBlur,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
)
from shardstream.augment.blur import by_convolution, by_shifts
from shardstream.augment.draws import Draws
from shardstream.errors import UsageError
from shardstream.images.geometry import CROP_WORDS, random_resized_box

from . import references

KEYS = st.integers(0, 2**64 - 1)


def drawn(operation, images, key):
    touched, numbers = operation.draw(Draws(key, len(images)), tuple(images.shape[2:]))
    return touched.tolist(), torch.from_numpy(numbers)


def close(result, expected, tolerance=2e-6):
    torch.testing.assert_close(result, torch.stack(expected), rtol=0, atol=tolerance)


@given(key=KEYS, p=st.sampled_from([0, 0.3, 1]))
def test_flip(photos, key, p):
    flip = RandomHorizontalFlip(p)
    flags = drawn(flip, photos, key)[0]
    assert any(flags) == (p > 0) or p == 0.3
    assert torch.equal(
        flip(photos, key=key), torch.stack([x.flip(2) if f else x for x, f in zip(photos, flags, strict=True)])
    )


@given(key=KEYS, size=st.tuples(st.integers(1, 40), st.integers(1, 48)), padding=st.integers(0, 9))
def test_crop(photos, key, size, padding):
    crop = RandomCrop(size, padding=padding)
    places = drawn(crop, photos, key)[1].int().T.tolist()
    expected = [references.padded_crop(x, padding, *place, *size) for x, place in zip(photos, places, strict=True)]
    for images in (photos, photos.contiguous()):
        assert torch.equal(crop(images, key=key), torch.stack(expected))


def resized_crops(images, boxes, size):
    """Float images, one by one by torch's operator."""
    return [
        torch.nn.functional.interpolate(
            x[None, :, top : top + height, left : left + width].contiguous(), size, mode="bilinear", antialias=True
        )[0]
        for x, (top, left, height, width) in zip(images, boxes, strict=True)
    ]


@given(key=KEYS, size=st.tuples(st.integers(2, 50), st.integers(2, 50)), low=st.sampled_from([0.05, 0.5]))
def test_random_resized_crop(photos, key, size, low):
    crop = RandomResizedCrop(size, scale=(low, 1.0))
    source = tuple(photos.shape[2:])
    words = Draws(key, len(photos)).words(crop.stream, CROP_WORDS).tolist()
    boxes = [random_resized_box(source, each, scale=(low, 1.0), ratio=(3 / 4, 4 / 3)) for each in words]
    assert drawn(crop, photos, key)[1].int().T.tolist() == [list(box) for box in boxes]
    floats = photos.float() / 255
    expected = torch.stack(resized_crops(floats, boxes, size))
    torch.testing.assert_close(crop(floats, key=key), expected, rtol=0, atol=1e-5)
    for images in (photos, photos.contiguous()):
        result = crop(images, key=key)
        assert result.dtype == torch.uint8
        assert result.is_contiguous(memory_format=torch.channels_last)
        assert (result.float() - 255 * expected).abs().max() <= 1.01


@pytest.mark.gpu
def test_random_resized_crop_on_a_gpu(photos):
    crop = RandomResizedCrop(24)
    torch.testing.assert_close(crop(photos.cuda(), key=1).cpu().int(), crop(photos, key=1).int(), rtol=0, atol=1)
    floats = photos.float() / 255
    torch.testing.assert_close(crop(floats.cuda(), key=1).cpu(), crop(floats, key=1), rtol=0, atol=1e-5)


@given(
    key=KEYS,
    amounts=st.tuples(*[st.sampled_from([0, 0.3, 1.5, (0.5, 0.9)])] * 3, st.sampled_from([0, 0.1, 0.5, (-0.3, 0.1)])),
    p=st.sampled_from([0.5, 1]),
)
def test_color_jitter_in_the_order_drawn(photos, key, amounts, p):
    jitter = ColorJitter(*amounts, p=p)
    touched, numbers = drawn(jitter, photos[:8, :, :9, :11], key)
    expected = []
    for i, image in enumerate(photos[:8, :, :9, :11] / 255):
        changed = image
        for kind in numbers[4:, i].int().tolist() if touched[i] else ():
            changed = references.STEPS[kind](changed, numbers[kind, i].item())
        expected.append(changed)
    close(jitter(photos[:8, :, :9, :11], key=key), expected, 1e-5)


@pytest.mark.parametrize("p", [0.5, 1])
def test_grayscale(photos, p):
    grayscale = RandomGrayscale(p)
    touched, _ = drawn(grayscale, photos, 5)
    units = photos / 255
    close(grayscale(photos, key=5), [references.grey(x) if t else x for x, t in zip(units, touched, strict=True)])


@pytest.mark.parametrize("taps", [1, 3, 9, 23])
def test_blur(photos, taps):
    blur = GaussianBlur(0.6, kernel_size=taps)
    touched, ((*sigmas,),) = drawn(blur, photos, 6)
    expected = [
        references.blurred(x, taps, s.item()) if t else x for x, t, s in zip(photos / 255, touched, sigmas, strict=True)
    ]
    close(blur(photos, key=6), expected)


@given(key=KEYS, p=st.sampled_from([0.3, 1]))
def test_erasing(photos, key, p):
    erasing = RandomErasing(p)
    touched, numbers = drawn(erasing, photos, key)
    units = photos / 255
    boxes = numbers.int().T.tolist()
    expected = [references.erased(x, b) if t else x for x, t, b in zip(units, touched, boxes, strict=True)]
    assert torch.equal(erasing(units, key=key), torch.stack(expected))
    for top, left, bottom, right in (box for box, hit in zip(boxes, touched, strict=True) if hit):
        assert 0 <= top < bottom <= 40
        assert 0 <= left < right <= 48
        assert bottom - top < 40
        assert right - left < 48
        assert 0.01 < (bottom - top) * (right - left) / (40 * 48) < 0.36


@pytest.mark.parametrize("taps", [1, 3, 9])
def test_both_ways_to_blur_are_one(photos, taps):
    weights = torch.rand(24, taps, generator=torch.Generator().manual_seed(1)).softmax(1)
    images = photos / 255
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = by_shifts(images, weights), by_convolution(images, weights)
    torch.testing.assert_close(*results, rtol=0, atol=1e-6)


def test_erasing_leaves_images_that_no_rectangle_fits():
    tall = RandomErasing(1, scale=(0.9, 1), ratio=(3, 3.3))
    images = torch.ones(4, 3, 10, 10)
    assert torch.equal(tall(images, key=0), images)


ALL = (
    RandomHorizontalFlip(),
    RandomCrop(32, padding=2),
    ColorJitter(0.4, 0.4, 0.4, 0.1),
    RandomGrayscale(0.5),
    GaussianBlur(kernel_size=5),
    RandomErasing(),
)


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: type(operation).__name__)
def test_samples_do_not_depend_on_those_after_them_and_input_stays(photos, operation):
    for images in (photos, photos / 255, photos.contiguous()):
        before = images.clone()
        whole = operation(images, key=11)
        assert torch.equal(images, before)
        torch.testing.assert_close(operation(images[:7], key=11), whole[:7], rtol=0, atol=1e-6)
        assert not torch.equal(operation(images, key=12), whole)
        assert operation(images[:0], key=11).shape == (0, *whole.shape[1:])


@pytest.mark.parametrize("operation", ALL, ids=lambda operation: type(operation).__name__)
def test_without_a_key_torchs_global_generator_decides(photos, operation):
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(operation(photos))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: RandomHorizontalFlip(1.1), "p must be .*got 1.1"),
        (lambda: RandomCrop(0), "RandomCrop .*got size=0"),
        (lambda: RandomCrop(8, padding=-1), "padding=-1"),
        (lambda: ColorJitter(-0.1), "brightness must be .*got -0.1"),
        (lambda: ColorJitter(hue=0.6), "hue must be .*got 0.6"),
        (lambda: ColorJitter(saturation=(0.9, 0.5)), "saturation must be"),
        (lambda: GaussianBlur(kernel_size=4), "kernel_size=4"),
        (lambda: GaussianBlur(sigma=(0, 1)), "sigma="),
        (lambda: RandomErasing(scale=(0.5, 1.5)), "scale must be"),
        (lambda: RandomErasing(ratio=(0, 1)), "ratio="),
        (lambda: RandomCrop(41)(torch.zeros(2, 3, 40, 48, dtype=torch.uint8)), "40 x 48"),
        (lambda: GaussianBlur()(torch.zeros(2, 3, 11, 48)), "11 x 48"),
        (lambda: RandomGrayscale()(torch.zeros(2, 1, 8, 8)), r"\(2, 1, 8, 8\)"),
        (lambda: RandomGrayscale()(torch.zeros(2, 3, 8, 8, dtype=torch.int64)), "int64"),
    ],
)
def test_arguments_out_of_range_are_named(make, told):
    with pytest.raises(UsageError, match=told):
        make()
