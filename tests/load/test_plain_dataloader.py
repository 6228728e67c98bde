"""torch's own ``DataLoader``: the training loop counts its batches, and the data set says what that means."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import shardstream as ss
from tests.grouped import grouped

from ..stream.making import numbered, write_dataset
from ..stream.resuming import ORDER, CountingRun, flat, ids_of, in_turn, take, through_json

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")]

COUNT = 300
# The data set makes batches; single samples travel alone; the DataLoader makes batches of single samples.
MODES = {"batches": (8, None), "samples": (None, None), "batched by it": (None, 7)}
modes = pytest.mark.parametrize(
    "mode", [mode if mode == "batched by it" else pytest.param(mode, marks=pytest.mark.full) for mode in MODES]
)
workers = pytest.mark.parametrize("num_workers", [0, 1, 3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("plain"), numbered([150, 1, 0, 90, 59]))


def make(folder: Path, num_workers: int, mode: str, *, arguments: dict[str, Any] | None = None, **shape: Any) -> Any:
    size, outer = MODES[mode]
    shape = {"batch_size": size, "tail": "exact"} | shape
    dataset = ss.ShardDataset(folder, fields=["id"], **grouped(ORDER | shape))
    return CountingRun(DataLoader(dataset, batch_size=outer, num_workers=num_workers, **(arguments or {})))


def line_of(folder: Path, **order: Any) -> list[int]:
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=50, tail="exact", **grouped(ORDER | order))
    return flat(map(ids_of, dataset))


def rest_of(folder: Path, state: Any, world_size: int, batch_size: int, num_workers: int = 0) -> list[int]:
    """What is left, in the order of the epoch, from loaders of another shape."""
    streams = []
    for rank in range(world_size):
        shape = {"rank": rank, "world_size": world_size, "batch_size": batch_size, "tail": "exact"}
        loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], **grouped(ORDER | shape)), num_workers=num_workers)
        loader.load_state_dict(through_json(state))
        streams.append([ids_of(batch) for batch in loader])
    return flat(in_turn(streams))


@pytest.mark.parametrize(
    ("num_workers", "mode"),
    [
        *((0, mode) for mode in MODES),
        *((1, "batches"), (3, "batched by it")),
        *(pytest.param(3, mode, marks=pytest.mark.full) for mode in MODES if mode != "batched by it"),
    ],
)
def test_counted_batches_say_what_is_left(folder: Path, num_workers: int, mode: str) -> None:
    """Not what workers have fetched ahead: they are far ahead here."""
    line = line_of(folder)
    whole = list(make(folder, num_workers, mode))
    assert sorted(flat(whole)) == list(range(COUNT))
    for stop in (0, len(whole) // 2, len(whole) - 1):
        arguments = {"prefetch_factor": 50} if num_workers and stop else {}
        run = make(folder, num_workers, mode, arguments=arguments)
        seen = flat(take(iter(run), stop))
        state = run.state_dict()
        left = [one for one in line if one not in set(seen)]
        assert rest_of(folder, state, 1, 9) == left
        assert rest_of(folder, state, 2, 3) == left
        resumed = make(folder, num_workers, mode)
        resumed.load_state_dict(state)
        rest = list(resumed)
        assert sorted(flat(rest)) == sorted(left)
        if mode == "batches" or num_workers < 2:  # else the workers get other blocks than they would have had
            assert flat(rest) == flat(whole[stop:])
        assert list(resumed) == list(make_at(folder, num_workers, mode, epoch=1))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("mode", MODES)
def test_with_all_batches_counted_the_next_epoch_follows(folder: Path, num_workers: int, mode: str) -> None:
    steps = len(
        list(make(folder, num_workers, mode))
    )  # len(loader) says less where several workers end with a short batch
    run = make(folder, num_workers, mode)
    take(iter(run), steps)
    state = run.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)
    assert rest_of(folder, state, 1, 9) == line_of_epoch(folder, 1)
    resumed = make(folder, num_workers, mode)
    resumed.load_state_dict(state)
    assert list(resumed) == list(make_at(folder, num_workers, mode, epoch=1))


def make_at(folder: Path, num_workers: int, mode: str, *, epoch: int) -> CountingRun:
    run = make(folder, num_workers, mode)
    run.loader.dataset.set_epoch(epoch)
    return run


@modes
@workers
def test_a_chain_of_runs_loses_and_repeats_nothing(folder: Path, num_workers: int, mode: str) -> None:
    state, seen = None, []
    for steps in (3, 1, 0, 7, 5):
        run = make(folder, num_workers, mode)
        if state is not None:
            run.load_state_dict(state)
        seen += flat(take(iter(run), steps))
        state = through_json(run.state_dict())
        assert len(json.dumps(state)) < 1024
    run = make(folder, num_workers, mode)
    run.load_state_dict(state)
    seen += flat(run)
    assert sorted(seen) == list(range(COUNT))
    assert run.loader.dataset.epoch == 1  # as the workers say, who have all come to the end


@modes
def test_another_number_of_workers_each_time(folder: Path, mode: str) -> None:
    state, seen, line = None, [], line_of(folder)
    for num_workers in (3, 0, 2, 1):
        run = make(folder, num_workers, mode)
        if state is not None:
            run.load_state_dict(state)
        seen += flat(take(iter(run), 5))
        state = run.state_dict()
        assert rest_of(folder, state, 1, 4) == [one for one in line if one not in set(seen)]
        assert rest_of(folder, state, 2, 16, num_workers=1) == [one for one in line if one not in set(seen)]


@modes
@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (1, False), (3, True)])
def test_in_the_epoch_after_a_resumed_one(folder: Path, num_workers: int, mode: str, persistent: bool) -> None:
    arguments = {"persistent_workers": persistent}
    first = make(folder, num_workers, mode)
    take(iter(first), 6)
    run = make(folder, num_workers, mode, arguments=arguments)
    run.load_state_dict(first.state_dict())
    list(run)
    items = iter(run)
    seen = flat(take(items, 9))
    state = run.state_dict()
    assert state["epoch"] == 1
    left = [one for one in line_of_epoch(folder, 1) if one not in set(seen)]
    assert rest_of(folder, state, 1, 5) == left
    assert sorted(flat(items)) == sorted(left)


def line_of_epoch(folder: Path, epoch: int) -> list[int]:
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=50, tail="exact", **ORDER)
    dataset.set_epoch(epoch)
    return flat(map(ids_of, dataset))


@pytest.mark.parametrize("num_workers", [0, 3])
def test_the_rest_of_two_ranks(folder: Path, num_workers: int) -> None:
    """Both take as many steps: one state serves both."""
    for mode in MODES:
        states, seen = [], []
        for rank in range(2):
            run = make(folder, num_workers, mode, rank=rank, world_size=2, tail="drop")
            seen += flat(take(iter(run), 6))
            states.append(run.state_dict())
        assert states[0] == states[1]
        left = [one for one in line_of(folder) if one not in set(seen)]
        assert len(seen) + len(left) == COUNT
        assert rest_of(folder, states[0], 3, 7) == left


@pytest.mark.parametrize("num_workers", [0, 3])
@pytest.mark.parametrize("mode", ["batches", "samples"])
def test_pad_repeats_nothing_that_is_left(folder: Path, num_workers: int, mode: str) -> None:
    whole = list(make(folder, num_workers, mode, tail="pad", world_size=2, rank=1))
    for stop in (3, len(whole) - 1):
        run = make(folder, num_workers, mode, tail="pad", world_size=2, rank=1)
        take(iter(run), stop)
        state = run.state_dict()
        other = make(folder, num_workers, mode, tail="pad", world_size=2, rank=0)
        taken = {*flat(take(iter(other), stop)), *flat(whole[:stop])}
        assert set(rest_of(folder, state, 2, 5)) == set(range(COUNT)) - taken


class Gate:
    """Keeps workers from beginning until it is opened."""

    def __init__(self) -> None:
        self.open = torch.zeros(1).share_memory_()

    def __call__(self, worker: int) -> None:
        while not self.open:
            time.sleep(0.001)


@pytest.mark.parametrize("persistent", [False, True])
def test_before_the_first_batch_it_does_not_matter_whether_workers_have_begun(folder: Path, persistent: bool) -> None:
    gate = Gate()
    run = make(folder, 2, "batches", arguments={"worker_init_fn": gate, "persistent_workers": persistent})
    items = iter(run)
    early = run.state_dict()
    gate.open[:] = 1
    take(items, 3)
    state = run.state_dict()
    assert (early["epoch"], early["position"], state["position"]) == (0, 0, 24)
    gate.open[:] = 0
    run.load_state_dict(state)
    items = iter(run)
    assert run.state_dict() == state
    gate.open[:] = 1
    assert len(list(items)) == 38 - 3


# -------------------------------------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("persistent", [False, True])
def test_without_a_number_of_batches_an_error_says_what_to_do(folder: Path, mode: str, persistent: bool) -> None:
    run = make(folder, 2, mode, arguments={"persistent_workers": persistent})
    dataset = run.loader.dataset
    dataset.state_dict()  # nobody is at work yet
    items = iter(run)
    for _ in items:
        with pytest.raises(ss.errors.UsageError, match=r"fetch ahead[\s\S]*batches=n, num_workers=K"):
            dataset.state_dict()
    state = run.state_dict()
    assert (state["epoch"], state["position"]) == (1, 0)
    dataset.load_state_dict(state)
    assert dataset.state_dict() == state


def test_workers_at_their_end_say_nothing_of_the_loop(folder: Path) -> None:
    """The data set's epoch has moved on, since they fetched all of it; the loop has one batch."""
    run = make(folder, 2, "batches", arguments={"prefetch_factor": 50})
    dataset, items = run.loader.dataset, iter(run)
    take(items, 1)
    deadline = time.monotonic() + 60
    while dataset.epoch == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert dataset.epoch == 1
    with pytest.raises(ss.errors.UsageError, match="fetch ahead"):
        dataset.state_dict()
    state = run.state_dict()
    assert (state["epoch"], state["position"]) == (0, 8)
    run.batches = 0
    with pytest.raises(ss.errors.UsageError, match="before the first batch"):
        run.state_dict()
    assert len(list(items)) == 37


def test_a_look_at_the_data_does_not_hide_the_workers(folder: Path) -> None:
    run = make(folder, 2, "batches")
    look = iter(run.loader.dataset)
    next(look)
    take(iter(run), 2)
    with pytest.raises(ss.errors.UsageError, match="fetch ahead"):
        run.loader.dataset.state_dict()
    next(look)
    assert run.state_dict()["position"] == 16


def test_an_abandoned_loop_still_needs_the_number(folder: Path) -> None:
    """Also when the workers are gone: what had been consumed is not known."""
    run = make(folder, 2, "batches")
    for _ in run:
        break
    gc.collect()
    with pytest.raises(ss.errors.UsageError, match="fetch ahead"):
        run.loader.dataset.state_dict()
    state = run.loader.dataset.state_dict(batches=1, num_workers=2)
    assert state["position"] == 8
    run.load_state_dict(state)
    assert run.loader.dataset.state_dict() == state


def test_in_this_process_the_number_may_be_left_out(folder: Path) -> None:
    for mode in MODES:
        run = make(folder, 0, mode)
        items = iter(run)
        for _ in range(5):
            next(items)
            assert run.loader.dataset.state_dict() == run.state_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batches": 3}, "num_workers=None"),
        ({"batches": -1, "num_workers": 2}, "batches=-1"),
        ({"batches": 1.5, "num_workers": 2}, "batches=1.5"),
        ({"batches": 1, "num_workers": -2}, "num_workers=-2"),
        ({"batches": 1, "num_workers": 2, "batch_size": 9}, "makes batches of 8, not of 9"),
        ({"batches": 1, "num_workers": 3}, "num_workers=3, but the last iteration had 2"),
    ],
)
def test_numbers_that_cannot_be_are_named(folder: Path, arguments: dict[str, Any], message: str) -> None:
    run = make(folder, 2, "batches")
    take(iter(run), 1)
    with pytest.raises(ss.errors.UsageError, match=message):
        run.loader.dataset.state_dict(**arguments)


def test_more_batches_than_there_are(folder: Path) -> None:
    for mode, count in (("batches", 39), ("samples", 301), ("batched by it", 45)):
        run = make(folder, 2, mode)
        run.batches = count
        with pytest.raises(ss.errors.UsageError, match=f"{count} batches are more than"):
            run.state_dict()


def test_single_samples_need_the_batch_size_of_the_dataloader(folder: Path) -> None:
    run = make(folder, 2, "samples")
    take(iter(run), 1)
    with pytest.raises(ss.errors.UsageError, match="batch_size= of the DataLoader"):
        run.loader.dataset.state_dict(batches=1, num_workers=2)


def third(sample: dict[str, Any]) -> Any:
    return None if sample["id"] % 3 else sample


@pytest.mark.parametrize("num_workers", [0, 2])
def test_dropped_samples_make_the_number_useless(folder: Path, num_workers: int) -> None:
    dataset = ss.ShardDataset(folder, fields=["id"], transform=third, **ORDER)
    run = CountingRun(DataLoader(dataset, batch_size=7, num_workers=num_workers))
    seen = flat(take(iter(run), 2))
    assert not any(one % 3 for one in seen)
    with pytest.raises(ss.errors.UsageError, match=r"dropped[\s\S]*ss.Loader"):
        run.state_dict()
