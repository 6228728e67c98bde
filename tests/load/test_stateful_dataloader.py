"""torchdata's ``StatefulDataLoader`` over our data sets: its contract, and the way from its state to any other shape.

The cases are those that torchdata's own suite has for iterable data sets. Left out is ``in_order=False``, of which it
says itself that it gives no guarantee for states.
"""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import shardstream as ss

from ..stream.making import numbered, write_dataset
from ..stream.resuming import ORDER, ids_of, take, through_json
from .stateful import COUNT, MODES, Loader, modes, refused, saved, state_of_workers, torchdata, with_or_without

pytestmark = [
    pytest.mark.full,  # of every way, tests/load/test_resuming.py has this one, too
    # torchdata 0.11 calls it when a loader is made
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


# ------------------------------------------------------------------------------------------------------ the contract


@pytest.mark.parametrize(
    ("num_workers", "mode"),
    [
        *((0, mode) for mode in MODES),
        *((1, "batches"), (3, "samples")),
        *(pytest.param(3, mode, marks=pytest.mark.full) for mode in MODES if mode != "samples"),
    ],
)
def test_goes_on_where_it_stopped(folder: Path, uninterrupted: Any, num_workers: int, mode: str) -> None:
    epochs = uninterrupted(num_workers, mode)
    for stop in (0, len(epochs[0]) * 2 // 3, len(epochs[0])):
        loader = Loader(folder, num_workers, mode)
        items = iter(loader)
        assert take(items, stop) == epochs[0][:stop]
        state = loader.state_dict()
        assert list(items) == epochs[0][stop:]
        resumed = Loader(folder, num_workers, mode)
        resumed.load_state_dict(state)
        # With the last batch the data set is at the next epoch; but a worker knows of its own end alone, and torchdata
        # keeps in mind that a short batch was the last.
        next_one = stop == len(epochs[0]) and not num_workers and mode != "batched by it"
        assert next_one or list(resumed) == epochs[0][stop:]
        assert list(resumed) == epochs[1]


@modes
@pytest.mark.parametrize("every", [0, 5])
def test_snapshots_every_so_many_steps(folder: Path, uninterrupted: Any, mode: str, every: int) -> None:
    epochs = uninterrupted(3, mode)
    for stop in (4, len(epochs[0]) * 2 // 3):
        loader = Loader(folder, 3, mode, every=every)
        items = iter(loader)
        take(items, stop)
        resumed = Loader(folder, 3, mode, every=every)
        resumed.load_state_dict(loader.state_dict())
        assert list(resumed) == epochs[0][stop:]


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("mode", ["batches", "batched by it"])
def test_persistent_workers(folder: Path, uninterrupted: Any, num_workers: int, mode: str) -> None:
    epochs = uninterrupted(num_workers, mode)
    loader = Loader(folder, num_workers, mode, arguments={"persistent_workers": True})
    assert list(loader) == epochs[0]
    items = iter(loader)
    assert take(items, 6) == epochs[1][:6]
    state = loader.state_dict()
    loader.load_state_dict(state)  # a new set of workers in the same process
    assert list(loader) == epochs[1][6:]
    assert list(loader) == epochs[2]
    loader.dataset.set_epoch(1)
    assert list(loader) == epochs[1]


def draw(sample: dict[str, Any], generator: torch.Generator) -> int:
    return int(torch.randint(1 << 40, (), generator=generator))


@with_or_without
def test_random_numbers_go_on_too(folder: Path, num_workers: int) -> None:
    def make() -> Any:
        dataset = ss.ShardDataset(folder, transform=draw, shuffle=True, seed=5)
        return torchdata.StatefulDataLoader(dataset, batch_size=7, num_workers=num_workers, collate_fn=list)

    loader = make()
    items = iter(loader)
    seen = [next(items) for _ in range(10)]
    state = loader.state_dict()
    rest = list(items)
    assert len({number for item in seen + rest for number in item}) == COUNT
    resumed = make()
    resumed.load_state_dict(state)
    assert list(resumed) == rest


@modes
@pytest.mark.parametrize("persistent", [False, True])
def test_a_snapshot_at_the_beginning(folder: Path, uninterrupted: Any, mode: str, persistent: bool) -> None:
    """After ``iter``, before the first step; loaded into the loader that went on meanwhile."""
    epochs = uninterrupted(3, mode)
    loader = Loader(folder, 3, mode, every=10, arguments={"persistent_workers": persistent})
    items = iter(loader)
    state = loader.state_dict()
    assert list(items) == epochs[0]
    loader.load_state_dict(state)
    assert list(loader) == epochs[0]


@modes
@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (3, False), (3, True)])
def test_a_snapshot_at_the_end(folder: Path, uninterrupted: Any, num_workers: int, mode: str, persistent: bool) -> None:
    """Of an epoch: the next one follows. The loader that gets it had begun with something else."""
    epochs = uninterrupted(num_workers, mode)
    arguments = {"persistent_workers": persistent}
    loader = Loader(folder, num_workers, mode, every=10, arguments=arguments)
    assert list(loader) == epochs[0]
    state = loader.state_dict()
    assert list(loader) == epochs[1]
    other = Loader(folder, num_workers, mode, every=10, arguments=arguments)
    take(iter(other), 2)
    other.load_state_dict(through_json(state))
    assert list(other) == epochs[1]
    assert list(other) == epochs[2]


@with_or_without
def test_several_epochs(folder: Path, uninterrupted: Any, num_workers: int) -> None:
    """A state of the second epoch, loaded where the first was being read; then the third."""
    epochs = uninterrupted(num_workers, "samples")
    loader = Loader(folder, num_workers, "samples")
    list(loader)
    assert take(iter(loader), 40) == epochs[1][:40]
    state = loader.state_dict()
    other = Loader(folder, num_workers, "samples")
    take(iter(other), 2)
    other.load_state_dict(state)
    assert list(other) == epochs[1][40:]
    assert list(other) == epochs[2]


@modes
@with_or_without
def test_the_state_before_the_first_iteration(folder: Path, uninterrupted: Any, num_workers: int, mode: str) -> None:
    epochs = uninterrupted(num_workers, mode)
    loader = Loader(folder, num_workers, mode)
    state = loader.state_dict()
    assert list(loader) == epochs[0]
    take(iter(loader), 2)
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert list(loader) == epochs[0]
    assert list(loader) == epochs[1]


@with_or_without
def test_asking_for_states_around_loading_moves_nothing(folder: Path, uninterrupted: Any, num_workers: int) -> None:
    epochs = uninterrupted(num_workers, "samples")
    loader = Loader(folder, num_workers, "samples")
    take(iter(loader), 9)
    state = loader.state_dict()
    before, after = Loader(folder, num_workers, "samples"), Loader(folder, num_workers, "samples")
    before.state_dict()
    before.load_state_dict(state)
    after.load_state_dict(state)
    assert after.state_dict() == state
    assert list(before) == list(after) == epochs[0][9:]


@with_or_without
def test_making_an_iterator_twice_moves_nothing(folder: Path, uninterrupted: Any, num_workers: int) -> None:
    """The first iteration after loading resumes, the second begins an epoch: iterators count when they are made."""
    epochs = uninterrupted(num_workers, "batches")
    loader = Loader(folder, num_workers)
    take(iter(loader), 5)
    state = loader.state_dict()
    resumed = Loader(folder, num_workers)
    resumed.load_state_dict(state)
    iter(resumed)
    assert state_of_workers(resumed.state_dict()) == state_of_workers(state)
    assert list(resumed) == epochs[0]


@pytest.mark.parametrize(
    ("every", "stop", "mode"), [*((1, 4, mode) for mode in MODES), (0, 5, "batched by it"), (7, 9, "batched by it")]
)
def test_a_state_soon_after_resuming(folder: Path, uninterrupted: Any, mode: str, every: int, stop: int) -> None:
    """Before every worker has delivered something: the others' old states are kept. And it equals that of a run that
    was not interrupted."""
    epochs = uninterrupted(3, mode)
    loader = Loader(folder, 3, mode, every=every, arguments={"persistent_workers": True})
    items = iter(loader)
    take(items, stop)
    state = loader.state_dict()
    take(items, 2)
    expected = loader.state_dict()
    loader.load_state_dict(state)
    assert take(iter(loader), 2) == epochs[0][stop : stop + 2]
    again = loader.state_dict()
    assert ss.convert_state(again, batch_size=7) == ss.convert_state(expected, batch_size=7)
    if every == 1:
        assert again == expected
    resumed = Loader(folder, 3, mode)
    resumed.load_state_dict(again)
    assert list(resumed) == epochs[0][stop + 2 :]


@modes
@with_or_without
def test_a_chain_through_json(folder: Path, uninterrupted: Any, num_workers: int, mode: str) -> None:
    epochs = uninterrupted(num_workers, mode)
    state, seen = None, []
    for steps in (1, 0, 2, len(epochs[0]) // 2, 1):
        loader = Loader(folder, num_workers, mode)
        if state is not None:
            loader.load_state_dict(json.loads(state))
        seen += take(iter(loader), steps)
        state = json.dumps(loader.state_dict())
    assert seen == epochs[0][: len(seen)]
    loader = Loader(folder, num_workers, mode)
    loader.load_state_dict(json.loads(state))
    assert list(loader) == epochs[0][len(seen) :]
    assert list(loader) == epochs[1]


@modes
@with_or_without
def test_a_state_is_never_changed_later(folder: Path, num_workers: int, mode: str) -> None:
    loader = Loader(folder, num_workers, mode)
    items = iter(loader)
    take(items, 4)
    state = loader.state_dict()
    kept = copy.deepcopy(state)
    take(items, 6)
    assert state == kept
    assert state_of_workers(loader.state_dict()) != state_of_workers(kept)


@with_or_without
def test_a_break_begins_the_epoch_again(folder: Path, uninterrupted: Any, num_workers: int) -> None:
    epochs = uninterrupted(num_workers, "batches")
    for persistent in {False, num_workers > 0}:
        loader = Loader(folder, num_workers, arguments={"persistent_workers": persistent})
        for _ in loader:
            break
        assert list(loader) == epochs[0]
        assert list(loader) == epochs[1]


def test_two_loaders_on_one_data_set(folder: Path, uninterrupted: Any) -> None:
    expected = uninterrupted(0, "batches")[0]
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=8, tail="exact", **ORDER)
    one = torchdata.StatefulDataLoader(dataset, batch_size=None, num_workers=2)
    two = DataLoader(dataset, batch_size=None, num_workers=1)
    pairs = list(zip(one, two, strict=True))
    assert [ids_of(first) for first, _ in pairs] == [ids_of(second) for _, second in pairs] == expected
    assert dataset.epoch == 1


def fail(sample: dict[str, Any], at: int) -> Any:
    if sample["id"] == at:
        raise ValueError(f"no {at}")
    return sample


def test_errors_of_workers_arrive(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=8, transform=partial(fail, at=17))
    items = iter(torchdata.StatefulDataLoader(dataset, batch_size=None, num_workers=2))
    assert [ids_of(next(items)) for _ in range(2)] == [list(range(8)), list(range(8, 16))]
    with pytest.raises(ss.errors.TransformError, match="no 17"):
        next(items)


# ------------------------------------------------------------------------------------------- states that do not fit


@pytest.mark.parametrize(("had", "has"), [(3, 2), (1, 3), (2, 1)])
def test_another_number_of_workers_is_named(folder: Path, had: int, has: int) -> None:
    loader = Loader(folder, has)
    loader.load_state_dict(saved(folder, had))
    with refused(rf"\b{had}\b[^\n]*\b{has}\b[\s\S]*convert_state"):
        list(loader)


@pytest.mark.parametrize(("had", "has", "missing"), [(0, 2, "_snapshot"), (2, 0, "_num_yielded")])
def test_workers_or_none_is_told_apart_by_torchdata(folder: Path, had: int, has: int, missing: str) -> None:
    """Our data set is not asked; only that nothing is read from the wrong place is ours to promise."""
    loader = Loader(folder, has)
    loader.load_state_dict(saved(folder, had))
    with pytest.raises(AssertionError, match=missing):
        iter(loader)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_another_seed_is_refused(folder: Path, num_workers: int) -> None:
    loader = Loader(folder, num_workers, seed=12)
    loader.load_state_dict(saved(folder, num_workers))
    with refused(r"seed[\s\S]*11[\s\S]*12"):
        list(loader)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_other_data_is_refused(folder: Path, tmp_path: Path, num_workers: int) -> None:
    other = write_dataset(tmp_path, numbered([COUNT]))
    loader = Loader(other, num_workers)
    loader.load_state_dict(saved(folder, num_workers))
    with refused("data"):
        list(loader)


def test_loaders_of_ours_name_the_conversion(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=8, **ORDER)
    for state in (saved(folder, 0), saved(folder, 2)):
        for one in (dataset, ss.Loader(dataset, num_workers=0)):
            with pytest.raises(ss.errors.UsageError, match="convert_state"):
                one.load_state_dict(state)


# --------------------------------------------------------------------------------------------------------------- size


@modes
@with_or_without
def test_the_data_sets_part_is_small_and_its_changes_are_one_number(folder: Path, num_workers: int, mode: str) -> None:
    """It is pickled with every batch."""
    loader = Loader(folder, num_workers, mode)
    largest = []
    for _ in range(2):
        before = None
        for _ in loader:
            now = copy.deepcopy(state_of_workers(loader.state_dict()))
            largest.append(max(len(json.dumps(one)) for one in now))
            if before is not None and num_workers:
                changed = [
                    name for old, new in zip(before, now, strict=True) for name in new if old.get(name) != new[name]
                ]
                assert changed in (["taken"], [])
            before = now
    assert max(largest) < 1024
    half = len(largest) // 2
    assert max(largest[half:]) <= max(largest[:half]) + 4  # digits
