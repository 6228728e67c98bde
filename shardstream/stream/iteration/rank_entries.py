"""Entries that ranks leave for each other in the key-value store of ``torch.distributed``.

An entry is a JSON list that begins with the time of its writing. A job that torchrun starts again may find the store of
the start before: a process ignores entries that are older than itself, since a process group exists only once all of
its processes do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardstream.extras import private


def make_entry(*values: Any) -> list[Any]:
    """An entry of now.

    Args:
        *values: JSON-able.
    """
    return [time.time(), *values]


def is_current(entry: Sequence[Any], started: float) -> bool:
    """Whether an entry is of this start of the job.

    Args:
        entry: Of `make_entry`, by any rank.
        started: When this process began, from `process_start`.
    """
    return bool(entry[0] >= started)


def process_start() -> float:
    """When this process began, as ``time.time`` counts; 0 where the system does not say."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def default_store() -> Any:
    """The store of the default process group, which has to exist."""
    from torch.distributed import distributed_c10d

    return private(distributed_c10d, "_get_default_store", "torch")()
