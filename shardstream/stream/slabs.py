"""Where batches are written: in a DataLoader worker straight into the memory that the parent will see."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.errors import UsageError


def empty_slab(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor; inside a DataLoader worker in shared memory, so that it reaches the parent uncopied.

    Torch's own ``default_collate`` allocates in the same way.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if torch.utils.data.get_worker_info() is None or count == 0:
        return torch.empty(shape, dtype=dtype)
    storage = torch.UntypedStorage._new_shared(count * dtype.itemsize)
    return torch.empty(0, dtype=dtype).set_(storage, 0, shape)  # type: ignore[call-overload, no-any-return]


def slab_of(values: NDArray[Any]) -> torch.Tensor:
    """A slab holding a copy of ``values``."""
    slab = empty_slab(values.shape, torch_dtype(values.dtype))
    slab.numpy()[...] = values
    return slab


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
