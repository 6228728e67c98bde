"""What travels from a worker to ``ss.Loader``: data, and what happened while making it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from shardstream.errors import ShardStreamError
from shardstream.stream.ipc.handover import drop, packed
from shardstream.stream.tensors.nested import mapped, refuse_devices
from shardstream.stream.tensors.shared_slabs import lender


@dataclass(slots=True)
class WorkerBatch:
    """One step's data with its counters; `ss.Loader` takes it apart.

    Attributes:
        data: A batch, or a list of samples.
        samples: How many samples of its own it holds: not padded, not skipped.
        skipped: Where each skipped sample lies, and why.
        stages: Seconds that the worker spent on it, by `Stage`.
        sources: Of a mixture: how many of these samples came from each source, by name.
        positions: How many positions of the epoch it stands for.
        slots: Of a list of samples: the place of each in the step, where some places have none; else ``None``.
        transfers: What was read over a network meanwhile, see `shardstream.storage.base.counters`.
        transport: Seconds that it took to arrive in another process, without the waiting.
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

    @property
    def seconds(self) -> float:
        """Time that the worker spent on it."""
        return sum(self.stages.values())

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, one.name) for one in fields(self)]
        pool = lender()
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
    parcel = WorkerBatch(*values)
    parcel.transport = time.perf_counter() - began
    return parcel


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

    def raised(self) -> ShardStreamError:
        """The error to raise in the parent."""
        self.error.add_note(f"(in DataLoader worker {self.worker})")
        if self.trace:
            self.error.add_note(f"caused by\n{self.trace}")
        return self.error


class CollateWorkerBatch:
    """A user's ``collate_fn`` applied to what is inside a parcel. Picklable if the function is.

    Args:
        function: Gets a list of samples, or one sample where ``each``.
        each: Apply it to every sample by itself, as a DataLoader without batching does.
    """

    def __init__(self, function: Callable[[Any], Any], *, each: bool) -> None:
        self.function = function
        self.each = each

    def __call__(self, parcel: Any) -> Any:
        if isinstance(parcel, BatchFailure):
            return parcel
        if not isinstance(parcel, WorkerBatch):  # another DataLoader reads the data set of ours
            return self.function(parcel)
        began = time.perf_counter()
        parcel.data = [self.function(one) for one in parcel.data] if self.each else self.function(parcel.data)
        parcel.stages["assemble"] = parcel.stages.get("assemble", 0.0) + time.perf_counter() - began
        if torch.utils.data.get_worker_info() is not None:
            refuse_devices(parcel.data)
        return parcel


def keep(value: Any) -> Any:
    """A ``collate_fn`` that changes nothing."""
    return value
