"""Random erasing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from shardstream.augment.draws import Draws, RandomStream
from shardstream.augment.operation import Drawn, Operation, checked_range, checked_share, inside
from shardstream.images.geometry import Size
from shardstream.rng import below, unit

if TYPE_CHECKING:
    import torch

_ATTEMPTS = 10  # to draw a rectangle that fits, as torchvision makes; an image for which none does is left as it is


@dataclass(frozen=True)
class RandomErasing(Operation):
    """A rectangle of some of the images set to 0: torchvision's, with a draw and a rectangle for each image.

    Zero is the mean colour where it comes after the normalisation, as it does in `ImageBatch` and in torchvision's
    recipes.

    Args:
        p: Probability.
        scale: (low, high) of the rectangle's share of the area.
        ratio: (low, high) of height / width, drawn log-uniform.

    Raises:
        UsageError: An argument outside of its range.

        >>> RandomErasing(0.25)(torch.ones(8, 3, 32, 32)).shape
        torch.Size([8, 3, 32, 32])
    """

    stream: ClassVar[RandomStream] = RandomStream.ERASE

    p: float = 0.5
    scale: tuple[float, float] = field(default=(0.02, 0.33), kw_only=True)
    ratio: tuple[float, float] = field(default=(0.3, 3.3), kw_only=True)

    def __post_init__(self) -> None:
        checked_share("p", self.p)
        checked_range("scale", self.scale, 0, 1)
        checked_range("ratio", self.ratio, 0, float("inf"), above=True)

    def draw(self, draws: Draws, size: Size) -> Drawn:
        # Words 0: touched; 1, 2: place; then area and ratio of each attempt.
        words = draws.words(self.stream, 3 + 2 * _ATTEMPTS)
        area, aspect = (unit(words[:, first::2]) for first in (3, 4))
        low, high = np.log(self.ratio)
        area = size[0] * size[1] * (self.scale[0] + (self.scale[1] - self.scale[0]) * area)
        aspect = np.exp(low + (high - low) * aspect)
        heights, widths = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
        fits = (heights < size[0]) & (widths < size[1])
        first = (np.arange(draws.count), fits.argmax(1))
        height, width = (sides[first].astype(np.uint64) for sides in (heights, widths))
        touched = fits.any(1) & (unit(words[:, 0]) < self.p)
        # A rectangle that does not fit is drawn for nobody; the least place keeps its arithmetic in bounds.
        top = below(words[:, 1], np.where(touched, np.uint64(size[0]) - height + np.uint64(1), 1))
        left = below(words[:, 2], np.where(touched, np.uint64(size[1]) - width + np.uint64(1), 1))
        return Drawn(touched, np.array([top, left, top + height, left + width], np.float32))

    def apply(self, images: torch.Tensor, *arrays: torch.Tensor) -> torch.Tensor:
        return images.masked_fill_(inside(arrays[0], (images.shape[2], images.shape[3])), 0)
