"""``convert_state``: what torchdata's ``StatefulDataLoader`` saved, as a state of ours for a run of any shape.

Its state holds one state of the data set for each worker, as it was at the last snapshot, and the number of steps that
the training loop has taken since. From these follows how far every worker's stream had been handed out, and so what is
left of the epoch. torchdata itself is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardstream.errors import UsageError
from shardstream.order import Remaining, step_count, taken_by_batches, worker_samples
from shardstream.stream.iteration.epoch_run import WAYS_OUT
from shardstream.stream.iteration.state import (
    OF_WORKER,
    begin_of,
    check_entries,
    integer,
    reading,
    stop_of,
    stops_entry,
)


def convert_state(state: Mapping[str, Any], *, batch_size: int | None = None) -> dict[str, Any]:
    """The state of a ``StatefulDataLoader`` as one that `Loader` and `ShardDataset` load, in any other shape.

    A ``StatefulDataLoader`` goes on from its own state only with as many workers as it had. The state that this
    returns has no such limit: number of ranks, of workers and batch size may all differ. One rank's state serves all,
    if all have taken as many steps; under ``tail="exact"``, where ranks end unevenly, rank 0's.

    Args:
        state: What ``StatefulDataLoader.state_dict()`` returned, over one of our data sets, with any ``num_workers``
            and ``snapshot_every_n_steps``. A state of ours is returned as it is.
        batch_size: Samples a batch of the ``StatefulDataLoader``. Default: as its state says, which does so in
            all cases but one: it put single samples into batches itself and had taken no snapshot yet
            (``snapshot_every_n_steps=0``, or larger than the number of steps).

    Returns:
        A state for ``load_state_dict``.

    Raises:
        UsageError: Not such a state; or batches of the data set that the ``StatefulDataLoader`` grouped once more, so
            that its workers stopped in different places.

    The steps since the last snapshot are counted in what arrived: where ``transform`` or ``on_error="skip"`` drops
    single samples, the default ``snapshot_every_n_steps=1`` is needed for an exact position.

    Example:
        >>> from torchdata.stateful_dataloader import StatefulDataLoader
        >>> ds = ss.ShardDataset("out/", fields=["cls"], batch_size=8)
        >>> loader = StatefulDataLoader(ds, batch_size=None)
        >>> first = next(iter(loader))
        >>> state = ss.convert_state(loader.state_dict())
        >>> loader = ss.Loader(ds, num_workers=0)  # or any other shape
        >>> loader.load_state_dict(state)
        >>> next(iter(loader))["cls"][0]
        tensor(25)
    """
    if not isinstance(state, Mapping):
        raise UsageError(f"a state must be a dict, got {type(state).__name__}", hint="pass what state_dict() returned")
    if "_snapshot" in state:
        with reading():
            return _of_workers(state, batch_size)
    if "_num_yielded" in state:
        return dict(_of_data_set(state.get("dataset_state"), taken=False))
    if "order_version" in state and "worker" not in state:
        return dict(state)
    if "order_version" in state:
        raise UsageError(
            "this is the state of one worker's data set",
            hint="pass all that the StatefulDataLoader's own state_dict() returned",
        )
    raise UsageError(
        f"not a state of a StatefulDataLoader: it holds {', '.join(map(repr, list(state)[:5])) or 'nothing'}",
        hint="pass what its state_dict() returned; states of ss.Loader and ds.state_dict() need no conversion",
    )


def _of_data_set(state: object, *, taken: bool) -> Mapping[str, Any]:
    """The state of our data set inside a ``StatefulDataLoader``'s; with what a worker adds where ``taken``."""
    if isinstance(state, Mapping) and "order_version" in state and ("taken" in state) == taken:
        return state
    raise UsageError(
        "this StatefulDataLoader did not read a data set of shardstream",
        hint="the data set of the StatefulDataLoader has to be a ShardDataset or a Mixture itself, not wrapped",
    )


def _of_workers(state: Mapping[str, Any], batch_size: int | None) -> dict[str, Any]:
    snapshot = state["_snapshot"]
    main, snapshots = snapshot["_main_snapshot"], snapshot["_worker_snapshots"]
    workers = [
        _of_data_set(snapshots[f"worker_{worker}"].get("dataset_state"), taken=True)
        for worker in range(_count("_num_workers", main, least=1))
    ]
    for worker in workers:
        check_entries(worker)
    if any(worker.get("of_rank") is not None for worker in workers) and not state["_iterator_finished"]:
        raise UsageError(
            "single samples were dropped, so ranks are at different places, and no state fits all of them",
            hint=f"load it on the rank that saved it, with as many workers; {WAYS_OUT}",
        )
    shared = {name: value for name, value in workers[0].items() if name not in OF_WORKER}
    if shared["position"] > shared["samples"]:
        raise ValueError(f"position is {shared['position']} in an epoch of {shared['samples']} samples")
    for number, worker in enumerate(workers):
        for name in (*shared, "num_workers", "world_size", "batch_size"):
            if worker.get(name) != workers[0].get(name):
                raise UsageError(
                    f"the workers of this state disagree on {name}: worker 0 has {workers[0].get(name)!r}, "
                    f"worker {number} {worker.get(name)!r}",
                    hint="pass a state as one StatefulDataLoader returned it",
                )
    rest: Remaining | None = None
    if not state["_iterator_finished"]:
        steps = _count("_steps_since_snapshot", state)
        turn = (_count("_last_yielded_worker_id", snapshot, least=-1) + 1) % len(workers)
        items = _items_a_step(main, steps, batch_size)
        begun = begin_of(shared).left_of(shared["samples"])
        rest = _left(begun, workers, steps=steps, turn=turn, items=items)
    shared.pop("stops", None)
    if rest is None:
        return shared | {"epoch": shared["epoch"] + 1, "position": 0}
    return shared | {"position": rest.start} | stops_entry(rest.stops)


def _count(name: str, state: Mapping[str, Any], *, least: int = 0) -> int:
    """A number that the ``StatefulDataLoader`` has counted."""
    value = integer(name, state[name])
    if value < least:
        raise ValueError(f"{name} is {value}")
    return value


def _items_a_step(main: Mapping[str, Any], steps: int, batch_size: int | None) -> int:
    """How many items of the data set a step of the ``StatefulDataLoader`` hands out."""
    sampler = main["_sampler_iter_state"]
    if sampler is None:  # batch_size=None: items as they are
        return 1
    if batch_size is not None:
        return batch_size
    batches, samples = _count("_sampler_iter_yielded", main), _count("samples_yielded", sampler)
    if batches and samples % batches == 0:
        return samples // batches
    if steps == 0:
        return 1  # without a meaning
    raise UsageError(
        f"{steps} steps were taken since the last snapshot, and the state does not say of how many samples each",
        hint="pass batch_size=..., that of the StatefulDataLoader, to convert_state",
    )


def _left(rest: Remaining, workers: list[Mapping[str, Any]], *, steps: int, turn: int, items: int) -> Remaining | None:
    """What is left of ``rest`` after so many steps of these workers; ``None`` if everything was handed out."""
    first, count = workers[0], len(workers)
    size, world_size, tail = first["batch_size"], first["world_size"], first["tail"]
    rank = first.get("rank", 0)
    share: dict[str, Any] = {"start": rest.start, "rank": rank, "world_size": world_size, "tail": tail}
    if size is None:
        held = [worker_samples(rest.samples, worker=one, num_workers=count, **share) for one in range(count)]
    else:
        held = _dealt_in_turn(step_count(rest.samples, batch_size=size, **share), count)
    before = [-(-worker["taken"] // (size or 1)) for worker in workers]
    taken = _taken_later(before, held, steps=steps, turn=turn, items=items)
    if size is not None and list(taken) != _dealt_in_turn(sum(taken), count):
        raise UsageError(
            f"the data set made batches of {size}, and the StatefulDataLoader put several of them into one of its own: "
            f"its {count} workers stopped after {', '.join(map(str, taken))} batches, with gaps between them",
            hint="use StatefulDataLoader(..., batch_size=None) where the data set has a batch_size",
        )
    if sum(taken) >= sum(held):
        return None
    if size is None:
        return rest.after(stop_of(world_size, tail, taken))
    return rest.after_batches(sum(taken), world_size=world_size, batch_size=size)


def _dealt_in_turn(batches: int, workers: int) -> list[int]:
    """How many of these batches each worker has."""
    return [len(range(worker, batches, workers)) for worker in range(workers)]


def _taken_later(taken: list[int], held: list[int], *, steps: int, turn: int, items: int) -> tuple[int, ...]:
    """What each worker has handed out after ``steps`` more, beginning with worker ``turn``."""
    order = [(turn + number) % len(taken) for number in range(len(taken))]
    left = [max(held[number] - taken[number], 0) for number in order]
    more = taken_by_batches(steps, num_workers=len(taken), batch_size=items, samples_per_worker=left)
    by_worker = dict(zip(order, more, strict=True))
    return tuple(before + by_worker[number] for number, before in enumerate(taken))
