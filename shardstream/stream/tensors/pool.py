"""``Pool``: memory for batches that is used again as soon as nobody refers to what lay there.

A batch of some MiB in fresh memory costs more for the memory than for what is written to it: the kernel clears every
page and hands it out at its first touch. So slabs are kept. A tensor on one refers to it, as does every view, array or
storage made of that tensor; when the last of them is gone, the slab is filled again. Whoever keeps a batch keeps its
slab, and the next batch takes another one.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch

_MOST = 64  # slabs of a pool: a lent one takes a file descriptor in two processes, of which there may be 1,024 in all
_IDLE = 32  # slabs taken since one was used last, after which it is given up
_LEAST = 64 << 10  # bytes of a slab
_GRAIN = 8  # slabs come in so many sizes between one power of two and the next
_WIDEST = 1.25  # times what is needed, at most, is a slab that is used again


class Slab:
    """One piece of memory.

    Args:
        memory: Where it lies.
        size: Bytes of it that can be used.
    """

    def __init__(self, memory: mmap.mmap, size: int) -> None:
        self.memory = memory
        self.size = size
        self.address = np.frombuffer(memory, np.uint8).ctypes.data
        self.held = False  # a tensor on it lives in this process
        self.used = 0

    @property
    def in_use(self) -> bool:
        """Whether somebody may look at what it holds."""
        return self.held

    @property
    def lost(self) -> bool:
        """Whether it must never be filled again."""
        return False

    def tensor(self, size: int) -> torch.Tensor:
        """Its first bytes as uint8 (size,). It is held until nothing refers to that memory any more."""
        array = np.frombuffer(self.memory, np.uint8, size)
        self.held = True
        weakref.finalize(array, self._let_go).atexit = False
        return torch.from_numpy(array)

    def _let_go(self) -> None:
        self.held = False


S = TypeVar("S", bound=Slab)


class Pool(ABC, Generic[S]):
    """Slabs that are used again. From any thread.

    Attributes:
        smallest: Bytes from which on a tensor is worth a slab.
    """

    smallest: ClassVar[int]

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slabs: dict[int, S] = {}  # by address
        self._taken = 0

    @abstractmethod
    def _new(self, size: int) -> S:
        """A slab that nobody has used yet."""

    def _give_up(self, slab: S) -> None:
        """Nobody uses it, and nobody shall."""
        del self._slabs[slab.address]

    def take(self, size: int) -> torch.Tensor | None:
        """``size`` bytes of any content: uint8 (size,); ``None`` where all slabs that there may be are kept."""
        with self._lock:
            self._taken += 1
            slab = self._find(size)
            if slab is None:
                return None
            slab.used = self._taken
            return slab.tensor(size)

    def _find(self, size: int) -> S | None:
        """A slab that nobody uses: the last one used of those that fit, so that the others are given up in time."""
        best: S | None = None
        for slab in list(self._slabs.values()):
            if slab.in_use:
                continue
            if slab.lost or self._taken - slab.used > _IDLE:
                self._give_up(slab)
            elif size <= slab.size <= _WIDEST * size and (best is None or slab.used > best.used):
                best = slab
        if best is None and len(self._slabs) < _MOST:
            best = self._new(_rounded(size))
            self._slabs[best.address] = best
        return best


def _rounded(size: int) -> int:
    step = max(1 << max(size.bit_length() - 1, 0), _LEAST) // _GRAIN
    return -(-size // step) * step


class HomePool(Pool[Slab]):
    """The slabs of batches that are made where they are used. Not shared with processes that are forked meanwhile."""

    smallest = 32 << 20  # up to here, glibc's heap learns after some batches to keep what was freed; never beyond

    def _new(self, size: int) -> Slab:
        return Slab(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), size)

    def clear(self) -> None:
        """Give up all slabs; those of batches that somebody keeps go with them."""
        with self._lock:
            self._slabs.clear()

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """Batches that this thread makes meanwhile lie here."""
        before = home_pool()
        _here.pool = self
        try:
            yield
        finally:
            _here.pool = before


_here = threading.local()


def home_pool() -> HomePool | None:
    """The pool that is in charge in this thread."""
    return getattr(_here, "pool", None)
