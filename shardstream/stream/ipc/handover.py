"""How the tensors of a `WorkerBatch` travel: on slabs that a worker shares, or by value where they are small.

``packed`` prepares what a worker sends; its tensors come out of the pickle on the other side. There each slab is mapped
once and known by its number from then on.
"""

from __future__ import annotations

import mmap
import os
import weakref
from functools import partial
from typing import Any

import numpy as np
import torch

from shardstream.stream.ipc.orphans import process_exists
from shardstream.stream.tensors.crops import Crops
from shardstream.stream.tensors.ragged import Ragged
from shardstream.stream.tensors.slabs import FREE, LOST, SHARED, SharedSlabPool, is_dense, tensor_on


def packed(value: Any, pool: SharedSlabPool) -> Any:
    """``value`` with all plain tensors in it, however nested, replaced by what travels in their place.

    Others, and those inside of objects that are unknown here, are left to torch.
    """
    if type(value) is torch.Tensor:
        return _packed_tensor(value, pool)
    if type(value) is Ragged:
        return value.mapped(partial(packed, pool=pool))
    if type(value) is Crops:
        values, offsets, shapes, flips = packed((value.values, value.offsets, value.shapes, value.flips), pool)
        return Crops(values, offsets, shapes, flips, value.size)
    if type(value) is dict:
        return {name: packed(part, pool) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(packed(part, pool) for part in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(packed(part, pool) for part in value))
    return value


class _Travelling:
    """Becomes a tensor where it is unpickled."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, self._arguments


def _packed_tensor(tensor: torch.Tensor, pool: SharedSlabPool) -> Any:
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized
    if not plain or tensor.requires_grad or tensor.is_shared() or tensor.is_conj() or tensor.is_neg():
        return tensor
    size = tensor.numel() * tensor.itemsize
    slab = pool.owner(tensor) if size >= pool.smallest else None
    if size >= pool.smallest and slab is None:
        # Already with the other side, or made by somebody else: torch, too, would copy it into shared memory.
        memory = pool.take(size)
        if memory is not None:
            like = tensor if is_dense(tensor) else tensor.contiguous()
            tensor = tensor_on(memory.untyped_storage(), tensor.dtype, tensor.shape, like.stride()).copy_(tensor)
            slab = pool.owner(tensor)
    descriptor = None
    if slab is not None:
        try:
            descriptor = slab.share()
        except OSError:  # of which the queue, that sends this, would tell nobody
            slab = None
    if slab is None:
        dense = _dense(tensor)
        octets = torch.as_strided(dense, (dense.numel(),), (1,)).view(torch.uint8).numpy()
        return _Travelling(bytearray(octets.data), tensor.dtype, tensor.shape, dense.stride(), 0)
    where = pool.token, slab.number, slab.size, descriptor
    return _Travelling(where, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its memory order, if that has no gaps, and from the beginning of its memory."""
    return tensor.clone() if is_dense(tensor) else tensor.contiguous()


# --------------------------------------------------------------------------------------------- in the training process

_known: dict[str, dict[int, mmap.mmap]] = {}  # by worker and number


def _arrived(where: Any, dtype: torch.dtype, shape: Any, stride: Any, offset: int) -> torch.Tensor:
    if isinstance(where, bytearray):
        if not where:
            return torch.empty_strided(shape, stride, dtype=dtype)
        return tensor_on(torch.frombuffer(where, dtype=torch.uint8).untyped_storage(), dtype, shape, stride)
    token, number, size, descriptor = where
    slabs = _known.get(token)
    if slabs is None:
        forget_the_dead()
        slabs = _known[token] = {}
    if descriptor is not None:
        fd = descriptor.detach()
        try:
            slabs[number] = mmap.mmap(fd, size + 1)
        finally:
            os.close(fd)
    memory = slabs[number]
    array = np.frombuffer(memory, np.uint8, size)
    weakref.finalize(array, _give_back, memory, os.getpid()).atexit = False
    return tensor_on(torch.from_numpy(array).untyped_storage(), dtype, shape, stride, offset)


def _give_back(memory: mmap.mmap, process: int) -> None:
    if memory[-1] == SHARED and os.getpid() == process:
        memory[-1] = FREE


def drop(token: str, gone: list[int]) -> None:
    """A worker has given up these slabs."""
    for number in gone:
        _known.get(token, {}).pop(number, None)


def forget_the_dead() -> None:
    """Unmap the slabs of workers that have ended, but for those that somebody still uses."""
    for token in list(_known):
        if not process_exists(int(token.partition("-")[0])):
            _known.pop(token, None)


def _before_fork() -> None:
    # The child sees the same memory, as it is: nobody may write to what it may still look at.
    for slabs in list(_known.values()):
        for memory in list(slabs.values()):
            if memory[-1] == SHARED:
                memory[-1] = LOST


os.register_at_fork(before=_before_fork, after_in_child=_known.clear)
