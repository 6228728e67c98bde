"""An epoch is over with its last batch: loops that take ``len(loader)`` batches and never ask for one more."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

import shardstream as ss
from tests.grouped import grouped

from ..stream.making import numbered, photograph, write_dataset
from ..stream.resuming import ids_of

COUNT = 260


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("ends"), numbered([130, 1, 70, 59]))


def stream(folder: Path, **settings: Any) -> ss.ShardDataset:
    return ss.ShardDataset(
        folder, **grouped({"fields": ["id"], "batch_size": 16, "shuffle": True, "seed": 7} | settings)
    )


def mixture(folder: Path, **settings: Any) -> ss.Mixture:
    parts = {name: (ss.ShardDataset(folder, fields=["id"]), 1) for name in "ab"}
    return ss.Mixture(parts, epoch=COUNT, **grouped({"batch_size": 16, "seed": 7} | settings))


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


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", RUNS)
@takes
def test_each_epoch_is_another_one(folder: Path, name: str, take: Any) -> None:
    source = stream(folder)
    assert loops(RUNS[name](source), take) == epochs_of(stream(folder))
    assert source.epoch == 3


@pytest.mark.one_in(5)
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


# ------------------------------------------------------------------------------------------------ with the last batch

RESUMABLE = ["itself", "Loader", "Loader, 2 workers", "DevicePrefetcher", "DevicePrefetcher, 2 workers", "DataLoader"]


def state_of(run: Any) -> tuple[int, int]:
    state = (run.dataset if type(run) is DataLoader else run).state_dict()
    return state["epoch"], state["position"]


@pytest.mark.parametrize("name", RESUMABLE)
def test_while_the_loop_has_the_last_batch_everything_says_the_next_epoch(folder: Path, name: str) -> None:
    source = stream(folder)
    run = RUNS[name](source)
    for epoch in range(2):
        for number, _ in enumerate(run, 1):
            last = number == len(run)
            assert state_of(run) == ((epoch + 1, 0) if last else (epoch, 16 * number))
            assert source.epoch == epoch + last
            assert getattr(run, "epoch", source.epoch) == epoch + last
        assert source.epoch == epoch + 1


def test_a_rank_that_ends_early_says_the_same(folder: Path) -> None:
    """Of 260 samples, rank 0 has nine batches of 16, the last of them short, and rank 1 eight."""
    loader = ss.Loader(stream(folder, tail="exact", rank=1, world_size=2), num_workers=0)
    assert len(by_next(loader, 8)) == len(loader)
    assert (loader.epoch, state_of(loader)) == (1, (1, 0))
    first = ss.Loader(stream(folder, tail="exact", rank=0, world_size=2), num_workers=0)
    iterator = iter(first)
    for _ in range(8):
        next(iterator)
    assert (first.epoch, state_of(first)) == (0, (0, 256))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [*RESUMABLE, "Loader, new workers"])
def test_what_was_left_of_an_epoch_is_over_with_its_last_batch(folder: Path, name: str) -> None:
    expected = epochs_of(stream(folder), 2)
    source = stream(folder)
    iterator = iter(source)
    for _ in range(9):
        next(iterator)
    resumed = stream(folder)
    run = RUNS[name](resumed)
    (resumed if type(run) is DataLoader else run).load_state_dict(source.state_dict())
    assert [ids_of(item) for item in by_next(run, len(run) - 9)] == expected[0][9:]
    assert resumed.epoch == 1
    assert loops(run, by_next, 1) == expected[1:]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", RESUMABLE)
def test_an_epoch_without_a_batch_is_over_when_it_begins(folder: Path, name: str) -> None:
    """Of a rank that has none while others have, and of a state that leaves nothing."""
    source = stream(folder, tail="exact", batch_size=COUNT, rank=1, world_size=2)
    run = RUNS[name](source)
    assert len(run) == 0
    assert loops(run, by_next) == [[], [], []]
    assert source.epoch == 3
    assert list(run) == []
    assert source.epoch == 4
    source = stream(folder)
    run = RUNS[name](source)
    (source if type(run) is DataLoader else run).load_state_dict(source.state_dict() | all_of(source))
    iter(run)
    assert source.epoch == 1
    assert loops(run, by_next, 1) == epochs_of(stream(folder), 2)[1:]


def all_of(source: ss.ShardDataset) -> dict[str, Any]:
    """What a state says of an epoch that was handed out, as earlier versions wrote it."""
    return source.state_dict(batches=1, num_workers=0) | {"position": COUNT}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", RESUMABLE)
def test_an_epoch_that_is_chosen_with_the_last_batch_stays_chosen(folder: Path, name: str) -> None:
    source = stream(folder)
    run = RUNS[name](source)
    expected = [ids_of(item) for item in run]
    for chosen in (0, 1, 0):
        source.set_epoch(0)
        for number, _ in enumerate(run, 1):
            if number == len(run):
                source.set_epoch(chosen)
        assert source.epoch == chosen
    assert loops(run, by_next, 1) == [expected]


class Counted:
    """A transform that counts, in all processes, how many samples were made."""

    def __init__(self) -> None:
        self.made = torch.zeros(4, dtype=torch.int64).share_memory_()

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        worker = torch.utils.data.get_worker_info()
        self.made[0 if worker is None else worker.id + 1] += 1
        return sample


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [name for name in RUNS if name != "itself"])
def test_nothing_is_made_twice_or_thrown_away(folder: Path, name: str) -> None:
    """Between epochs nobody holds a batch that the next one would have to wait for, or to drop."""
    counted = Counted()
    run = RUNS[name](stream(folder, transform=counted))
    for epoch in range(3):
        by_next(run, len(run))
        assert counted.made.sum() == 256 * (epoch + 1)


def test_persistent_workers_stay_the_same(folder: Path) -> None:
    loader = ss.Loader(stream(folder), num_workers=2)
    by_next(loader, len(loader))
    workers = loader._iterator._workers  # type: ignore[union-attr]
    by_next(loader, len(loader))
    assert loader._iterator._workers is workers  # type: ignore[union-attr]
    assert all(worker.is_alive() for worker in workers)


# ------------------------------------------------------------------------------------------- samples that are missing


def below(limit: int, sample: dict[str, Any]) -> dict[str, Any] | None:
    return sample if sample["id"] < limit else None


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", ["itself", "Loader", "Loader, 2 workers", "DevicePrefetcher", "DataLoader"])
@pytest.mark.parametrize("kept", [1, 63, 64, 65, 130, 259])
def test_the_last_sample_that_there_is_ends_the_epoch(folder: Path, name: str, kept: int) -> None:
    """Samples travel in blocks of 64; what comes after it is left out by the transform, whole blocks of it too."""
    source = stream(folder, batch_size=None, shuffle=False, transform=functools.partial(below, kept))
    run = RUNS[name](source)
    for epoch in range(2):
        assert [sample["id"] for sample in by_next(run, kept)] == list(range(kept))
        assert source.epoch == epoch + 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("broken", [range(60, 70), range(64, 70)])
def test_skips_at_the_end_are_counted(tmp_path: Path, num_workers: int, broken: range) -> None:
    """Also those of blocks that come after the last sample of all."""
    write_dataset(tmp_path, numbered([70], jpg=lambda n: b"no image" if n in broken else photograph(n % 5)))
    dataset = ss.ShardDataset(tmp_path, fields={"jpg": ss.decode.CenterCrop(8, resize=9)}, on_error="skip")
    loader = ss.Loader(dataset, num_workers=num_workers)
    by_next(loader, broken.start)
    assert loader.epoch == 1
    assert (loader.stats.samples, loader.stats.skipped) == (broken.start, len(broken))
    assert len(loader.stats.skipped_places) == len(broken)
    ahead = ss.DevicePrefetcher(ss.Loader(dataset, num_workers=num_workers), "cpu")
    by_next(ahead, broken.start)
    assert (ahead.stats.samples, ahead.stats.skipped) == (broken.start, len(broken))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_comes_before_an_error_comes_before_it(folder: Path, num_workers: int) -> None:
    def picky(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] == 64:
            raise ValueError("not this one")
        return sample

    loader = ss.Loader(stream(folder, batch_size=None, shuffle=False, transform=picky), num_workers=num_workers)
    items, seen = iter(loader), []
    with pytest.raises(ss.errors.TransformError, match="not this one"):
        seen.extend(sample["id"] for sample in items)
    assert seen == list(range(64))
    assert state_of(loader) == (0, 64)


# ------------------------------------------------------------------------------------------------------------ set_epoch


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [name for name in RUNS if "Loader" in name or "Prefetcher" in name])
def test_set_epoch_as_frameworks_call_it(folder: Path, name: str) -> None:
    """Before each epoch, with the number that it has already, and to repeat or to leave some out."""
    expected = epochs_of(stream(folder), 4)
    source = stream(folder)
    run = RUNS[name](source)
    for epoch in (0, 1, 1, 3, 0):
        (source if type(run) is DataLoader else run).set_epoch(epoch)
        assert loops(run, by_next, 1) == [expected[epoch]]


def test_set_epoch_keeps_a_loaded_state_of_that_epoch(folder: Path) -> None:
    expected = epochs_of(stream(folder), 1)[0]
    for wrap in (RUNS["Loader"], RUNS["DevicePrefetcher"]):
        first = wrap(stream(folder))
        iterator = iter(first)
        for _ in range(5):
            next(iterator)
        run = wrap(stream(folder))
        run.load_state_dict(first.state_dict())
        run.set_epoch(0)
        assert [ids_of(item) for item in run] == expected[5:]
    with pytest.raises(ss.errors.UsageError, match="epoch must be an integer"):
        first.set_epoch(-1)


def drawn(batch: torch.Tensor, key: int) -> int:
    return key


def test_set_epoch_of_a_prefetcher_reaches_whatever_wants_to_know(folder: Path) -> None:
    ahead = ss.DevicePrefetcher([torch.ones(1)], "cpu", transform=drawn)
    keys = [list(ahead) for _ in range(3)]
    ahead.set_epoch(1)
    assert list(ahead) == keys[1] != keys[0]
    dataset = torch.utils.data.TensorDataset(torch.arange(20))
    sampler = DistributedSampler(dataset, num_replicas=2, rank=0)
    ahead = ss.DevicePrefetcher(DataLoader(dataset, sampler=sampler), "cpu")
    ahead.set_epoch(3)
    assert sampler.epoch == 3
    source = stream(folder)
    ss.DevicePrefetcher(DataLoader(source, batch_size=None), "cpu").set_epoch(2)
    assert source.epoch == 2
    ss.DevicePrefetcher(source, "cpu").set_epoch(1)
    assert source.epoch == 1
