"""The road of a batch to its device: page-locked memory, a stream of its own, events.

All calls of CUDA are in `Cuda`, so that the order of what happens can be tested where there is none: `CudaRoad` says
what is done when, and the tests drive it on a simulated device that runs streams as late, or as early, as it may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from shardstream.load.packing import Packing
from shardstream.stream.nested import mapped

_SLOTS = 2  # one is filled while the other is copied


class Times(NamedTuple):
    """Seconds that the device spent on a batch."""

    copy: float
    transform: float


class Road(Protocol):
    """How batches get from the loader to the training loop. One thread sends, another receives."""

    @property
    def pinned_bytes(self) -> int:
        """Page-locked memory that it holds."""

    def working(self) -> AbstractContextManager[object]:
        """In it, the thread that sends does all its work."""

    def send(self, batch: Any) -> Any:
        """The batch on its device, for the transform."""

    def sent(self) -> Any:
        """After the transform: a ticket for the receiver."""

    def receive(self, batch: Any, ticket: Any) -> bool:
        """In the thread that receives: from here on the batch may be used; false if the device is still at it."""

    def times(self) -> list[Times]:
        """What is known by now of the batches since this was asked last."""


class CpuRoad(Road):
    """Batches stay where they are."""

    @property
    def pinned_bytes(self) -> int:
        return 0

    def working(self) -> AbstractContextManager[object]:
        return torch.no_grad()

    def send(self, batch: Any) -> Any:
        return batch

    def sent(self) -> None:
        return None

    def receive(self, batch: Any, ticket: None) -> bool:
        return True

    def times(self) -> list[Times]:
        return []


class Cuda:
    """The calls of CUDA, for one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """Work of this thread goes to this device and to our stream."""
        with ExitStack() as stack:
            stack.enter_context(torch.cuda.device(self.device))  # else CUDA would make a context on device 0
            stack.enter_context(torch.cuda.stream(self.stream))
            yield

    def pinned(self, size: int) -> torch.Tensor:
        """Page-locked memory: uint8."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def empty(self, size: int) -> torch.Tensor:
        """Device memory: uint8."""
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """On our stream, without waiting."""
        target.copy_(source, non_blocking=True)

    def move(self, value: Any) -> Any:
        """Anything else that has ``to``."""
        return value.to(self.device)

    def event(self) -> torch.cuda.Event:
        """An event after what our stream has to do by now."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def await_event(self, event: Any) -> None:
        """The stream that the calling thread works on now waits for it; the thread does not."""
        torch.cuda.current_stream(self.device).wait_event(event)

    def protect(self, tensor: torch.Tensor) -> None:
        """Its memory is not used again before what the calling thread's stream has to do at the time of freeing."""
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(self.device))


@dataclass(slots=True)
class _Slot:
    """Page-locked memory, and the event after which it may be written to."""

    memory: torch.Tensor
    copied: Any = None


class _Ticket(NamedTuple):
    begun: Any
    copied: Any
    ready: Any


class CudaRoad(Road):
    """From memory of any kind to a device, beside what it is computing.

    1. The tensors of a batch are put side by side into page-locked memory, which is written to only after the event of
       the copy before.
    2. One copy takes them to device memory, on a stream of its own; so does the transform its work.
    3. At hand-over the stream that the receiving thread works on *then* waits for both, and the memory is protected:
       it was allocated on our stream, whose later work would else be given it as soon as nobody refers to it, while the
       receiver's kernels are still to come.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._slots: list[_Slot] = []
        self._turn = 0
        self._begun: Any = None
        self._copied: Any = None
        self._timed: list[_Ticket] = []

    @property
    def pinned_bytes(self) -> int:
        return sum(len(slot.memory) for slot in self._slots)

    @contextmanager
    def working(self) -> Iterator[None]:
        with torch.no_grad(), self._cuda.on_stream():
            yield

    def send(self, batch: Any) -> Any:
        packing = Packing(batch)
        slot = self._slot(packing.size)
        if slot.copied is not None:
            slot.copied.synchronize()
        packing.fill(slot.memory)
        self._begun = self._cuda.event()
        slab = self._cuda.empty(packing.size)
        self._cuda.copy(slab, slot.memory[: packing.size])
        self._copied = slot.copied = self._cuda.event()
        return packing.unpacked(slab, self._cuda.move)

    def _slot(self, size: int) -> _Slot:
        """The next slot in turn, large enough; others of its size are what torch would keep of it anyway."""
        if len(self._slots) < _SLOTS:
            self._slots.append(_Slot(self._cuda.pinned(_rounded(size))))
        self._turn = (self._turn + 1) % len(self._slots)
        slot = self._slots[self._turn]
        if len(slot.memory) < size:
            if slot.copied is not None:
                slot.copied.synchronize()
            slot.memory = self._cuda.pinned(_rounded(size))
        return slot

    def sent(self) -> _Ticket:
        ticket = _Ticket(self._begun, self._copied, self._cuda.event())
        self._timed.append(ticket)
        return ticket

    def receive(self, batch: Any, ticket: _Ticket) -> bool:
        done: bool = ticket.ready.query()
        self._cuda.await_event(ticket.ready)
        _for_each_tensor(batch, self._cuda.protect)
        return done

    def times(self) -> list[Times]:
        known = []
        while self._timed and self._timed[0].ready.query():
            begun, copied, ready = self._timed.pop(0)
            known.append(Times(begun.elapsed_time(copied) / 1e3, copied.elapsed_time(ready) / 1e3))
        return known


def _rounded(size: int) -> int:
    """The next power of two: what torch's allocator of page-locked memory takes from the system in any case."""
    return 1 << max(size - 1, 1).bit_length()


def _for_each_tensor(batch: Any, function: Any) -> None:
    """All tensors of a batch, those inside of objects that are unknown here included."""
    seen: set[int] = set()

    def other(value: Any) -> Any:
        if id(value) not in seen and hasattr(value, "__dict__") and not isinstance(value, type):
            seen.add(id(value))
            for part in list(vars(value).values()):
                mapped(part, function, other)
        return value

    mapped(batch, function, other)
