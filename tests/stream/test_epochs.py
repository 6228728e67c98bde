"""Where the next iteration begins: at least one test for each row of the table of `EpochState`."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss

from .making import numbered, write_dataset
from .resuming import ORDER, ids_of
from .simulated import SimulatedDataLoader

STEPS = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("epochs"), numbered([40]))


@pytest.fixture
def dataset(folder: Path) -> ss.ShardDataset:
    return ss.ShardDataset(folder, fields=["id"], batch_size=4, **ORDER)


@pytest.fixture(scope="module")
def epochs(folder: Path) -> list[list[list[int]]]:
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=4, **ORDER)
    return [[ids_of(batch) for batch in dataset] for _ in range(7)]


def state_after(folder: Path, steps: int, epoch: int = 0) -> dict[str, Any]:
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=4, **ORDER)
    dataset.set_epoch(epoch)
    items = began(dataset, steps)
    state = dataset.state_dict()
    assert next(items)  # it was not at its end
    return state


def began(dataset: ss.ShardDataset, steps: int = STEPS) -> Iterator[Any]:
    """An iteration of which so many steps were handed out."""
    items = iter(dataset)
    assert len(list(islice(items, steps))) == steps
    return items


def following(dataset: ss.ShardDataset) -> list[list[int]]:
    """What the next iteration hands out."""
    return [ids_of(batch) for batch in dataset]


@pytest.mark.parametrize("loaded", [False, True])
def test_setting_the_present_epoch(dataset: ss.ShardDataset, folder: Path, epochs: Any, loaded: bool) -> None:
    if loaded:
        dataset.load_state_dict(state_after(folder, 3, epoch=5))
    dataset.set_epoch(dataset.epoch)
    assert following(dataset) == (epochs[5][3:] if loaded else epochs[0])


@pytest.mark.parametrize("loaded", [False, True])
def test_setting_another_epoch(dataset: ss.ShardDataset, folder: Path, epochs: Any, loaded: bool) -> None:
    if loaded:
        dataset.load_state_dict(state_after(folder, 3))
    dataset.set_epoch(4)
    assert dataset.epoch == 4
    assert following(dataset) == epochs[4]
    if loaded:
        dataset.load_state_dict(state_after(folder, 3))
        dataset.set_epoch(4)
        dataset.set_epoch(0)  # and back
        assert following(dataset) == epochs[0]


def test_loading_a_state(dataset: ss.ShardDataset, folder: Path, epochs: Any) -> None:
    began(dataset, 7)
    dataset.load_state_dict(state_after(folder, 3, epoch=2))
    assert dataset.epoch == 2
    assert dataset.state_dict() == state_after(folder, 3, epoch=2)
    assert following(dataset) == epochs[2][3:]


def test_loading_a_state_into_a_loader(dataset: ss.ShardDataset, folder: Path, epochs: Any) -> None:
    """It waits for this loader's iteration; others of the data set begin the epoch that it is of."""
    loader, other = ss.Loader(dataset, num_workers=0), ss.Loader(dataset, num_workers=0)
    loader.load_state_dict(state_after(folder, 3, epoch=2))
    assert (loader.epoch, other.epoch, dataset.epoch) == (2, 2, 2)
    assert [ids_of(batch) for batch in islice(other, 4)] == epochs[2][:4]
    assert loader.state_dict() == state_after(folder, 3, epoch=2)
    assert [ids_of(batch) for batch in loader] == epochs[2][3:]
    assert [ids_of(batch) for batch in loader] == epochs[3]
    loader.load_state_dict(state_after(folder, 3, epoch=2))
    dataset.set_epoch(5)
    assert [ids_of(batch) for batch in loader] == epochs[5]


def test_loading_the_state_of_one_worker(dataset: ss.ShardDataset, epochs: Any) -> None:
    """Each worker of a ``StatefulDataLoader`` goes on by itself from what it has handed out."""
    stopped = SimulatedDataLoader(dataset, num_workers=2, batch_size=None)
    stopped.begin()
    begun = [ids_of(stopped.step()) for _ in range(4)]
    states = list(stopped.states)
    dataset.set_epoch(3)  # the state says another one
    resumed = SimulatedDataLoader(dataset, num_workers=2, batch_size=None)
    resumed.begin(states)
    assert dataset.epoch == 0
    rest = [ids_of(items) for items in iter(resumed.step, None)]
    assert begun + rest == epochs[0]
    resumed.begin()  # it was for that iteration alone
    assert [ids_of(items) for items in iter(resumed.step, None)] == epochs[1]


def test_beginning_an_iteration(dataset: ss.ShardDataset, folder: Path, epochs: Any) -> None:
    dataset.load_state_dict(state_after(folder, 3))
    first, second = iter(dataset), iter(dataset)
    assert dataset.epoch == 0
    assert [ids_of(batch) for batch in first] == epochs[0][3:]
    assert [ids_of(batch) for batch in second] == epochs[0]


def test_beginning_one_without_a_step(folder: Path, epochs: Any) -> None:
    """Of a rank that has none, and of a state that leaves none."""
    idle = ss.ShardDataset(folder, fields=["id"], batch_size=40, tail="exact", ranks=(1, 2), **ORDER)
    for epoch in range(3):
        assert idle.epoch == epoch
        iter(idle)
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=4, **ORDER)
    dataset.load_state_dict(state_after(folder, 1) | {"position": 40})
    iter(dataset)
    assert dataset.epoch == 1
    assert following(dataset) == epochs[1]


@pytest.mark.parametrize("loaded", [False, True])
def test_leaving_an_iteration(dataset: ss.ShardDataset, folder: Path, epochs: Any, loaded: bool) -> None:
    if loaded:
        dataset.load_state_dict(state_after(folder, 3))
    began(dataset, STEPS - 4)
    assert dataset.epoch == 0
    assert following(dataset) == epochs[0]


@pytest.mark.parametrize("loaded", [0, 3])
def test_handing_out_the_last_item(dataset: ss.ShardDataset, folder: Path, epochs: Any, loaded: int) -> None:
    if loaded:
        dataset.load_state_dict(state_after(folder, loaded))
    items = began(dataset, STEPS - loaded - 1)
    assert dataset.epoch == 0
    next(items)
    assert (dataset.epoch, dataset.state_dict()["position"]) == (1, 0)
    assert list(items) == []
    assert dataset.epoch == 1
    assert following(dataset) == epochs[1]


def test_a_state_that_is_loaded_meanwhile_waits(dataset: ss.ShardDataset, folder: Path, epochs: Any) -> None:
    for epoch in (2, 0):
        dataset.set_epoch(0)
        items = began(dataset, STEPS - 1)
        dataset.load_state_dict(state_after(folder, 3, epoch=epoch))
        next(items)
        assert dataset.epoch == epoch
        assert following(dataset) == epochs[epoch][3:]
        assert dataset.epoch == epoch + 1


def test_the_last_items_of_workers(dataset: ss.ShardDataset, epochs: Any) -> None:
    """Two workers, ten steps: the ninth is the first one's last, the tenth the second one's."""
    loader = SimulatedDataLoader(dataset, num_workers=2, batch_size=None)
    for epoch in range(3):
        loader.begin()
        seen = [loader.step() for _ in range(STEPS - 1)]
        assert dataset.epoch == epoch
        seen.append(loader.step())
        assert dataset.epoch == epoch + 1
        assert [ids_of(items) for items in seen if items is not None] == epochs[epoch]


def test_pickling_a_data_set_for_which_a_state_waits(dataset: ss.ShardDataset, folder: Path, epochs: Any) -> None:
    dataset.load_state_dict(state_after(folder, 3, epoch=2))
    other = pickle.loads(pickle.dumps(dataset))
    assert other.epoch == 2
    for one in (dataset, other):
        assert following(one) == epochs[2][3:]
        assert one.epoch == 3
    dataset.set_epoch(5)
    assert other.epoch == 3


def test_the_end_of_an_epoch_that_is_not_the_present_one(dataset: ss.ShardDataset, epochs: Any) -> None:
    items = began(dataset, STEPS - 1)
    dataset.set_epoch(6)
    next(items)
    assert dataset.epoch == 6
    items = began(dataset)
    assert dataset.epoch == 7
    dataset.set_epoch(6)
    assert list(items) == []  # it ended before
    assert dataset.epoch == 6
    assert following(dataset) == epochs[6]
