"""Random crops as torchvision draws them, for contenders that have no such step of their own."""

from __future__ import annotations

import math
import random


def random_box(width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """Left, top, width and height, drawn as torchvision's ``RandomResizedCrop`` draws them."""
    for _ in range(10):
        area, ratio = width * height * rng.uniform(0.08, 1), math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h
