"""``keep_freed_memory``: a heap that suits a process whose work is to read.

What is read comes in buffers of some MiB that libraries allocate, and goes a while later; so do the pixels of a PNG or
WebP file, which are copied twice on their way. By default glibc gives their
pages back and takes them again, each at the cost of a copy of its contents or more: the kernel clears it, and hands it
out at its first touch. And it has an arena for each thread, where what one has freed does not serve another: after a
while such a process holds half as much again as is in use.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h


def keep_freed_memory() -> None:
    """Have this process's heap, one for all threads, keep up to 256 MiB of what was freed at its end."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc only
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, 256 << 20)
        mallopt(_MMAP_THRESHOLD, 32 << 20)  # the most it takes
