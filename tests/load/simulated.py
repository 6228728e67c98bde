"""A device with streams, events and an allocator that gives freed memory at once to who asks next, in this process.

What is put on a stream is run when somebody waits for it: as early as possible or as late as possible, as a test
chooses. Kernels hold no reference to their operands, as on a real device: they find whatever lies at the address.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from shardstream.load.device.device_copy import Device
from shardstream.load.device.packing import is_strided, memory_of

Memory = Any  # a numpy array of bytes


_one_at_a_time = threading.RLock()  # the device is driven by the threads that wait for it


class Stream:
    """Work in order. ``eager`` streams run what they may at once, others only when it is waited for."""

    def __init__(self, *, eager: bool) -> None:
        self.eager = eager
        self.queue: deque[Callable[[], bool]] = deque()
        self.done = 0
        self.put = 0

    def add(self, work: Callable[[], Any]) -> None:
        def run() -> bool:
            work()
            return True

        self._add(run)

    def add_wait(self, event: Event) -> None:
        def run() -> bool:
            event.stream.run_to(event.number)
            return event.query()

        self._add(run)

    def _add(self, work: Callable[[], bool]) -> None:
        self.queue.append(work)
        self.put += 1
        if self.eager:
            self.run_to(self.put)

    def run_to(self, number: int) -> None:
        with _one_at_a_time:
            while self.done < number:
                assert self.queue[0]()
                self.queue.popleft()
                self.done += 1


class Event:
    def __init__(self, stream: Stream) -> None:
        self.stream, self.number = stream, stream.put

    def query(self) -> bool:
        return self.stream.done >= self.number

    def synchronize(self) -> None:
        self.stream.run_to(self.number)

    def elapsed_time(self, other: Event) -> float:
        return float(other.number - self.number)


class Block:
    """Memory of the device, the stream that it was allocated on, and who else is still to use it after it was freed."""

    def __init__(self, memory: Memory, stream: Stream) -> None:
        self.memory = memory
        self.stream = stream
        self.users: set[Stream] = set()
        self.pending: list[Event] = []


class Simulated(Device):
    """Takes the place of `shardstream.load.device.device_copy.Cuda`."""

    def __init__(
        self, *, consumer_eager: bool, copies_eager: bool = True, transforms_eager: bool | None = None
    ) -> None:
        self.copies = Stream(eager=copies_eager)
        self.transforms = Stream(eager=copies_eager if transforms_eager is None else transforms_eager)
        self.consumer = Stream(eager=consumer_eager)
        self.blocks: dict[int, Block] = {}
        self.free: list[Block] = []
        self.made: list[Block] = []
        self.reused = 0
        self._current = threading.local()

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self._current.stream = self.loop(), stream
        yield
        self._current.stream = before

    def loop(self) -> Stream:
        return getattr(self._current, "stream", self.consumer)

    def pinned(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8)

    def empty(self, size: int) -> torch.Tensor:
        """The most recently freed block of the stream that is large enough and not waited for; as torch's allocator."""
        found = (one for one in reversed(self.free) if len(one.memory) >= size and one.stream is self.loop())
        block = next((one for one in found if all(event.query() for event in one.pending)), None)
        if block is None:
            block = Block(np.full(size, 255, np.uint8), self.loop())
            self.made.append(block)
        else:
            self.free.remove(block)
            self.reused += 1
        lent = block.memory[:size]  # an object of its own, which lives as long as any tensor on it
        self.blocks[lent.ctypes.data] = block
        weakref.finalize(lent, self._freed, block)
        return torch.from_numpy(lent)

    def _freed(self, block: Block) -> None:
        block.pending = [Event(stream) for stream in block.users]
        block.users = set()
        self.free.append(block)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        if not len(target):
            return
        to, size = self.blocks[target.data_ptr()].memory, len(target)
        of = source.numpy()
        self.loop().add(lambda: np.copyto(to[:size], of))

    def move(self, value: Any) -> Any:
        """Ordinary tensors; others stay where they are."""
        if not isinstance(value, torch.Tensor) or not is_strided(value):
            return value
        octets = value.detach().contiguous().view(torch.uint8).flatten()
        target = self.empty(len(octets))
        self.copy(target, octets)
        return target.view(value.dtype).view(value.shape)

    def event(self, stream: Stream) -> Event:
        return Event(stream)

    def wait(self, stream: Stream, event: Event) -> None:
        stream.add_wait(event)

    def protect(self, tensor: torch.Tensor, stream: Stream) -> None:
        for memory in memory_of(tensor):
            block = self.blocks.get(memory.untyped_storage().data_ptr())
            if block is not None and stream is not block.stream:
                block.users.add(stream)

    # ---------------------------------------------------------------------------------------------- for the tests

    def kernel(self, stream: Stream, tensor: torch.Tensor, work: Callable[[Memory], Any]) -> None:
        """Work on the memory of a tensor, at its turn."""
        start = tensor.untyped_storage().data_ptr()
        memory, begin, size = self.blocks[start].memory, tensor.data_ptr() - start, tensor.nbytes
        stream.add(lambda: work(memory[begin : begin + size]))
