"""The machine that a benchmark runs on: its processor, and how fast it copies memory just then."""

from __future__ import annotations

import multiprocessing as mp
import platform
import re
import time
from collections.abc import Mapping
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

SIZE = 256 << 20  # bytes: more than caches hold
COPIES = 4
PROCESSES = (1, 2)
DISTURBED = 0.15  # share by which the memory may become slower or faster while a benchmark runs
_UNITS = {"avx512bw": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}  # what kernels for pixels use
_DEADLINE = 120  # seconds
_CPUINFO = Path("/proc/cpuinfo")


def processor() -> str:
    """The processor's name."""
    found = re.search(r"^model name\s*:\s*(.*)$", _CPUINFO.read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def vector_units() -> list[str]:
    """The widest vector units first, of those that decoders and resizes use."""
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", _CPUINFO.read_text(), re.MULTILINE)
    flags = found[1].split() if found else []
    return [name for flag, name in _UNITS.items() if flag in flags]


def bandwidth() -> dict[int, float]:
    """Gigabytes a second that are copied, by number of processes that copy at once."""
    return {processes: _copied_by(processes) for processes in PROCESSES}


def disturbance(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """By which share the memory became slower or faster, at most."""
    return max(abs(after[number] / before[number] - 1) for number in before)


def _copied_by(processes: int) -> float:
    context = mp.get_context("spawn")
    barrier, speeds = context.Barrier(processes), context.SimpleQueue()
    children = [context.Process(target=_copy, args=(barrier, speeds), daemon=True) for _ in range(processes)]
    for child in children:
        child.start()
    for child in children:
        child.join(_DEADLINE)
        if child.exitcode:
            raise RuntimeError(f"a process that copies memory ended with exit status {child.exitcode}")
        if child.exitcode is None:
            raise TimeoutError(f"{COPIES} copies of {SIZE} bytes took longer than {_DEADLINE} s")
    return float(sum(speeds.get() for _ in children))


def _copy(barrier: Barrier, speeds: Any) -> None:
    source = np.ones(SIZE, np.uint8)
    target = np.ones_like(source)  # its pages are there before the clock starts
    barrier.wait(_DEADLINE)
    begun = time.perf_counter()
    for _ in range(COPIES):
        np.copyto(target, source)
    speeds.put(COPIES * SIZE / 1e9 / (time.perf_counter() - begun))
