"""Who computes: processor time of this process and its worker processes, from ``/proc``."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


class Gauge:
    """Measures from its making on; the workers are the living children of ``multiprocessing``."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._before = _computed()

    def processors(self) -> float:
        """How many processors this process and its workers have kept busy so far."""
        wall = max(time.perf_counter() - self._started, 1e-9)
        return sum(seconds - self._before.get(pid, 0.0) for pid, seconds in _computed().items()) / wall


def _computed() -> dict[int, float]:
    """Seconds that each process has computed; none for one that is gone, or where the kernel does not tell."""
    found = {}
    for pid in (os.getpid(), *(child.pid for child in multiprocessing.active_children() if child.pid is not None)):
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[pid] = (int(fields[11]) + int(fields[12])) / _TICK
    return found
