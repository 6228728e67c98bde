"""Memory that goes back and forth between a worker and the training process: the worker's side is ``SharedSlabPool``.

A fresh slab for each batch costs several times the copy into it, in both processes (see ``pool``), and a file
descriptor is passed on for each tensor. So a worker lends its slabs. The training process maps each once; when the last
tensor on it is gone, it marks the slab as free, and the worker fills it again. The memory is anonymous
(``memfd_create``): it is not part of ``/dev/shm``, whose size containers limit, and nothing of it outlives the
processes.

Torch does not know that these tensors are shared. Where one is pickled by any road but that of a `Parcel`, torch
copies it, as it does with ordinary ones.
"""

from __future__ import annotations

import mmap
import os
import uuid
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any

from shardstream.stream.tensors.pool import Pool, Slab

if TYPE_CHECKING:
    import torch

# The last byte of a slab says whose it is.
FREE, LENT, LOST = 0, 1, 2


def supported() -> bool:
    """Whether this system has the memory that is needed."""
    return hasattr(os, "memfd_create")


class SharedSlab(Slab):
    """One piece of memory, on the worker's side.

    Args:
        number: Its number in the pool.
        size: Bytes that can be used.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.fd: int | None = os.memfd_create("shardstream-batch", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size + 1)
        super().__init__(mmap.mmap(self.fd, size + 1), size)

    @property
    def state(self) -> int:
        """`FREE`, `LENT` or `LOST`."""
        return self.memory[-1]

    @property
    def in_use(self) -> bool:
        """Whether somebody may look at what it holds, on either side."""
        return self.held or self.state == LENT

    @property
    def lost(self) -> bool:
        """Whether a process that the other side forked may look at it."""
        return self.state == LOST

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


class SharedSlabPool(Pool[SharedSlab]):
    """The slabs of one worker. From any of its threads."""

    smallest = 64 << 10  # less travels by value

    def __init__(self) -> None:
        super().__init__()
        self.token = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._gone: list[int] = []
        self._made = 0

    def _new(self, size: int) -> SharedSlab:
        self._made += 1
        return SharedSlab(self._made - 1, size)

    def _give_up(self, slab: SharedSlab) -> None:
        super()._give_up(slab)
        self._gone.append(slab.number)
        slab.close()

    def owner(self, tensor: torch.Tensor) -> SharedSlab | None:
        """The slab that a tensor lies on, if it can be lent: the other side does not have it."""
        slab = self._slabs.get(tensor.untyped_storage().data_ptr())
        return slab if slab is not None and slab.held and slab.state == FREE else None

    def gone(self) -> list[int]:
        """Numbers of slabs that were given up since this was asked last."""
        with self._lock:
            gone, self._gone = self._gone, []
            return gone


_pool: SharedSlabPool | None = None


def begin_sharing() -> None:
    """From now on batches of this process, a worker of ``ss.Loader``, lie on lent slabs."""
    global _pool
    if _pool is None and supported():
        _pool = SharedSlabPool()


def lender() -> SharedSlabPool | None:
    """This process's pool; ``None`` where it is no worker of ``ss.Loader``."""
    return _pool
