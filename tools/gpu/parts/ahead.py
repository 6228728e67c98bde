"""What it costs, and what it saves, that the prefetcher waits for the kernels of some steps ago."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch

import shardstream as ss
from gpu.setting import Row, Setting
from shardstream.load.device.device_copy import CudaCopy

MB = 1 << 20
BATCH = 64 * MB
SMALL = MB


def run(setting: Setting) -> Iterator[Row]:
    """Memory of slow steps, and time of short ones."""
    setting.need_cuda()
    cycles = _cycles(0.02)
    count = setting.some(60)
    for depth in (1, 2, 4):
        found = _peak(depth, count, cycles) / BATCH
        yield Row(
            f"reserved at most by slow steps, `depth={depth}`, in batches of 64 MiB",
            f"{found:.1f}",
            aim=f"at most {depth + 3}",
            failed=found > depth + 3,
        )
    with _never_waiting():
        yield Row("the same without waiting, `depth=2`", f"{_peak(2, count, cycles) / BATCH:.1f}")
    yield from _short_steps(setting)


def _cycles(seconds: float) -> int:
    """What makes a kernel of this length on this device."""
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(2):  # the first one wakes the device up
        begun.record()
        torch.cuda._sleep(10_000_000)
        ended.record()
        torch.cuda.synchronize()
    return int(10_000_000 * seconds / (begun.elapsed_time(ended) / 1e3))


def _peak(depth: int, count: int, cycles: int) -> int:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    memory = torch.ones(BATCH, dtype=torch.uint8)
    for batch in ss.DevicePrefetcher([memory] * count, "cuda", depth=depth):
        torch.cuda._sleep(cycles)
        batch.add_(1)
        del batch
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved() - before


@contextmanager
def _never_waiting() -> Iterator[None]:
    settle = CudaCopy.settle
    CudaCopy.settle = lambda self, mark: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        CudaCopy.settle = settle  # type: ignore[method-assign]


def _short_steps(setting: Setting) -> Iterator[Row]:
    """Steps of some kernels of a few microseconds, for which the host is what takes time."""
    memory = torch.ones(SMALL, dtype=torch.uint8)
    count = setting.some(2000)

    def step_of(depth: int) -> float:
        ahead = iter(ss.DevicePrefetcher([memory] * count, "cuda", depth=depth))
        next(ahead)
        begun = time.perf_counter()
        for batch in ahead:
            for _ in range(8):
                batch.add_(1)
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / (count - 1) * 1e6

    for depth in (1, 2, 4):
        with_waits, without = [], []
        for _ in range(5):
            with_waits.append(step_of(depth))
            with _never_waiting():
                without.append(step_of(depth))
        ratios = [one / other for one, other in zip(with_waits, without, strict=True)]
        yield Row(
            f"a short step (1 MiB, 8 kernels), `depth={depth}`: with waits, without",
            f"{median(with_waits):.0f} µs, {median(without):.0f} µs: {median(ratios):.2f} ×",
            aim="1.0 ×" if depth == 2 else "",
        )
