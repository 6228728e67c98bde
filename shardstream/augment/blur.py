"""The Gaussian blur."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from torch import Tensor, autocast
from torch.nn.functional import conv2d, pad

from shardstream.augment.draws import Draws, RandomStream
from shardstream.augment.operation import Drawn, Floats, Operation, checked_range, checked_share
from shardstream.errors import UsageError
from shardstream.images.geometry import Size


@dataclass(frozen=True)
class GaussianBlur(Operation):
    """Some of the images blurred, each by a Gaussian of its own width; edges are mirrored. Torchvision's arithmetic.

    Args:
        p: Probability.
        kernel_size: Taps of the filter, an odd number: 23, as SimCLR's recipe has for images of 224 pixels.
        sigma: (low, high) of the standard deviation, in pixels.

    Raises:
        UsageError: An argument outside of its range, or (when called) images of ``kernel_size // 2`` pixels or less.

        >>> GaussianBlur(0.5, kernel_size=9)(torch.zeros(8, 3, 32, 32, dtype=torch.uint8)).shape
        torch.Size([8, 3, 32, 32])
    """

    stream: ClassVar[RandomStream] = RandomStream.BLUR

    p: float = 0.5
    kernel_size: int = field(default=23, kw_only=True)
    sigma: tuple[float, float] = field(default=(0.1, 2.0), kw_only=True)

    def __post_init__(self) -> None:
        checked_share("p", self.p)
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise UsageError(f"kernel_size={self.kernel_size!r} has no middle", hint="an odd number of taps")
        checked_range("sigma", self.sigma, 0, float("inf"), above=True)

    def draw(self, draws: Draws, size: Size) -> Drawn:
        if min(size) <= self.kernel_size // 2:
            raise UsageError(
                f"images of {size[0]} x {size[1]} pixels are too small to be blurred with {self.kernel_size} taps",
                hint="GaussianBlur(p, kernel_size=...): a tenth of the image's side is usual",
            )
        touched, sigma = draws.uniform(self.stream, 2)
        low, high = self.sigma
        return Drawn(touched < self.p, (low + (high - low) * sigma)[None].astype(np.float32))

    def arrays(self, numbers: Floats) -> tuple[Floats, ...]:
        reach = self.kernel_size // 2
        # Distances as torchvision has them: by them, exp(-(x / sigma)^2) is the Gaussian.
        far = np.linspace(-reach, reach, self.kernel_size) / np.sqrt(2)
        weights = np.exp(-((far / numbers[0].astype(np.float64)[:, None]) ** 2))
        return ((weights / weights.sum(1, keepdims=True)).astype(np.float32),)

    def apply(self, images: Tensor, *arrays: Tensor) -> Tensor:
        padded = pad(images, (self.kernel_size // 2,) * 4, mode="reflect")
        return (by_convolution if images.is_cuda else by_shifts)(padded, arrays[0])


def by_convolution(padded: Tensor, weights: Tensor) -> Tensor:
    """Images (n, 3, H + taps - 1, W + taps - 1) through filters (n, taps), down and across: one pass for each.

    Every channel of every image is a channel with a filter of its own; for such convolutions there is no TF32.
    """
    count, taps = weights.shape
    planes, filters = padded.flatten(0, 1)[None], weights.repeat_interleave(3, 0)
    with autocast(padded.device.type, enabled=False):  # it would filter in half precision
        for shape in ((-1, 1, 1, taps), (-1, 1, taps, 1)):
            planes = conv2d(planes, filters.view(shape), groups=3 * count)
    return planes.view(count, 3, *planes.shape[2:])


def by_shifts(padded: Tensor, weights: Tensor) -> Tensor:
    """The same as a sum of shifted images, which a CPU has in its cache: 1.5 to 2.7 times as fast there."""
    taps = [tap.view(-1, 1, 1, 1) for tap in weights.unbind(1)]
    for side in (2, 3):
        size = padded.shape[side] - len(taps) + 1
        done = padded.narrow(side, 0, size) * taps[0]
        for shift, tap in enumerate(taps[1:], 1):
            done.addcmul_(padded.narrow(side, shift, size), tap)
        padded = done
    return padded
