"""Whether slabs of shared memory should be page-locked: today a batch is copied from its slab into memory that is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

from gpu.setting import Row, Setting, one_thread, seconds
from shardstream.stream.tensors.slabs import SharedSlabPool

SIZES = {"128 crops of 224 × 224": 128 * 224 * 224 * 3, "256 crops of 384 × 384": 256 * 384 * 384 * 3}


def run(setting: Setting) -> Iterator[Row]:
    """Each way from a slab to the device."""
    setting.need_cuda()
    for name, size in SIZES.items():
        yield from _ways(name, size, setting.some(30))


def _ways(name: str, size: int, times: int) -> Iterator[Row]:
    device = torch.device("cuda")
    target = torch.empty(size, dtype=torch.uint8, device=device)
    slot = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    slab = SharedSlabPool().take(size)
    assert slab is not None
    slab.fill_(7)

    def through_slot() -> None:
        slot.copy_(slab)
        target.copy_(slot, non_blocking=True)

    threads = torch.get_num_threads()
    into_slot = seconds(torch.device("cpu"), lambda: slot.copy_(slab), times)
    with one_thread():
        by_one = seconds(torch.device("cpu"), lambda: slot.copy_(slab), times)
    today = seconds(device, through_slot, times)
    unpinned = seconds(device, lambda: target.copy_(slab, non_blocking=True), times)
    pinned = seconds(device, lambda: target.copy_(slot, non_blocking=True), times)
    yield Row(
        f"{name}: slab to page-locked memory, {threads} threads, one",
        f"{_ms(into_slot, size)}; {_ms(by_one, size)}",
    )
    yield Row(f"{name}: page-locked memory to the device", _ms(pinned, size))
    yield Row(f"{name}: slab to the device by way of page-locked memory (as it is)", _ms(today, size))
    yield Row(f"{name}: slab to the device, not page-locked", _ms(unpinned, size))
    yield from _registered(name, size, slab, target, times, today)


def _registered(
    name: str, size: int, slab: torch.Tensor, target: torch.Tensor, times: int, today: float
) -> Iterator[Row]:
    runtime = torch.cuda.cudart()
    costs = []
    for _ in range(3):
        begun = time.perf_counter()
        error = runtime.cudaHostRegister(slab.data_ptr(), size, 0)
        costs.append(time.perf_counter() - begun)
        if _failed(error):
            yield Row(f"{name}: `cudaHostRegister` of a slab", f"{error}", failed=True)
            return
        assert not _failed(runtime.cudaHostUnregister(slab.data_ptr()))
    yield Row(f"{name}: `cudaHostRegister` itself", f"{1e3 * median(costs):.2f} ms")
    assert not _failed(runtime.cudaHostRegister(slab.data_ptr(), size, 0))
    try:
        taken = seconds(torch.device("cuda"), lambda: target.copy_(slab, non_blocking=True), times)
        right = bool((target == 7).all())
    finally:
        runtime.cudaHostUnregister(slab.data_ptr())
    yield Row(
        f"{name}: registered slab to the device",
        f"{_ms(taken, size)}, {today / taken:.2f} × as it is",
        failed=not right,
    )


def _failed(error: Any) -> bool:
    return int(error) != 0


def _ms(taken: float, size: int) -> str:
    return f"{1e3 * taken:.2f} ms ({size / taken / 1e9:.1f} GB/s)"
