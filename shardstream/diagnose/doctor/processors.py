"""Cores against workers and their threads, and how workers are started."""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
from collections.abc import Iterator, Sequence

from shardstream.cgroups import processor_quota
from shardstream.diagnose.doctor.finding import Finding
from shardstream.diagnose.doctor.workload import Workload
from shardstream.sizes import plural
from shardstream.threads import affinity_cores, cores_left


def processor_findings(work: Workload) -> Iterator[Finding]:
    """Look at this process and its machine."""
    affinity, online, quota = affinity_cores(), os.cpu_count() or 1, processor_quota()
    yield processors(affinity, online, quota, work)
    yield threads(os.environ.get("OMP_NUM_THREADS"), affinity, cores_left(affinity, quota), work)
    yield start_method(multiprocessing.get_start_method(allow_none=True) or _first_method(), other_threads())


# --------------------------------------------------------------------------------------------------------------- facts


def other_threads() -> list[str]:
    """Names of the Python threads beside this one; ours, which are made for forks, apart."""
    return [
        one.name
        for one in threading.enumerate()
        if one is not threading.current_thread() and not one.name.startswith("shardstream")
    ]


def _first_method() -> str:
    return multiprocessing.get_all_start_methods()[0]


# -------------------------------------------------------------------------------------------------------------- checks


def processors(affinity: int, online: int, quota: float | None, work: Workload) -> Finding:
    """Whether there is a core for each worker and each training process."""
    fact = f"{affinity} of {plural(online, 'core')} by affinity"
    if quota is not None:
        fact += f", {quota:g} by the quota of the control group"
    cores, needed = cores_left(affinity, quota), work.ranks + work.all_workers
    if needed <= cores and cores > 1:
        return Finding("processors", "ok", f"{fact}; for {plural(work.all_workers, 'worker')}")
    fact += f"; {plural(work.all_workers, 'worker')} and {plural(work.ranks, 'training process', 'training processes')}"
    if work.workers > max(1, cores // work.ranks - 1):
        fix = 'ss.Loader(ds, num_workers="auto")'
    elif cores < affinity:
        fix = "start the container with --cpus=8, or on Kubernetes set resources.limits.cpu to 8"
    elif affinity < online:
        fix = f"taskset -cp 0-{online - 1} $$   # under SLURM: srun --cpus-per-task=8"
    else:
        fix = "ss.Loader(ds, num_workers=0)"
    return Finding("processors", "warn", fact, fix)


def threads(setting: str | None, affinity: int, cores: int, work: Workload) -> Finding:
    """Whether libraries start more threads than there are cores.

    Args:
        setting: ``OMP_NUM_THREADS``; ``None`` where it is not set.
        affinity: Threads that libraries start without it.
        cores: Processors that may be used.
        work: Workers.
    """
    if setting is None:
        count = work.ranks * affinity
        if count <= cores:
            fact = "OMP_NUM_THREADS is not set: torch takes all cores, in a worker one"
            return Finding("threads", "ok", fact)
        fact = f"OMP_NUM_THREADS is not set: {plural(count, 'thread')} on {plural(cores, 'core')}"
        return Finding("threads", "warn", fact, f"export OMP_NUM_THREADS={max(1, cores // work.ranks)}")
    match = re.match(r"\s*(\d+)\s*(,|$)", setting)  # a list has a number for each level of nesting
    if match is None or not int(match[1]):
        return Finding("threads", "warn", "OMP_NUM_THREADS is set, but not to a number", "export OMP_NUM_THREADS=1")
    each, processes = int(match[1]), max(work.all_workers, work.ranks)
    fact = f"OMP_NUM_THREADS={each}: {plural(processes, 'process', 'processes')} x {plural(each, 'thread')}"
    if each > 1 and each * processes > cores:
        fix = f"export OMP_NUM_THREADS={max(1, cores // processes)}"
        return Finding("threads", "warn", f"{fact} on {plural(cores, 'core')}", fix)
    return Finding("threads", "ok", fact)


def start_method(method: str, beside: Sequence[str]) -> Finding:
    """Whether workers are forked from a process with threads, whose locks may be held for ever then."""
    if method == "fork" and beside:
        some = ", ".join(sorted(beside)[:3]) + (", ..." if len(beside) > 3 else "")
        fact = f"fork, beside {plural(len(beside), 'thread')} ({some}): a lock one holds stays locked in workers"
        return Finding("start method", "warn", fact, 'ss.Loader(ds, multiprocessing_context="forkserver")')
    return Finding("start method", "ok", f"{method}, {plural(len(beside), 'other thread')}")
