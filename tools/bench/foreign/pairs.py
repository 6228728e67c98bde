"""The same samples twice: where another library left them, and packed by us. Both take turns in one process."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from bench.data import BATCH, WORKERS
from bench.harness import cpu_of_tree
from bench.race.epochs import one_thread
from bench.race.processes import SIZE

TURNS = 5
AT_LEAST = 0.5  # seconds of a turn
IN_PLACE, PACKED, RATIO, CPU_RATIO = "in place/s", "packed/s", "ratio", "CPU ratio"


def beside(
    place: str, packed: str, names: list[str], work: str, turns: int = TURNS, cache: str | None = None
) -> dict[str, Any]:
    """Whole batches of both, shuffled, epoch by epoch.

    Args:
        place: Data of another library.
        packed: The same samples in shards of ours.
        names: The fields of bytes and label.
        work: "bytes", or "crop" for random crops of photographs.
        turns: How often each runs, after a turn that is not counted.
        cache: Folder of a cache in front of the other library's, which is emptied first; the turn that is not counted
            fills it.
    """
    one_thread()
    if cache is not None:
        shutil.rmtree(cache, ignore_errors=True)
    return alternating([loader(place, names, work, cache), loader(packed, names, work)], turns)


def alternating(both: Sequence[Iterable[Any]], turns: int) -> dict[str, Any]:
    """Whole batches of the one in place and of the other, in turns; the first turn is not counted."""
    speeds: list[list[float]] = [[], []]
    per_cpu: list[list[float]] = [[], []]
    delivered = [(0, 0), (0, 0)]
    for turn in range(turns + 1):
        for which in (0, 1) if turn % 2 else (1, 0):
            wall, used, samples, delivered[which] = _turn(both[which], AT_LEAST if turn else 0.0)
            if turn:
                speeds[which].append(samples / wall)
                per_cpu[which].append(samples / max(used, 0.01))
    if delivered[0] != delivered[1]:
        raise ValueError(f"batches and samples of an epoch in place are {delivered[0]}, and packed {delivered[1]}")
    return {
        "figures": {
            IN_PLACE: median(speeds[0]),
            PACKED: median(speeds[1]),
            RATIO: _ratio(speeds),
            CPU_RATIO: _ratio(per_cpu),
        },
        "delivered": {"batches": delivered[0][0], "samples": delivered[0][1]},
    }


def _ratio(both: list[list[float]]) -> float:
    return float(median(mine / other for mine, other in zip(*both, strict=True)))


def loader(url: str, names: list[str], work: str, cache: str | None = None) -> Iterable[Any]:
    """Tuples of stored bytes or crops, and labels, of a data set."""
    import shardstream as ss

    spec: Any = "bytes" if work == "bytes" else ss.decode.RandomResizedCrop(SIZE, flip=True)
    if ss.ShardDataset(url).manifest.fields[names[0]].kind == "fixed":
        spec = None  # rows of one length are a tensor, and have no bytes of their own
    fields = {names[0]: spec, names[1]: None}
    dataset = ss.ShardDataset(url, fields=fields, shuffle=True, batch_size=BATCH, cache=cache)
    return ss.Loader(dataset.to_tuple(*names), num_workers=WORKERS, worker_init_fn=one_thread)


def _turn(loader: Iterable[Any], at_least: float) -> tuple[float, float, int, tuple[int, int]]:
    """Seconds, processor seconds and samples of some epochs; batches and samples of the last one.

    Labels are the last of a batch.
    """
    samples = 0
    busy, start = cpu_of_tree(), time.perf_counter()
    while True:
        sizes = [len(labels) for *_, labels in loader]
        samples += sum(sizes)
        seconds = time.perf_counter() - start
        if seconds >= at_least:
            return seconds, cpu_of_tree() - busy, samples, (len(sizes), sum(sizes))
