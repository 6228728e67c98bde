"""Copies and pickles of loaders: each is where the original is, and goes its own way from there."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss

from ..stream.making import numbered, write_dataset
from ..stream.resuming import ids_of

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data"), numbered([40, 24]))


def make(folder: Path, workers: int = 0, **arguments: Any) -> ss.Loader:
    dataset = ss.ShardDataset(folder, fields=["id"], shuffle=True, seed=3)
    return ss.Loader(dataset, batch_size=8, num_workers=workers, **arguments)


def seen(batches: Any) -> list[list[int]]:
    return [ids_of(batch) for batch in batches]


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("prefetched", [False, True], ids=["loader", "prefetcher"])
def test_a_copy_goes_on_where_its_original_is(folder: Path, copied: Any, prefetched: bool) -> None:
    whole = make(folder)
    epochs = [seen(whole) for _ in range(3)]
    for taken in (0, 3, 8):
        loader = make(folder)
        reader = ss.DevicePrefetcher(loader, "cpu") if prefetched else loader
        batches = iter(reader)
        begun = [ids_of(next(batches)) for _ in range(taken)]
        again = copied(reader)
        assert begun + seen(batches) == epochs[0]  # a shallow one shares its epoch: its original goes first
        if copied is not copy.copy:
            assert seen(again) == (epochs[0][taken:] if taken < 8 else epochs[1])
        assert type(again) is type(reader)
        assert repr(again) == repr(reader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_deep_copy_of_a_running_loader_is_independent(folder: Path, workers: int) -> None:
    whole = make(folder)
    epochs = [seen(whole) for _ in range(3)]
    loader = make(folder, workers)
    assert seen(loader) == epochs[0]  # so that there are persistent workers
    batches = iter(loader)
    begun = [ids_of(next(batches)) for _ in range(2)]
    again = copy.deepcopy(loader)
    assert again.state_dict() == loader.state_dict()
    assert seen(again) == epochs[1][2:]
    assert (again.epoch, loader.epoch) == (2, 1)
    assert begun + seen(batches) == epochs[1]
    assert seen(again) == seen(loader) == epochs[2]
    assert again.stats is not loader.stats


def test_a_copy_has_a_loaded_state_and_what_was_set(folder: Path) -> None:
    loader = make(folder, on_stats=print, stats_every=1e9)
    batches = iter(loader)
    next(batches)
    resumed = make(folder)
    resumed.load_state_dict(loader.state_dict())
    resumed.note = ["mine"]  # type: ignore[attr-defined]
    resumed.worker_init_fn = print
    again = copy.deepcopy(resumed)
    assert seen(again) == seen(resumed) == seen(batches)
    assert again.note == ["mine"]  # type: ignore[attr-defined]
    assert again.note is not resumed.note  # type: ignore[attr-defined]
    assert again.worker_init_fn is print


class Own(ss.Loader):
    """A loader with a constructor of its own."""

    def __init__(self, folder: Path, note: str) -> None:
        self.note = note
        super().__init__(ss.ShardDataset(folder, fields=["id"], shuffle=True, seed=3), batch_size=8, num_workers=0)


def test_a_subclass_is_copied(folder: Path) -> None:
    loader = Own(folder, "mine")
    batches = iter(loader)
    next(batches)
    for copied in COPIES.values():
        again = copied(loader)
        assert (type(again), again.note) == (Own, "mine")
        assert again.state_dict() == loader.state_dict()


def test_deep_copies_keep_functions_that_cannot_be_pickled(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], transform=lambda sample: sample | {"id": -sample["id"]})
    loader = ss.Loader(dataset, batch_size=8, num_workers=0, collate_fn=lambda samples: [s["id"] for s in samples])
    assert list(copy.deepcopy(loader)) == list(loader)
    mixture = ss.Mixture({"a": (dataset, 1), "b": (dataset, 2)}, batch_size=8)
    assert seen(copy.deepcopy(mixture)) == seen(mixture)
    with pytest.raises(ss.errors.UsageError, match="`transform` cannot be pickled"):
        pickle.dumps(loader)
