"""States that version 1 of the order wrote, on shards it was written with, go on exactly as they would have then.

``frozen/states_v1.json`` holds the states, and what a run that loaded each handed out: the rest of that epoch and the
whole of the next, in the shape that it was saved in and in others. The last release with that version wrote all of it,
so nothing of it is ever changed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss

from .simulated import SimulatedDataLoader

FOLDER = Path(__file__).with_name("frozen")
FROZEN: dict[str, Any] = json.loads((FOLDER / "states_v1.json").read_text(encoding="utf-8"))

Source = Callable[..., Any]


def data(name: str, **arguments: Any) -> ss.ShardDataset:
    """``even`` has 8 shards of 32 samples, ``odd`` some of 130, 1, 0, 70 and 59."""
    return ss.ShardDataset(FOLDER / name, fields=["id"], **arguments)


def mixed(by: str, **shape: Any) -> ss.Mixture:
    sources = {"even": (data("even"), 0.75), "odd": (data("odd"), 0.25)}
    return ss.Mixture(sources, seed=5, by=by, epoch=300, window=5, **shape)


SOURCES: dict[str, Source] = {
    "even": lambda **shape: data("even", shuffle=True, seed=3, **shape),
    "windows": lambda **shape: data("even", shuffle=True, seed=2**63, window=3, **shape),
    "odd": lambda **shape: data("odd", shuffle=True, seed=1, window=4, **shape),
    "explicit": lambda **shape: data("odd", shuffle=True, seed=11, lanes=6, chunk=2, window=9, **shape),
    "affinity": lambda **shape: data("odd", shuffle=True, seed=4, window=3, affinity="node", **shape),
    "split": lambda **shape: data(
        "odd", shuffle=True, seed=6, window=4, split=("train", {"train": 0.8, "val": 0.2}), **shape
    ),
    "where": lambda **shape: data("odd", shuffle=True, seed=6, window=4, where={"cls": [0, 2]}, **shape),
    "choose": lambda **shape: data("odd", shuffle=True, seed=7, window=4, **shape).choose(75),
    "repeat": lambda **shape: data("even", shuffle=True, seed=8, window=4, **shape).repeat(1.25),
    "mixture": lambda **shape: mixed("samples", **shape),
    "mixture by batches": lambda **shape: mixed("batches", **shape),
    "stored": lambda **shape: data("odd", shuffle=False, **shape),
}


def numbers(item: Any) -> list[int]:
    """The ids of a batch, or of a sample; 1,000 more for those of the second source of a mixture."""
    if not hasattr(item["id"], "tolist"):
        return [int(item["id"])]
    ids = item["id"] + 1000 * item["__source__"] if "__source__" in item else item["id"]
    return [ids.tolist()] if isinstance(ids.tolist(), int) else ids.tolist()


def what_follows(source: Source, state: Any, ranks: int, batch_size: int | None) -> list[list[list[list[int]]]]:
    """By rank: the batches of the rest of the epoch, and those of the next epoch."""
    found = []
    for rank in range(ranks):
        loader = ss.Loader(source(rank=rank, world_size=ranks, batch_size=batch_size, tail="exact"), num_workers=0)
        loader.load_state_dict(copy.deepcopy(state))
        found.append([[numbers(item) for item in loader] for _ in range(2)])
    return found


def converted(state: Any) -> Any:
    """States of a ``StatefulDataLoader`` are frozen as it returned them."""
    return ss.convert_state(state) if "_snapshot" in state else state


@pytest.mark.parametrize("name", FROZEN)
def test_a_state_of_version_1_goes_on_with_version_1(name: str) -> None:
    frozen = FROZEN[name]
    state = converted(frozen["state"])
    assert state["order_version"] == 1
    for following in frozen["follows"]:
        shape = (following["ranks"], following["batch_size"])
        assert what_follows(SOURCES[frozen["source"]], state, *shape) == following["epochs"]


@pytest.mark.parametrize("name", FROZEN)
def test_what_goes_on_from_version_1_says_so(name: str) -> None:
    """In the states that it saves in its turn: before its first batch, after it, and in the epoch that follows."""
    frozen = FROZEN[name]
    source = SOURCES[frozen["source"]](batch_size=4, rank=0, world_size=1)
    for stream in (ss.Loader(source, num_workers=0), source):
        stream.load_state_dict(converted(frozen["state"]))
        states = [stream.state_dict()]
        for _ in range(2):
            batches = iter(stream)
            next(batches)
            states.append(stream.state_dict())
            assert states[-1]["lanes"]
            for _ in batches:
                pass
            states.append(stream.state_dict())
        assert [state["order_version"] for state in states] == [1] * 5


def test_workers_of_a_plain_loader_go_on_with_version_1_in_every_epoch() -> None:
    """Also from a state that was saved before there were parameters: each epoch is its own run's choice of them."""
    frozen = FROZEN["before the first batch"]
    dataset = SOURCES[frozen["source"]](batch_size=8, rank=0, world_size=1, tail="exact")
    dataset.load_state_dict(frozen["state"])
    (expected,) = (one["epochs"][0] for one in frozen["follows"] if (one["ranks"], one["batch_size"]) == (1, 8))
    for epoch in expected:
        loader = SimulatedDataLoader(dataset, num_workers=2, batch_size=None)
        loader.begin()
        found = []
        while (items := loader.step()) is not None:
            found.append(numbers(items[0]))
            if len(found) == 3:
                state = dataset.state_dict(batches=loader.steps, num_workers=2)
                assert (state["order_version"], state["position"]) == (1, 24)
        assert found == epoch
