"""Memory that goes back and forth between a worker and the training process: the worker's side is ``SlabPool``.

A fresh slab for each batch costs several times the copy into it: the kernel clears every page and hands it out at its
first touch, in both processes, and a file descriptor is passed on for each tensor. So a worker lends its slabs. The
training process maps each once; when the last tensor on it is gone, it marks the slab as free, and the worker fills it
again. Whoever keeps a batch keeps its slab. The memory is anonymous (``memfd_create``): it is not part of
``/dev/shm``, whose size containers limit, and nothing of it outlives the processes.

Torch does not know that these tensors are shared. Where one is pickled by any road but that of a `Parcel`, torch
copies it, as it does with ordinary ones.
"""

from __future__ import annotations

import mmap
import os
import threading
import uuid
import weakref
from multiprocessing import reduction
from typing import Any

import numpy as np
import torch

SMALLEST = 64 << 10
"""Bytes from which on a tensor is worth a slab; smaller ones travel by value."""

_MOST = 64  # slabs of a worker: each takes a file descriptor in both processes, of which there may be 1,024 in all
_IDLE = 32  # slabs taken since one was used last, after which it is given up
_GRAIN = 8  # slabs come in so many sizes between one power of two and the next
_WIDEST = 1.25  # times what is needed, at most, is a slab that is used again

# The last byte of a slab says whose it is.
FREE, LENT, LOST = 0, 1, 2


def supported() -> bool:
    """Whether this system has the memory that is needed."""
    return hasattr(os, "memfd_create")


class Slab:
    """One piece of memory, on the worker's side.

    Args:
        number: Its number in the pool.
        size: Bytes that can be used.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.fd: int | None = os.memfd_create("shardstream-batch", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size + 1)
        self.memory = mmap.mmap(self.fd, size + 1)
        self.address = np.frombuffer(self.memory, np.uint8).ctypes.data
        self.held = False  # a tensor on it lives in this process
        self.used = 0

    @property
    def state(self) -> int:
        """`FREE`, `LENT` or `LOST`."""
        return self.memory[-1]

    def tensor(self) -> torch.Tensor:
        """All of it as uint8 (size,). It is held until nothing refers to that memory any more."""
        array = np.frombuffer(self.memory, np.uint8, self.size)
        self.held = True
        weakref.finalize(array, self._let_go).atexit = False
        return torch.from_numpy(array)

    def _let_go(self) -> None:
        self.held = False

    def lend(self) -> Any:
        """Mark it as lent; what brings its descriptor to the other side, the first time."""
        self.memory[-1] = LENT
        if self.fd is None:
            return None
        fd, self.fd = self.fd, None
        try:
            return reduction.DupFd(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Give up what the garbage collector would not."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class SlabPool:
    """The slabs of one worker. From any of its threads."""

    def __init__(self) -> None:
        self.token = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._lock = threading.Lock()
        self._slabs: dict[int, Slab] = {}  # by address
        self._gone: list[int] = []
        self._taken = 0
        self._made = 0

    def take(self, size: int) -> torch.Tensor | None:
        """``size`` bytes of any content: uint8 (size,); ``None`` where all slabs that there may be are kept."""
        with self._lock:
            self._taken += 1
            slab = self._find(size)
            if slab is None:
                return None
            slab.used = self._taken
            return slab.tensor()[:size]

    def _find(self, size: int) -> Slab | None:
        """A slab that nobody uses: the last one used of those that fit, so that the others are given up in time."""
        best: Slab | None = None
        for slab in list(self._slabs.values()):
            state = slab.state
            if slab.held or state == LENT:
                continue
            if state == LOST or self._taken - slab.used > _IDLE:
                del self._slabs[slab.address]
                self._gone.append(slab.number)
                slab.close()
            elif size <= slab.size <= _WIDEST * size and (best is None or slab.used > best.used):
                best = slab
        if best is None and len(self._slabs) < _MOST:
            best = Slab(self._made, _rounded(size))
            self._made += 1
            self._slabs[best.address] = best
        return best

    def owner(self, tensor: torch.Tensor) -> Slab | None:
        """The slab that a tensor lies on, if it can be lent: the other side does not have it."""
        slab = self._slabs.get(tensor.untyped_storage().data_ptr())
        return slab if slab is not None and slab.held and slab.state == FREE else None

    def gone(self) -> list[int]:
        """Numbers of slabs that were given up since this was asked last."""
        with self._lock:
            gone, self._gone = self._gone, []
            return gone


def _rounded(size: int) -> int:
    step = max(1 << max(size.bit_length() - 1, 0), SMALLEST) // _GRAIN
    return -(-size // step) * step


_pool: SlabPool | None = None


def begin_lending() -> None:
    """From now on batches of this process, a worker of ``ss.Loader``, lie on lent slabs."""
    global _pool
    if _pool is None and supported():
        _pool = SlabPool()


def lender() -> SlabPool | None:
    """This process's pool; ``None`` where it is no worker of ``ss.Loader``."""
    return _pool
