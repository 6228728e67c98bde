"""Freezes states of the order's version of today, with what follows from each, for ``test_frozen_states.py``.

``python -m tests.stream.freezing`` from the root of the repository writes ``frozen/states_v<version>.json``, and a file
for each of ``LATER``, once. ``frozen/states_v3.json`` has those of mixtures scheduled by samples, see ``SCHEDULED``. A
file that is there stays as it is, since users' runs resume by it. A new version of the order gets files of its own,
frozen by the release that brings it. The shards are those of version 1.
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

import shardstream as ss
from shardstream.order import ORDER_VERSION, SCHEDULED_VERSION
from tests.grouped import grouped

from .simulated import SimulatedDataLoader, SimulatedStatefulDataLoader

FOLDER = Path(__file__).with_name("frozen")

Source = Callable[..., Any]


def path_of(version: int, part: str = "") -> Path:
    """Where the states of a version lie, or those that were frozen later."""
    return FOLDER / f"states_v{version}{part and '_'}{part}.json"


# ------------------------------------------------------------------------------------------------------ the sources


def data(name: str, **arguments: Any) -> ss.ShardDataset:
    """``even`` has 8 shards of 32 samples, ``odd`` some of 130, 1, 0, 70 and 59."""
    return ss.ShardDataset(FOLDER / name, fields=["id"], **grouped(arguments))


def mixed(by: str, **shape: Any) -> ss.Mixture:
    sources = {"even": (data("even"), 0.75), "odd": (data("odd"), 0.25)}
    return ss.Mixture(sources, seed=5, by=by, epoch=300, **grouped({"window": 5} | shape))


def scheduled(by: str = "samples", **shape: Any) -> ss.Mixture:
    sources = {"even": data("even"), "odd": data("odd")}
    shares = ((0, 3, 1), (150, 1, 3), (150, 1, 0), (260, 1, 1))
    knots = [(at, {"even": even, "odd": odd}) for at, even, odd in shares]
    return ss.Mixture(sources, schedule=knots, seed=9, by=by, epoch=300, **grouped({"window": 5} | shape))


def jumping(**shape: Any) -> ss.Mixture:
    """Jumps in three epochs that are no multiple of a row."""
    sources = {"even": data("even"), "odd": data("odd")}
    shares = ((0, 1, 0), (101, 1, 0), (101, 0, 1), (299, 0, 1), (299, 3, 1), (333, 3, 1), (333, 1, 3), (500, 2, 1))
    knots = [(at, {"even": even, "odd": odd}) for at, even, odd in shares]
    return ss.Mixture(sources, schedule=knots, seed=4, epoch=211, **grouped({"window": 5} | shape))


SKIP = [((0, 30), (0, 61)), ((0, 140), (0, 150)), ((1, 200), (2, 7))]

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
    "scheduled": scheduled,
    "scheduled by batches": lambda **shape: scheduled("batches", **shape),
    "skipping": lambda **shape: data("odd", shuffle=True, seed=1, window=4, skip=SKIP, **shape),
    "by cost": lambda **shape: data("odd", shuffle=True, seed=1, window=4, **shape | {"batch_size": {"id": 900}}),
    "scheduled, skipping": lambda **shape: scheduled(skip=SKIP, **shape),
    "jumps": lambda **shape: jumping(lanes=6, chunk=5, **shape),
    "jumps of nodes": lambda **shape: jumping(chunk=2, affinity="node", **shape),
}

BY_SCHEDULE = ("scheduled", "scheduled, skipping", "jumps", "jumps of nodes")  # by samples


# ------------------------------------------------------------------------------------------------- what follows


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


# ------------------------------------------------------------------------------------------- how states are taken


def loaded(source: Source, batches: int | None, *, epoch: int = 0, workers: int = 0, **shape: Any) -> Any:
    """The state of a loader of which the loop has so many batches; ``None``: as many as it says that it has."""
    loader = ss.Loader(source(**({"batch_size": 8, "rank": 0, "world_size": 1} | shape)), num_workers=workers)
    loader.set_epoch(epoch)
    batches = len(loader) if batches is None else batches
    iterator = iter(loader)
    assert len(list(islice(iterator, batches))) == batches
    return loader.state_dict()


def whole(source: Source, *, epoch: int) -> Any:
    """That of a loader whose loop has ended."""
    loader = ss.Loader(source(batch_size=8, rank=0, world_size=1), num_workers=0)
    loader.set_epoch(epoch)
    for _ in loader:
        pass
    return loader.state_dict()


def untouched(source: Source, *, epoch: int) -> Any:
    """That of a data set that nobody has read yet."""
    dataset = source(batch_size=8, rank=0, world_size=1)
    dataset.set_epoch(epoch)
    return dataset.state_dict()


@contextmanager
def launched(**variables: int) -> Iterator[None]:
    """What runs inside finds these variables of a launcher."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, str(value))
        yield


def on_two_nodes(source: Source, batches: int) -> Any:
    """That of four ranks, two a node."""
    with launched(RANK=0, WORLD_SIZE=4, LOCAL_RANK=0, LOCAL_WORLD_SIZE=2):
        return loaded(source, batches, batch_size=4, rank=None, world_size=None)


def counted(source: Source, steps: int, *, epoch: int, workers: int, size: int | None = None, **shape: Any) -> Any:
    """That of a data set after so many steps of a plain ``DataLoader``, which makes batches of ``size`` samples."""
    dataset = source(**({"rank": 0, "world_size": 1} | shape))
    dataset.set_epoch(epoch)
    loader = SimulatedDataLoader(dataset, num_workers=workers, batch_size=size, ahead=1)
    loader.begin()
    for _ in range(steps):
        assert loader.step() is not None
    size = size if dataset.batch_size else size or 1
    return dataset.state_dict(batches=loader.steps, num_workers=workers, batch_size=size)


def stateful(source: Source, steps: int, *, epoch: int, workers: int, every: int, batch_size: int | None) -> Any:
    """That of a ``StatefulDataLoader`` after so many steps; ``every``: from snapshot to snapshot."""
    dataset = source(rank=0, world_size=1, batch_size=batch_size)
    dataset.set_epoch(epoch)
    loader = SimulatedStatefulDataLoader(dataset, every=every, num_workers=workers, batch_size=None, ahead=1)
    loader.begin()
    for _ in range(steps):
        assert loader.step() is not None
    return loader.state_dict()


def handed_on(source: Source, batches: int) -> Any:
    """That of rank 1 of 2, to which a launcher handed a data set, in its own second epoch."""
    dataset = source(batch_size=8)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as launcher:
        return launcher.submit(_as_rank, dataset, batches).result()


def _as_rank(dataset: ss.ShardDataset, batches: int) -> Any:
    with launched(RANK=1, WORLD_SIZE=2):
        loader = ss.Loader(dataset, num_workers=0)
        for _ in loader:
            pass
        iterator = iter(loader)
        assert len(list(islice(iterator, batches))) == batches
        return loader.state_dict()


def dealt_out(source: Source, *, epoch: int, ranks: int) -> Any:
    """That of a data set after an epoch of which Accelerate has dealt out batches of 8 to ranks."""
    dataset = source()
    dataset.set_epoch(epoch)
    accelerate = ModuleType("accelerate.data_loader")
    accelerate.DataLoaderDispatcher = _Dispatcher  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, accelerate.__name__, accelerate)
        patch.setattr(_Dispatcher, "read", FunctionType(_Dispatcher.read.__code__, accelerate.__dict__))
        _Dispatcher(dataset, 8, SimpleNamespace(num_processes=ranks)).read()
    return dataset.state_dict()


@dataclass
class _Dispatcher:
    """As much of Accelerate's ``DataLoaderDispatcher`` as a data set sees, which looks for who is asking it."""

    dataset: ss.ShardDataset
    batch_size: int
    state: SimpleNamespace
    split_batches: bool = False
    base_dataloader: None = None

    def read(self) -> None:
        for _ in self.dataset:
            pass


# --------------------------------------------------------------------------------------------------- what is frozen


class Taken(NamedTuple):
    """A state, and in which shapes what follows is written down.

    Attributes:
        source: Its name.
        take: Takes the state.
        shapes: Number of ranks, and batch size.
    """

    source: str
    take: Callable[[Source], Any]
    shapes: Sequence[tuple[int, int | None]]


TAKEN: Mapping[str, Taken] = {
    "shuffled": Taken("even", lambda source: loaded(source, 11), [(1, 8), (3, 5)]),
    "shuffled, epoch 7": Taken("windows", lambda source: loaded(source, 21, epoch=7), [(1, 8), (2, None)]),
    "shards of unlike sizes": Taken("odd", lambda source: loaded(source, 9, epoch=2), [(1, 8), (2, 3)]),
    "two ranks": Taken(
        "even", lambda source: loaded(source, 9, epoch=1, batch_size=4, world_size=2), [(2, 4), (1, 16)]
    ),
    "four ranks": Taken("windows", lambda source: loaded(source, 5, batch_size=4, world_size=4), [(4, 4), (3, 7)]),
    "explicit lanes": Taken("explicit", lambda source: loaded(source, 14, epoch=3), [(1, 8), (2, 5)]),
    "between epochs": Taken("odd", lambda source: whole(source, epoch=4), [(2, 6)]),
    "after len(loader) batches": Taken("odd", lambda source: loaded(source, None, epoch=4, workers=2), [(1, 8)]),
    "before the first batch": Taken("windows", lambda source: untouched(source, epoch=5), [(1, 8), (2, 4)]),
    "affinity": Taken("affinity", lambda source: on_two_nodes(source, 6), [(4, 4), (2, 8)]),
    "split": Taken("split", lambda source: loaded(source, 9, epoch=1), [(1, 8), (2, 5)]),
    "where": Taken("where", lambda source: loaded(source, 7, epoch=1), [(1, 8), (2, 5)]),
    "choose": Taken("choose", lambda source: loaded(source, 5, epoch=1), [(1, 8), (2, 5)]),
    "repeat": Taken("repeat", lambda source: loaded(source, 30, epoch=1), [(1, 8), (2, 5)]),
    "mixture": Taken("mixture", lambda source: loaded(source, 17, epoch=1), [(1, 8), (2, 3)]),
    "mixture of two ranks": Taken("mixture", lambda source: loaded(source, 11, epoch=2, world_size=2), [(2, 8)]),
    "mixture by batches": Taken("mixture by batches", lambda source: loaded(source, 17, epoch=1), [(1, 8), (2, 3)]),
    "mixture by batches of two ranks": Taken(
        "mixture by batches", lambda source: loaded(source, 9, epoch=3, world_size=2), [(2, 8)]
    ),
    "stored order": Taken("stored", lambda source: loaded(source, 10, epoch=1), [(1, 8), (2, 5)]),
    "single samples of two workers": Taken(
        "windows", lambda source: loaded(source, 51, epoch=1, workers=2, batch_size=None), [(1, None), (2, 4)]
    ),
    "single samples of two ranks": Taken(
        "odd", lambda source: loaded(source, 29, workers=2, batch_size=None, world_size=2), [(2, 4)]
    ),
    "in the middle of a batch of several workers": Taken(
        "odd", lambda source: counted(source, 5, epoch=1, workers=3, size=7), [(1, 8), (2, 5)]
    ),
    "batches of several workers": Taken(
        "windows", lambda source: counted(source, 7, epoch=3, workers=2, batch_size=8), [(2, 4)]
    ),
    "a StatefulDataLoader": Taken(
        "windows",
        lambda source: stateful(source, 7, epoch=2, workers=3, every=5, batch_size=8),
        [(1, 8), (2, 4)],
    ),
    "a StatefulDataLoader of single samples": Taken(
        "odd", lambda source: stateful(source, 49, epoch=1, workers=2, every=1, batch_size=None), [(1, 8)]
    ),
    "handed to ranks": Taken("even", lambda source: handed_on(source, 9), [(2, 8)]),
    "dealt out to ranks": Taken("odd", lambda source: dealt_out(source, epoch=2, ranks=2), [(2, 8)]),
}


LATER: Mapping[str, Mapping[str, Taken]] = {
    "costs": {
        "batches by cost": Taken("by cost", lambda source: loaded(source, 9), [(1, 1), (3, 1)]),
        "batches by cost of two ranks": Taken("by cost", lambda source: loaded(source, 5, world_size=2), [(1, 1)]),
    },
    "schedules": {
        "inside a ramp": Taken("scheduled", lambda source: loaded(source, 14), [(1, 8), (3, 5)]),
        "a ramp of four ranks": Taken("scheduled", lambda source: loaded(source, 4, world_size=4), [(3, 5)]),
        "a ramp by batches": Taken(
            "scheduled by batches", lambda source: loaded(source, 17, epoch=1), [(1, 8), (2, 4)]
        ),
    },
    "skipped": {
        "before a skipped range": Taken("skipping", lambda source: loaded(source, 3), [(1, 8), (3, 5)]),
        "inside an epoch that is skipped": Taken("skipping", lambda source: loaded(source, 9, epoch=1), [(2, 8)]),
        "a mixture that skips": Taken("scheduled, skipping", lambda source: loaded(source, 14), [(1, 8), (2, 3)]),
    },
}


SCHEDULED: Mapping[str, Taken] = {
    name: one for named in LATER.values() for name, one in named.items() if one.source in BY_SCHEDULE
} | {
    "between two jumps": Taken("jumps", lambda source: loaded(source, 20, epoch=1), [(1, 8), (3, 5)]),
    "jumps of two nodes": Taken("jumps of nodes", lambda source: on_two_nodes(source, 9), [(4, 4), (2, 8)]),
    "single samples by schedule": Taken(
        "jumps", lambda source: loaded(source, 151, workers=2, batch_size=None), [(1, None), (2, 4)]
    ),
    "a StatefulDataLoader by schedule": Taken(
        "jumps", lambda source: stateful(source, 23, epoch=1, workers=3, every=5, batch_size=8), [(2, 4)]
    ),
}
"""States of version 3. Those of ``LATER`` were frozen by version 2, too."""


def taken(name: str, named: Mapping[str, Taken] = TAKEN) -> Any:
    """The state of this name, taken now."""
    one = named[name]
    return json.loads(json.dumps(one.take(SOURCES[one.source])))


def frozen(name: str, named: Mapping[str, Taken]) -> dict[str, Any]:
    """The state of this name, with what follows from it."""
    state, one = taken(name, named), named[name]
    follows = [
        {"ranks": ranks, "batch_size": size, "epochs": what_follows(SOURCES[one.source], converted(state), ranks, size)}
        for ranks, size in one.shapes
    ]
    return {"source": one.source, "state": state, "follows": follows}


def main() -> None:
    """Write the files of the order's versions of today that are not there."""
    files = {path_of(ORDER_VERSION, part): named for part, named in {"": TAKEN, **LATER}.items()}
    for path, named in (files | {path_of(SCHEDULED_VERSION): SCHEDULED}).items():
        if not path.exists():
            lines = [
                f"  {json.dumps(name)}: {json.dumps(frozen(name, named), separators=(',', ':'))}" for name in named
            ]
            path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
