"""How a batch gets to its device: page-locked memory, streams of its own, events.

All calls of CUDA are in `Cuda`, so that the order of what happens can be tested where there is none: `CudaCopy` says
what is done when, and the tests drive it on a simulated device that runs streams as late, or as early, as it may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from shardstream.load.device.packing import Packing, memory_of
from shardstream.stream.tensors.nested import tensors_in

_SLOTS = 2  # one is filled while the other is copied


class Times(NamedTuple):
    """Seconds that the device spent on a batch."""

    copy: float
    transform: float


class Received(NamedTuple):
    """What `DeviceCopy.receive` finds.

    Attributes:
        late: Whether the device is still at the batch.
        mark: For `DeviceCopy.settle`: it has passed when the receiver's kernels before this batch have run.
    """

    late: bool
    mark: Any


class Ticket(NamedTuple):
    """What `DeviceCopy.sent` gives for a batch: its events, if it was copied, and how many tensors travelled alone."""

    begun: Any = None
    copied: Any = None
    arrived: Any = None
    ready: Any = None
    alone: int = 0


class DeviceCopy:
    """How batches get from the loader to the training loop. One thread sends, another receives.

    This one leaves them where they are; `CudaCopy` brings them to a device.
    """

    @property
    def pinned_bytes(self) -> int:
        """Page-locked memory that it holds."""
        return 0

    def working(self) -> AbstractContextManager[object]:
        """In it, the thread that sends does all its work."""
        return torch.no_grad()

    def send(self, batch: Any) -> Any:
        """The batch on its device, for the transform."""
        return batch

    def sent(self) -> Ticket:
        """After the transform: a ticket for the receiver."""
        return Ticket()

    def receive(self, batch: Any, ticket: Ticket) -> Received:
        """In the thread that receives: from here on the batch may be used."""
        return Received(late=False, mark=None)

    def settle(self, mark: Any) -> None:
        """In the thread that sends: wait until the receiver's kernels up to there have run, and no others."""

    def times(self) -> list[Times]:
        """What is known by now of the batches since this was asked last."""
        return []


class Device(Protocol):
    """The calls of a device that `CudaCopy` makes.

    Attributes:
        copies: The stream of copies to it.
        transforms: The stream of transforms.
    """

    copies: Any
    transforms: Any

    def on(self, stream: Any) -> AbstractContextManager[object]:
        """In it, work of this thread goes to this device and to one of its streams."""

    def loop(self) -> Any:
        """The stream that the calling thread works on now."""

    def pinned(self, size: int) -> torch.Tensor:
        """Page-locked memory: uint8."""

    def empty(self, size: int) -> torch.Tensor:
        """Device memory: uint8. Once freed it is given to work of the same stream at once."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """On the stream of the thread, without waiting."""

    def move(self, value: Any) -> Any:
        """Anything else that has ``to``, on the stream of the thread."""

    def event(self, stream: Any) -> Any:
        """An event after what a stream has to do by now."""

    def wait(self, stream: Any, event: Any) -> None:
        """What a stream is given from now on comes after an event; the thread does not wait."""

    def protect(self, tensor: torch.Tensor, stream: Any) -> None:
        """Its memory is not used again before what a stream has to do at the time of freeing."""


class Cuda(Device):
    """The calls of CUDA, for one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.copies = torch.cuda.Stream(device)
        self.transforms = torch.cuda.Stream(device)

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        # Without the device, CUDA would make a context on device 0.
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield

    def loop(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def empty(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def move(self, value: Any) -> Any:
        return value.to(self.device)

    def event(self, stream: Any) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True, blocking=True)  # the thread sleeps where it waits for one
        event.record(stream)
        return event

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def protect(self, tensor: torch.Tensor, stream: Any) -> None:
        if tensor.is_cuda:
            for memory in memory_of(tensor):
                if memory.is_cuda:
                    memory.record_stream(stream)


@dataclass(slots=True)
class _Slot:
    """Page-locked memory, and the event after which it may be written to."""

    memory: torch.Tensor
    copied: Any = None


class CudaCopy(DeviceCopy):
    """From memory of any kind to a device, beside what it is computing.

    1. The tensors of a batch are put side by side into page-locked memory, which is written to only after the event of
       the copy before.
    2. One copy takes them to device memory, on a stream of copies. The transform works on another one, which waits for
       the copy, so that the next batch is copied meanwhile. The memory is protected until it has: it belongs to the
       stream of copies, which else would be given it for a later batch as soon as nobody refers to it.
    3. At hand-over the stream that the receiving thread works on *then* waits for both, and all memory is protected in
       the same way, for the receiver's kernels are still to come.
    4. The host may be many steps ahead of the device, and what it has let go of is kept until the device has come
       there. So the sender waits for the receiver's kernels of some steps ago before it takes more (`settle`).
    """

    def __init__(self, cuda: Device) -> None:
        self._cuda = cuda
        self._slots: list[_Slot] = []
        self._turn = 0
        self._under_way: tuple[Any, Any, Any, int]
        self._timed: list[Ticket] = []

    @property
    def pinned_bytes(self) -> int:
        return sum(len(slot.memory) for slot in self._slots)

    @contextmanager
    def working(self) -> Iterator[None]:
        with torch.no_grad(), self._cuda.on(self._cuda.transforms):
            yield

    def send(self, batch: Any) -> Any:
        cuda = self._cuda
        packing = Packing(batch)
        slot = self._slot(packing.size)
        if slot.copied is not None:
            slot.copied.synchronize()
        packing.fill(slot.memory)
        with cuda.on(cuda.copies):
            begun = cuda.event(cuda.copies)
            slab = cuda.empty(packing.size)
            cuda.copy(slab, slot.memory[: packing.size])
            moved = packing.unpacked(slab, cuda.move)
            copied = slot.copied = cuda.event(cuda.copies)
        cuda.wait(cuda.transforms, copied)
        self._protect(moved, cuda.transforms)
        self._under_way = begun, copied, cuda.event(cuda.transforms), packing.alone
        return moved

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

    def sent(self) -> Ticket:
        begun, copied, arrived, alone = self._under_way
        ticket = Ticket(begun, copied, arrived, self._cuda.event(self._cuda.transforms), alone)
        self._timed.append(ticket)
        return ticket

    def receive(self, batch: Any, ticket: Ticket) -> Received:
        loop = self._cuda.loop()
        found = Received(late=not ticket.ready.query(), mark=self._cuda.event(loop))
        self._cuda.wait(loop, ticket.ready)
        self._protect(batch, loop)
        return found

    def _protect(self, batch: Any, stream: Any) -> None:
        for tensor in tensors_in(batch):
            self._cuda.protect(tensor, stream)

    def settle(self, mark: Any) -> None:
        mark.synchronize()

    def times(self) -> list[Times]:
        known = []
        while self._timed and self._timed[0].ready.query():
            one = self._timed.pop(0)
            known.append(Times(one.begun.elapsed_time(one.copied) / 1e3, one.arrived.elapsed_time(one.ready) / 1e3))
        return known


def _rounded(size: int) -> int:
    """The next power of two: what torch's allocator of page-locked memory takes from the system in any case."""
    return 1 << max(size - 1, 1).bit_length()
