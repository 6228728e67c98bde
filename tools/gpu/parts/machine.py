"""What the figures were measured on."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import torch
from bench.machine import processor

import shardstream as ss
from gpu.setting import Row, Setting, one_thread, seconds
from shardstream.threads import cores

PACKAGES = ("torch", "torchvision", "triton", "numpy", "simplejpeg", "kornia", "timm", "nvidia-nvimgcodec-cu13")
MB = 1 << 20


def run(setting: Setting) -> Iterator[Row]:
    """Names, versions, and how fast memory is copied."""
    yield Row("processor", f"{processor()}, {cores()} cores")
    yield Row("system", f"Linux {platform.release()}, Python {platform.python_version()}")
    yield Row("shardstream", ss.__version__)
    yield Row("packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES))
    size = setting.some(256) * MB
    here = torch.ones(size, dtype=torch.uint8)
    other = torch.empty_like(here)
    with one_thread():
        taken = seconds(torch.device("cpu"), lambda: other.copy_(here), 10)
    yield Row("copy in memory, one thread", _rate(size, taken))
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


def _rate(size: int, taken: float) -> str:
    return f"{size / taken / 1e9:.1f} GB/s"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "–"
