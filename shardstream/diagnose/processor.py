"""Who computes: processor time of this process and its worker processes, and that of all programs, from ``/proc``."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from shardstream.threads import Processors, cores

_TICK = os.sysconf("SC_CLK_TCK")
_IDLE, _DISK = 3, 4  # columns of a line of /proc/stat


class Gauge:
    """Measures from its making on; the workers are the living children of ``multiprocessing``."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._before = _computed()
        self._machine = _machine()

    def processors(self) -> Processors:
        """Who has kept the processors busy so far. Where the kernel does not tell, nobody else has."""
        wall = max(time.perf_counter() - self._started, 1e-9)
        ours = sum(seconds - self._before.get(pid, 0.0) for pid, seconds in _computed().items()) / wall
        there, machine = cores(), _machine()
        ours = min(ours, float(there))
        if machine is None or self._machine is None:
            return Processors(there, ours, 0.0, 0.0)
        disk = (machine.disk - self._machine.disk) / wall
        idle = (machine.idle - self._machine.idle) / wall + disk
        # Of a quota, others take only what they leave idle on no processor at all.
        return Processors(there, ours, max(0.0, there - ours - idle), min(disk, float(there)))


class _Machine(NamedTuple):
    """Seconds that the processors this process may use have spent, since the machine began."""

    idle: float
    disk: float


def _machine() -> _Machine | None:
    allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else set()
    found = []
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/stat").read_text().splitlines():
            name, *values = line.split()
            if name in allowed:
                found.append((int(values[_IDLE]) / _TICK, int(values[_DISK]) / _TICK))
    return _Machine(*map(sum, zip(*found, strict=True))) if found else None


def _computed() -> dict[int, float]:
    """Seconds that each process has computed; none for one that is gone, or where the kernel does not tell."""
    found = {}
    for pid in (os.getpid(), *(child.pid for child in multiprocessing.active_children() if child.pid is not None)):
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[pid] = (int(fields[11]) + int(fields[12])) / _TICK
    return found
