"""How many bytes a process reads ahead."""

from __future__ import annotations

import os

from shardstream.sizes import parse_size
from shardstream.storage.cache.capacity import memory_left

_PER_RANK = 2 << 30  # the default windows count on it: the open ones take half at most
_LEAST = 64 << 20
_SHARE = 4  # of what memory is left, one part: the rest is for the model, batches and other ranks' surprises


def read_budget(prefetch: int | str | None, *, num_workers: int, local_ranks: int) -> int:
    """Bytes that one worker may have on their way or at hand.

    Args:
        prefetch: What was asked for; ``None``: 2 GiB for each rank, less where memory is short.
        num_workers: Workers of a rank; 0 counts as one.
        local_ranks: Ranks on this machine.
    """
    if prefetch is not None:
        return parse_size(prefetch, name="prefetch")
    workers = max(num_workers, 1)
    available = _available() // (_SHARE * max(local_ranks, 1) * workers)
    return max(min(_PER_RANK // workers, available), _LEAST)


def _available() -> int:
    """Bytes of memory that could be taken now, by what the machine and the container allow."""
    left = memory_left()
    try:
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return free if left is None else min(free, left)
