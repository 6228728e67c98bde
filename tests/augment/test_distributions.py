"""What is drawn has the distribution that torchvision's documents name. Keys are fixed: a verdict never changes."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import torch

from shardstream.augment import ColorJitter, GaussianBlur, RandomCrop, RandomErasing, RandomHorizontalFlip
from shardstream.augment.draws import Draws, RandomStream
from shardstream.augment.mixing import Mix, symmetric_beta

from .references import two_sample_distance

COUNT = 20_000
SIZE = (224, 192)
# What one of a thousand pairs of samples of one distribution is apart.
FAR = 1.95 * math.sqrt(2 / COUNT)


def drawn(operation, size=SIZE):
    return operation.draw(Draws(2**63 + 9, COUNT), size)


def uniform(low, high, seed=0):
    return low + (high - low) * torch.rand(COUNT, generator=torch.Generator().manual_seed(seed))


def chi_square(counts):
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_probability_of_a_flip(p):
    share = drawn(RandomHorizontalFlip(p)).touched.mean()
    assert abs(share - p) < 3.3 * math.sqrt(p * (1 - p) / COUNT)


def test_places_of_crops_are_uniform_and_independent():
    top, left = drawn(RandomCrop(32, padding=4), (32, 32)).numbers.astype(int)
    counts = np.bincount(top * 9 + left, minlength=81)
    assert len(counts) == 81
    assert chi_square(counts.tolist()) < 123  # 80 degrees of freedom: one of a thousand is above 124.8


def test_factors_and_orders_of_color_jitter():
    numbers = torch.from_numpy(drawn(ColorJitter(0.4, (0.5, 0.7), 1.5, 0.1)).numbers)
    for row, bounds in zip(numbers[:4], ((0.6, 1.4), (0.5, 0.7), (0, 2.5), (-0.1, 0.1)), strict=True):
        assert two_sample_distance(row, uniform(*bounds)) < FAR
    orders = [tuple(order) for order in numbers[4:].int().T.tolist()]
    counts = [orders.count(order) for order in permutations(range(4))]
    assert sum(counts) == COUNT
    assert chi_square(counts) < 49.7  # 23 degrees of freedom


def test_without_hue_the_others_draw_the_same():
    with_hue, without = (drawn(ColorJitter(0.4, 0.4, 0.4, hue)).numbers for hue in (0.1, 0))
    assert np.array_equal(with_hue[:3], without[:3])
    orders = with_hue[4:].T
    assert np.array_equal(orders[orders != 3].reshape(-1, 3), without[4:].T)


def test_sigma_of_the_blur():
    touched, (sigma,) = drawn(GaussianBlur(0.3))
    assert abs(touched.mean() - 0.3) < 3.3 * math.sqrt(0.21 / COUNT)
    assert two_sample_distance(torch.from_numpy(sigma), uniform(0.1, 2)) < FAR


def reference_box(generator, size):
    """``RandomErasing.make_params`` of torchvision, in its own order of draws."""
    for _ in range(10):
        area = size[0] * size[1] * (0.02 + 0.31 * torch.rand((), generator=generator).item())
        low, high = math.log(0.3), math.log(3.3)
        ratio = math.exp(low + (high - low) * torch.rand((), generator=generator).item())
        height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if height < size[0] and width < size[1]:
            top = int(torch.randint(size[0] - height + 1, (), generator=generator))
            return top, int(torch.randint(size[1] - width + 1, (), generator=generator)), height, width
    raise AssertionError


def test_rectangles_of_erasing_are_torchvisions():
    generator = torch.Generator().manual_seed(1)
    theirs = torch.tensor([reference_box(generator, SIZE) for _ in range(4000)], dtype=torch.float32).T
    touched, numbers = drawn(RandomErasing(1))
    top, left, bottom, right = torch.from_numpy(numbers)
    assert touched.all()
    for mine, their in zip((top, left, bottom - top, right - left), theirs, strict=True):
        assert two_sample_distance(mine, their) < 1.95 * math.sqrt(1 / COUNT + 1 / 4000)


@pytest.mark.parametrize("alpha", [0.01, 0.2, 0.5, 1, 2.5, 40])
def test_beta(alpha):
    found = torch.from_numpy(symmetric_beta(*Draws(77, COUNT).uniform(RandomStream.MIX, 2), alpha))
    torch.manual_seed(3)
    expected = torch.distributions.Beta(*torch.full((2,), alpha, dtype=torch.float64)).sample((COUNT,))
    assert bool(torch.isfinite(found).all())
    # Shares nearer to 0 or 1 than a millionth are that for any picture.
    assert two_sample_distance(found.round(decimals=6), expected.round(decimals=6)) < FAR
    assert found.mean().item() == pytest.approx(0.5, abs=0.015)


def test_beta_at_the_ends_of_its_numbers():
    ends = np.array([0, 1 - 2**-53])
    first, second = (axis.ravel() for axis in np.meshgrid(ends, np.array([0, 0.25, 0.5, 1 - 2**-53])))
    for alpha in (1e-3, 0.2, 1, 100):
        found = symmetric_beta(first, second, alpha)
        assert ((found >= 0) & (found <= 1)).all()


def test_each_sample_draws_mixup_or_cutmix_with_equal_probability():
    kept, *_ = Mix(0.2, 1.0).draw(Draws(5, COUNT), SIZE)
    assert abs((kept == 1).mean() - 0.5) < 0.02  # mixup, too, gives a share of exactly 1 to some


def reference_cut(generator):
    """``CutMix.make_params`` of torchvision: the box, and the label's share."""
    share = torch.rand((), generator=generator).item()  # Beta(1, 1)
    height, width = SIZE
    across, down = (int(torch.randint(side, (), generator=generator)) for side in (width, height))
    reach = 0.5 * math.sqrt(1 - share)
    x1, x2 = max(across - int(reach * width), 0), min(across + int(reach * width), width)
    y1, y2 = max(down - int(reach * height), 0), min(down + int(reach * height), height)
    return y1, x1, y2, x2, 1 - (x2 - x1) * (y2 - y1) / (width * height)


def test_boxes_of_cutmix_are_torchvisions():
    generator = torch.Generator().manual_seed(1)
    theirs = torch.tensor([reference_cut(generator) for _ in range(4000)]).T
    mine = torch.from_numpy(Mix(0, 1.0).draw(Draws(6, COUNT), SIZE)[1:])
    for row, their in zip(mine, theirs, strict=True):
        assert two_sample_distance(row, their) < 1.95 * math.sqrt(1 / COUNT + 1 / 4000)


def test_operations_draw_numbers_of_their_own() -> None:
    """A flip and a crop from one key that drew the same words would always go together."""
    words = [Draws(5, 64).words(stream, 2) for stream in RandomStream]
    assert len(np.unique(np.stack(words))) == len(RandomStream) * 64 * 2
