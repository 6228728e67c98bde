"""The same bytes by obstore alone: what a store and this machine can give, and the least that delivering adds."""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import time
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from bench.data import BATCH, WORKERS
from bench.stream.records import RECORD, bucket

PASSES = 1  # that are counted, after one that is not
_MIB = 1 << 20


def get(
    endpoint: str, size: int, at_once: int, count: int, prefix: str = "tar/", suffix: str = ".tar"
) -> dict[str, Any]:
    """`WORKERS` processes that read the shards of the data set, or other objects, in ranges, and drop them.

    Args:
        endpoint: The server.
        size: Bytes of a range.
        at_once: Ranges that each process has on their way.
        count: Records that lie there.
        prefix: Where the objects lie.
        suffix: How their names end.
    """
    context = mp.get_context("spawn")  # obstore does not survive a fork
    barrier, results = context.Barrier(WORKERS + 1), context.SimpleQueue()
    workers = [
        context.Process(target=_reader, args=(endpoint, number, size, at_once, barrier, results, prefix, suffix))
        for number in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    barrier.wait(120)
    start = time.perf_counter()
    barrier.wait(600)
    seconds = time.perf_counter() - start
    octets = sum(results.get() for _ in workers)
    for worker in workers:
        worker.join(60)
    return {"figures": {"records/s": PASSES * count / seconds, "MB/s": octets / 1e6 / seconds}, "delivered": {}}


def _reader(
    endpoint: str, number: int, size: int, at_once: int, barrier: Barrier, results: Any, prefix: str, suffix: str
) -> None:
    ranges = _ranges(bucket(endpoint), number, size, prefix, suffix)
    octets = asyncio.run(_read(endpoint, ranges, size, at_once, barrier))
    if octets != PASSES * sum(end - start for _, start, end in ranges):
        raise ValueError(f"{octets} bytes were read in {PASSES} passes")
    results.put(octets)
    barrier.wait(600)


def _ranges(
    store: Any, number: int, size: int, prefix: str = "tar/", suffix: str = ".tar"
) -> list[tuple[str, int, int]]:
    """Path, begin and end of the reads of worker ``number``."""
    import obstore

    shards = [one for batch in obstore.list(store, prefix) for one in batch if one["path"].endswith(suffix)]
    mine = sorted(shards, key=lambda one: one["path"])[number::WORKERS]
    return [
        (one["path"], start, min(one["size"], start + size)) for one in mine for start in range(0, one["size"], size)
    ]


async def _read(endpoint: str, ranges: list[tuple[str, int, int]], size: int, at_once: int, barrier: Barrier) -> int:
    import obstore

    store = bucket(endpoint)
    free = asyncio.Semaphore(at_once)

    async def read(path: str, start: int, end: int) -> int:
        async with free:
            result = await obstore.get_async(store, path, options={"range": (start, end)})
            return sum([len(chunk) async for chunk in result.stream(min_chunk_size=min(size, 2 * _MIB))])

    octets = 0
    for turn in range(1 + PASSES):
        if turn == 1:
            barrier.wait(120)
        read_now = sum(await asyncio.gather(*(read(*one) for one in ranges)))
        octets += read_now if turn else 0
    return octets


class Reads(IterableDataset[torch.Tensor]):
    """Ranges as long as the records of a batch, as tensors."""

    def __init__(self, endpoint: str, at_once: int) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._at_once = at_once

    def __iter__(self) -> Iterator[torch.Tensor]:
        import obstore

        store = bucket(self._endpoint)
        info = get_worker_info()
        assert info is not None
        with ThreadPoolExecutor(self._at_once) as pool:
            waiting: deque[Future[Any]] = deque()
            for path, start, end in _ranges(store, info.id, BATCH * RECORD):
                if len(waiting) == self._at_once:
                    yield _tensor(waiting.popleft().result())
                waiting.append(pool.submit(obstore.get_range, store, path, start=start, end=end))
            while waiting:
                yield _tensor(waiting.popleft().result())


def _tensor(octets: Any) -> torch.Tensor:
    """In shared memory, as a DataLoader's own batching does it."""
    warnings.filterwarnings("ignore", "The given buffer is not writable")
    view = torch.frombuffer(memoryview(octets), dtype=torch.uint8)
    slab = view.new_empty(0).set_(torch.UntypedStorage._new_shared(len(view)))
    return slab.resize_(len(view)).copy_(view)


def deliver(endpoint: str, at_once: int, count: int) -> dict[str, Any]:
    """The same reads in the workers of a ``DataLoader``, which hand on what they read, and no more."""
    loader = DataLoader(Reads(endpoint, at_once), batch_size=None, num_workers=WORKERS, persistent_workers=True)
    octets = 0
    for turn in range(1 + PASSES):
        if turn == 1:
            start = time.perf_counter()
        got = sum(len(tensor) for tensor in loader)
        octets += got if turn else 0
    seconds = time.perf_counter() - start
    if octets < PASSES * count * RECORD:
        raise ValueError(f"{octets} bytes were read of {PASSES} times {count} records")
    return {"figures": {"records/s": PASSES * count / seconds, "MB/s": octets / 1e6 / seconds}, "delivered": {}}
