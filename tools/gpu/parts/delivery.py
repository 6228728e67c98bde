"""What all workers of this machine bring to the device, with nobody there who trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from bench import step

import shardstream as ss
from gpu.photographs import repeated
from gpu.setting import Row, Setting, synchronize
from shardstream.threads import cores

WHERE: tuple[Literal["worker", "device"], ...] = ("worker", "device")


def run(setting: Setting) -> Iterator[Row]:
    """Resized by the workers, and on the device."""
    shards, device = repeated(setting), setting.device
    batch = 256 if device.type == "cuda" else 16
    steps, rounds = (10, 1) if setting.quick else (100, 2)
    for where in WHERE:
        told = step.Setting(shards, device, cores(), batch, 224, steps, where)
        found = " and ".join(f"{_rate(told):,.0f}" for _ in range(rounds))
        yield Row(f"crops of photographs, resized by the {where}, {cores()} workers", f"{found} images/s")


def _rate(told: step.Setting) -> float:
    batches = ss.DevicePrefetcher(told.loader(), told.device, transform=told.transform())
    seconds, _ = step.timed(batches, lambda _: None, told.steps, lambda: synchronize(told.device))
    return told.batch / seconds
