"""Operations on colours: jitter and grayscale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import torch

from shardstream.augment.draws import Draws, RandomStream
from shardstream.augment.operation import Drawn, Floats, Operation, Sometimes, checked_range, checked_share, each
from shardstream.errors import UsageError
from shardstream.images.geometry import Size

Amount: TypeAlias = float | tuple[float, float]

_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)
_NAMES = ("brightness", "contrast", "saturation", "hue")


@dataclass(frozen=True)
class ColorJitter(Operation):
    """Brightness, contrast, saturation and hue changed by random factors, in random order.

    Torchvision's arithmetic on floating point, with factors and an order of their own for every image; values are
    clamped to 0..1 after each step. A number v stands for the factors [max(0, 1 - v), 1 + v] (hue: [-v, v], as a share
    of the colour circle), a pair for [low, high].

    Args:
        brightness: Factor of all values.
        contrast: Factor of the distance to the image's mean grey.
        saturation: Factor of the distance to the pixel's own grey.
        hue: Turn of the colour circle, at most 0.5.
        p: Probability that an image is changed at all; torchvision says 1, SimCLR's recipe 0.8.

    Raises:
        UsageError: An amount or ``p`` outside of its range.

        >>> ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8)(torch.zeros(8, 3, 32, 32, dtype=torch.uint8)).dtype
        torch.float32
    """

    stream: ClassVar[RandomStream] = RandomStream.COLOR_JITTER

    brightness: Amount = 0.0
    contrast: Amount = 0.0
    saturation: Amount = 0.0
    hue: Amount = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
        checked_share("p", self.p)
        for name in _NAMES:
            _bounds(name, getattr(self, name))

    @property
    def kinds(self) -> tuple[int, ...]:
        """The steps that change anything."""
        bounds = [_bounds(name, getattr(self, name)) for name in _NAMES]
        return tuple(kind for kind in range(4) if bounds[kind] != ((0, 0) if kind == _HUE else (1, 1)))

    def draw(self, draws: Draws, size: Size) -> Drawn:
        # Words 0: touched; 1 to 4: amounts; 5 to 8: their ranks are the order. Of steps that are left out, too: what
        # is drawn for the others does not depend on them.
        uniform = draws.uniform(self.stream, 9)
        bounds = np.array([_bounds(name, getattr(self, name)) for name in _NAMES])
        amounts = bounds[:, :1] + (bounds[:, 1:] - bounds[:, :1]) * uniform[1:5]
        kinds = list(self.kinds)
        order = np.array(kinds, np.int64)[uniform[5:][kinds].argsort(0)] if kinds else np.empty((0, draws.count))
        return Drawn(uniform[0] < (self.p if kinds else 0), np.concatenate([amounts, order]).astype(np.float32))

    def arrays(self, numbers: Floats) -> tuple[Floats, ...]:
        # A step of brightness, contrast or saturation is x·f + (1 - f)·(c·mean + s·grey), with c and s 0 or 1; of a
        # sample whose hue is turned in this step, f is 1.
        amounts, order = numbers[:4], numbers[4:].astype(np.int64)
        given = []
        for step in order:
            factor = np.take_along_axis(amounts, step[None], 0)[0]
            factor[step == _HUE] = 1
            rest = 1 - factor
            given.append(np.stack([factor, rest * (step == _CONTRAST), rest * (step == _SATURATION)]))
            turned = np.flatnonzero(step == _HUE)
            given += [turned.astype(np.float32), amounts[_HUE, turned]]
        return tuple(given)

    def apply(self, images: torch.Tensor, *arrays: torch.Tensor) -> torch.Tensor:
        for step in range(0, len(arrays), 3):
            (factor, contrast, saturation), turned, turns = arrays[step : step + 3]
            if len(turned) < len(images):
                images = _blend(images, each(factor), each(contrast), each(saturation))
            if len(turned):
                index = turned.long()
                images.index_copy_(0, index, turn_hue(images.index_select(0, index), turns))
        return images


@dataclass(frozen=True)
class RandomGrayscale(Sometimes):
    """Some of the images without colour, still in three channels: torchvision's, with a draw for each image.

    Args:
        p: Probability.

    Raises:
        UsageError: ``p`` is not a probability.

        >>> RandomGrayscale(0.2)(torch.zeros(8, 3, 32, 32, dtype=torch.uint8)).shape
        torch.Size([8, 3, 32, 32])
    """

    stream: ClassVar[RandomStream] = RandomStream.GRAYSCALE

    p: float = 0.1

    def apply(self, images: torch.Tensor, *arrays: torch.Tensor) -> torch.Tensor:
        return images.copy_(grey(images))


def jitter(value: float | Sequence[float] | ColorJitter) -> ColorJitter:
    """What a user means: 0.4 is brightness, contrast and saturation (timm's convention); or three, or with hue four."""
    if isinstance(value, ColorJitter):
        return value
    amounts = (value,) * 3 if isinstance(value, int | float) else tuple(value)
    if not 3 <= len(amounts) <= 4:
        raise UsageError(
            f"color_jitter={value!r} is neither one number nor three or four",
            hint="(brightness, contrast, saturation, hue); one number is for the first three",
        )
    return ColorJitter(*amounts)


def grey(images: torch.Tensor) -> torch.Tensor:
    """Torchvision's grey of RGB images, (n, 3, H, W) to (n, 1, H, W)."""
    red, green, blue = images[:, :1], images[:, 1:2], images[:, 2:]
    return red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def turn_hue(images: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Images (n, 3, H, W) in 0..1 with the hue of each turned by its share of the circle, (n,).

    With V the largest of the three values, C its distance to the smallest, and d the distance between 6·hue and the
    channel's own 0, 2 or 4 on a circle of 6, each channel of the result is V - C·(clamp(d, 1, 2) - 1): torchvision's
    way through HSV and back, without its tables.
    """
    red, green, blue = images.split(1, 1)
    value = torch.maximum(red, green)
    value = torch.maximum(value, blue, out=value)
    chroma = torch.minimum(red, green)
    chroma = torch.sub(value, torch.minimum(chroma, blue, out=chroma), out=chroma)
    # Without chroma there is no hue, and none is needed: C is 0, and so are all differences.
    scale = chroma.clamp_min(torch.finfo(chroma.dtype).tiny).reciprocal_()
    of_green = (blue - red).mul_(scale).add_(2)
    of_blue = (red - green).mul_(scale).add_(4)
    hue = torch.where(value == green, of_green, of_blue)
    hue = torch.where(value == red, (green - blue).mul_(scale), hue).add_(each(turns * 6))
    for channel in range(3):
        far = hue - 2 * channel
        far.sub_(far.div(6).round_(), alpha=6).abs_().clamp_(1, 2).sub_(1)
        torch.addcmul(value, chroma, far, value=-1, out=images[:, channel : channel + 1])
    return images


def _blend(
    images: torch.Tensor, factor: torch.Tensor, contrast: torch.Tensor, saturation: torch.Tensor
) -> torch.Tensor:
    greys = grey(images)
    means = greys.mean((1, 2, 3), keepdim=True).mul_(contrast)
    return images.mul_(factor).add_(greys.mul_(saturation).add_(means)).clamp_(0, 1)


def _bounds(name: str, amount: Amount) -> tuple[float, float]:
    """The range that a factor is drawn from."""
    top = 0.5 if name == "hue" else float("inf")
    if isinstance(amount, int | float):
        if not 0 <= amount <= top:
            raise UsageError(f"{name} must be a number in [0, {top:g}] or a pair (low, high), got {amount!r}")
        return (-amount, amount) if name == "hue" else (max(0.0, 1 - amount), 1 + amount)
    return checked_range(name, amount, -top if name == "hue" else 0, top)
