"""What a step waits for, and what to do about it: the only judge, of ``stats.report()`` and of ``bench``.

Stages work side by side, so it is not their times that add up to a step: the slowest one sets the pace, and it is the
one that is busy nearly all the time. Workers share theirs; what happens in the training process has one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shardstream.threads import Processors, cores

_SMOOTH = 0.05
"""Below this share of waiting, data is not what training waits for."""

_BUSY = 0.6
"""What is busy for a smaller share of the time does not set the pace: waiting has other reasons."""

_SOME = 0.2
"""Processors that matter: so many idle ones are room for a worker, so many of others are missing here."""

IN_WORKERS = {"read": "storage", "decode": "decode", "transform": "transform", "assemble": "assembly"}
"""Stages that workers count, and what the diagnosis calls them."""

TITLES = {
    "storage": "reading",
    "decode": "decoding",
    "transform": "transforms",
    "assembly": "assembling",
    "transport": "transport to this process",
    "copy": "copying to the device",
    "batch transform": "transform of batches",
    "loop": "the training loop",
}
"""What a report calls them."""


class Counted(Protocol):
    """What is judged: of `LoaderStats`, which says what each means."""

    workers: int
    batches: int
    seconds: float
    wait_seconds: float
    stages: dict[str, float]
    transport_seconds: float
    copy_seconds: float
    transform_seconds: float
    device_copy_seconds: float
    device_transform_seconds: float
    transfers: dict[str, int]
    images: bool
    addressable: bool

    @property
    def running_seconds(self) -> float:
        """As of `LoaderStats`."""
        ...


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a step waits for.

    Attributes:
        bottleneck: ``"storage"``, ``"decode"``, ``"transform"``, ``"assembly"`` (in the workers); ``"transport"``,
            ``"copy"``, ``"batch transform"`` (in the training process and on its device); ``"loop"``: the model, for
            which data waits; ``"uneven"``: nothing is busy all the time, and yet there is waiting; ``"nothing"``:
            nothing was delivered yet.
        busy: How busy each stage is: workers for those in workers, which together are no more than there are; else a
            share of the time.
        advice: One sentence.
        waiting: Share of the time that the loop waited for data, without that of workers who begin.
        worker_load: Share of the time that workers were at work, waiting for storage included: their mean, in [0, 1].
    """

    bottleneck: str
    busy: dict[str, float]
    advice: str
    waiting: float = 0.0
    worker_load: float = 0.0


def diagnosed(stats: Counted, processors: Processors | None) -> Diagnosis:
    """What a step waits for.

    Args:
        stats: What was counted.
        processors: Who kept the processors busy meanwhile, where that was measured.
    """
    if not stats.batches or not stats.seconds:
        return Diagnosis("nothing", {}, "nothing was delivered yet")
    busy, waiting = _busy(stats), _waiting(stats)
    in_workers = {name: busy[name] for name in IN_WORKERS.values()}
    here = {name: busy[name] for name in ("transport", "copy", "batch transform")}
    filled = min(1.0, sum(in_workers.values()) / max(stats.workers, 1))
    # The device copies and transforms side by side; the thread that starts both does one thing at a time.
    thread = max(_thread(stats), *here.values())
    if waiting < _SMOOTH:
        worst = "loop"
        advice = f"loop-bound: {percent(waiting)} of the time is waiting for data; no loader could be faster"
    elif max(filled, thread) < _BUSY:
        worst = "uneven"
        advice = f"uneven: nothing is busy all the time, yet {percent(waiting)} of it is waiting; {_spread(processors)}"
    elif filled >= thread:
        worst = max(in_workers, key=in_workers.__getitem__)
        advice = _of_workers(worst, stats, in_workers, processors)
    else:
        worst = max(here, key=here.__getitem__)
        advice = _OF_PROCESS[worst].format(share=percent(here[worst]))
    return Diagnosis(worst, busy, advice, waiting, filled)


def _waiting(stats: Counted) -> float:
    """The share of the time that was waiting."""
    total = stats.running_seconds
    return max(0.0, 1 - (stats.seconds - stats.wait_seconds) / total) if total else 0.0


def _busy(stats: Counted) -> dict[str, float]:
    total = stats.running_seconds
    busy = {name: stats.stages.get(stage, 0.0) / total for stage, name in IN_WORKERS.items()}
    # Some of it was done before: batches that were ready when the time began, or the first one of an iteration.
    over = max(1.0, sum(busy.values()) / max(stats.workers, 1))
    busy = {name: value / over for name, value in busy.items()}
    busy["transport"] = stats.transport_seconds / total
    busy["copy"] = max(stats.copy_seconds, stats.device_copy_seconds) / total
    busy["batch transform"] = max(stats.transform_seconds, stats.device_transform_seconds) / total
    busy["loop"] = 1 - _waiting(stats)
    return {name: value if name in IN_WORKERS.values() else min(1.0, value) for name, value in busy.items()}


def _thread(stats: Counted) -> float:
    """How busy the thread is that receives batches, or sends them on to their device."""
    busy = stats.transport_seconds + stats.copy_seconds + stats.transform_seconds
    return min(1.0, busy / stats.running_seconds)


def _of_workers(worst: str, stats: Counted, busy: dict[str, float], processors: Processors | None) -> str:
    total = sum(busy.values())
    share = f"{percent(busy[worst] / total)} of it in {TITLES[worst]}"
    less = _less(worst, stats, processors)
    if not stats.workers:
        return (
            f"{worst}-bound: batches are made in the training process, {share}; use workers (num_workers=), or {less}"
        )
    more = _more(worst, stats, processors)
    return f"{worst}-bound: {total:.1f} of {stats.workers} workers busy, {share}; {more}, or {less}"


def _more(worst: str, stats: Counted, processors: Processors | None) -> str:
    """Whether more workers would do more."""
    if processors is None:
        there = cores()
        if worst == "storage":
            return "add workers" if stats.workers < 4 * there else "workers are many"
        return f"add workers ({there} cores are there)" if stats.workers < there else f"all {there} cores have a worker"
    if processors.idle >= _SOME:
        return f"add workers ({processors.idle:.1f} of {processors.cores} cores are idle)"
    if processors.others >= _SOME:
        return f"free the {_taken(processors)}"
    return f"all {processors.cores} cores are busy: use more of them"


def _taken(processors: Processors) -> str:
    return f"{processors.others:.1f} of {processors.cores} cores that other programs use"


def _less(worst: str, stats: Counted, processors: Processors | None) -> str:
    """What would make the stage cheaper."""
    if worst == "decode" and not stats.images:
        return "decode less: name only those fields that are used (fields=), or store what is made of them"
    if worst == "storage" and not stats.transfers and processors is not None and processors.disk < _SOME:
        return "read less: only those fields that are used (fields=); no disk is waited for"
    return _CHEAPER[worst].format(jpeg="" if stats.addressable else "--jpeg addressable or ")


def _spread(processors: Processors | None) -> str:
    """What may help where nothing is busy all the time."""
    ahead = "let workers run further ahead (prefetch_factor=, depth=)"
    if processors is None:
        return f"{ahead}, and look whether something else uses the cores"
    if processors.disk >= _SOME:
        return f"{ahead}, or bring the data nearer: programs wait for a disk"
    return f"{ahead}, or free the {_taken(processors)}" if processors.others >= _SOME else ahead


_CHEAPER = {
    "storage": "bring the data nearer: a local cache (cache=), /dev/shm, a larger prefetch=",
    "decode": 'decode less: pack with {jpeg}--max-side, fast=True, resize="device"',
    "transform": "do it for whole batches on the device (DevicePrefetcher(transform=)), or store its result",
    "assembly": "send less: uint8 in place of floats, a slab in place of many objects, no collate_fn",
}

_OF_PROCESS = {
    "transport": "transport-bound: receiving batches takes {share} of the time; send tensors in place of Python "
    "objects, or less of them",
    "copy": "copy-bound: copying to the device takes {share} of the time; send uint8 and let the transform convert it, "
    "or smaller batches of fewer fields",
    "batch transform": "transform-bound: the transform of batches takes {share} of the time; do less in it, or some of "
    "it in the workers",
}


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.1f} %"
