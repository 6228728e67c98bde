"""Normalisation, to the bit what torchvision's ``ToTensor`` and ``Normalize`` give on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from shardstream.augment.operation import Floats
from shardstream.errors import UsageError


def constants(mean: Sequence[float], std: Sequence[float]) -> Floats:
    """What `to_unit` and `normalize_` need on the device: 255, mean and std of each channel, (3, 3).

    255 stands in a tensor, not in the code: where the divisor is a number, CUDA multiplies by its reciprocal, which is
    rounded otherwise than a division.

    Raises:
        UsageError: They are not three numbers each, or a standard deviation is not above 0.
    """
    if len(mean) != 3 or len(std) != 3 or not min(std) > 0:
        raise UsageError(
            f"mean={mean!r} and std={std!r} do not describe three channels",
            hint="three numbers each, for values in 0..1, as for torchvision's Normalize; std above 0",
        )
    return np.array([[255.0] * 3, mean, std], np.float32)


def to_unit(images: torch.Tensor, numbers: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Images as float32 in 0..1 in memory of their own: uint8 is divided by 255, floating point is taken as it is."""
    if images.dtype == torch.uint8:
        return torch.div(images, numbers[0, :1], out=out)
    return images.to(torch.float32, copy=True) if out is None else out.copy_(images)


def normalize_(images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Float32 images (n, 3, H, W) in 0..1, less mean and by std, in place; channels last or first in memory."""
    mean, std = numbers[1], numbers[2]
    if images.is_contiguous():
        images.sub_(mean.view(3, 1, 1)).div_(std.view(3, 1, 1))
    else:
        # A row of pixels is one row of numbers: broadcast over three at a time, the CPU takes six times as long.
        width = images.shape[3]
        images.permute(0, 2, 3, 1).flatten(2).sub_(mean.repeat(width)).div_(std.repeat(width))
    return images
