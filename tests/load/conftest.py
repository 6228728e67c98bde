"""What the tests of ``StatefulDataLoader`` read; other tests here make data sets of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shardstream as ss

from ..stream.making import numbered, write_dataset
from ..stream.resuming import ORDER, flat, ids_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("stateful"), numbered([150, 1, 0, 90, 59]))


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> Any:
    """Epochs by (workers, mode)."""
    from .stateful import COUNT, Loader  # here, since they skip where torchdata is missing

    known: dict[Any, list[list[list[int]]]] = {}

    def epochs(num_workers: int, mode: str) -> list[list[list[int]]]:
        if (num_workers, mode) not in known:
            loader = Loader(folder, num_workers, mode)
            known[num_workers, mode] = [list(loader) for _ in range(3)]
            assert all(sorted(flat(epoch)) == list(range(COUNT)) for epoch in known[num_workers, mode])
        return known[num_workers, mode]

    return epochs


@pytest.fixture(scope="module")
def line(folder: Path) -> list[int]:
    """Epoch 0 in the order of its positions."""
    return flat(map(ids_of, ss.ShardDataset(folder, fields=["id"], batch_size=50, tail="exact", **ORDER)))
