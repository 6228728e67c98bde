"""The control groups of this process, by which containers are limited: how much of the machine they leave it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def own_groups(controller: str, root: Path = ROOT, *, process: int | str = "self") -> list[Path]:
    """The groups of a process and those above them, as far as they can be seen from here.

    Args:
        controller: What limits, as version 1 of control groups names it: ``"memory"``, ``"cpu"``.
        root: Where control groups are found.
        process: Its number. Default: this process.
    """
    found = {root, root / controller}
    try:
        lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        below = root / controller if controller in controllers.split(",") else root
        for part in Path(path).parts[1:]:
            below = below / part
            found.add(below)
    return sorted(found)


def is_frozen(group: Path) -> bool:
    """Whether the processes of a group are frozen: ``docker pause``, for example."""
    second, first = _words(group / "cgroup.events"), _words(group / "freezer.state")
    return "frozen 1" in " ".join(second) or first == ["FROZEN"]


def processor_quota(root: Path = ROOT) -> float | None:
    """Processors that these groups let the process use at most; ``None`` where none limits it.

    Args:
        root: Where control groups are found.
    """
    quotas = []
    for group in own_groups("cpu", root):
        first = _words(group / "cpu.max")
        second = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
        for words in (first, second):
            try:
                quota, period = map(int, words)
            except ValueError:  # no such file, or "max"
                continue
            if quota > 0 and period > 0:  # version 1 says "no limit" by -1
                quotas.append(quota / period)
    return min(quotas, default=None)


def memory_limit(root: Path = ROOT) -> int:
    """Bytes of memory that this process can have at most: the machine's, or what its groups or ``ulimit -v`` allow."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for group in own_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += [int(word) for word in _words(group / name) if word.isdecimal()]
    try:
        import resource
    except ImportError:  # a system that limits no process
        return min(limits)
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min(limits if soft == resource.RLIM_INFINITY else [*limits, soft])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
