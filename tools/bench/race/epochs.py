"""What is measured in an epoch: speed in its middle, private memory, and what it delivered."""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.data import BATCH
from bench.harness import private_dirty

WARM_UP, COOL_DOWN = 6, 4  # batches at both ends of an epoch that are not counted; two and two of short ones
SHORT = 24  # batches
LONG_ENOUGH = 1.5  # seconds that are counted of small samples


def one_thread(_worker: int = 0) -> None:
    """Let the worker be the only thread."""
    torch.set_num_threads(1)


def steady(loader: Iterable[Any], count: int, *, batch: int = BATCH) -> dict[str, Any]:
    """Images a second in the middle of an epoch, private memory, and what the epoch delivered.

    Args:
        loader: Pairs of pictures (B, 3, H, W) and labels.
        count: Photographs that the epoch has to hold.
        batch: Size of the batches.
    """
    one_thread()
    warm_up, cool_down = ends(count // batch)
    stamps: list[float] = []
    labels: list[int] = []
    shapes: set[str] = set()
    means: list[float] = []
    private = 0
    for pictures, numbers in loader:
        stamps.append(time.perf_counter())
        shapes.add(f"{tuple(pictures.shape)} {pictures.dtype}")
        labels += torch.as_tensor(numbers).flatten().tolist()
        means.append(pictures[:, :, ::16, ::16].float().mean().item())
        if len(stamps) in (warm_up - 1, count // batch - cool_down + 1):  # each look takes milliseconds
            private = max(private, private_of_workers())
    if len(labels) != count:
        raise ValueError(f"the epoch held {len(labels)} photographs of {count}")
    counted = stamps[warm_up - 1 : -cool_down]
    images = (len(counted) - 1) * batch
    delivered = {
        "photographs": len(labels),
        "labels": [labels.count(label) for label in range(max(labels) + 1)],
        "batches": sorted(shapes),
        "mean": sum(means) / len(means),
    }
    figures = {"images/s": images / (counted[-1] - counted[0])}
    return {"figures": figures, "delivered": delivered, "private": private}


def ends(batches: int) -> tuple[int, int]:
    """How many batches at both ends are not counted."""
    return (WARM_UP, COOL_DOWN) if batches >= SHORT else (2, 2)


def private_of_workers() -> int:
    """The most that one worker process has for itself, in bytes; of a loader without any, what this process has."""
    workers = [private_dirty(child.pid) for child in mp.active_children()]
    return max(workers, default=0) or private_dirty()


def repeated(epoch: Callable[[], Iterable[Any]], count: int) -> dict[str, Any]:
    """Small samples a second in the middle of epochs: of all but the first one, until enough time is counted.

    Args:
        epoch: Gives the batches of an epoch: arrays whose rows begin with the sample's number in 4 bytes.
        count: Samples that each epoch has to hold, numbered from 0.
    """
    one_thread()
    wanted = count * (count - 1) // 2, sum(number * number for number in range(count))
    samples, seconds, private, number, shapes = 0, 0.0, 0, 0, set[str]()
    while seconds < LONG_ENOUGH:
        stamps: list[float] = []
        sizes: list[int] = []
        total = squares = 0
        for batch in epoch():
            stamps.append(time.perf_counter())
            rows = np.asarray(batch)
            numbers = rows.reshape(len(rows), -1).view(np.uint8)[:, :4].copy().view("<u4").astype(np.int64)
            total, squares = total + int(numbers.sum()), squares + int((numbers * numbers).sum())
            sizes.append(len(rows))
            shapes.add(f"{rows.shape[1:]} {rows.dtype}")
            if len(stamps) == WARM_UP - 1 and number:
                private = max(private, private_of_workers())
        if (sum(sizes), total, squares) != (count, *wanted):
            raise ValueError(f"the epoch held {sum(sizes)} samples of {count}, or not each once")
        if number:
            counted = slice(WARM_UP - 1, -COOL_DOWN)
            middle = stamps[counted]
            samples += sum(sizes[counted][1:])
            seconds += middle[-1] - middle[0]
        number += 1
    figures = {"samples/s": samples / seconds}
    return {"figures": figures, "delivered": {"samples": count, "shapes": sorted(shapes)}, "private": private}


def planes(pictures: Tensor) -> Tensor:
    """(B, H, W, 3) as (B, 3, H, W): a view."""
    return pictures.permute(0, 3, 1, 2)
