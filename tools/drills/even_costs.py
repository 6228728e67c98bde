"""A million clips in batches by cost, on 1 to 64 ranks: equal steps, and how equal their costs are."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import shardstream as ss
from drills.pack_ten_million import Bars

MEDIAN, SIGMA = 5.0, 0.6  # seconds, log-normal
PER_SHARD = 8000  # clips; 240 MB as Opus of 48 kbit/s
_ROW = 79  # bytes of one here
GROUPS = (1, 4, 8, 24)
EVEN, OFTEN, FILLED = 0.03, 0.99, 0.05


def write(folder: Path, count: int) -> NDArray[np.float32]:
    """Clips of which only the length is stored, some in each shard."""
    draws = np.random.default_rng(0)
    seconds = np.exp(draws.normal(np.log(MEDIAN), SIGMA, count)).clip(0.2, 60).astype(np.float32)
    clips = ({"__key__": f"c{i:07}", "seconds": float(one)} for i, one in enumerate(seconds.tolist()))
    how: dict[str, Any] = {
        "fields": {"seconds": "float32"},
        "format": "record",
        "shards": ss.ShardOptions(key_table=False),
        "shuffle": False,
    }
    begun = time.perf_counter()
    ss.pack(clips, folder, shard_size=PER_SHARD * _ROW, workers=0, progress=None, **how)
    print(
        f"{count:,} clips in {ss.Manifest.load(folder).shards} shards, {time.perf_counter() - begun:.0f} s", flush=True
    )
    return seconds


def steps(folder: Path, ranks: int, budget: float) -> tuple[list[list[NDArray[np.float32]]], float]:
    """By rank, the clips of its steps; and how long it took to open the data set."""
    found = []
    begun = time.perf_counter()
    first = ss.ShardDataset(folder, batch_size={"seconds": budget}, shuffle=True, seed=1)
    opened = time.perf_counter() - begun
    for rank in range(ranks):
        part = first.replace(ranks=(rank, ranks))
        found.append([batch["seconds"].numpy() for batch in part])
        assert len(found[-1]) == len(part)
        first.set_epoch(0)
    return found, opened


def main() -> int:
    """Write, read by each number of ranks; 1 when a bar was missed."""
    parser = argparse.ArgumentParser(prog="tools/drills/even_costs")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clips", type=int, default=1_000_000)
    parser.add_argument("--ranks", default="1,8,64")
    parser.add_argument("--budgets", default="120,600")
    args = parser.parse_args()
    folder, bars = args.folder / "clips", Bars()
    shutil.rmtree(folder, ignore_errors=True)
    seconds = write(folder, args.clips)
    for budget in map(float, args.budgets.split(",")):
        for ranks in map(int, args.ranks.split(",")):
            found, opened = steps(folder, ranks, budget)
            look(found, opened, seconds, budget, bars)
    if not bars.missed:
        shutil.rmtree(args.folder)
    print("a bar was missed" if bars.missed else "all bars reached")
    return int(bars.missed)


def look(
    found: list[list[NDArray[np.float32]]], opened: float, seconds: NDArray[np.float32], budget: float, bars: Bars
) -> None:
    """Compare steps of all ranks."""
    count = len(found[0])
    print(f"{len(found)} ranks, {budget:g} s a batch: opened in {opened:.1f} s", flush=True)
    bars.true({len(one) for one in found} == {count}, f"{count:,} steps on each rank")
    costs = np.array([[batch.sum(dtype=np.float64) for batch in one] for one in found])
    bars.true(bool(costs.max() <= budget * (1 + 1e-6)), f"no batch costs more: at most {costs.max():.2f} s")
    missing = len(seconds) - sum(len(batch) for one in found for batch in one)
    print(f"    {costs.mean() / budget:.1%} full; {missing:,} clips in what fills no step of all ranks", flush=True)
    off = np.abs(costs / costs.mean(0) - 1).max(0)
    bars.true(bool((off <= EVEN).mean() >= OFTEN), f"within {EVEN:.0%} of the step's mean: {(off <= EVEN).mean():.2%}")
    some = [batch for one in found for batch in one][:2000]
    for groups in GROUPS:
        rows = [ss.Ragged.of([torch.empty(int(10 * one)) for one in batch]).padded_groups(groups) for batch in some]
        padded = sum(tensor.numel() for one in rows for _, tensor in one)
        share = 1 - sum(int(10 * one) for batch in some for one in batch) / padded
        told = f"filled up in {groups} groups of similar length: {share:.1%}"
        if groups == GROUPS[-1]:
            bars.true(share <= FILLED, told)
        else:
            print(f"    {told}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
