"""Images a second of every recipe, by one library, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bench.augment import recipes

# Images in a batch, and batches that are measured, by device. One is made before them.
BATCHES = {"cpu": (32, 2), "cuda": (256, 20)}
KINDS: dict[str, Callable[[tuple[str, ...]], recipes.Step]] = {
    "torchvision": partial(recipes.torchvision, whole=False),
    "torchvision whole": partial(recipes.torchvision, whole=True),
    "kornia": recipes.kornia,
    "shardstream": recipes.shardstream,
}


def rates(kind: str, device: str) -> dict[str, Any]:
    """Images a second by recipe: on a CPU by one thread, as a worker has it, and by its processor time."""
    torch.set_num_threads(1)
    clock = time.process_time if device == "cpu" else time.perf_counter
    torch.manual_seed(0)
    count, repeats = BATCHES[device]
    pixels = torch.randint(0, 256, (count, recipes.SIZE, recipes.SIZE, 3), dtype=torch.uint8)
    images = pixels.permute(0, 3, 1, 2).to(device)
    labels = torch.randint(recipes.CLASSES, (count,)).to(device)
    figures = {}
    with torch.no_grad():
        for name, parts in recipes.RECIPES.items():
            step = KINDS[kind](parts)
            step(images, labels)
            _settle(device)
            start = clock()
            for _ in range(repeats):
                step(images, labels)
            _settle(device)
            figures[name] = count * repeats / (clock() - start)
    return {"figures": figures, "delivered": {}}


def _settle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
