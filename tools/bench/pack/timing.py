"""How packing is timed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.data import HOME

PLACE = "BENCH_PACK_OUT"
"""The variable that says where to, for the processes of contenders."""
DISK = HOME / "packed"
MEMORY = Path("/dev/shm/shardstream-bench-packed")  # noqa: S108 - it is the only such file system there is
OUT = Path(os.environ.get(PLACE, DISK))
SHARD_MB = 32
NOW, ON_DISK, IMAGES = "MB/s", "MB/s until on disk", "images/s"


def timed(octets: int, job: Callable[[], object]) -> dict[str, float]:
    """Speeds of a job that writes into `OUT`: of the call, and until what it wrote is on disk.

    Args:
        octets: Bytes of the photographs.
        job: What is timed.
    """
    start = time.perf_counter()
    job()
    written = time.perf_counter() - start
    outputs = [path for path in OUT.rglob("*") if path.is_file()]
    start = time.perf_counter()
    for path in outputs:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    synced = written + time.perf_counter() - start
    return {NOW: octets / 1e6 / written, ON_DISK: octets / 1e6 / synced}


def result(figures: dict[str, float], photographs: int) -> dict[str, Any]:
    """As `Contender.call` returns it."""
    return {"figures": figures, "delivered": {"photographs": photographs}}
