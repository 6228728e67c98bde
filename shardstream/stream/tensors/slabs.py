"""Where batches are written: in memory that is used again, in a worker straight into what the training process sees.

A batch of some MiB in fresh memory costs more for the memory than for what is written to it: the kernel clears every
page and hands it out at its first touch. So slabs are kept in a `Pool`. A tensor on one refers to it, as does every
view, array or storage made of that tensor; when the last of them is gone, the slab is filled again. Whoever keeps a
batch keeps its slab, and the next batch takes another one.

Between processes, a file descriptor would be passed on for each tensor besides. So the slabs of a worker
(`SharedSlabPool`) go back and forth: the training process maps each once; when the last tensor on it is gone, it marks
the slab as free, and the worker fills it again. The memory is anonymous (``memfd_create``): it is not part of
``/dev/shm``, whose size containers limit, and nothing of it outlives the processes. Torch does not know that these
tensors are shared: where one is pickled by itself, and not on a `WorkerBatch`, torch copies it as any other.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from multiprocessing import reduction
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.extras import private
from shardstream.memory_files import has_memory_files, map_shared, memory_file

_MOST = 64  # slabs of a pool: a shared one takes a file descriptor in two processes, of which there may be 1,024 in all
_IDLE = 32  # slabs taken since one was used last, after which it is given up
_LEAST = 64 << 10  # bytes of a slab
_GRAIN = 8  # slabs come in so many sizes between one power of two and the next
_ALIGNED = 64  # bytes: arrays begin at multiples of it
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
        before = getattr(_here, "pool", None)
        _here.pool = self
        try:
            yield
        finally:
            _here.pool = before


_here = threading.local()  # `pool`: the one that is in charge in this thread


# The last byte of a slab says whose it is.
FREE, SHARED, LOST = 0, 1, 2


class SharedSlab(Slab):
    """One piece of memory, on the worker's side.

    Args:
        number: Its number in the pool.
        size: Bytes that can be used.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.fd: int | None = memory_file("shardstream-batch", size + 1)
        super().__init__(map_shared(self.fd, size + 1), size)

    @property
    def state(self) -> int:
        """`FREE`, `SHARED` or `LOST`."""
        return self.memory[-1]

    @property
    def in_use(self) -> bool:
        """Whether somebody may look at what it holds, on either side."""
        return self.held or self.state == SHARED

    @property
    def lost(self) -> bool:
        """Whether a process that the other side forked may look at it."""
        return self.state == LOST

    def share(self) -> Any:
        """Mark it as shared; what brings its descriptor to the other side, the first time.

        Raises:
            OSError: The system has no descriptor left for it.
        """
        found = None if self.fd is None else reduction.DupFd(self.fd)
        self.close()
        self.memory[-1] = SHARED
        return found

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
        self._numbers = count()

    def _new(self, size: int) -> SharedSlab:
        return SharedSlab(next(self._numbers), size)

    def _give_up(self, slab: SharedSlab) -> None:
        super()._give_up(slab)
        self._gone.append(slab.number)
        slab.close()

    def owner(self, tensor: torch.Tensor) -> SharedSlab | None:
        """The slab that a tensor lies on, if it can be shared: the other side does not have it."""
        slab = self._slabs.get(tensor.untyped_storage().data_ptr())
        return slab if slab is not None and slab.held and slab.state == FREE else None

    def gone(self) -> list[int]:
        """Numbers of slabs that were given up since this was asked last."""
        with self._lock:
            gone, self._gone = self._gone, []
            return gone


_pool: SharedSlabPool | None = None


def begin_sharing() -> None:
    """From now on batches of this process, a worker of ``ss.Loader``, lie on shared slabs, if the system has them."""
    global _pool
    if _pool is None and has_memory_files():
        _pool = SharedSlabPool()


def shared_pool() -> SharedSlabPool | None:
    """This process's pool; ``None`` where it is not a worker of ``ss.Loader``."""
    return _pool


def empty_slab(shape: tuple[int, ...], dtype: torch.dtype, slots: int = 0) -> torch.Tensor:
    """An uninitialised tensor, from some size on in memory that is used again when nobody refers to it any more.

    Inside a DataLoader worker it is shared memory, so that it travels uncopied; in one of a plain ``DataLoader`` fresh
    memory, as torch's own ``default_collate`` takes it.

    Args:
        shape: (n, ...).
        dtype: Its dtype.
        slots: If this is more than n, memory for so many rows is taken, and the tensor is a view of the first n: short
            batches then use the memory of full ones again.
    """
    if slots > shape[0]:
        return empty_slab((slots, *shape[1:]), dtype)[: shape[0]]
    size = math.prod(shape) * dtype.itemsize
    pool: HomePool | SharedSlabPool | None = getattr(_here, "pool", None)
    if size and torch.utils.data.get_worker_info() is not None:
        pool = shared_pool()
        if pool is None:
            return tensor_on(private(torch.UntypedStorage, "_new_shared", "torch")(size), dtype, shape)
    memory = pool.take(size) if pool is not None and size >= pool.smallest else None
    return torch.empty(shape, dtype=dtype) if memory is None else tensor_on(memory.untyped_storage(), dtype, shape)


class Strip:
    """Arrays for a batch that is used where it is made, one behind another in one piece of memory.

    Where a batch is several arrays of some hundred kilobytes each, glibc's heap never learns to keep them all: it gives
    back to the system what is more than twice the largest piece that it has seen.

    Args:
        size: Bytes of all arrays.
    """

    def __init__(self, size: int) -> None:
        pool: HomePool | None = getattr(_here, "pool", None)
        memory = pool.take(size) if pool is not None and size >= _LEAST else None
        self._left = np.empty(size, np.uint8) if memory is None else memory.numpy()

    def empty(self, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        """An uninitialised array; in memory of its own where it is small, or the strip is used up."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size < _LEAST or size > len(self._left):  # who keeps a small one for long shall not keep all of the strip
            return np.empty(shape, dtype)
        memory, self._left = self._left[:size], self._left[-(-size // _ALIGNED) * _ALIGNED :]
        return np.ndarray(shape, dtype, memory)


def tensor_on(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    shape: Sequence[int],
    stride: Sequence[int] | None = None,
    offset: int = 0,
) -> torch.Tensor:
    """A tensor on memory that is there; without strides a contiguous one."""
    strides = () if stride is None else (stride,)
    return torch.empty(0, dtype=dtype).set_(storage, offset, shape, *strides)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a piece of memory, in whatever order."""
    return tensor.is_contiguous() or torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def channels_first(slab: torch.Tensor) -> torch.Tensor:
    """Images (B, H, W, 3) as (B, 3, H, W) with channels-last strides: the same memory."""
    return slab.permute(0, 3, 1, 2)


def slab_of(values: NDArray[Any], slots: int = 0) -> torch.Tensor:
    """A slab holding a copy of ``values``; ``slots`` as of `empty_slab`."""
    slab = empty_slab(values.shape, torch_dtype(values.dtype), slots)
    slab.numpy()[...] = values
    return slab


def slab_over(values: NDArray[Any], slots: int = 0) -> torch.Tensor:
    """A slab holding ``values``, which nobody else uses: a copy only if another process has to see it.

    ``slots`` as of `empty_slab`.
    """
    if torch.utils.data.get_worker_info() is not None:
        return slab_of(values, slots)
    torch_dtype(values.dtype)
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("="), copy=False))


@cache
def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """The torch dtype of a numpy one.

    Raises:
        UsageError: Torch has none.
    """
    name = "bool" if dtype.kind == "b" else dtype.name
    found = getattr(torch, name, None) if dtype.kind in "biufc" else None
    if not isinstance(found, torch.dtype):
        raise UsageError(
            f"torch has no dtype for numpy's {dtype}", hint="convert the values in `fields` or `transform`"
        )
    return found
