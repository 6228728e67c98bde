"""Where batches are written: in memory that is used again, in a worker straight into what the training process sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.stream.tensors.pool import HomePool, home_pool
from shardstream.stream.tensors.shared_slabs import SharedSlabPool, lender


def empty_slab(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor, from some size on in memory that is used again when nobody refers to it any more.

    Inside a DataLoader worker it is shared memory, so that it travels uncopied; in one of a plain ``DataLoader`` fresh
    memory, as torch's own ``default_collate`` takes it.
    """
    size = math.prod(shape) * dtype.itemsize
    pool: HomePool | SharedSlabPool | None = home_pool()
    if size and torch.utils.data.get_worker_info() is not None:
        pool = lender()
        if pool is None:
            return tensor_on(torch.UntypedStorage._new_shared(size), dtype, shape)
    memory = pool.take(size) if pool is not None and size >= pool.smallest else None
    return torch.empty(shape, dtype=dtype) if memory is None else tensor_on(memory.untyped_storage(), dtype, shape)


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


def slab_of(values: NDArray[Any]) -> torch.Tensor:
    """A slab holding a copy of ``values``."""
    slab = empty_slab(values.shape, torch_dtype(values.dtype))
    slab.numpy()[...] = values
    return slab


def slab_over(values: NDArray[Any]) -> torch.Tensor:
    """A slab holding ``values``, which nobody else uses: a copy only where another process has to see it."""
    if torch.utils.data.get_worker_info() is not None:
        return slab_of(values)
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
