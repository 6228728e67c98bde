from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardstream.images.geometry import Box, Geometry, center_window, whole
from shardstream.images.resize import render, render_labels

BOXES = [
    Box(10, 20, 270, 300),
    Box(0, 0, 375, 500),
    Box(3, 5, 50, 60),
    Box(3, 5, 224, 100),
    Box(3, 5, 100, 224),
    Box(7, 9, 300, 2),
    Box(374, 499, 1, 1),
]


def interpolated(pixels, box, size):
    crop = torch.from_numpy(np.ascontiguousarray(pixels[box.slices()]))
    planes = crop.permute(2, 0, 1)[None] if crop.ndim == 3 else crop[None, None]
    result = functional.interpolate(planes.contiguous(), size, mode="bilinear", antialias=True)[0]
    return (result.permute(1, 2, 0) if crop.ndim == 3 else result[0]).numpy()


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("grey", [False, True])
def test_equals_torch_and_pillow(photo, box, grey):
    pixels = photo()[..., 0].copy() if grey else photo()
    geometry = Geometry((375, 500), box, (224, 224))
    ours = render(pixels, geometry)
    assert np.array_equal(ours, interpolated(pixels, box, (224, 224)))
    theirs = Image.fromarray(pixels[box.slices()]).resize((224, 224), Image.Resampling.BILINEAR)
    assert np.abs(ours.astype(int) - np.asarray(theirs)).max() <= 1
    flipped = render(pixels, geometry._replace(flip=True))
    assert np.array_equal(flipped, ours[:, ::-1])


@pytest.mark.parametrize("channels", [(), (3,)])
@pytest.mark.parametrize("flip", [False, True])
def test_writes_its_slot_and_nothing_else(photo, channels, flip):
    pixels = photo(100, 80)
    pixels = pixels if channels else np.ascontiguousarray(pixels[..., 1])
    before = pixels.copy()
    batch = np.full((3, 33, 47, *channels), 77, np.uint8)
    for geometry in (
        Geometry((100, 80), Box(5, 6, 70, 60), (33, 47), flip=flip),
        Geometry((100, 80), Box(5, 6, 33, 47), (33, 47), flip=flip),
        Geometry((100, 80), whole((100, 80)), (50, 60), Box(2, 3, 33, 47), flip),
        Geometry((100, 80), whole((100, 80)), (20, 30), center_window((20, 30), (33, 47)), flip),
    ):
        batch[1] = 99
        out = render(pixels, geometry, batch[1])
        assert np.shares_memory(out, batch)
        assert np.array_equal(batch[1], render(pixels, geometry))
        assert (batch[0] == 77).all()
        assert (batch[2] == 77).all()
    assert np.array_equal(pixels, before)


lengths = st.integers(1, 9)


@given(
    st.tuples(lengths, lengths), st.tuples(lengths, lengths), st.sampled_from(["HW", "HWC", "CHW"]), st.integers(0, 99)
)
def test_results_of_any_size_are_within_a_grey_level_of_pillow(have, want, order, seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (3, *have) if order == "CHW" else (*have, 3)[: len(order)], np.uint8)
    pixels = np.moveaxis(pixels, 0, 2) if order == "CHW" else pixels
    theirs = np.asarray(Image.fromarray(pixels).resize(want[::-1], Image.Resampling.BILINEAR))
    ours = render(pixels, Geometry(have, whole(have), want))
    assert np.abs(ours.astype(int) - theirs).max() <= 1


def test_window_is_resize_then_crop_then_pad(photo):
    pixels = photo(60, 90)
    resized = interpolated(pixels, whole((60, 90)), (40, 60))
    inside = render(pixels, Geometry((60, 90), whole((60, 90)), (40, 60), Box(8, 10, 20, 30)))
    assert np.array_equal(inside, resized[8:28, 10:40])
    padded = render(pixels, Geometry((60, 90), whole((60, 90)), (40, 60), center_window((40, 60), (51, 64))))
    expected = np.pad(resized, ((5, 6), (2, 2), (0, 0)))
    assert np.array_equal(padded, expected)


def test_read_only_and_strided_pixels(photo):
    pixels = photo(90, 120)
    geometry = Geometry((90, 120), Box(3, 4, 50, 61), (32, 32))
    expected = render(pixels, geometry)
    locked = pixels.copy()
    locked.flags.writeable = False
    assert np.array_equal(render(locked, geometry), expected)
    mirrored = np.ascontiguousarray(pixels[::-1, ::-1])[::-1, ::-1]
    assert np.array_equal(render(mirrored, geometry), expected)
    wide = np.zeros((90, 120, 6), np.uint8)
    wide[..., ::2] = pixels
    assert np.array_equal(render(wide[..., ::2], geometry), expected)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 70), st.integers(1, 70), st.booleans())
def test_labels_take_the_nearest_pixel_centre(height, width, h, w, flip):
    labels = np.arange(height * width, dtype=np.int32).reshape(height, width)
    ours = render_labels(labels, Geometry((height, width), whole((height, width)), (h, w), flip=flip))
    rows = [(2 * i + 1) * height // (2 * h) for i in range(h)]
    columns = [(2 * j + 1) * width // (2 * w) for j in range(w)]
    expected = labels[rows][:, columns[::-1] if flip else columns]
    assert np.array_equal(ours, expected)


@pytest.mark.parametrize(("height", "width", "h", "w"), [(50, 70, 33, 20), (31, 17, 64, 64), (128, 128, 37, 41)])
def test_labels_agree_with_pillow_and_torch(height, width, h, w):
    labels = np.random.default_rng(0).integers(0, 255, (height, width), np.uint8)
    ours = render_labels(labels, Geometry((height, width), whole((height, width)), (h, w)))
    pillow = np.asarray(Image.fromarray(labels).resize((w, h), Image.Resampling.NEAREST))
    exact = functional.interpolate(torch.from_numpy(labels)[None, None], (h, w), mode="nearest-exact")[0, 0].numpy()
    # Both compute in floating point, so where (i + ½)·in/out is whole they may fall on the pixel before.
    assert (ours != pillow).mean() < 0.06
    assert (ours != exact).mean() < 0.06


def test_labels_in_a_window_and_another_dtype():
    labels = np.arange(1, 13, dtype=np.uint16).reshape(3, 4)
    padded = Geometry((3, 4), whole((3, 4)), (3, 4), center_window((3, 4), (5, 2)), True)
    out = np.zeros((5, 2), np.int64)
    assert render_labels(labels, padded, out, 255) is out
    assert out.tolist() == [[255, 255], [3, 2], [7, 6], [11, 10], [255, 255]]
    assert render_labels(labels, padded).dtype == np.uint16


def test_image_and_mask_stay_aligned(photo):
    """The nearest rule has no shift against the bilinear one: the centre of mass of a disc is the same in both."""
    y, x = np.mgrid[0:375, 0:500]
    disc = ((y - 150) ** 2 + (x - 290) ** 2 < 80**2).astype(np.uint8)
    geometry = Geometry((375, 500), Box(31, 117, 300, 333), (97, 131), flip=True)
    image = render(np.repeat(disc[..., None] * 255, 3, 2), geometry)[..., 0] / 255.0
    mask = render_labels(disc, geometry).astype(float)
    for axis in (0, 1):
        centres = [(part.sum(axis=1 - axis) @ np.arange(part.shape[axis])) / part.sum() for part in (image, mask)]
        assert abs(centres[0] - centres[1]) < 0.15  # the rule ⌊i·in/out⌋ is off by 0.5
