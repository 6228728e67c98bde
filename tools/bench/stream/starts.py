"""What a start asks of a store: requests up to the first batch of 1 to 512 workers, and how long they take.

Every worker is tried, one after another, on the code that reads S3, with a store in memory that notes what it is asked.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import shardstream as ss
from bench.report import MISSED, Outcome, circumstances, markdown, provenance, versions
from shardstream.testing import MemoryStore, make_dataset

WORKERS = (1, 8, 64, 512)
A_RANK = 8  # workers of one rank: they share what was read of the manifest
SHARDS, SAMPLES = 1_024, 1_048_576
BATCH = 128
LIMIT = 5_500  # requests a second, as S3 allows for a prefix
LATENCY = 0.05
SLOW = 0.5  # seconds of an answer by which round trips are told
ROUNDS = ("manifests", "tables of shards", "ends of shards", "samples")
MOST = 4  # round trips


@dataclass(frozen=True)
class Start:
    """Requests up to the first batch of so many workers, by round.

    Attributes:
        workers: How many workers.
        requests: By name of the round.
    """

    workers: int
    requests: Counter[str]

    @property
    def total(self) -> int:
        """All requests."""
        return self.requests.total()

    def seconds(self, limit: float) -> float:
        """Until the last worker has its batch: each round is over when the last of its requests was answered."""
        return sum(LATENCY + self.requests[name] / limit for name in ROUNDS)


def run(document: Path) -> Outcome:
    """Try all workers, and give the section."""
    store = make_dataset(MemoryStore(stall=60 * SLOW), fields={"x": "bytes"}, samples=SAMPLES, shards=SHARDS)
    where = circumstances() | {"versions": versions(("shardstream", "numpy", "torch"))}
    starts = [_start(store, workers) for workers in WORKERS]
    lines = [["workers", *ROUNDS, "together", f"s, {LIMIT:,} requests/s", "s, without a limit"]]
    for start in starts:
        counts = [f"{start.requests[name]:,}" for name in ROUNDS]
        times = [f"{start.seconds(limit):.2f}" for limit in (LIMIT, float("inf"))]
        lines.append([f"{start.workers:,}", *counts, f"{start.total:,}", *times])
    trips = _round_trips(store)
    missed = round(trips) > MOST
    verdict = f"\n- Bar: at most {MOST} round trips; {trips:.1f}, {MISSED if missed else 'reached'}.\n"
    origin = provenance(where, "tools/bench/run starts", 0.0, f"{SAMPLES:,} samples in {SHARDS:,} shards")
    content = {
        **where,
        "round trips": trips,
        "starts": [{"workers": start.workers, **start.requests} for start in starts],
    }
    return Outcome("starts", document, "\n".join([TEXT, markdown(lines), verdict, origin]), missed, content)


def _start(store: MemoryStore, workers: int) -> Start:
    """The first batch of each worker, where each has a rank of its own; `A_RANK` of them count one manifest."""
    requests: Counter[str] = Counter()
    for worker in range(workers):
        store.requests.clear()
        _first_batch(store, rank=worker, world_size=workers)
        found = _by_round(store)
        if worker % A_RANK:
            found = Counter({name: count for name, count in found.items() if name in ROUNDS[2:]})
        requests += found
    return Start(workers, requests)


def _first_batch(store: MemoryStore, *, rank: int = 0, world_size: int = 1) -> None:
    next(iter(ss.ShardDataset(store, batch_size=BATCH, shuffle=True, ranks=(rank, world_size))))


def _round_trips(store: MemoryStore) -> float:
    """By how much slow answers put off a first batch, in the time of one."""
    taken = []
    for seconds in (0.0, SLOW):
        if seconds:
            store.fail("slow", seconds=seconds)
        begun = time.perf_counter()
        _first_batch(store)
        taken.append(time.perf_counter() - begun)
    store.mend()
    return (taken[1] - taken[0]) / SLOW


def _by_round(store: MemoryStore) -> Counter[str]:
    """What was asked: of a shard its end first, and then its samples."""
    found: Counter[str] = Counter()
    known: set[str] = set()
    for request in list(store.requests):
        if "shard-" not in request.path:
            name = ROUNDS[0] if request.path.endswith(".json") else ROUNDS[1]
        else:
            name = ROUNDS[3] if request.path in known else ROUNDS[2]
            known.add(request.path)
        found[name] += 1
    return found


TEXT = f"""\
# What a start asks of a store

Requests from an empty start up to the first batch of {BATCH} samples of every worker, {A_RANK} workers a rank: a rank
reads the manifest and its table of shards once for all of its workers. A worker asks for the ends of its shards, where
their indexes are, side by side, and then for the samples of its batch, side by side: {MOST} round trips. Nothing
of later batches is asked for before that.

Counted on the code that reads S3, worker by worker; *round trips* are by how much answers that take {SLOW} s put off
the first batch of one worker. *Seconds* are arithmetic: {1e3 * LATENCY:.0f} ms a round trip, and a store that answers
so many requests a second for all together. With a cache that the processes of a node share, a node asks once for what
each of its workers asks for here.
"""
