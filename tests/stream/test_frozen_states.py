"""States that each version of the order wrote, on shards that version 1 wrote, go on exactly as they would have then.

``frozen/states_v1.json`` and its like hold the states, and what a run that loaded each handed out: the rest of that
epoch and the whole of the next, in the shape that it was saved in and in others. A release with that version wrote all
of it (``freezing.py`` says how), so nothing of it is ever changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.order import ORDER_VERSION, ORDER_VERSIONS, SCHEDULED_VERSION

from .freezing import LATER, SCHEDULED, SOURCES, TAKEN, converted, numbers, path_of, taken, what_follows
from .simulated import SimulatedDataLoader


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


FROZEN = {version: read(path_of(version)) for version in ORDER_VERSIONS}
FROZEN[2] |= {name: one for part in ("costs", "schedules", "skipped") for name, one in read(path_of(2, part)).items()}
FROZEN[SCHEDULED_VERSION] = read(path_of(SCHEDULED_VERSION))
NOW = TAKEN | {name: one for named in LATER.values() for name, one in named.items()} | SCHEDULED

frozen_states = pytest.mark.parametrize(
    ("version", "name"), [(version, name) for version, states in FROZEN.items() for name in states]
)
versions = pytest.mark.parametrize("version", ORDER_VERSIONS)


@pytest.mark.one_in(4)
@frozen_states
def test_a_state_goes_on_with_its_version(version: int, name: str) -> None:
    frozen = FROZEN[version][name]
    state = converted(frozen["state"])
    assert state["order_version"] == version
    for following in frozen["follows"]:
        shape = (following["ranks"], following["batch_size"])
        assert what_follows(SOURCES[frozen["source"]], state, *shape) == following["epochs"]


@pytest.mark.one_in(4)
@frozen_states
def test_what_goes_on_from_a_version_says_so(version: int, name: str) -> None:
    """In the states that it saves in its turn: before its first batch, after it, and in the epoch that follows."""
    frozen = FROZEN[version][name]
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
        assert [state["order_version"] for state in states] == [version] * 5


@versions
def test_workers_of_a_plain_loader_go_on_with_a_version_in_every_epoch(version: int) -> None:
    """Also from a state that was saved before there were parameters: each epoch is its own run's choice of them."""
    frozen = FROZEN[version]["before the first batch"]
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
                assert (state["order_version"], state["position"]) == (version, 24)
        assert found == epoch


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NOW)
def test_the_version_of_today_saves_the_states_that_it_saved_then(name: str) -> None:
    """Each entry, that is: a state may say more than it did."""
    then = FROZEN[SCHEDULED_VERSION if name in SCHEDULED else ORDER_VERSION][name]["state"]
    assert taken(name, NOW).items() >= then.items()
