"""What training frameworks find in a loader; tests/frameworks runs the frameworks themselves."""

from __future__ import annotations

import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import shardstream as ss

from ..stream.making import numbered, write_dataset
from ..stream.resuming import ids_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data"), numbered([60, 40, 20]))


def make(folder: Path, workers: int = 0, *, batch_size: int | None = 8, **arguments: Any) -> ss.Loader:
    dataset = ss.ShardDataset(folder, fields=["id"], shuffle=True, seed=3)
    return ss.Loader(dataset, batch_size=batch_size, num_workers=workers, **arguments)


def epochs(folder: Path, count: int) -> list[Any]:
    loader = make(folder)
    return [[ids_of(batch) for batch in loader] for _ in range(count)]


def as_tuple(samples: Any) -> tuple[list[int], str]:
    return ids_of(samples), "collated"


@pytest.mark.one_in(5)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "shape", [{}, {"batch_size": None}, {"collate_fn": as_tuple}], ids=["batches", "samples", "collated"]
)
def test_a_plain_dataloader_over_its_data_set_gives_the_same(folder: Path, workers: int, shape: dict[str, Any]) -> None:
    loader = make(folder, workers, **shape)
    plain = DataLoader(loader.dataset, batch_size=None, num_workers=workers, collate_fn=loader.collate_fn)
    collated = "collate_fn" in shape

    def seen(items: Any) -> list[Any]:
        found = [item if collated else ids_of(item) for item in items]
        return sorted(found) if shape.get("batch_size", 0) is None else found  # workers take turns with single samples

    first = seen(plain)
    assert loader.epoch == 1
    assert [len(loader), len(plain)] == [len(first)] * 2
    loader.set_epoch(0)
    assert seen(loader) == first


def test_a_loader_follows_who_counts_epochs(folder: Path) -> None:
    expected, loader = epochs(folder, 4), make(folder)
    for epoch in range(3):  # each is left early
        loader.sampler.set_epoch(epoch)
        assert [ids_of(batch) for batch in islice(loader, 2)] == expected[epoch][:2]
    loader.sampler.set_epoch(3)
    assert [ids_of(batch) for batch in loader] == expected[3]


def test_who_counts_from_the_beginning_does_not_lead_back(folder: Path) -> None:
    expected, loader, resumed = epochs(folder, 4), make(folder), make(folder)
    loader.set_epoch(2)
    batches = iter(loader)
    next(batches)
    resumed.load_state_dict(loader.state_dict())
    for epoch, left in enumerate([expected[2][1:], expected[3]]):
        resumed.sampler.set_epoch(epoch)
        assert [ids_of(batch) for batch in resumed] == left


def test_the_epoch_may_be_told_after_the_iteration_has_begun(folder: Path) -> None:
    expected, loader = epochs(folder, 3), make(folder)
    batches = iter(loader)
    loader.sampler.set_epoch(2)
    assert [ids_of(batch) for batch in batches] == expected[2]
    assert loader.epoch == 3


def test_an_iteration_that_has_given_something_goes_on(folder: Path) -> None:
    expected, loader = epochs(folder, 3), make(folder)
    batches = iter(loader)
    begun = ids_of(next(batches))
    loader.sampler.set_epoch(2)
    assert [begun, *map(ids_of, batches)] == expected[0]
    assert [ids_of(batch) for batch in loader] == expected[2]


@pytest.mark.parametrize("shape", [{}, {"batch_size": None}, {"collate_fn": as_tuple, "pin_memory": False}])
def test_a_loader_can_be_made_again_of_what_it_keeps(folder: Path, shape: dict[str, Any]) -> None:
    """As Lightning does, by the names that it uses; it passes torch's default of what is the dataset's to decide."""
    loader = make(folder, **shape)
    kept = vars(loader)
    again = type(loader)(*kept["__pl_saved_args"], **kept["__pl_saved_kwargs"], sampler=None, batch_sampler=None)
    assert kept["__dataset"] is kept["__pl_saved_kwargs"]["dataset"]
    assert repr(list(again)) == repr(list(make(folder, **shape)))
    assert again.num_workers == loader.num_workers


def test_a_loader_pickles(folder: Path) -> None:
    loader = pickle.loads(pickle.dumps(make(folder)))
    assert type(loader) is ss.Loader
    assert [ids_of(batch) for batch in loader] == epochs(folder, 1)[0]
