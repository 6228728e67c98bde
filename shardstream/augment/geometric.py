"""Operations that move pixels: a crop at a random place, and the flip."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch.nn.functional import pad

from shardstream.augment.draws import Draws, RandomStream
from shardstream.augment.operation import Drawn, Operation, Sometimes
from shardstream.errors import UsageError
from shardstream.images.geometry import Size, pair
from shardstream.rng import below


@dataclass(frozen=True)
class RandomHorizontalFlip(Sometimes):
    """Left and right exchanged in some of the images: torchvision's, with a draw for each image.

    Args:
        p: Probability.

    Raises:
        UsageError: ``p`` is not a probability.

        >>> RandomHorizontalFlip()(torch.zeros(8, 3, 32, 32, dtype=torch.uint8)).dtype
        torch.uint8
    """

    stream: ClassVar[RandomStream] = RandomStream.FLIP
    moves_only: ClassVar[bool] = True

    def apply(self, images: torch.Tensor, *arrays: torch.Tensor) -> torch.Tensor:
        return images.flip(3)


@dataclass(frozen=True)
class RandomCrop(Operation):
    """A rectangle at a random place, after black margins were added: torchvision's, with a place for each image.

    Args:
        size: (height, width) of the crop, or one number for both.
        padding: Pixels added on each of the four sides, black.

    Raises:
        UsageError: A size below 1, a negative padding, or (when called) images smaller than the crop.

        >>> RandomCrop(32, padding=4)(torch.zeros(8, 3, 32, 32, dtype=torch.uint8)).shape
        torch.Size([8, 3, 32, 32])
    """

    stream: ClassVar[RandomStream] = RandomStream.CROP
    moves_only: ClassVar[bool] = True

    size: int | Size
    padding: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        height, width = pair(self.size)
        if min(height, width) < 1 or self.padding < 0:
            raise UsageError(
                "RandomCrop needs a size of at least 1, as one number or (height, width), and padding of at least 0, "
                f"got size={self.size!r}, padding={self.padding!r}"
            )

    def output(self, size: Size) -> Size:
        return pair(self.size)

    def draw(self, draws: Draws, size: Size) -> Drawn:
        room = [side + 2 * self.padding - wanted for side, wanted in zip(size, pair(self.size), strict=True)]
        if min(room) < 0:
            raise UsageError(
                f"a crop of {self.size!r} from images of {size[0]} x {size[1]} pixels",
                hint=f"padding={self.padding} leaves them too small: raise it, or crop less",
            )
        words = draws.words(self.stream, 2)
        places = [below(words[:, side], room[side] + 1) for side in (0, 1)]
        return Drawn(np.ones(draws.count, np.bool_), np.array(places, np.float32))

    def apply(self, images: torch.Tensor, *arrays: torch.Tensor) -> torch.Tensor:
        top, left = arrays[0].long()
        height, width = pair(self.size)
        if self.padding:
            images = pad(images, (self.padding,) * 4)
        # Every window there could be, as a view: one place a sample is looked up, not one a pixel.
        windows = images.permute(0, 2, 3, 1).unfold(1, height, 1).unfold(2, width, 1)
        return windows[torch.arange(len(images), device=images.device), top, left]
