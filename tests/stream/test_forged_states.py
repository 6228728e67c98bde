"""States that somebody made up, or that were damaged: one clear error where they are loaded, never another epoch."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import shardstream as ss
from shardstream.errors import UsageError

from .making import numbered, write_dataset

PARAMETERS = ("lanes", "chunk", "window", "virtual", "sublanes", "ranks", "groups")
NUMBERS = ("order_version", "samples", "seed", "epoch", "position", *PARAMETERS)


def plain(ids: Path) -> ss.ShardDataset:
    return ss.ShardDataset(ids, fields=["id"], shuffle=True, batch_size=20, seed=3, tail="exact")


def mixture(ids: Path, by: Any = "samples") -> ss.Mixture:
    one, two = (ss.ShardDataset(ids, fields=["id"]) for _ in range(2))
    return ss.Mixture({"a": (one, 0.5), "b": (two, 0.5)}, by=by, epoch=1000, batch_size=20, seed=3, tail="exact")


def state_after(loader: Any, items: int) -> dict[str, Any]:
    iterator = iter(loader)
    for _ in range(items):
        next(iterator)
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def refusal(target: Any, state: dict[str, Any]) -> UsageError | None:
    try:
        target.load_state_dict(state)
    except UsageError as error:
        return error
    return None


MADE_UP = [
    *((name, value) for name in NUMBERS for value in (1.5, "1", True, None, float("nan"), -1, 1 << 63, 10**5000, [1])),
    *((name, 0) for name in PARAMETERS),
    *((name, (1 << 62) + 1) for name in PARAMETERS),
    ("position", 1001),
    ("position", 10**30),
    ("epoch", 1 << 32),
    ("lanes", 1 << 31),
    ("samples", 999),
    ("shuffle", 1),
    ("fingerprint", 5),
    ("tail", ["drop"]),
    ("stops", 5),
    ("stops", [[1, "drop"]]),
    ("stops", [[1.0, "drop", [3]]]),
    ("stops", [[1, "drop", ["3"]]]),
    ("stops", [[1, "drop", [3.5]]]),
    ("stops", [[1, "drop", [True]]]),
    ("stops", [[1, "drop", []]]),
    ("stops", [[1, "drop", [-1]]]),
    ("stops", [[1, "drop", [1 << 63]]]),
    ("stops", [[0, "drop", [1]]]),
    ("stops", [[1 << 40, "drop", [1]]]),
    ("stops", [[1, "wrong", [1]]]),
    ("stops", [[1, "drop", [1]]] * 5000),
    ("stops", [[1, "drop", [1 << 34, 0]]]),
    ("taken", "1"),
    ("taken", 10**6),
]


@pytest.mark.parametrize("make", [plain, mixture])
def test_what_no_run_has_saved_is_refused_where_it_is_loaded(ids: Path, make: Any) -> None:
    loader, dataset = ss.Loader(make(ids), num_workers=0), make(ids)
    state = state_after(loader, 7)
    loader.load_state_dict(state)  # as it is, it is welcome
    for name, value in MADE_UP:
        for target in (loader, dataset):
            error = refusal(target, state | {name: value})
            assert error is not None, name
            assert error.hint
            assert len(str(error)) < 1000
    assert len(list(loader)) == 43  # nothing of it was taken


def test_an_order_that_leaves_nothing_of_an_epoch_is_refused(ids: Path) -> None:
    loader = ss.Loader(mixture(ids, "batches"), num_workers=0)
    state = state_after(loader, 7)
    with pytest.raises(UsageError, match="epoch of 0 samples"):
        loader.load_state_dict(state | {"chunk": 1 << 40})


@pytest.mark.parametrize("tail", ["drop", "pad", "exact"])
@pytest.mark.parametrize("batch_size", [None, 7, 300])
@pytest.mark.parametrize("ranks", [1, 3])
def test_what_a_run_has_saved_is_welcome_wherever_it_stopped(
    ids: Path, tail: Any, batch_size: int | None, ranks: int
) -> None:
    dataset = ss.ShardDataset(
        ids, fields=["id"], shuffle=True, batch_size=batch_size, tail=tail, ranks=(ranks - 1, ranks)
    )
    loader, other = ss.Loader(dataset, num_workers=0), ss.Loader(dataset, num_workers=0)
    for number, _ in enumerate(loader):
        if batch_size or number % 37 == 0:
            other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    other.load_state_dict(loader.state_dict())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([*NUMBERS, "shuffle", "tail", "stops", "versions", "data", "taken", "worker"]),
    value=st.integers(-2, 2000)
    | st.integers()
    | st.floats()
    | st.text()
    | st.booleans()
    | st.lists(st.integers(0, 300), max_size=3)
    | st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["drop", "pad", "exact"]), st.lists(st.integers(0, 400))),
        max_size=3,
    ),
)
@example("lanes", 1 << 24)
@example("chunk", 1 << 62)
@example("window", 1 << 62)
@example("ranks", 1 << 62)
@example("position", 1000)
def test_any_state_is_refused_or_gives_what_is_left_of_an_epoch(ids: Path, name: str, value: Any) -> None:
    dataset = plain(ids)
    state = state_after(ss.Loader(dataset, num_workers=0), 7) | {name: value}
    loader = ss.Loader(dataset, num_workers=0)
    try:
        loader.load_state_dict(copy.deepcopy(state))
        found = [number for batch in loader for number in batch["id"].tolist()]
    except UsageError as error:
        assert error.hint  # noqa: PT017 - or no error at all
        return
    assert len(found) == len(set(found)) <= 1000
    if name not in ("position", "stops"):
        assert len(found) == 860


def test_a_forged_snapshot_is_refused(tmp_path: Path) -> None:
    ids = write_dataset(tmp_path / "ids", numbered([100, 100]))
    dataset = ss.ShardDataset(ids, fields=["id"], shuffle=True, batch_size=10)
    own = json.loads(json.dumps(dataset.state_dict()))
    worker = own | {"worker": 0, "num_workers": 1, "world_size": 1, "batch_size": 10, "taken": 30, "rank": 0}

    def snapshot(change: dict[str, Any], main: dict[str, Any] | None = None, **outer: Any) -> dict[str, Any]:
        head = {"_num_workers": 1, "_sampler_iter_state": None, "_sampler_iter_yielded": 0} | (main or {})
        inner = {
            "_main_snapshot": head,
            "_worker_snapshots": {"worker_0": {"dataset_state": worker | change}},
            "_last_yielded_worker_id": 0,
        }
        return {"_snapshot": inner | outer, "_iterator_finished": False, "_steps_since_snapshot": 0} | outer

    sound = ss.convert_state(snapshot({}))
    assert sound["position"] == 30
    forged: list[dict[str, Any]] = [
        *(
            snapshot({name: value})
            for name in ("taken", "epoch", "samples")
            for value in (1.5, "1", True, -1, 10**5000)
        ),
        *(snapshot({"position": value}) for value in (201, 1.5, None, "x")),
        *(snapshot({"stops": value}) for value in (5, [[1]], [[1, "drop", [1.5]]], [["1", "drop", [1]]])),
        *(snapshot({name: "x"}) for name in ("world_size", "num_workers", "batch_size", "rank")),
        *(snapshot({}, {"_num_workers": value}) for value in (0, -1, "1", 1.0, 10**9)),
        *(snapshot({}, _steps_since_snapshot=value) for value in (1.5, "1", -1, 10**30, 10**5000)),
        *(snapshot({}, _last_yielded_worker_id=value) for value in (0.5, "1", -5)),
        snapshot({}) | {"_snapshot": 5},
        snapshot({}) | {"_snapshot": {}},
        {"_snapshot": None},
    ]
    for number, state in enumerate(forged):
        with pytest.raises(UsageError) as caught:
            ss.convert_state(state)
        assert caught.value.hint, number
