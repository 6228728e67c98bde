"""``skip=`` as it is used: a run that went wrong somewhere goes on from before it, and leaves out what it saw there."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shardstream as ss
from shardstream.errors import UsageError
from tests.grouped import grouped

from ..examples import thorough
from .making import numbered, write_dataset
from .resuming import (
    ORDER,
    ResumingContract,
    Run,
    flat,
    ids_and_padding,
    ids_of,
    in_turn,
    sources_and_ids,
    through_json,
)

SAMPLES = 330


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("skipped") / "data", numbered([130, 1, 0, 140, 59]))


def data(folder: Path, **options: Any) -> ss.ShardDataset:
    return ss.ShardDataset(folder, fields=["id"], **grouped(ORDER | {"batch_size": 10} | options))


def line(folder: Path, epoch: int = 0) -> list[int]:
    """The ids of an epoch, position by position."""
    whole = data(folder, tail="exact")
    whole.set_epoch(epoch)
    return flat(map(ids_of, whole))


def test_a_run_that_went_wrong_goes_on_without_what_it_saw_there(folder: Path) -> None:
    run = ss.Loader(data(folder), num_workers=2)
    batches = iter(run)
    before = [ids_of(batch) for batch in islice(batches, 5)]
    state = through_json(run.state_dict())
    seen = [ids_of(batch) for batch in batches]
    bad = ss.positions(state, steps=(3, 7), batch_size=10)
    assert bad == ((0, 80), (0, 120))

    again = ss.Loader(data(folder, skip=[bad]), num_workers=1)
    again.load_state_dict(state)
    assert len(again) == 33 - 4
    assert [ids_of(batch) for batch in again] == seen[:3] + seen[7:]
    assert flat(before + seen) == line(folder)
    # positions are what they were, so that what is random by position is, too
    assert flat(map(ids_of, again)) == line(folder, 1)


def test_states_keep_the_ranges_and_need_them_no_more(folder: Path) -> None:
    bad = [((0, 80), (0, 120)), ((1, 0), (1, 25)), ((0, 200), (0, 210))]
    first = ss.Loader(data(folder, skip=bad), num_workers=0)
    begun = list(islice(map(ids_of, first), 8))
    state = through_json(first.state_dict())
    assert state["position"] == 120
    assert state["skip"] == [[[0, 80], [0, 120]], [[0, 200], [0, 210]], [[1, 0], [1, 25]]]
    for skip in ([], bad, bad[:1], [((0, 90), (0, 100))]):
        other = data(folder, skip=skip)
        loader = ss.Loader(other, num_workers=1)
        loader.load_state_dict(state)
        epochs = [flat(map(ids_of, loader)) for _ in range(3)]
        kept = line(folder)
        assert flat(begun) + epochs[0] == kept[:80] + kept[120:200] + kept[210:]
        assert epochs[1] == line(folder, 1)[25:][:300]
        assert epochs[2] == line(folder, 2)
        assert loader.state_dict()["skip"] == state["skip"]


@pytest.mark.parametrize("begins", [0, 45, 119])
def test_what_a_run_has_handed_out_cannot_be_skipped(begins: int, folder: Path) -> None:
    run = iter(made := data(folder))
    list(islice(run, 12))
    state = made.state_dict()
    with pytest.raises(UsageError, match=f"skip begins at position {begins} of epoch 0, but the run has already come"):
        data(folder, skip=[((0, begins), (0, 200))]).load_state_dict(state)
    data(folder, skip=[((0, 120), (0, 200))]).load_state_dict(state)
    list(run)
    with pytest.raises(UsageError, match="already come to position 0 of epoch 1"):
        data(folder, skip=[((0, 120), (0, 200))]).load_state_dict(made.state_dict())


def test_single_samples_are_skipped_behind_the_blocks_that_were_begun(folder: Path) -> None:
    first = data(folder, batch_size=None)
    seen = [sample["id"] for sample in islice(DataLoader(first, batch_size=None, num_workers=2), 75)]
    state = through_json(first.state_dict(batches=75, num_workers=2, batch_size=1))
    assert state["stops"]
    with pytest.raises(UsageError, match="skip begins at position 75 of epoch 0, but the run has already come to pos"):
        data(folder, skip=[((0, 75), (0, 250))]).load_state_dict(state)
    with pytest.raises(UsageError, match="inside of blocks of single samples"):
        ss.positions(state, steps=(0, 1), batch_size=10)
    for size in (None, 1):
        other = data(folder, batch_size=size, skip=[((0, 128), (0, 250)), ((1, 0), (1, 7))])
        other.load_state_dict(state)
        assert sorted(seen + flat(map(ids_of, other))) == sorted(line(folder)[:128] + line(folder)[250:])


epochs = st.integers(0, 2)
ranges = st.lists(st.tuples(epochs, st.integers(0, SAMPLES), epochs, st.integers(0, SAMPLES)), max_size=4)


@thorough
@given(ranges, st.integers(1, 3), st.none() | st.integers(1, 60), st.sampled_from(["drop", "pad", "exact"]))
def test_len_is_what_comes_and_ranks_make_equal_steps(
    folder: Path, given: Any, ranks: int, size: int | None, tail: Any
) -> None:
    skip = [((a, p), (b, q)) for a, p, b, q in given if (a, p) < (b, q)]
    sets = [data(folder, skip=skip, rank=rank, world_size=ranks, batch_size=size, tail=tail) for rank in range(ranks)]
    for epoch in range(3):
        lengths = [len(one) for one in sets]
        valid: list[list[list[int]]] = []
        for one in sets:
            items = list(one)
            assert len(items) == lengths[len(valid)]
            valid.append([ids_and_padding([item])[0] for item in items])
        assert tail == "exact" or len(set(lengths)) == 1
        kept = [one for p, one in enumerate(line(folder, epoch)) if not any(a <= (epoch, p) < b for a, b in skip)]
        found = flat(in_turn(valid))
        if tail == "drop":
            kept = kept[: len(kept) // (ranks * (size or 1)) * (ranks * (size or 1))]
        assert found == kept if size else sorted(found) == sorted(kept)


@pytest.mark.parametrize("by", ["samples", "batches"])
@pytest.mark.parametrize("scheduled", [True, False])
def test_what_a_mixture_skips_was_not_seen(scheduled: bool, by: Any, folder: Path) -> None:
    sources = {name: data(folder, batch_size=None) for name in "abc"}
    knots = [(0, {"a": 3, "b": 1, "c": 0}), (400, {"a": 0, "b": 1, "c": 1}), (900, {"a": 1, "b": 1, "c": 1})]
    given: dict[str, Any] = {"by": by, "batch_size": 10, "epoch": 600, "tail": "exact", "seed": 3}
    if scheduled:
        given["schedule"] = knots
    else:
        sources = {name: (one, weight) for weight, (name, one) in enumerate(sources.items(), 1)}
    skip = [((0, 200), (0, 350)), ((0, 500), (1, 125)), ((1, 300), (1, 305))]
    made, whole = ss.Mixture(sources, skip=skip, **grouped(given)), ss.Mixture(sources, **grouped(given))
    counts = np.zeros(3, int)
    epochs = [sources_and_ids(whole), sources_and_ids(whole)]
    for epoch, stop in ((0, None), (1, 30)):
        expected = [pair for p, pair in enumerate(epochs[epoch]) if not any(a <= (epoch, p) < b for a, b in skip)]
        found = sources_and_ids(islice(made, stop))
        counts += np.bincount([source for source, _ in found], minlength=3)
        assert found == expected[: len(found)]
        assert len(found) == (len(expected) if stop is None else 300)
        assert [one.samples for one in made.seen().values()] == counts.tolist()
        assert [one.samples for one in whole.seen(made.state_dict()).values()] == counts.tolist()


def test_a_plain_dataloader_and_a_pickle_know_the_ranges(folder: Path) -> None:
    bad = [((0, 80), (0, 120))]
    expected = line(folder)[:80] + line(folder)[120:]
    made = data(folder, skip=bad)
    assert flat(map(ids_of, DataLoader(pickle.loads(pickle.dumps(made)), batch_size=None, num_workers=2))) == expected
    loaded = data(folder)
    state = data(folder, skip=[*bad, ((1, 5), (1, 200))]).state_dict()
    loaded.load_state_dict(state)
    for dataset in (pickle.loads(pickle.dumps(loaded)), loaded):
        loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
        assert flat(map(ids_of, loader)) == expected
        assert flat(map(ids_of, loader)) == (line(folder, 1)[:5] + line(folder, 1)[200:])[:130]
        assert dataset.state_dict(batches=13, num_workers=2)["skip"] == state["skip"]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata 0.11 calls it
def test_states_of_a_stateful_dataloader_keep_them(folder: Path) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    bad = [((0, 80), (0, 120))]
    made = data(folder, skip=bad)
    loader = torchdata.StatefulDataLoader(made, batch_size=None, num_workers=0)
    first = [ids_of(batch) for batch in islice(loader, 9)]
    state = loader.state_dict()
    other = data(folder)
    other.load_state_dict(ss.convert_state(state))
    assert flat(first) + flat(map(ids_of, other)) == line(folder)[:80] + line(folder)[120:]
    assert ss.positions(state, steps=(1, 2), batch_size=10) == ((0, 140), (0, 150))
    inner = ss.convert_state(state) | {"worker": 0, "num_workers": 0, "world_size": 1, "batch_size": 10, "taken": 0}
    with pytest.raises(UsageError, match="this state of one worker of a StatefulDataLoader does not know"):
        data(folder, skip=[*bad, ((0, 300), (0, 310))]).load_state_dict(inner)


def test_ranks_that_skip_other_ranges_are_refused(folder: Path) -> None:
    plans = []
    for skip in ([], [((0, 80), (0, 120))]):
        shards = data(folder, skip=skip, rank=0, world_size=2).for_loader(0, workers_stay=True)
        plans.append(shards.plan(shards.assign(0).run))
    assert plans[0] != plans[1]


def test_steps_are_counted_over_what_is_skipped_already(folder: Path) -> None:
    state = data(folder, skip=[((0, 20), (0, 65))]).state_dict()
    assert ss.positions(state, steps=(0, 2), batch_size=5, world_size=2) == ((0, 0), (0, 20))
    assert ss.positions(state, steps=(1, 3), batch_size=10, world_size=1) == ((0, 10), (0, 75))
    assert ss.positions(state, steps=(2, 28), batch_size=10)[1] == (0, 325)
    exact = data(folder, tail="exact").state_dict()
    assert ss.positions(exact, steps=(40, 42), batch_size=8) == ((0, 320), (0, 330))


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"steps": (0, 34)}, "steps 0 to 34 end behind epoch 0, of which the state leaves 33 steps of 1 x 10 samples"),
        ({"steps": (0, 17), "world_size": 2}, "leaves 16 steps of 2 x 10 samples"),
        ({"steps": (3, 3)}, r"steps must be a pair of integers, .* got \(3, 3\)"),
        ({"steps": (-1, 3)}, "steps must be a pair"),
        ({"steps": 5}, "steps must be a pair of integers"),
        ({"steps": (0, 1), "batch_size": 0}, "batch_size must be a positive integer, got 0"),
        ({"steps": (0, 1), "world_size": True}, "world_size must be a positive integer, got True"),
        ({"steps": (0, 1), "state": {"epoch": 3}}, "not a state"),
        ({"steps": (0, 1), "state": {"order_version": 2, "epoch": 3}}, "malformed: it has no 'position'"),
    ],
)
def test_steps_that_have_no_positions(arguments: dict[str, Any], what: str, folder: Path) -> None:
    state = arguments.pop("state", data(folder).state_dict())
    with pytest.raises(UsageError, match=what):
        ss.positions(state, **{"batch_size": 10} | arguments)


def test_places_that_no_epoch_has(folder: Path) -> None:
    with pytest.raises(UsageError, match="position 331 of epoch 0, and there are epochs of 330 samples"):
        len(data(folder, skip=[((0, 300), (0, 331))]))
    with pytest.raises(UsageError, match="position 500 of epoch 2"):
        data(folder).load_state_dict(data(folder).state_dict() | {"skip": [[[2, 500], [3, 0]]]})
    endless = {"schedule": [(0, {"a": 1})], "batch_size": 10}
    with pytest.raises(UsageError, match="position 3 of epoch 1, and there are one epoch without end"):
        next(iter(ss.Mixture({"a": data(folder)}, skip=[((0, 300), (1, 3))], **grouped(endless))))
    next(iter(ss.Mixture({"a": data(folder)}, skip=[((0, 10**9), (0, 2 * 10**9))], **grouped(endless))))


USES: dict[str, Callable[[ss.ShardDataset], Any]] = {
    "len": len,
    "iter": lambda dataset: next(iter(dataset)),
    "peek": lambda dataset: dataset.peek(),
    "state_dict": lambda dataset: dataset.state_dict(),
    "load_state_dict": lambda dataset: dataset.load_state_dict(dataset.replace(skip=()).state_dict()),
    "loader": lambda dataset: next(iter(ss.Loader(dataset, num_workers=0))),
}


@pytest.mark.parametrize("name", USES)
def test_places_are_those_of_the_epochs_that_are_read(name: str, folder: Path) -> None:
    skip = [((0, 400), (0, 500))]
    longer = {
        "repeat": data(folder, skip=skip).repeat(3),
        "choose": data(folder, skip=skip).choose(600),
        "replace": data(folder, skip=skip).replace(epoch_size=600),
        "skip last": data(folder).repeat(3).replace(skip=skip),
    }
    with pytest.raises(UsageError, match="skip names position 400 of epoch 0, and there are epochs of 330 samples"):
        USES[name](data(folder, skip=skip))
    with pytest.raises(UsageError, match="position 400"):
        USES[name](longer["repeat"].choose(330))
    for dataset in longer.values():
        USES[name](dataset)
    assert flat(map(ids_of, longer["repeat"])) == flat(map(ids_of, longer["skip last"]))


@pytest.mark.parametrize("wrong", [3, [[0, 5]], [[[0, 5], [0, 5]]], [[[0, 5], [0, "9"]]], "all", None])
def test_forged_ranges(wrong: Any, folder: Path) -> None:
    made = data(folder)
    with pytest.raises(UsageError, match="skip"):
        made.load_state_dict(made.state_dict() | {"skip": wrong})


def test_an_epoch_may_be_left_out_whole(folder: Path) -> None:
    loader = ss.Loader(data(folder, skip=[((0, 100), (2, 300))]), num_workers=0)
    found = []
    for _ in range(4):
        expected = len(loader)
        batches = [ids_of(batch) for batch in loader]
        assert len(batches) == expected
        found.append(flat(batches))
    assert found == [line(folder)[:100], [], line(folder, 2)[300:], line(folder, 3)]


def test_progress_ends_at_its_total(folder: Path) -> None:
    for size in (10, None):
        loader = ss.Loader(data(folder, batch_size=size, skip=[((0, 80), (0, 120))]), num_workers=0)
        list(islice(loader, 9))
        state = loader.state_dict()
        loader.load_state_dict(state)
        events = [event for event, _ in ss.progress(loader)]
        assert (events[0].done, events[-1].done, events[-1].total) == (10, *[290 if size is None else 29] * 2)


class TestSkipping(ResumingContract):
    """The whole contract of resuming, with ranges in the first two epochs."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return write_dataset(tmp_path_factory.mktemp("more"), numbered([130, 1, 0, 140, 59]))

    def source(self, folder: Path, **shape: Any) -> Any:
        skip = [((0, 40), (0, 71)), ((0, 200), (0, 203)), ((0, 325), (1, 11)), ((1, 100), (1, 117))]
        return super().source(folder, **shape, skip=skip)

    def run(self, source: Any) -> Run:
        return Run(ss.Loader(source, num_workers=0))


@pytest.mark.full
class TestSkippingWithWorkers(TestSkipping):
    def run(self, source: Any) -> Run:
        return Run(ss.Loader(source, num_workers=2))


class TestSkippingSamples(TestSkipping):
    batch_size = None


def test_torch_is_not_told_a_length_that_changes(folder: Path, recwarn: pytest.WarningsRecorder) -> None:
    loader = ss.Loader(data(folder, skip=[((0, 80), (0, 120))]), num_workers=1)
    for expected in (29, 33):
        assert len(loader) == expected
        assert sum(1 for _ in loader) == expected
    assert isinstance(loader, torch.utils.data.DataLoader)
    # From Python 3.12 on, each fork of a process with threads is warned of.
    assert not [one for one in recwarn if "use of fork" not in str(one.message)]
