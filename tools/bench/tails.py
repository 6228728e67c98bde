"""What 1 % of photographs of 12 megapixels among small ones do to steps, beside as many small ones alone."""

from __future__ import annotations

import random
import shutil
import time
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.data import HOME, WORKERS, photographs
from bench.harness import Contender, measure_alone
from bench.race import corpora
from bench.race.epochs import one_thread
from bench.race.processes import SIZE
from bench.report import MISSED, Outcome, circumstances, markdown, provenance

ROUNDS = 3
COUNT, HEAVY = 2048, 20
EPOCHS = 3  # of which the first opens files
BATCHES = (128, 32)
STORES = {"heavy": "1 % of 12 megapixels", "light": "small ones alone"}
WAYS = {"threads": f"{WORKERS} threads in process", "workers": f"{WORKERS} workers"}
SHARE, SPREAD = 0.95, 2.0


def run(document: Path, rounds: int) -> Outcome:
    """Make the data, measure, and give the section."""
    where = circumstances()
    stores = {kind: str(_store(kind)) for kind in STORES}
    contenders = [
        Contender(f"{kind}, {batch}", "bench.tails:steps", {"store": stores[kind], "batch": batch})
        for kind in STORES
        for batch in BATCHES
    ]
    figures, busy = measure_alone(contenders, rounds)
    lines, missed = _lines(figures)
    bars = f"{SHARE} × the bound, and p99 of at most {SPREAD:g} × the median"
    verdict = f"\n- Bars: {bars}; {MISSED if missed else 'reached'}.\n- {_beside(figures)}\n"
    origin = provenance(
        where, f"tools/bench/run tails --rounds {rounds}", busy, f"{COUNT:,} photographs, {rounds} rounds"
    )
    text = "\n".join([TEXT, markdown(lines), verdict, origin])
    return Outcome("tails", document, text, missed, {**where, "rounds": figures})


def _lines(figures: dict[str, list[dict[str, float]]]) -> tuple[list[list[str]], bool]:
    """The table, and whether a bar of the heavy ones was missed."""
    lines = [["photographs", "batch", "made by", "of the bound", "a step, median", "p99", "p99 to median"]]
    missed = False
    for batch in BATCHES:
        for kind, title in STORES.items():
            found = figures[f"{kind}, {batch}"]
            for way, made_by in WAYS.items():
                share, middle, late = (
                    median(one[f"{way} {what}"] for one in found) for what in ("share", "median", "p99")
                )
                lines.append(
                    [
                        title,
                        str(batch),
                        made_by,
                        f"{share:.2f} ×",
                        f"{middle:.1f} ms",
                        f"{late:.1f} ms",
                        f"{late / middle:.1f} ×",
                    ]
                )
                missed |= kind == "heavy" and (share < SHARE or late > SPREAD * middle)
    return lines, missed


def _beside(figures: dict[str, list[dict[str, float]]]) -> str:
    """What the large ones cost: shares of the bound with them to those without."""
    found = [
        median(one[f"{way} share"] for one in figures[f"heavy, {batch}"])
        / median(one[f"{way} share"] for one in figures[f"light, {batch}"])
        for batch in BATCHES
        for way in WAYS
    ]
    return f"Of the bound they reach {min(found):.2f} to {max(found):.2f} times what small ones alone reach."


def _store(kind: str) -> Path:
    """Addressable shards of the photographs, some of which are replaced by large ones; made if not there."""
    import shardstream as ss

    folder = HOME / "tails" / kind
    if (folder / "dataset.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    corpus = photographs(COUNT)
    small = [path for path, _ in corpus.entries][:COUNT]
    large = [path for path, _ in corpora.large(corpus).entries]
    heavy = set(random.Random(0).sample(range(COUNT), HEAVY)) if kind == "heavy" else set()
    paths = [large[number % len(large)] if number in heavy else path for number, path in enumerate(small)]
    samples = ({"__key__": f"{number:06d}", "jpg": path.read_bytes()} for number, path in enumerate(paths))
    ss.pack(samples, folder, shard_size="64MB")
    return folder


def steps(store: str, batch: int) -> dict[str, Any]:
    """Speed by the bound and steps, of both ways to make batches; in this process."""
    one_thread()
    figures: dict[str, float] = {}
    for way in WAYS:
        bound = _alone(store, batch)
        rate, taken = _taken(store, batch, way)
        bound = (bound + _alone(store, batch)) / 2  # machines drift
        figures[f"{way} share"] = rate / (WORKERS * bound)
        figures[f"{way} median"] = 1e3 * median(taken)
        figures[f"{way} p99"] = 1e3 * quantiles(taken, n=100)[-1]
    return {"figures": figures, "delivered": {}}


@cache
def _dataset(store: str, batch: int, threads: int) -> Any:
    import shardstream as ss

    fields = {"jpg": ss.decode.RandomResizedCrop(SIZE, flip=True)}
    return ss.ShardDataset(store, fields=fields, shuffle=True, batch_size=batch, reads=ss.ReadOptions(threads=threads))


def _alone(store: str, batch: int) -> float:
    """Images a second of one thread: what a photograph costs in the mean."""
    dataset = _dataset(store, batch, 1)
    begun = time.perf_counter()
    return sum(len(one["jpg"]) for one in dataset) / (time.perf_counter() - begun)


def _taken(store: str, batch: int, way: str) -> tuple[float, list[float]]:
    """Images a second, and the seconds of every step, of a loop that does nothing."""
    import shardstream as ss

    threads, workers = (WORKERS, 0) if way == "threads" else (1, WORKERS)
    loader = ss.Loader(_dataset(store, batch, threads), num_workers=workers, worker_init_fn=one_thread)
    taken: list[float] = []
    begun, count = 0.0, 0
    for epoch in range(EPOCHS):
        if epoch == 1:
            begun = time.perf_counter()
        last = time.perf_counter()
        for made in loader:
            now = time.perf_counter()
            if epoch:
                taken.append(now - last)
                count += len(made["jpg"])
            last = time.perf_counter()
    return count / (time.perf_counter() - begun), taken


TEXT = f"""\
# Heavy tails

{COUNT:,} photographs of some 60 KB, of which {HEAVY} are replaced by others of 12 megapixels, to random crops of
{SIZE} × {SIZE}, beside the same without. *The bound* is what {WORKERS} processors would make at the mean cost of a
photograph, as one thread has it just before and after. Steps are those of a loop that does nothing, so that it waits
for each batch, those that begin an epoch included; with {WORKERS} workers, batches come two at a time. Nothing but what
is there by default: workers prefetch, and threads begin with the largest of a batch.
"""
