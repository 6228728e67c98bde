"""What every loader and mixture does with its state. Subclass `ResumingContract` and say how one is made.

The contract compares with runs that nobody interrupted, of the same source and of another shape; it never looks into a
state, except for its size.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import shardstream as ss
from tests.grouped import grouped

from .making import numbered, write_dataset

SIZES = [130, 1, 0, 70, 59]
# Explicit lanes make the order the same for all shapes.
ORDER: dict[str, Any] = {"shuffle": True, "seed": 11, "order": ss.OrderOptions(lanes=6, chunk=2, window=9)}


def ids_of(item: Any) -> list[int]:
    """The ids in a sample, a batch, or a list of either."""
    if isinstance(item, list):
        return [number for one in item for number in ids_of(one)]
    value = item["id"] if isinstance(item, dict) else item
    return torch.atleast_1d(value).tolist() if isinstance(value, torch.Tensor) else [value]


def ids_and_padding(items: list[Any]) -> tuple[list[int], list[int]]:
    """The ids that count, and those that only fill up."""
    counted, padding = [], []
    for item in items:
        valid = item.get("__valid__", True)
        mask = valid.tolist() if hasattr(valid, "tolist") else [valid] * len(ids_of(item))
        for number, is_valid in zip(ids_of(item), mask, strict=True):
            (counted if is_valid else padding).append(number)
    return counted, padding


def sources_and_ids(batches: Iterable[Any]) -> list[tuple[int, int]]:
    """Source and id of all samples of batches of a mixture."""
    pairs = [(batch["__source__"].tolist(), batch["id"].tolist()) for batch in batches]
    return [pair for source, ids in pairs for pair in zip(source, ids, strict=True)]


def flat(items: Iterable[list[int]]) -> list[int]:
    return [number for item in items for number in item]


def take(items: Iterator[list[int]], count: int) -> list[list[int]]:
    taken = list(islice(items, count))
    assert len(taken) == count
    return taken


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state))


def in_turn(streams: Iterable[Iterable[list[int]]]) -> list[list[int]]:
    """Steps of all ranks in the order of the epoch: rank by rank, step by step; some ranks may have fewer steps."""
    steps = [list(stream) for stream in streams]
    return [steps[rank][t] for t in range(max(map(len, steps))) for rank in range(len(steps)) if t < len(steps[rank])]


class Run:
    """A loader at work: lists of ids, and its state.

    Args:
        loader: Anything with ``__iter__``, ``state_dict`` and ``load_state_dict``.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[list[int]]:
        return map(ids_of, iter(self.loader))

    def state_dict(self) -> Any:
        return self.loader.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.loader.load_state_dict(state)


class CountingRun(Run):
    """A loader that knows nothing of states: the loop counts its batches and asks the data set.

    Args:
        loader: A plain ``DataLoader``.

    Attributes:
        batches: Of the running loop, or of the one that has ended; ``None`` if there was none since a state was loaded.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self.batches: int | None = None

    def __iter__(self) -> Iterator[list[int]]:
        items = iter(self.loader)
        self.batches = 0
        return self._counted(items)

    def _counted(self, items: Iterator[Any]) -> Iterator[list[int]]:
        for item in items:
            assert self.batches is not None
            self.batches += 1
            yield ids_of(item)

    def state_dict(self) -> Any:
        loader, dataset = self.loader, self.loader.dataset
        if self.batches is None:
            return dataset.state_dict()
        size = None if dataset.batch_size else loader.batch_size or 1
        return dataset.state_dict(batches=self.batches, num_workers=loader.num_workers, batch_size=size)

    def load_state_dict(self, state: Any) -> None:
        self.loader.dataset.load_state_dict(state)
        self.batches = None


class ResumingContract:
    """Attributes:
    batch_size: Of the source.
    ends_late: Whether the state that is saved with the last step at hand is still one of the same epoch, of which
        nothing is left: workers of a ``StatefulDataLoader`` save each its own, and cannot know of each other.
    alternates: Whether single samples come from several workers in turn. A resumed run deals what is left anew, so
        that the same samples come in another sequence.
    sets_epoch: Whether ``set_epoch`` of the source, said after a state was loaded, reaches the loader.
    """

    batch_size: int | None = 8
    ends_late: bool = False
    alternates: bool = False
    sets_epoch: bool = True

    def source(self, folder: Path, **shape: Any) -> Any:
        """The data set or mixture in some shape; its samples have an ``id``. ``folder`` holds 260 of them."""
        return ss.ShardDataset(folder, fields=["id"], **grouped(ORDER | shape))

    def run(self, source: Any) -> Run:
        """A new loader of the source."""
        raise NotImplementedError

    def portable(self, state: Any) -> Any:
        """The state of the loader as one for any other shape."""
        return state

    # -------------------------------------------------------------------------------------------------------- helpers

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory) -> Path:
        return write_dataset(tmp_path_factory.mktemp("resuming"), numbered(SIZES))

    @pytest.fixture(scope="class")
    @classmethod
    def epochs(cls, folder) -> list[list[list[int]]]:
        """Three epochs that nobody interrupted."""
        self = cls()
        run = self.make(folder)
        return [list(run) for _ in range(3)]

    def make(self, folder: Path, state: Any = None) -> Run:
        """A run as in a new process."""
        run = self.run(self.source(folder, batch_size=self.batch_size))
        if state is not None:
            run.load_state_dict(state)
        return run

    def same(self, found: Iterable[list[int]], expected: list[list[int]]) -> bool:
        """Whether a resumed run delivered what a run that nobody interrupted did."""
        found = list(found)
        return sorted(flat(found)) == sorted(flat(expected)) if self.alternates else found == expected

    # ---------------------------------------------------------------------------------------------------------- tests

    def test_epochs_differ_and_lose_at_most_an_incomplete_step(self, epochs) -> None:
        assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
        assert all(len(flat(epoch)) > 250 for epoch in epochs)

    def test_a_state_before_the_first_iteration(self, folder, epochs) -> None:
        state = self.make(folder).state_dict()
        run = self.make(folder, state)
        assert list(run) == epochs[0]
        assert list(run) == epochs[1]

    @pytest.mark.parametrize("share", [0.5, 1])
    def test_goes_on_where_it_stopped(self, folder, epochs, share) -> None:
        """From the beginning of a loop to the last step before the last."""
        stop = int(share * (len(epochs[0]) - 1))
        run = self.make(folder)
        items = iter(run)
        assert take(items, stop) == epochs[0][:stop]
        state = through_json(run.state_dict())
        assert self.same(self.make(folder, state), epochs[0][stop:])
        assert list(items) == epochs[0][stop:]  # saving disturbed nothing

    def test_with_the_last_step_the_next_epoch_follows(self, folder, epochs) -> None:
        """A loop that takes as many steps as there are never asks for one more."""
        run = self.make(folder)
        for epoch in epochs:
            items = iter(run)
            assert self.same(take(items, len(epoch)), epoch)
        run = self.make(folder)
        items = iter(run)
        take(items, len(epochs[0]))
        resumed = self.make(folder, through_json(run.state_dict()))
        assert not self.ends_late or list(resumed) == []
        assert list(resumed) == epochs[1]
        assert list(items) == []
        assert list(run) == epochs[1]

    def test_at_the_end_of_a_loop_the_next_epoch_follows(self, folder, epochs) -> None:
        run = self.make(folder)
        assert list(run) == epochs[0]
        resumed = self.make(folder, through_json(run.state_dict()))
        assert list(resumed) == epochs[1]
        assert list(run) == epochs[1]

    def test_in_the_middle_of_the_next_epoch_and_the_epoch_after_a_restore(self, folder, epochs) -> None:
        run = self.make(folder)
        list(run)
        stop = len(epochs[1]) // 3
        items = iter(run)
        take(items, stop)
        resumed = self.make(folder, through_json(run.state_dict()))
        assert self.same(resumed, epochs[1][stop:])
        assert list(resumed) == epochs[2]

    def test_restored_twice(self, folder, epochs) -> None:
        stop = len(epochs[0]) // 2
        run = self.make(folder)
        items = iter(run)
        take(items, stop)
        state = run.state_dict()
        del items
        again = self.make(folder, state)
        assert self.alternates or take(iter(again), 3) == epochs[0][stop : stop + 3]
        for one in (again, run):
            one.load_state_dict(state)
            assert self.portable(one.state_dict()) == self.portable(state)
            assert self.same(one, epochs[0][stop:])
            assert list(one) == epochs[1]

    def test_a_chain_of_short_runs(self, folder, epochs) -> None:
        state, seen = None, []
        for steps in (1, 0, 13, len(epochs[0]) - 20):
            run = self.make(folder, state)
            items = iter(run)
            seen += take(items, steps)
            state = through_json(run.state_dict())
        last = self.make(folder, state)
        seen += list(last)
        assert self.same(seen, epochs[0])
        assert list(last) == epochs[1]

    def test_a_restored_run_has_the_state_that_it_was_given(self, folder, epochs) -> None:
        run = self.make(folder)
        items = iter(run)
        take(items, 5)
        state = run.state_dict()
        resumed = self.make(folder, copy.deepcopy(state))
        assert self.portable(resumed.state_dict()) == self.portable(state)
        items = iter(resumed)
        assert self.portable(resumed.state_dict()) == self.portable(state)
        assert self.same([next(items), *items], epochs[0][5:])
        assert self.portable(resumed.state_dict()) != self.portable(state)

    def test_states_are_values(self, folder, epochs) -> None:
        """What happens to the loader later does not reach a state, and the other way round."""
        run = self.make(folder)
        items = iter(run)
        take(items, 4)
        state = run.state_dict()
        kept = copy.deepcopy(state)
        take(items, 4)
        assert state == kept
        assert run.state_dict() != kept
        resumed = self.make(folder, state)
        spoil(state)
        assert self.same(resumed, epochs[0][4:])
        spoil(run.state_dict())
        assert list(items) == epochs[0][8:]

    def test_after_a_break_the_epoch_begins_again(self, folder, epochs) -> None:
        run = self.make(folder)
        assert take(iter(run), 2) == epochs[0][:2]
        assert list(run) == epochs[0]
        assert list(run) == epochs[1]

    def test_a_state_is_small_and_does_not_grow(self, folder, epochs) -> None:
        run, sizes = self.make(folder), []
        for _ in range(2):
            for step, _ in enumerate(run):
                if step % 7 == 3:
                    sizes.append(len(json.dumps(self.portable(run.state_dict()))))
        assert max(sizes) < 1024
        half = len(sizes) // 2
        assert max(sizes[half:]) <= max(sizes[:half]) + 4  # digits

    def test_set_epoch_keeps_a_loaded_position_in_its_own_epoch_only(self, folder, epochs) -> None:
        run = self.make(folder)
        list(run)
        items = iter(run)
        take(items, 6)
        state = run.state_dict()
        for epoch, expected in ((1, epochs[1][6:]), (2, epochs[2] if self.sets_epoch else epochs[1][6:])):
            source = self.source(folder, batch_size=self.batch_size)
            resumed = self.run(source)
            resumed.load_state_dict(state)
            source.set_epoch(epoch)
            assert self.same(resumed, expected)

    @pytest.mark.parametrize("share", [0.01, 0.3, 0.99, 1])
    def test_goes_on_in_another_shape(self, folder, epochs, share) -> None:
        """With other ranks and batch sizes: all that was left, in the order of the epoch; at its end, the next one."""
        source = self.source(folder, batch_size=self.batch_size, tail="exact")
        source.set_epoch(int(share))
        line = flat(map(ids_of, source))
        stop = int(share * len(epochs[0]))
        run = self.make(folder)
        items = iter(run)
        seen = flat(take(items, stop))[: None if share < 1 else 0]
        state = through_json(self.portable(run.state_dict()))
        for world_size, batch_size in ((1, 5), (2, 3), (3, 16), (2, None)):
            streams = []
            for rank in range(world_size):
                shape = {"rank": rank, "world_size": world_size, "batch_size": batch_size, "tail": "exact"}
                loader = ss.Loader(self.source(folder, **shape), num_workers=0)
                loader.load_state_dict(state)
                streams.append([ids_of(item) for item in loader])
            rest = flat(in_turn(streams))
            assert Counter(rest) == Counter(line) - Counter(seen)
            assert batch_size is None or is_within(rest, line)


def is_within(part: list[int], line: list[int]) -> bool:
    """Whether ``part`` is ``line`` with some left out."""
    rest = iter(line)
    return all(one in rest for one in part)


def spoil(state: Any) -> None:
    """Change everything inside a state."""
    if isinstance(state, dict):
        for value in state.values():
            spoil(value)
        state.clear()
    elif isinstance(state, list):
        state.clear()
