"""The order alone, each function in a fresh process: set-up, memory, batches from the middle."""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

import numpy as np

from bench.data import BATCH
from bench.harness import private_dirty
from bench.scale.data import MEAN_BYTES, counts
from shardstream.order import EpochOrder, OrderParameters, default_parameters, step_positions
from shardstream.shards.manifest import Manifest

RANK, RANKS = 5, 64
WORKER, WORKERS = 3, 8
NEXT = 2_000  # batches of this worker after the first


def set_up(samples: int, groups: int) -> dict[str, Any]:
    """Seconds until an epoch's order can be asked."""
    of_shard = counts(samples)
    parameters = _parameters(int(of_shard.sum()), groups)
    start = time.perf_counter()
    EpochOrder(of_shard, seed=0, epoch=1, parameters=parameters)
    return result({"s": time.perf_counter() - start})


def memory(folder: str, groups: int) -> dict[str, Any]:
    """What the manifest of a data set, the order of an epoch and 200 batches of it add to a process."""
    before = private_dirty()
    objects = sys.getallocatedblocks()
    manifest = Manifest.load(folder)
    of_shard = manifest.table.samples.astype(np.int64)
    order = EpochOrder(of_shard, seed=0, epoch=1, parameters=_parameters(manifest.samples, groups))
    del of_shard  # as a data set does
    for number in range(200):
        order.locate((np.arange(BATCH) + number * RANKS * BATCH) % order.samples)
    gc.collect()
    return result({"bytes": private_dirty() - before, "objects": sys.getallocatedblocks() - objects})


def from_the_middle(samples: int) -> dict[str, Any]:
    """Milliseconds of the first batch that a worker makes, in the middle of an epoch, and of those that follow."""
    of_shard = counts(samples)
    start = time.perf_counter()
    order = EpochOrder(of_shard, seed=0, epoch=1, parameters=_parameters(int(of_shard.sum())))
    ready = time.perf_counter()
    first = _first(order)
    _locate(order, first)
    took = [time.perf_counter() - ready]
    for number in range(1, NEXT + 1):
        begin = time.perf_counter()
        _locate(order, first + number * WORKERS)
        took.append(time.perf_counter() - begin)
    following = 1e3 * np.array(took[1:])
    figures = {
        "set-up ms": 1e3 * (ready - start),
        "first ms": 1e3 * took[0],
        "median ms": float(np.median(following)),
        "p99 ms": float(np.quantile(following, 0.99)),
        "max ms": float(following.max()),
    }
    return result(figures)


def _parameters(samples: int, groups: int = 1) -> OrderParameters:
    return default_parameters(
        samples,
        batch_size=BATCH,
        world_size=RANKS,
        num_workers=WORKERS,
        mean_bytes=MEAN_BYTES,
        shuffle=True,
        groups=groups,
    )


def _first(order: EpochOrder) -> int:
    """The step in the middle of the epoch that this worker makes."""
    middle = order.samples // (2 * RANKS * BATCH)
    return middle // WORKERS * WORKERS + WORKER


def _locate(order: EpochOrder, step: int) -> None:
    shape = {"rank": RANK, "world_size": RANKS, "batch_size": BATCH}
    positions, _ = step_positions(step, samples=order.samples, **shape, tail="drop")
    order.locate(positions)


def result(figures: dict[str, float]) -> dict[str, Any]:
    """What `harness.run_fresh` expects."""
    return {"figures": figures, "delivered": {}}
