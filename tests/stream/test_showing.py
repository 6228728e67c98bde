"""Images of floats are drawn in fixed ranges: right colors for right numbers, wrong ones for a wrong mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shardstream.stream.showing import as_pixels, scale_of

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLAT = np.full((8, 8, 3), (200, 205, 180), np.uint8)
VARIED = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)


def normalized(pixels: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    """As a batch has it: float32 (3, H, W)."""
    return ((torch.from_numpy(pixels).float() / 255 - torch.tensor(mean)) / torch.tensor(std)).permute(2, 0, 1)


def drawn(batch: torch.Tensor, slot: int) -> np.ndarray:
    pixels = as_pixels(batch[slot], scale_of(batch))
    assert pixels is not None
    return pixels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize(
    ("mean", "std"), [(MEAN, STD), ((0, 0, 0), (1, 1, 1)), ((0, 0, 0), (1 / 255,) * 3), ((0.5,) * 3, (0.5,) * 3)]
)
def test_right_numbers_have_the_colors_of_the_stored_image(
    mean: tuple[float, ...], std: tuple[float, ...], dtype: torch.dtype
) -> None:
    batch = torch.stack([normalized(pixels, mean, std) for pixels in (FLAT, VARIED)]).to(dtype)
    for slot, pixels in enumerate((FLAT, VARIED)):
        assert np.abs(drawn(batch, slot).astype(int) - pixels).max() <= 1


@pytest.mark.parametrize("mean", [MEAN[::-1], (0.0, 0.0, 0.0)])
def test_a_wrong_mean_shows_as_wrong_colors(mean: tuple[float, ...]) -> None:
    batch = torch.stack([normalized(pixels, mean, STD) for pixels in (FLAT, VARIED)])
    assert np.abs(drawn(batch, 0).mean((0, 1)) - FLAT[0, 0]).max() > 15


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_drawn_too(value: float) -> None:
    pixels = as_pixels(torch.full((3, 4, 4), value))
    assert pixels is not None
    assert pixels.shape == (4, 4, 3)
