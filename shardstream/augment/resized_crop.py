"""The random resized crop, of images that lie in a batch already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from shardstream.augment.draws import Draws, RandomStream
from shardstream.augment.operation import Drawn, Operation, checked_range
from shardstream.augment.products import multiplied, weights
from shardstream.errors import UsageError
from shardstream.images import resize
from shardstream.images.geometry import CROP_WORDS, Box, Geometry, Size, pair, random_resized_box


@dataclass(frozen=True)
class RandomResizedCrop(Operation):
    """A random rectangle of each image, resized: torchvision's, antialiased, with a rectangle for each image.

    For images that are larger than the network wants and come in a batch as they are: decoded images kept in record
    shards, several views of one slab. Where files are decoded, `shardstream.decode.RandomResizedCrop` decodes no more
    than it shows.

    Args:
        size: (height, width) of the result, or one number for both.
        scale: Bounds of the rectangle's share of the image's area, uniform.
        ratio: Bounds of width / height, log-uniform.

    Raises:
        UsageError: A size below 1, or bounds that are none.

        >>> RandomResizedCrop(24)(torch.zeros(8, 3, 32, 32, dtype=torch.uint8)).shape
        torch.Size([8, 3, 24, 24])
    """

    stream: ClassVar[RandomStream] = RandomStream.RESIZED_CROP
    moves_only: ClassVar[bool] = True

    size: int | Size
    scale: tuple[float, float] = field(default=(0.08, 1.0), kw_only=True)
    ratio: tuple[float, float] = field(default=(3 / 4, 4 / 3), kw_only=True)

    def __post_init__(self) -> None:
        if min(pair(self.size)) < 1:
            raise UsageError(f"size must be a positive integer or (height, width), got {self.size!r}")
        checked_range("scale", self.scale, 0, 1, above=True)
        checked_range("ratio", self.ratio, 0, float("inf"), above=True)

    def output(self, size: Size) -> Size:
        return pair(self.size)

    def draw(self, draws: Draws, size: Size) -> Drawn:
        words = draws.words(self.stream, CROP_WORDS).tolist()
        boxes = [random_resized_box(size, each, scale=self.scale, ratio=self.ratio) for each in words]
        numbers = np.array(boxes, np.float32).reshape(-1, 4).T
        return Drawn(np.ones(draws.count, np.bool_), numbers)

    def apply(self, images: torch.Tensor, *arrays: torch.Tensor) -> torch.Tensor:
        if images.device.type == "cpu" and images.dtype == torch.uint8:
            return self._one_by_one(images, arrays[0])
        top, left, heights, widths = arrays[0].long()
        height, width = pair(self.size)
        # Autocast would make the products in half precision.
        with torch.autocast(images.device.type, enabled=False):
            pixels = images.permute(0, 2, 3, 1).contiguous().float()
            down = weights(heights, height, images.shape[2], begins=top)
            across = weights(widths, width, images.shape[3], begins=left)
            result = multiplied(pixels, down, across).permute(0, 3, 1, 2)
        if images.dtype == torch.uint8:
            result = result.round_()
        return result.to(images.dtype, memory_format=torch.channels_last)

    def _one_by_one(self, images: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        """By the operator of the workers, which on the CPU is the fastest; the products differ by a grey level."""
        height, width = pair(self.size)
        source = images.shape[2], images.shape[3]
        out = np.empty((len(images), height, width, 3), np.uint8)
        whole = images.permute(0, 2, 3, 1).numpy()
        for pixels, box, slot in zip(whole, boxes.T.int().tolist(), out, strict=True):
            resize.render(pixels, Geometry(source, Box(*box), (height, width)), slot)
        return torch.from_numpy(out).permute(0, 3, 1, 2)
