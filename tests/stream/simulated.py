"""Loaders with any number of workers, simulated in this process, so that properties can be tried on many of them.

A worker is a copy of the data set that is asked for items while torch's ``get_worker_info`` says that this is a worker;
items come from the workers in turn, as from torch's own loaders. The real ones are tested in ``tests/load``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

from torch.utils.data._utils import worker as torch_worker

_seeds = count(1000, 100)


@contextmanager
def as_worker(number: int, workers: int, seed: int, dataset: Any) -> Iterator[None]:
    """What runs inside believes that it is in a worker process; 0 workers: in none."""
    info = torch_worker.WorkerInfo(id=number, num_workers=workers, seed=seed + number, dataset=dataset)
    torch_worker._worker_info = info if workers else None
    try:
        yield
    finally:
        torch_worker._worker_info = None


class _Worker:
    def __init__(self, dataset: Any, number: int, workers: int, seed: int, state: Any) -> None:
        self.dataset = copy.copy(dataset) if workers else dataset
        self._place = (number, workers, seed, self.dataset)
        with as_worker(*self._place):
            if state is not None:
                self.dataset.load_state_dict(state)
            self._items = iter(self.dataset)

    def fetch(self, size: int) -> list[Any]:
        with as_worker(*self._place):
            return list(islice(self._items, size))

    def state(self) -> Any:
        with as_worker(*self._place):
            return self.dataset.state_dict()


class SimulatedDataLoader:
    """As torch's ``DataLoader``; each step is a list of items.

    Args:
        dataset: The data set.
        num_workers: Number of workers, 0 for none.
        batch_size: Items a step; ``None`` for single ones.
        ahead: Steps that each worker fetches before they are asked for.
        late: Workers begin when they are first asked for something, so that the first may be at its end by then.
    """

    def __init__(
        self, dataset: Any, *, num_workers: int, batch_size: int | None, ahead: int = 0, late: bool = False
    ) -> None:
        self.dataset = dataset
        self.num_workers = num_workers
        self.batch_size = batch_size
        self.steps = 0
        self._ahead = ahead
        self._late = late

    def begin(self, states: list[Any] | None = None, turn: int = 0) -> None:
        """Begin an iteration; ``states`` are those of the workers, ``turn`` is the worker to begin with."""
        number = max(self.num_workers, 1)
        self.seed = next(_seeds)
        self._known = states or [None] * number
        self.workers: list[_Worker | None] = [None] * number
        self.states: list[Any] = [None] * number
        for worker in range(0 if self._late else number):
            self._worker(worker)
        self._stock: list[list[tuple[list[Any], Any]]] = [[] for _ in self.workers]
        self._ended = [False] * number
        self._turn = turn
        self.steps = 0

    def _worker(self, number: int) -> _Worker:
        worker = self.workers[number]
        if worker is None:
            worker = _Worker(self.dataset, number, self.num_workers, self.seed, self._known[number])
            self.workers[number] = worker
            self.states[number] = worker.state()
        return worker

    def step(self) -> list[Any] | None:
        """The next step, ``None`` at the end."""
        for _ in self.workers:
            number = self._turn
            self._turn = (number + 1) % len(self.workers)
            while not self._ended[number] and len(self._stock[number]) <= self._ahead * (self.num_workers > 0):
                worker = self._worker(number)
                items = worker.fetch(self.batch_size or 1)
                self._ended[number] = not items
                self._stock[number].append((items, worker.state()))
            if self._stock[number]:
                items, self.states[number] = self._stock[number].pop(0)
                if items:
                    self.last = number
                    self.steps += 1
                    return items
        return None


class SimulatedStatefulDataLoader(SimulatedDataLoader):
    """As torchdata's ``StatefulDataLoader``.

    Args:
        every: Steps from snapshot to snapshot, 0 for none but the first.
        **arguments: See `SimulatedDataLoader`.
    """

    def __init__(self, dataset: Any, *, every: int, **arguments: Any) -> None:
        super().__init__(dataset, **arguments)
        self._every = every
        self._finished = False

    def begin(self, states: list[Any] | None = None, turn: int = 0) -> None:
        super().begin(states, turn)
        self.last = (turn - 1) % len(self.workers)
        self._finished = False
        self._snapshot()

    def step(self) -> list[Any] | None:
        items = super().step()
        self._finished = items is None
        if items is not None and self._every and self.steps % self._every == 0:
            self._snapshot()
        return items

    def _snapshot(self) -> None:
        batches = self.steps and self.steps + 2  # it has asked for more than arrived
        sampler = None if self.batch_size is None else {"samples_yielded": batches * self.batch_size}
        self._kept = {
            "_snapshot_step": self.steps,
            "_last_yielded_worker_id": self.last,
            "_main_snapshot": {
                "_num_workers": self.num_workers,
                "_sampler_iter_state": sampler,
                "_sampler_iter_yielded": batches,
            },
            "_worker_snapshots": {
                f"worker_{number}": {"worker_id": number, "dataset_state": copy.deepcopy(state), "fetcher_state": {}}
                for number, state in enumerate(self.states)
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """In the layout of torchdata 0.11."""
        if not self.num_workers:
            return {
                "_num_yielded": self.steps,
                "dataset_state": self._worker(0).state(),
                "_iterator_finished": self._finished,
            }
        return {
            "_snapshot": self._kept,
            "_steps_since_snapshot": self.steps - self._kept["_snapshot_step"],
            "_iterator_finished": self._finished,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin an iteration from there."""
        if not self.num_workers:
            self.begin([state["dataset_state"]])
            return
        kept = state["_snapshot"]
        states = [one["dataset_state"] for one in kept["_worker_snapshots"].values()]
        self.begin(states, (kept["_last_yielded_worker_id"] + 1) % self.num_workers)
        for _ in range(state["_steps_since_snapshot"]):
            self.step()
