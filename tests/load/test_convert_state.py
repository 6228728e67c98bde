"""``ss.convert_state``: from the state of torchdata's ``StatefulDataLoader`` to any other shape."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import shardstream as ss

from ..stream.resuming import ORDER, flat, ids_of, is_within, take, through_json
from .stateful import (
    COUNT,
    MODES,
    Loader,
    modes,
    rest_in_other_shapes,
    saved,
    state_of_workers,
    torchdata,
    with_or_without,
)

pytestmark = [
    pytest.mark.full,
    # torchdata 0.11 calls it when a loader is made
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


# ----------------------------------------------------------------------------------------------------- the conversion


@modes
@pytest.mark.parametrize(("num_workers", "every"), [(0, 1), (1, 1), pytest.param(3, 7, marks=pytest.mark.full)])
def test_a_converted_state_goes_on_in_any_shape(
    folder: Path, uninterrupted: Any, line: list[int], num_workers: int, every: int, mode: str
) -> None:
    epochs = uninterrupted(num_workers, mode)
    last = len(epochs[0])
    for stop in (2, last // 2, last * 2 // 3, last):
        loader = Loader(folder, num_workers, mode, every=every)
        items = iter(loader)
        seen = flat(take(items, stop))
        state = ss.convert_state(through_json(loader.state_dict()), batch_size=MODES[mode][1])
        assert len(json.dumps(state)) < 1024
        left = [one for one in line if one not in set(seen)]
        if stop == last:
            assert (state["epoch"], left, state["position"]) == (1, [], 0)
            continue
        five, three, single = rest_in_other_shapes(folder, state)
        assert five == left
        assert three == left
        assert sorted(single) == sorted(left)


@modes
@with_or_without
def test_a_converted_state_at_the_end_begins_the_next_epoch(
    folder: Path, uninterrupted: Any, num_workers: int, mode: str
) -> None:
    loader = Loader(folder, num_workers, mode)
    list(loader)
    state = ss.convert_state(loader.state_dict())
    assert (state["epoch"], state["position"], "stops" in state) == (1, 0, False)
    resumed = ss.Loader(loader.dataset.replace(batch_size=8), num_workers=2)
    resumed.load_state_dict(state)
    assert [ids_of(batch) for batch in resumed] == uninterrupted(0, "batches")[1]


@modes
def test_from_one_number_of_workers_to_another_and_on(folder: Path, line: list[int], mode: str) -> None:
    """3 workers, converted, 2 workers of a ``StatefulDataLoader`` again, its own state, converted once more."""
    first = Loader(folder, 3, mode)
    seen = flat(take(iter(first), 11))
    second = Loader(folder, 2, mode)
    second.dataset.load_state_dict(through_json(ss.convert_state(first.state_dict())))
    items = iter(second)
    seen += flat(take(items, 7))
    state = through_json(second.state_dict())
    rest = flat(items)
    assert sorted(seen + rest) == list(range(COUNT))
    third = Loader(folder, 2, mode)
    third.load_state_dict(state)
    items = iter(third)
    taken = flat(take(items, 3))
    assert taken == rest[: len(taken)]
    last = rest_in_other_shapes(folder, ss.convert_state(third.state_dict()), shapes=[(2, 4, 2)])[0]
    assert Counter(last) == Counter(line) - Counter(seen) - Counter(taken)
    assert is_within(last, line)


@modes
def test_one_ranks_state_serves_all(folder: Path, line: list[int], mode: str) -> None:
    states, seen = [], []
    for rank in range(2):
        loader = Loader(folder, 3, mode, rank=rank, world_size=2, tail="drop")
        seen += flat(take(iter(loader), 9))
        states.append(ss.convert_state(loader.state_dict()))
    assert states[0] == states[1]
    assert len(set(seen)) == len(seen)
    left = [one for one in line if one not in set(seen)]
    assert rest_in_other_shapes(folder, states[0], shapes=[(1, 8, 0)]) == [left]


def test_the_number_of_samples_a_step_is_asked_for_where_the_state_does_not_hold_it(folder: Path) -> None:
    loader = Loader(folder, 2, "batched by it", every=0)
    take(iter(loader), 5)
    with pytest.raises(ss.errors.UsageError, match=r"5 steps[\s\S]*batch_size="):
        ss.convert_state(loader.state_dict())
    assert ss.convert_state(loader.state_dict(), batch_size=7)["epoch"] == 0


def test_batches_of_batches_that_leave_gaps_are_refused(folder: Path) -> None:
    def make() -> Any:
        dataset = ss.ShardDataset(folder, fields=["id"], batch_size=8, tail="exact", **ORDER)
        return torchdata.StatefulDataLoader(dataset, batch_size=2, num_workers=2, collate_fn=list)

    loader = make()
    items = iter(loader)
    next(items)
    with pytest.raises(ss.errors.UsageError, match=r"after 2, 0 batches[\s\S]*batch_size=None"):
        ss.convert_state(loader.state_dict())
    next(items)  # no gap any more: 2 batches from either worker
    assert ss.convert_state(loader.state_dict())["position"] == 32


def test_a_state_of_ours_is_returned_as_it_is(folder: Path) -> None:
    loader = ss.Loader(ss.ShardDataset(folder, fields=["id"], batch_size=8, **ORDER), num_workers=0)
    items = iter(loader)
    next(items)
    state = loader.state_dict()
    assert ss.convert_state(state) == state


class Foreign(torch.utils.data.IterableDataset[int]):
    def __init__(self, state: Any) -> None:
        self.state = state

    def __iter__(self) -> Any:
        return iter(range(10))

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        pass


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("state", [{}, {"i": 3}, {"epoch": 1, "position": 4}])
def test_states_of_foreign_data_sets_are_refused(num_workers: int, state: Any) -> None:
    loader = torchdata.StatefulDataLoader(Foreign(state), num_workers=num_workers)
    next(iter(loader))
    with pytest.raises(ss.errors.UsageError, match="did not read a data set of shardstream"):
        ss.convert_state(loader.state_dict())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_loaders_without_a_state_are_refused(num_workers: int) -> None:
    loader = torchdata.StatefulDataLoader([1, 2, 3], num_workers=num_workers)
    next(iter(loader))
    with pytest.raises(ss.errors.UsageError, match="did not read a data set of shardstream"):
        ss.convert_state(loader.state_dict())


def test_other_dicts_and_values_are_refused(folder: Path) -> None:
    one_worker = state_of_workers(saved(folder, 2))[0]
    for wrong, message in (
        ({}, "holds nothing"),
        ({"model": 1, "optimizer": 2}, "'model', 'optimizer'"),
        ([1], "got list"),
        (None, "got NoneType"),
        (one_worker, "one worker"),
    ):
        with pytest.raises(ss.errors.UsageError, match=re.escape(message)):
            ss.convert_state(wrong)


@pytest.mark.parametrize("name", ["position", "epoch", "num_workers", "seed"])
def test_workers_of_different_runs_are_refused(folder: Path, name: str) -> None:
    state = through_json(saved(folder, 2))
    state_of_workers(state)[1][name] += 1
    with pytest.raises(ss.errors.UsageError, match=f"disagree on {name}"):
        ss.convert_state(state)
