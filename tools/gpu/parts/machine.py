"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import shardstream as ss
from gpu.setting import Row, Setting, seconds

PACKAGES = ("torch", "torchvision", "triton", "numpy", "simplejpeg", "kornia", "timm", "nvidia-nvimgcodec-cu13")
MB = 1 << 20


def run(setting: Setting) -> Iterator[Row]:
    """Names, versions, and how fast memory is copied."""
    yield Row("processor", f"{_processor()}, {len(os.sched_getaffinity(0))} cores")
    yield Row("system", f"Linux {platform.release()}, Python {platform.python_version()}")
    yield Row("shardstream", ss.__version__)
    yield Row("packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES))
    size = setting.some(256) * MB
    here = torch.ones(size, dtype=torch.uint8)
    other = torch.empty_like(here)
    yield Row("copy in memory, one thread", _rate(size, _one_thread(lambda: other.copy_(here))))
    if setting.device.type == "cuda":
        yield from _gpu(size)


def _gpu(size: int) -> Iterator[Row]:
    device = torch.device("cuda")
    about = torch.cuda.get_device_properties(device)
    yield Row("GPU", f"{about.name}, {about.total_memory / 1e9:.0f} GB, {about.multi_processor_count} multiprocessors")
    there = torch.ones(size, dtype=torch.uint8, device=device)
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(there)
    up = seconds(device, lambda: there.copy_(pinned, non_blocking=True), 10)
    yield Row("copy to the GPU, page-locked", _rate(size, up))
    yield Row("copy on the GPU", _rate(size, seconds(device, lambda: target.copy_(there), 10)))


def _one_thread(call: object) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert callable(call)
        return seconds(torch.device("cpu"), call, 10)
    finally:
        torch.set_num_threads(before)


def _rate(size: int, taken: float) -> str:
    return f"{size / taken / 1e9:.1f} GB/s"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "–"


def _processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()
