"""Torchvision's operations on one float image (3, H, W) in 0..1, written down from its documents and papers."""

from __future__ import annotations

import colorsys
import math

import torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def normalized(image):
    """``ToTensor`` and ``Normalize``."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return image.float().div(255).sub(mean).div(std)


def grey(image):
    return (0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]).expand(3, -1, -1)


def blended(image, other, factor):
    return (factor * image + (1 - factor) * other).clamp(0, 1)


def brightness(image, factor):
    return blended(image, torch.zeros_like(image), factor)


def contrast(image, factor):
    return blended(image, grey(image).mean(), factor)


def saturation(image, factor):
    return blended(image, grey(image), factor)


def hue(image, turn):
    pixels = []
    for pixel in image.flatten(1).T.tolist():
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        pixels.append(colorsys.hsv_to_rgb((h + turn) % 1, s, v))
    return torch.tensor(pixels).T.view(image.shape)


STEPS = (brightness, contrast, saturation, hue)


def blurred(image, taps, sigma):
    """A full two-dimensional filter on the mirrored image, in float64."""
    reach = taps // 2
    line = torch.tensor([math.exp(-(i**2) / (2 * sigma**2)) for i in range(-reach, reach + 1)], dtype=torch.float64)
    kernel = torch.outer(line, line)
    padded = torch.nn.functional.pad(image.double()[None], (reach,) * 4, mode="reflect")
    filters = (kernel / kernel.sum()).expand(3, 1, taps, taps)
    return torch.nn.functional.conv2d(padded, filters, groups=3)[0].float()


def padded_crop(image, padding, top, left, height, width):
    return torch.nn.functional.pad(image, (padding,) * 4)[:, top : top + height, left : left + width]


def erased(image, box):
    top, left, bottom, right = box
    image = image.clone()
    image[:, top:bottom, left:right] = 0
    return image


def two_sample_distance(first, second):
    """The statistic of Kolmogorov and Smirnov."""
    values = torch.cat([first, second]).sort().values
    shares = [torch.searchsorted(part.sort().values, values, right=True) / len(part) for part in (first, second)]
    return (shares[0] - shares[1]).abs().max().item()
