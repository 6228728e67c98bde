"""What the tests of torchdata's ``StatefulDataLoader`` share."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from tests.grouped import grouped

from ..stream.resuming import ORDER, flat, ids_of, in_turn, take, through_json

torchdata = pytest.importorskip("torchdata.stateful_dataloader")

COUNT = 300
# The data set makes batches; single samples travel alone; the StatefulDataLoader makes batches of single samples.
MODES = {"batches": (8, None), "samples": (None, None), "batched by it": (None, 7)}
modes = pytest.mark.parametrize(
    "mode", [mode if mode == "batched by it" else pytest.param(mode, marks=pytest.mark.full) for mode in MODES]
)
with_or_without = pytest.mark.parametrize("num_workers", [0, 3])


class Loader:
    """A new ``StatefulDataLoader`` over a new data set, as in a new process. Iterating gives lists of ids."""

    def __init__(
        self,
        folder: Path,
        num_workers: int,
        mode: str = "batches",
        *,
        every: int | None = 1,
        dataset: ss.ShardDataset | None = None,
        arguments: dict[str, Any] | None = None,
        **shape: Any,
    ) -> None:
        size, outer = MODES[mode]
        shape = {"batch_size": size, "tail": "exact"} | shape
        self.dataset = dataset or ss.ShardDataset(folder, fields=["id"], **grouped(ORDER | shape))
        self.loader = torchdata.StatefulDataLoader(
            self.dataset, batch_size=outer, num_workers=num_workers, snapshot_every_n_steps=every, **(arguments or {})
        )
        self.state_dict = self.loader.state_dict
        self.load_state_dict = self.loader.load_state_dict

    def __iter__(self) -> Any:
        return map(ids_of, iter(self.loader))


def rest_in_other_shapes(folder: Path, state: Any, *, shapes: Any = ((1, 5, 0), (2, 3, 0), (3, None, 0))) -> list[Any]:
    """What is left of the epoch, delivered by `ss.Loader` to other ranks, workers and batch sizes."""
    rests = []
    for world_size, batch_size, num_workers in shapes:
        streams = []
        for rank in range(world_size):
            shape = {"rank": rank, "world_size": world_size, "batch_size": batch_size, "tail": "exact"}
            loader = ss.Loader(
                ss.ShardDataset(folder, fields=["id"], **grouped(ORDER | shape)), num_workers=num_workers
            )
            loader.load_state_dict(through_json(state))
            streams.append([ids_of(item) for item in loader])
        rests.append(flat(in_turn(streams)))
    return rests


@contextmanager
def refused(match: str) -> Iterator[None]:
    """Refused while workers start.

    torch raises there in a frame that refers to the error. Left to the cycle collector, the queues would be gone before
    the workers are told to end, and torch waits 5 seconds for each of them.
    """
    with pytest.raises(ss.errors.UsageError, match=match) as caught:
        yield
    traceback.clear_frames(caught.tb)


def saved(folder: Path, num_workers: int, mode: str = "batches", steps: int = 5) -> dict[str, Any]:
    loader = Loader(folder, num_workers, mode)
    take(iter(loader), steps)
    return loader.state_dict()


def state_of_workers(state: dict[str, Any]) -> list[Any]:
    """The states of the data set inside a state."""
    if "_snapshot" not in state:
        return [state["dataset_state"]]
    return [one["dataset_state"] for one in state["_snapshot"]["_worker_snapshots"].values()]
