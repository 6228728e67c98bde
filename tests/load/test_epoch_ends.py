"""An epoch is over with its last batch: loops that take ``len(loader)`` batches and never ask for one more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import shardstream as ss

from ..stream.making import numbered, write_dataset
from ..stream.resuming import ids_of

COUNT = 260


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("ends"), numbered([130, 1, 70, 59]))


def stream(folder: Path, **settings: Any) -> ss.ShardDataset:
    return ss.ShardDataset(folder, **{"fields": ["id"], "batch_size": 16, "shuffle": True, "seed": 7} | settings)


def mixture(folder: Path, **settings: Any) -> ss.Mixture:
    parts = {name: (ss.ShardDataset(folder, fields=["id"]), 1) for name in "ab"}
    return ss.Mixture(parts, epoch=COUNT, **{"batch_size": 16, "seed": 7} | settings)


def by_next(items: Iterable[Any], count: int) -> list[Any]:
    iterator = iter(items)
    return [next(iterator) for _ in range(count)]


def by_zip(items: Iterable[Any], count: int) -> list[Any]:
    return [item for _, item in zip(range(count), items, strict=False)]


def by_islice(items: Iterable[Any], count: int) -> list[Any]:
    return list(itertools.islice(items, count))


def loops(run: Any, take: Callable[[Iterable[Any], int], list[Any]], epochs: int = 3) -> list[list[list[int]]]:
    """So many epochs, each by a loop that takes as many items as `len` says."""
    return [[ids_of(item) for item in take(run, len(run))] for _ in range(epochs)]


def epochs_of(dataset: Any, epochs: int = 3) -> list[list[list[int]]]:
    """The same by loops that go on until nothing more comes."""
    return [[ids_of(item) for item in dataset] for _ in range(epochs)]


takes = pytest.mark.parametrize("take", [by_next, by_zip, by_islice])
RUNS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda source: source,
    "Loader": lambda source: ss.Loader(source, num_workers=0),
    "Loader, 2 workers": lambda source: ss.Loader(source, num_workers=2),
    "Loader, new workers": lambda source: ss.Loader(source, num_workers=2, persistent_workers=False),
    "DevicePrefetcher": lambda source: ss.DevicePrefetcher(ss.Loader(source, num_workers=0), "cpu"),
    "DevicePrefetcher, 2 workers": lambda source: ss.DevicePrefetcher(ss.Loader(source, num_workers=2), "cpu"),
    "DataLoader": lambda source: DataLoader(source, batch_size=None, num_workers=0),
    "DataLoader, 2 workers": lambda source: DataLoader(source, batch_size=None, num_workers=2),
    "DataLoader, persistent": lambda source: DataLoader(
        source, batch_size=None, num_workers=2, persistent_workers=True
    ),
}


@pytest.mark.parametrize("name", RUNS)
@takes
def test_each_epoch_is_another_one(folder: Path, name: str, take: Any) -> None:
    source = stream(folder)
    assert loops(RUNS[name](source), take) == epochs_of(stream(folder))
    assert source.epoch == 3


@pytest.mark.parametrize("name", ["itself", "Loader", "Loader, 2 workers", "DevicePrefetcher"])
@pytest.mark.parametrize("tail", ["drop", "exact", "pad"])
@pytest.mark.parametrize("batch_size", [16, None])
@pytest.mark.parametrize("make", [stream, mixture])
def test_of_every_shape(folder: Path, name: str, tail: str, batch_size: int | None, make: Any) -> None:
    settings = {"tail": tail, "batch_size": batch_size, "rank": 1, "world_size": 2}
    source = make(folder, **settings)
    run = RUNS[name](source)
    assert loops(run, by_next) == epochs_of(make(folder, **settings))
    assert source.epoch == 3
