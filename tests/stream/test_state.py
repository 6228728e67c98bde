"""What a state holds, and which states are refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss

from .making import numbered, write_dataset


@pytest.fixture
def dataset(ids: Path) -> ss.ShardDataset:
    return ss.ShardDataset(ids, fields=["id"], shuffle=True, batch_size=20, seed=3)


def state_after(dataset: ss.ShardDataset, batches: int) -> dict[str, Any]:
    loader = ss.Loader(dataset, num_workers=0)
    for _, _ in zip(range(batches), loader, strict=False):
        pass
    return loader.state_dict()


def test_what_a_state_holds(dataset: ss.ShardDataset) -> None:
    state = state_after(dataset, 7)
    assert state == {
        "order_version": 2,
        "fingerprint": dataset.fingerprint,
        "data": dataset.fingerprint,
        "versions": [1],
        "samples": 1000,
        "seed": 3,
        "shuffle": True,
        "epoch": 0,
        "position": 140,
        "lanes": 80,
        "chunk": 1,
        "window": 128,
        "virtual": 4,
        "sublanes": 20,
        "ranks": 1,
        "groups": 1,
        "tail": "drop",
    }
    assert json.loads(json.dumps(state)) == state


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"seed": 4}, ["seed=4", "seed=3"]),
        ({"shuffle": False}, ["shuffle=False", "shuffle=True"]),
        ({"order_version": 3}, ["version 3", "versions 1 and 2"]),
        ({"order_version": True}, ["version True", "versions 1 and 2"]),
        ({"order_version": "2"}, ["version '2'", "versions 1 and 2"]),
        ({"fingerprint": "0" * 32}, ["0" * 32, "another view"]),
        ({"fingerprint": "0" * 32, "data": "1" * 32, "samples": 5}, ["other data", "5 samples", "1000 samples"]),
        ({"position": -1}, ["position is -1"]),
        ({"epoch": "1"}, ["epoch is '1'"]),
        ({"lanes": None}, ["parameters are missing"]),
        ({"stops": [[1]]}, ["malformed"]),
        ({"chunk": 0}, ["chunk must be at least 1"]),
    ],
)
def test_a_state_that_does_not_belong_here_is_refused(
    dataset: ss.ShardDataset, change: dict[str, Any], messages: list[str]
) -> None:
    state = state_after(dataset, 7) | change
    for target in (dataset, ss.Loader(dataset, num_workers=0)):
        with pytest.raises(ss.errors.UsageError) as caught:
            target.load_state_dict(state)
        for message in messages:
            assert message in str(caught.value)


@pytest.mark.parametrize("state", [None, [], "x", {}, {"model": 1}, {"_snapshot": {}}])
def test_what_is_no_state_is_refused(dataset: ss.ShardDataset, state: Any) -> None:
    with pytest.raises(ss.errors.UsageError, match="state"):
        dataset.load_state_dict(state)


def test_a_position_needs_its_order(dataset: ss.ShardDataset) -> None:
    state = state_after(dataset, 7)
    for name in ("lanes", "chunk", "window", "virtual", "sublanes", "ranks", "groups"):
        state[name] = None
    with pytest.raises(ss.errors.UsageError, match="parameters of its order"):
        dataset.load_state_dict(state)


def test_a_state_of_other_data_names_both(dataset: ss.ShardDataset, tmp_path: Path) -> None:
    other = ss.ShardDataset(write_dataset(tmp_path / "x", numbered([50])), shuffle=True, batch_size=20, seed=3)
    with pytest.raises(ss.errors.UsageError) as caught:
        other.load_state_dict(state_after(dataset, 1))
    assert dataset.fingerprint in str(caught.value)
    assert other.fingerprint in str(caught.value)


def test_setting_the_epoch_of_the_state_keeps_it_and_another_one_forgets_it(dataset: ss.ShardDataset) -> None:
    state = state_after(dataset, 40)
    for target in (dataset, ss.Loader(dataset, num_workers=0)):
        target.load_state_dict(state)
        dataset.set_epoch(0)
        assert len(list(target)) == 10
        target.load_state_dict(state)
        dataset.set_epoch(5)
        assert len(list(target)) == 50


def test_later_epochs_keep_the_order_of_the_state(dataset: ss.ShardDataset) -> None:
    """A run of another batch size would have other lanes, were it not for the state."""
    reference = ss.Loader(dataset, num_workers=0)
    first = [batch["id"].tolist() for batch in reference]
    second = [number for batch in reference for number in batch["id"].tolist()]
    dataset.set_epoch(0)
    state = state_after(dataset, 25)
    loader = ss.Loader(dataset, num_workers=0, batch_size=50)
    loader.load_state_dict(state)
    assert [n for batch in loader for n in batch["id"].tolist()] == [n for batch in first[25:] for n in batch]
    assert [n for batch in loader for n in batch["id"].tolist()] == second


def test_another_shape_is_said_once_at_resume(dataset: ss.ShardDataset, caplog: pytest.LogCaptureFixture) -> None:
    state = state_after(dataset, 5)
    caplog.set_level(logging.INFO, "shardstream")
    same = ss.Loader(dataset, num_workers=0)
    same.load_state_dict(state)
    list(same)
    assert "resumed" not in caplog.text
    other = ss.Loader(dataset.replace(ranks=(0, 3)), num_workers=0)
    other.load_state_dict(state)
    for _ in range(2):
        list(other)
    assert caplog.text.count("resumed an order made for 1 ranks") == 1


def test_a_loader_does_not_take_the_state_of_another_one(dataset: ss.ShardDataset) -> None:
    one, two = ss.Loader(dataset, num_workers=0), ss.Loader(dataset, num_workers=0)
    one.load_state_dict(state_after(dataset, 40))
    assert len(list(two)) == 50
    dataset.set_epoch(0)
    one.load_state_dict(state_after(dataset, 40))
    assert len(list(one)) == 10


def test_a_loader_goes_on_from_a_state_of_its_data_set(dataset: ss.ShardDataset) -> None:
    state = state_after(dataset, 40)
    before = ss.Loader(dataset, num_workers=2)
    dataset.load_state_dict(state)
    after = ss.Loader(dataset, num_workers=2)
    assert after.state_dict()["position"] == 800
    assert len(list(after)) == 10
    assert len(list(before)) == 50


def test_states_stay_small_and_do_not_grow(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", numbered([3000, 2000]))
    dataset = ss.ShardDataset(folder, shuffle=True, tail="exact")
    seen: list[int] = []
    state: dict[str, Any] | None = None
    for stop in (1, 2, 65, 3, 1, 200, 64, 5, 1, 1, 700):
        loader = ss.Loader(dataset, num_workers=0)
        if state is not None:
            loader.load_state_dict(state)
        for _, sample in zip(range(stop), loader, strict=False):
            seen.append(sample["id"])
        state = loader.state_dict()
        assert len(json.dumps(state)) < 1000
    assert len(set(seen)) == len(seen)
    loader = ss.Loader(dataset, num_workers=0)
    assert state is not None
    loader.load_state_dict(state)
    seen += [sample["id"] for sample in loader]
    assert sorted(seen) == list(range(5000))


@pytest.mark.parametrize("direct", [True, False])
def test_between_two_epochs_the_order_is_that_of_the_run(dataset: ss.ShardDataset, direct: bool) -> None:
    first = dataset if direct else ss.Loader(dataset, num_workers=0)
    list(first)
    state = first.state_dict()
    assert (state["epoch"], state["position"], state["chunk"]) == (1, 0, 1)
    expected = [number for batch in first for number in batch["id"].tolist()]
    other = ss.Loader(dataset, num_workers=0, batch_size=50)
    other.load_state_dict(state)
    assert [number for batch in other for number in batch["id"].tolist()] == expected


@pytest.mark.parametrize("workers", [0, 1, None])
def test_blocks_of_which_all_samples_are_dropped_are_passed_over(ids: Path, workers: int | None) -> None:
    """Positions count, not what was delivered: ``None`` iterates the data set itself."""

    def second_half(sample: dict[str, Any]) -> dict[str, Any] | None:
        return sample if sample["id"] >= 500 else None

    dataset = ss.ShardDataset(ids, fields=["id"], transform=second_half)
    stream = dataset if workers is None else ss.Loader(dataset, num_workers=workers)
    samples = iter(stream)
    assert [next(samples)["id"] for _ in range(20)] == list(range(500, 520))
    state = stream.state_dict()
    left = ss.Loader(dataset, num_workers=0)
    left.load_state_dict(state)
    assert [sample["id"] for sample in left] == list(range(520, 1000))
