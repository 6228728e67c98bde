"""What the nodes of a large cluster would fetch, with and without affinity, and how even their work is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.cluster.cache import NodeCache
from bench.cluster.reads import CHECKED, Cluster, Integers, Stretches, stretches
from bench.report import MISSED, Outcome, markdown, versions
from shardstream.order import step_count

EPOCHS = 4
CACHES = (0.0, 0.5e12, 1e12, 2e12, 8e12)  # bytes a node
AFFINITIES = ("none", "node")
TAKING_PART = ("shardstream", "numpy")


def run(document: Path) -> Outcome:
    """Simulate, and give the section."""
    cluster = Cluster()
    fetched: dict[str, NDArray[np.float64]] = {}
    opens: dict[str, Integers] = {}
    for affinity in AFFINITIES:
        groups = cluster.nodes if affinity == "node" else 1
        fetched[affinity], opens[affinity] = _simulate(cluster, groups)
        print(f"  affinity {affinity}: {fetched[affinity].mean(axis=2) / 1e12} TB a node", flush=True)
    steps = {tail: _steps(cluster, tail) for tail in ("drop", "pad")}
    equal = all(len(set(counts)) == 1 for counts in steps.values())
    text = f"{_fetched_table(fetched)}\n{_even_table(cluster, fetched, opens, steps, equal=equal)}\n{_origin(cluster)}"
    content: dict[str, Any] = {
        "caches": CACHES,
        "fetched_bytes": {name: values.tolist() for name, values in fetched.items()},
        "opens": {name: [int(f(values)) for f in (np.min, np.median, np.max)] for name, values in opens.items()},
        "steps": {tail: sorted(set(counts)) for tail, counts in steps.items()},
    }
    return Outcome("cluster", document, text, not equal, content)


def _simulate(cluster: Cluster, groups: int) -> tuple[NDArray[np.float64], Integers]:
    """Bytes fetched, shape (caches, epochs, nodes), and shards opened by each worker in each epoch."""
    sizes = (cluster.counts * cluster.sample_bytes).astype(np.float64)
    caches = [[NodeCache(size, sizes, cluster.starts) for _ in range(cluster.nodes)] for size in CACHES]
    fetched = np.zeros((len(CACHES), EPOCHS, cluster.nodes))
    opens = []
    for epoch in range(EPOCHS):
        read = stretches(cluster, epoch=epoch, groups=groups)
        opens.append(_opens(cluster, read))
        node = read.rank // cluster.ranks
        in_time = np.lexsort((read.turn, node))
        edges = np.searchsorted(node[in_time], np.arange(cluster.nodes + 1))
        for number in range(cluster.nodes):
            mine = in_time[edges[number] : edges[number + 1]]
            shard, row, rows = read.shard[mine], read.row[mine], read.rows[mine]
            for size, of_nodes in enumerate(caches):
                fetched[size, epoch, number] = of_nodes[number].read(shard, row, rows) * cluster.sample_bytes
    return fetched, np.concatenate(opens)


def _opens(cluster: Cluster, read: Stretches) -> Integers:
    """Different shards that each worker opens."""
    workers = cluster.world * cluster.workers
    pairs = np.unique((read.rank * cluster.workers + read.worker) * cluster.shards + read.shard)
    return np.bincount(pairs // cluster.shards, minlength=workers)


def _steps(cluster: Cluster, tail: Any) -> list[int]:
    """Steps of each rank."""
    shape = {"world_size": cluster.world, "batch_size": cluster.batch, "tail": tail}
    return [step_count(cluster.samples, rank=rank, **shape) for rank in range(cluster.world)]


def _fetched_table(fetched: dict[str, NDArray[np.float64]]) -> str:
    heads = ["cache a node", "affinity", *(f"epoch {epoch + 1}" for epoch in range(EPOCHS)), f"all {EPOCHS}, PB"]
    lines = [heads]
    for number, size in enumerate(CACHES):
        for affinity, values in fetched.items():
            means = [f"{mean / 1e12:.2f}" for mean in values[number].mean(axis=1)]
            total = f"{values[number].sum() / 1e15:.2f}"
            lines.append([f"{size / 1e12:g} TB" if size else "none", f'`"{affinity}"`', *means, total])
    return markdown(lines)


def _even_table(
    cluster: Cluster,
    fetched: dict[str, NDArray[np.float64]],
    opens: dict[str, Integers],
    steps: dict[str, list[int]],
    *,
    equal: bool,
) -> str:
    lines = [["over all ranks, workers and epochs", *(f'`"{name}"`' for name in AFFINITIES)]]
    reads = [fetched[name][0] / 1e12 for name in AFFINITIES]  # without a cache everything is fetched
    lines.append(["TB that a node reads, least–most", *(f"{one.min():.4f}–{one.max():.4f}" for one in reads)])
    spread = [
        f"{values.min()} / {np.median(values):.0f} / {values.max()}" for values in (opens[name] for name in AFFINITIES)
    ]
    lines.append(["shards that a worker opens in an epoch, least / median / most", *spread])
    for tail, counts in steps.items():
        cell = f"{counts[0]:,} on each of {cluster.world:,}" if len(set(counts)) == 1 else MISSED
        lines.append([f'steps, `tail="{tail}"`', cell, "the same" if equal else MISSED])
    return markdown(lines)


def _origin(cluster: Cluster) -> str:
    taking_part = ", ".join(f"{name} {number}" for name, number in versions(TAKING_PART).items())
    return (
        f"`tools/bench/run cluster`: {cluster.samples:,} samples of {cluster.sample_bytes // 1000} KB; nothing "
        f"is sampled: the spans of all {cluster.parameters(1).lanes:,} lanes are cut exactly, and {CHECKED} batches of "
        f"each epoch are located sample by sample to check them. {taking_part}; the machine has no part in it.\n"
    )
