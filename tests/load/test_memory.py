"""A worker's private memory does not grow with the number of samples.

``Private_Dirty`` is measured, not RSS: pages of mapped files are shared by all processes and cost none of them
anything.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import shardstream as ss
from shardstream.shards.manifest import ShardTable
from shardstream.storage import open_store
from shardstream.storage.base.verified import COPIED_BYTES

from ..stream.making import numbered, write_dataset

ROOT = Path(__file__).parents[2]
SHARD = 4_600
_baseline = 0


def private_dirty() -> int:
    """Bytes that belong to this process alone."""
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Private_Dirty")) * 1024


def remember(_worker: int) -> None:
    global _baseline  # a worker process has no other place of its own
    _baseline = private_dirty()


def gained(batch: dict[str, Any]) -> dict[str, Any]:
    return {"pid": torch.tensor(os.getpid()), "gained": torch.tensor(private_dirty() - _baseline)}


def many_links(folder: Path, shards: int) -> Path:
    """A data set of equal shards, all of them one file."""
    from dataclasses import replace

    write_dataset(folder, numbered([SHARD]), format="record")
    one = ss.Manifest.load(folder)
    for i in range(1, shards):
        os.link(folder / one.shard_name(0), folder / one.naming[0].pattern.format(i))
    table = ShardTable(*(column.repeat(shards) for column in (one.table.samples, one.table.sizes, one.table.checksums)))
    replace(one, table=table, naming=(replace(one.naming[0], count=shards),)).save(open_store(folder))
    with open(folder / one.shard_name(0), "rb") as file:  # pages not on the disk yet count as dirty and private
        os.fsync(file.fileno())
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    return {n: many_links(tmp_path_factory.mktemp(f"links{n}"), -(-n // SHARD)) for n in (10_000, 10_000_000)}


def least_gain(folder: str, samples: int, method: str, weights: str | None) -> int:
    """Bytes that a worker gains while it reads. Of all workers the least: a fork copies pages by chance."""
    dataset = ss.ShardDataset(folder, shuffle=True, batch_size=32, batch_transform=gained, weights=weights)
    assert len(dataset) >= samples // 32
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        loader = ss.Loader(
            dataset, num_workers=4, worker_init_fn=remember, multiprocessing_context=method, persistent_workers=False
        )
        by_worker: dict[int, int] = {}
        for number, batch in enumerate(loader):
            by_worker[int(batch["pid"])] = max(by_worker.get(int(batch["pid"]), 0), int(batch["gained"]))
            if number == 280:
                break
    assert len(by_worker) == 4
    return min(by_worker.values())


@pytest.mark.full
@pytest.mark.parametrize(("method", "weights"), [("fork", None), ("fork", "id"), ("spawn", "id")])
def test_workers_gain_no_memory_with_more_samples(folders: dict[int, Path], method: str, weights: str | None) -> None:
    """Each in a process of its own: in the holes of this one's heap every new object would copy another page."""
    least = {}
    for samples, folder in folders.items():
        told = f"print(least_gain({str(folder)!r}, {samples}, {method!r}, {weights!r}))"
        code = f"from tests.load.test_memory import least_gain\nif __name__ == '__main__':\n    {told}"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=150)
        # Under spawn a worker that is stopped while torch's queue thread is sending may abort; all was delivered then.
        assert said.returncode == 0, said.stderr
        least[samples] = int(said.stdout)
    assert least[10_000_000] - least[10_000] < COPIED_BYTES + (4 << 20), least  # copies of indexes have a limit


def test_a_data_set_of_many_shards_pickles_small(folders: dict[int, Path], tmp_path: Path) -> None:
    assert len(pickle.dumps(ss.ShardDataset(folders[10_000_000]))) < 65536
    assert len(pickle.dumps(ss.ShardDataset(many_links(tmp_path, 10_000)))) < 65536
