"""Who computes: processor time of this process and its worker processes, from ``/proc``."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of a stretch of time.

    Attributes:
        here: This process computed, or waited for a processor; above 1 where several of its threads did.
        workers: The same of a worker process, mean; 0 without workers.
        queued: Share of the time that a process had work, but no processor: mean of all.
        disk: Bytes that all of them had the disk read.
        processors: Processors kept busy by all of them.
        cores: Processors that they may use.
    """

    here: float
    workers: float
    queued: float
    disk: int
    processors: float
    cores: int


@dataclass(frozen=True, slots=True)
class _Time:
    """Seconds that a process has computed, and that its threads have waited for a processor; bytes from the disk."""

    computed: float = 0.0
    queued: float = 0.0
    disk: int = 0

    def since(self, before: _Time) -> _Time:
        return _Time(self.computed - before.computed, self.queued - before.queued, self.disk - before.disk)

    @property
    def both(self) -> float:
        return self.computed + self.queued


class Gauge:
    """Measures from its making on; the workers are the living children of ``multiprocessing``."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._here = _time_of(os.getpid())
        self._children = {pid: _time_of(pid) for pid in _workers()}

    def read(self, workers: int) -> Load:
        """The load so far.

        Args:
            workers: The number of worker processes.
        """
        wall = max(time.perf_counter() - self._started, 1e-9)
        here = _time_of(os.getpid()).since(self._here)
        children = [_time_of(pid).since(self._children.get(pid, _Time())) for pid in _workers()]
        return Load(
            here=here.both / wall,
            workers=sum(one.both for one in children) / wall / workers if workers else 0.0,
            queued=(here.queued + sum(one.queued for one in children)) / wall / (1 + workers),
            disk=here.disk + sum(one.disk for one in children),
            processors=(here.computed + sum(one.computed for one in children)) / wall,
            cores=len(os.sched_getaffinity(0)),
        )


def _workers() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def _time_of(pid: int) -> _Time:
    """Of a living process; zeros for one that is gone, or where the kernel does not tell."""
    computed = queued = 0.0
    disk = 0
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        computed = (int(fields[11]) + int(fields[12])) / _TICK
        for thread in os.listdir(f"/proc/{pid}/task"):
            queued += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    with suppress(OSError, ValueError, IndexError):
        counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        disk = int(counts.get("read_bytes", 0))
    return _Time(computed, queued, disk)
