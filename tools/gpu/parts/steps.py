"""A training step of a ResNet-50 in bf16 (a small network on the CPU), from photographs."""

from __future__ import annotations

from collections.abc import Iterator

from bench import step

from gpu.photographs import repeated
from gpu.setting import Row, Setting
from shardstream.threads import cores


def run(setting: Setting) -> Iterator[Row]:
    """`tools/bench/step.py`."""
    shards, device = repeated(setting), setting.device
    batch = 256 if device.type == "cuda" else 16
    steps, rounds = (5, 1) if setting.quick else (50, 2)
    found = step.measured(step.Setting(shards, device, cores(), batch, 224, steps), rounds)
    print(f"{cores()} workers, batches of {batch}, {steps} steps, {rounds} rounds")
    print(step.table(found, batch))
    print(f"\nDevicePrefetcher, last round:\n{found['DevicePrefetcher'][-1].report}\n")
    yield from _rows(found, batch)


def _rows(found: dict[str, list[step.Measured]], batch: int) -> Iterator[Row]:
    for name, figures in step.summaries(found).items():
        ours = name == "DevicePrefetcher"
        yield Row(
            f"{name}, batches of {batch}",
            f"{batch / figures.step:,.0f} images/s, {figures.ratio:.2f} × synthetic, waited {figures.waited:.1%}",
            aim="1.02 ×, 2 %" if ours else "",
        )
