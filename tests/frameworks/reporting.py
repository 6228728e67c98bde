"""What the scripts of the frameworks share: the data set, and where each rank writes what it saw."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import shardstream as ss

DATA, FOLDER = sys.argv[1], Path(sys.argv[2])
RANKS = int(os.environ["WORLD_SIZE"])
BATCH = 8

torch.set_num_threads(1)


def dataset(**changes: Any) -> ss.ShardDataset:
    return ss.ShardDataset(DATA, **{"shuffle": True, "seed": 3} | changes)


def loader(workers: int, **changes: Any) -> ss.Loader:
    return ss.Loader(dataset(**changes), batch_size=BATCH, num_workers=workers)


def few(sample: dict[str, Any]) -> dict[str, Any] | None:
    """Two of three samples, as tensors alone."""
    return None if sample["id"] % 3 == 1 else {"id": sample["id"]}


def report(found: dict[str, Any]) -> None:
    (FOLDER / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(found))
