"""``/dev/shm``, memory and open files against workers and batches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from shardstream.diagnose.doctor.finding import Finding
from shardstream.diagnose.doctor.workload import Workload
from shardstream.sizes import plural, size
from shardstream.storage.cache.capacity import memory_left

_SHARED = "/dev/shm"  # noqa: S108 - its name
_LEAST_SHARED = 1 << 20  # bytes: locks of multiprocessing lie there
_WORKER = 300_000_000  # bytes of memory of a worker beside its batches: torch and its libraries
_FILES_APART = 64  # that any process has open, and all else that training opens
_FILES_LEAST = 10  # of a worker in the training process: pipes, and the first slabs
_FILES_MOST = 70  # the same with all the slabs that it may have


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """``/dev/shm``, or what stands in its place.

    Attributes:
        total: Bytes of its file system.
        free: Bytes that are free.
        writable: Whether files can be made there.
    """

    total: int
    free: int
    writable: bool


def memory_findings(work: Workload, folder: Path = Path(_SHARED)) -> Iterator[Finding]:
    """Look at this machine, and at the limits of this process."""
    yield shared_memory(shared_folder(folder), work)
    yield memory(memory_left(), available_memory(), work)
    soft, hard = open_file_limits()
    if soft is not None:
        yield open_files(soft, hard, work)


# --------------------------------------------------------------------------------------------------------------- facts


def shared_folder(folder: Path) -> SharedFolder | None:
    """What a folder in memory has; ``None`` where there is none."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    writable = os.access(folder, os.W_OK | os.X_OK)
    return SharedFolder(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, writable)


def available_memory() -> int | None:
    """Bytes of memory that the machine has left, as Linux estimates it."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def open_file_limits() -> tuple[int | None, int | None]:
    """Files that this process may have open, and how far it may raise that; ``None`` for no limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None, None
    soft, hard = (None if one == resource.RLIM_INFINITY else one for one in resource.getrlimit(resource.RLIMIT_NOFILE))
    return soft, hard


# -------------------------------------------------------------------------------------------------------------- checks


def shared_memory(found: SharedFolder | None, work: Workload) -> Finding:
    """Whether ``/dev/shm`` holds the locks of multiprocessing, and batches that torch sends by itself."""
    gigabytes = -(-2 * work.in_flight // 10**9)
    fix = f"mount -o remount,size={gigabytes}g /dev/shm   # containers: docker run --shm-size={gigabytes}g"
    if found is None:
        fact = "there is none: workers cannot be started"
        return Finding(_SHARED, "fail", fact, fix.replace("-o remount,", "-t tmpfs tmpfs -o "))
    if not found.writable:
        return Finding(_SHARED, "fail", "cannot be written to: workers cannot be started", "chmod 1777 /dev/shm")
    fact = f"{size(found.free)} of {size(found.total)} free"
    if found.free < _LEAST_SHARED:
        return Finding(_SHARED, "fail", f"{fact}: no room for the locks of workers", fix)
    if found.free < work.in_flight:
        fact += f"; torch tensors in {work} need {size(work.in_flight)} (slabs of ss.Loader lie elsewhere)"
        return Finding(_SHARED, "warn", fact, fix)
    return Finding(_SHARED, "ok", f"{fact}; {work} take {size(work.in_flight)}")


def memory(limit: int | None, available: int | None, work: Workload) -> Finding:
    """Whether there is memory for workers and their batches.

    Args:
        limit: Bytes that control groups leave; ``None`` without a limit.
        available: Bytes that the machine has left; ``None`` where it does not say.
        work: Workers and batches.
    """
    lefts = [left for left in (limit, available) if left is not None]
    if not lefts:
        return Finding("memory", "ok", "no limit that can be seen")
    left = min(lefts)
    whose = "the control group leaves" if left == limit else "the machine has"
    needed = _needed(work)
    fact = f"{whose} {size(left)}; {work} and the workers themselves take about {size(needed)}"
    if left >= needed:
        return Finding("memory", "ok", fact)
    fewer = work
    while fewer.workers and _needed(fewer) > left:
        fewer = replace(fewer, workers=fewer.workers // 2)  # batches of 8, 4, 2 and 1 are the same
    fix = f"ss.Loader(ds, num_workers={fewer.workers})"
    if left == limit:
        fix += f", or start the container with --memory={-(-2 * needed // 10**9)}g"
    return Finding("memory", "fail" if left < work.in_flight else "warn", fact, fix)


def _needed(work: Workload) -> int:
    return work.in_flight + work.all_workers * _WORKER


def open_files(soft: int, hard: int | None, work: Workload) -> Finding:
    """Whether a training process may open the files that its workers' batches take.

    Args:
        soft: The limit of the process.
        hard: How far it may be raised; ``None`` without a limit.
        work: Workers.
    """
    fact = f"{soft:,} at most"
    least, most = (_FILES_APART + work.workers * each for each in (_FILES_LEAST, _FILES_MOST))
    if soft >= most:
        return Finding("open files", "ok", fact)
    fact += f"; {plural(work.workers, 'worker')} take {least:,} to {most:,} in the training process"
    wanted = -(-most // 1024) * 1024
    fix = f"ulimit -n {wanted}"
    if hard is not None and hard < wanted:
        fix = f"ulimit -n {hard}   # more: LimitNOFILE={wanted} of systemd, docker run --ulimit nofile={wanted}"
    return Finding("open files", "fail" if soft < least else "warn", fact, fix)
