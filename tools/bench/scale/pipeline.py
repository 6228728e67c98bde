"""Data sets and loaders, each function in a fresh process: memory, share of the order, start, resume, gap."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import shardstream as ss
from bench.data import BATCH, WORKERS
from bench.harness import private_dirty
from bench.scale.arithmetic import result
from shardstream.order import EpochOrder, Remaining
from shardstream.stream.iteration import epoch_run

STARTS = 15  # of each kind, in turn
EPOCHS = 6  # of which the pauses between are looked at


class Probe(IterableDataset[int]):
    """What a data set adds to the private memory of a worker up to its first read, which fails: there are no shards."""

    def __init__(self, dataset: ss.ShardDataset) -> None:
        super().__init__()
        self._dataset = dataset

    def __iter__(self) -> Iterator[int]:
        try:
            next(iter(self._dataset))
        except ss.errors.NotFoundError:  # as long as it is handled, all that it met is held
            gc.collect()
            yield private_dirty()


class Empty(IterableDataset[None]):
    """Nothing."""

    def __iter__(self) -> Iterator[None]:
        yield from ()


def worker_memory(folder: str, method: str) -> dict[str, Any]:
    """Private memory of a DataLoader's worker that has just made the order of an epoch."""
    dataset = ss.ShardDataset(folder, fields={"x": "bytes"}, batch_size=BATCH, shuffle=True, ranks=(0, 1))
    (octets,) = DataLoader(Probe(dataset), batch_size=None, num_workers=1, multiprocessing_context=method)
    return result({"bytes": octets})


def order_share(folder: str, workers: int, chunk: int | None = None) -> dict[str, Any]:
    """The order's share of the processor time of an epoch of raw records: of this process, and of workers."""
    spent = torch.zeros(max(workers, 1), dtype=torch.int64).share_memory_()
    dataset = _raw(folder, chunk)
    if not workers:
        _consume(dataset)  # opens the shards
    for owner, name in (
        (epoch_run, "step_positions"),
        (Remaining, "positions"),
        (EpochOrder, "__init__"),
        (EpochOrder, "locate"),
    ):
        setattr(owner, name, _timed(getattr(owner, name), spent))
    used, begin = _processor_seconds(), time.perf_counter()
    # workers must have ended before what they used can be asked for
    octets = _consume(ss.Loader(dataset, num_workers=workers, persistent_workers=False) if workers else dataset)
    seconds = time.perf_counter() - begin
    gc.collect()
    used = _processor_seconds() - used
    return result({"%": 100 * float(spent.sum()) / 1e9 / used, "MB/s": octets / 1e6 / seconds})


def _timed(function: Callable[..., Any], spent: torch.Tensor) -> Callable[..., Any]:
    """The function, adding the processor time of its calls, in nanoseconds, to its worker's place in ``spent``."""
    own = spent.numpy()

    def timed(*args: Any, **keywords: Any) -> Any:
        start = time.thread_time_ns()
        value = function(*args, **keywords)
        info = get_worker_info()
        own[0 if info is None else info.id] += time.thread_time_ns() - start
        return value

    return timed


def start_of_loader(folder: str) -> dict[str, Any]:
    """Seconds from nothing but imports to the first batch of raw records."""
    start = time.perf_counter()
    loader = ss.Loader(_raw(folder), num_workers=WORKERS)
    next(iter(loader))
    return result({"s": time.perf_counter() - start})


def start_of_empty() -> dict[str, Any]:
    """Seconds from nothing but imports to the end of an empty data set in torch's own loader."""
    start = time.perf_counter()
    loader = DataLoader(Empty(), batch_size=None, num_workers=WORKERS, persistent_workers=True)
    next(iter(loader), None)
    return result({"s": time.perf_counter() - start})


def resume(folder: str, position: int) -> dict[str, Any]:
    """Seconds to the first batch from a state at ``position`` and from a fresh start, in turn; medians."""
    loader = ss.Loader(_raw(folder), num_workers=WORKERS)
    next(iter(loader))
    state = {**loader.state_dict(), "position": position}
    del loader
    resumed: list[float] = []
    fresh: list[float] = []
    for _ in range(STARTS):
        for state_or_none, seconds in ((state, resumed), (None, fresh)):
            start = time.perf_counter()
            loader = ss.Loader(_raw(folder), num_workers=WORKERS)
            if state_or_none is not None:
                loader.load_state_dict(state_or_none)
            batch = next(iter(loader))
            seconds.append(time.perf_counter() - start)
            if len(batch["x"]) != BATCH:
                raise ValueError(f"the first batch has {len(batch['x'])} samples")
            del loader
    return result({"resumed s": median(resumed), "fresh s": median(fresh)})


def gap(folder: str) -> dict[str, Any]:
    """Milliseconds between the last batch of an epoch and the first of the next, and usually between batches."""
    loader = ss.Loader(_raw(folder), num_workers=WORKERS)
    between: list[float] = []
    gaps: list[float] = []
    last = None
    for epoch in range(EPOCHS):
        first = True
        for _ in loader:
            now = time.perf_counter()
            if last is not None and epoch > 0:
                (gaps if first else between).append(now - last)
            first, last = False, now
    return result({"gap ms": 1e3 * median(gaps), "largest ms": 1e3 * max(gaps), "usual ms": 1e3 * median(between)})


def _raw(folder: str, chunk: int | None = None) -> ss.ShardDataset:
    return ss.ShardDataset(
        folder, fields={"x": "bytes"}, shuffle=True, batch_size=BATCH, order=ss.OrderOptions(chunk=chunk)
    )


def _consume(batches: Iterable[Any]) -> int:
    return sum(batch["x"].values.numel() for batch in batches)


def _processor_seconds() -> float:
    """Used by this process and by children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
