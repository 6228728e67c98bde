"""What travels from a worker to ``ss.Loader``, and what a training loop gets out of it.

A loop may take just as many items as there are, and never ask for one more. So the end of an iteration comes with its
last item, not with the question for another one.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, NoReturn

import torch

from shardstream.errors import ShardStreamError
from shardstream.stream.ipc.handover import drop, packed
from shardstream.stream.ipc.spans import BatchSpans
from shardstream.stream.tensors.nested import mapped, refuse_devices
from shardstream.stream.tensors.slabs import shared_pool


@dataclass(slots=True)
class WorkerBatch:
    """One step's data with its counters; `ss.Loader` takes it apart.

    Attributes:
        data: A batch, or a list of samples.
        samples: How many samples of its own it holds: not padded, not skipped.
        skipped: Where each skipped sample is stored, and why it was damaged or excluded.
        stages: Seconds that the worker spent on it, by `Stage`.
        sources: Of a mixture: how many of these samples came from each source, by name.
        positions: How many positions of the epoch it stands for.
        slots: The place of each sample in the step, if some places have none; else ``None``.
        transfers: What was read over a network meanwhile, see `shardstream.storage.base.counters`.
        transport: Seconds that it took to arrive in another process, without the waiting.
        spans: Where a trace is recorded: what took how long.
        members: Of a batch by cost: how many samples it has, those that are padding or dropped among them.
        filtered: How many samples a transform left out: it returned ``None``.
    """

    data: Any
    samples: int
    skipped: list[str] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    positions: int = 0
    slots: list[int] | None = None
    transfers: dict[str, int] = field(default_factory=dict)
    transport: float = 0.0
    spans: BatchSpans | None = None
    members: int | None = None
    filtered: int = 0

    @property
    def seconds(self) -> float:
        """Time that the worker spent on it."""
        return sum(self.stages.values())

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, one.name) for one in fields(self)]
        pool = shared_pool()
        if pool is None:
            return _unpacked, (_Arrival(), "", [], *values)
        values[0] = packed(self.data, pool)
        return _unpacked, (_Arrival(), pool.token, pool.gone(), *values)

    def pin_memory(self) -> WorkerBatch:
        """The same with its data in page-locked memory; called by torch's pinning thread."""
        self.data = mapped(self.data, torch.Tensor.pin_memory)
        return self


class _Arrival:
    """Becomes, where it is unpickled, the time at which that began."""

    def __reduce__(self) -> tuple[Any, ...]:
        return time.perf_counter, ()


def _unpacked(began: float, sender: str, gone: list[int], *values: Any) -> WorkerBatch:
    drop(sender, gone)
    batch = WorkerBatch(*values)
    ended = time.perf_counter()
    batch.transport = ended - began
    if batch.spans is not None:
        batch.spans.arrived = (threading.get_native_id(), began, ended)
    return batch


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """An error of ours on its way from a worker, whole: torch would keep no more than its text.

    Attributes:
        error: The error, with its place.
        trace: Traceback of what caused it, if it was caused by something else; such as a user's code.
        worker: The worker's number.
    """

    error: ShardStreamError
    trace: str
    worker: int

    @classmethod
    def of(cls, error: ShardStreamError, worker: int) -> BatchFailure:
        """What travels for an error that was just caught."""
        cause = error.__cause__
        return cls(error, "" if cause is None else "".join(traceback.format_exception(cause)), worker)

    def throw(self) -> NoReturn:
        """Raise the error in the training process.

        Raises:
            ShardStreamError: It.
        """
        error = self.error
        error.add_note(f"(in DataLoader worker {self.worker})")
        if self.trace:
            error.add_note(f"caused by\n{self.trace}")
        try:
            raise error
        finally:  # or this frame, which the error's traceback holds, would hold the error
            del error, self


class CollateWorkerBatch:
    """A user's ``collate_fn`` applied to what is inside a batch. Picklable if the function is.

    Args:
        function: Gets a list of samples, or one sample where ``each``.
        each: Apply it to every sample by itself, as a DataLoader without batching does.
    """

    def __init__(self, function: Callable[[Any], Any], *, each: bool) -> None:
        self.function = function
        self.each = each

    def __call__(self, batch: Any) -> Any:
        if isinstance(batch, BatchFailure):
            return batch
        if not isinstance(batch, WorkerBatch):  # another DataLoader reads the data set of ours
            return self.function(batch)
        began = time.perf_counter()
        batch.data = [self.function(one) for one in batch.data] if self.each else self.function(batch.data)
        batch.stages["assemble"] = batch.stages.get("assemble", 0.0) + time.perf_counter() - began
        if torch.utils.data.get_worker_info() is not None:
            refuse_devices(batch.data)
        return batch


def keep(value: Any) -> Any:
    """A ``collate_fn`` that changes nothing."""
    return value


class StreamItem(NamedTuple):
    """What a training loop gets at once.

    Attributes:
        data: A batch, or a sample where there is no batch size.
        counted: The worker batches that arrived with it, without their data.
        before: Positions of the stream that come before it.
        after: The same with it, and with what was dropped at the end of the stream.
        last: Whether nothing follows.
    """

    data: Any
    counted: list[WorkerBatch]
    before: int
    after: int
    last: bool


class Requests:
    """How the next batch of a worker is asked for.

    Args:
        ask: Gives the next batch; ``None`` if there is none.

    Attributes:
        ask: As given; another one may be put in its place at any time.
    """

    __slots__ = ("ask",)

    def __init__(self, ask: Callable[[], WorkerBatch | BatchFailure | None]) -> None:
        self.ask = ask


def items_of(
    requests: Requests,
    count: int,
    rest: list[WorkerBatch],
    *,
    single: bool,
    drops: bool,
) -> Iterator[StreamItem]:
    """The items in worker batches, one after another. The batch after the last one is not asked for.

    Args:
        requests: Gives the batches.
        count: How many there are.
        rest: Here lie the batches that came since the last item.
        single: Whether they hold lists of samples.
        drops: Whether samples can be missing in them. The last sample of a batch then waits for the next batch that
            has any: it may be the last of all.

    Raises:
        ShardStreamError: A failure came, or who was asked raised it.
    """
    taken, held, drops = 0, None, single and drops
    for number in range(1, count + 1):
        batch = None
        try:
            batch = requests.ask()
            if isinstance(batch, BatchFailure):
                batch.throw()
        except Exception:
            batch = None  # or this frame, which the error's traceback holds, would hold the error
            if held is not None:  # it comes before what failed
                yield held
            raise
        if batch is None:
            break
        items = batch.data if single else (batch.data,)
        slots = batch.slots if single else [batch.positions - 1]
        batch.data = None
        rest.append(batch)
        before, left = taken, len(items)
        for data, slot in zip(items, range(batch.positions) if slots is None else slots, strict=True):
            if held is not None:
                yield held
                held = None
            left -= 1
            last = number == count and not left
            after = taken + (batch.positions if last else slot + 1)
            item = StreamItem(data, rest[:], before, after, last)
            del data, rest[:]  # slices: this is done for each sample
            before = after
            if drops and not left and not last:
                held = item
            else:
                yield item
            del item
        del items
        taken += batch.positions
    if held is not None:
        counted = held.counted + rest
        del rest[:]
        yield held._replace(counted=counted, after=taken, last=True)
