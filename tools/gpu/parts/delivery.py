"""What all workers of this machine bring to the device, with nobody there who trains."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

import torch

import shardstream as ss
from gpu.photographs import repeated
from gpu.setting import Row, Setting, synchronize
from shardstream.threads import cores

SIZE, WARM_UP = 224, 10
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WHERE: tuple[Literal["worker", "device"], ...] = ("worker", "device")


def run(setting: Setting) -> Iterator[Row]:
    """Resized by the workers, and on the device."""
    shards = repeated(setting)
    batch = 256 if setting.device.type == "cuda" else 16
    steps, rounds = (10, 1) if setting.quick else (100, 2)
    for where in WHERE:
        rates = [_rate(setting, shards, where, batch, steps) for _ in range(rounds)]
        found = " and ".join(f"{rate:,.0f}" for rate in rates)
        yield Row(f"crops of photographs, resized by the {where}, {cores()} workers", f"{found} images/s")


def _rate(setting: Setting, shards: str, where: Literal["worker", "device"], batch: int, steps: int) -> float:
    crop = ss.decode.RandomResizedCrop(SIZE, flip=True, resize=where)
    dataset = ss.ShardDataset(shards, fields={"jpg": crop, "cls": None}, shuffle=True, batch_size=batch)
    epochs = -(-(WARM_UP + steps) * batch // (len(dataset) * batch))
    loader = ss.Loader(dataset.repeat(epochs).to_tuple("jpg", "cls"), num_workers=cores(), worker_init_fn=_one_thread)
    augment = ss.augment.ImageBatch(MEAN, STD, dtype=torch.bfloat16)
    batches = iter(ss.DevicePrefetcher(loader, setting.device, transform=augment))
    for _ in range(WARM_UP):
        next(batches)
    synchronize(setting.device)
    begun = time.perf_counter()
    for _ in range(steps):
        next(batches)
    synchronize(setting.device)
    return batch * steps / (time.perf_counter() - begun)


def _one_thread(_: int) -> None:
    torch.set_num_threads(1)
