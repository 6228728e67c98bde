"""The tensors of a batch side by side in one piece of memory, so that one copy moves them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from shardstream.stream.nested import mapped
from shardstream.stream.slabs import is_dense

_ALIGNMENT = 512  # what CUDA's allocator gives, and more than any dtype or kernel asks for
_LARGE = 1 << 20


class _Place(NamedTuple):
    """Where a tensor lies in the slab; fields as of ``torch.as_strided``, the offset in bytes."""

    offset: int
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def of(self, slab: torch.Tensor) -> torch.Tensor:
        part = slab[self.offset : self.offset + self.size].view(self.dtype)
        return part.as_strided(self.shape, self.stride)


class Packing:
    """One batch, about to be moved.

    Each tensor keeps its dtype, shape and order of dimensions (channels last stays so). What cannot lie in a slab
    (sparse, quantised, with gradients, on a device already) moves by itself.

    Args:
        batch: However nested, see `mapped`.

    Attributes:
        size: Bytes of the slab.
    """

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._tensors: list[torch.Tensor] = []
        self._places: list[_Place] = []
        self.size = 0
        mapped(batch, self._plan)

    def _plan(self, tensor: torch.Tensor) -> torch.Tensor:
        if _is_plain(tensor):
            stride = tensor.stride() if is_dense(tensor) else torch.empty_like(tensor, device="meta").stride()
            place = _Place(self.size, tensor.dtype, tensor.shape, stride)
            self._tensors.append(tensor)
            self._places.append(place)
            self.size += -(-place.size // _ALIGNMENT) * _ALIGNMENT
        return tensor

    def fill(self, slab: torch.Tensor) -> None:
        """Copy the tensors into a slab: uint8, at least ``size``."""
        for tensor, place in zip(self._tensors, self._places, strict=True):
            place.of(slab).copy_(tensor)

    def unpacked(self, slab: torch.Tensor, move: Callable[[Any], Any]) -> Any:
        """The batch with its tensors in a slab that holds what `fill` wrote.

        Large ones are views of it. Small ones are copied out, so that whoever keeps the labels of an epoch does not
        keep its images.

        Args:
            slab: On any device.
            move: For what does not lie in the slab.
        """
        places: Iterator[_Place] = iter(self._places)

        def view(tensor: torch.Tensor) -> Any:
            if not _is_plain(tensor):
                return move(tensor)
            place = next(places)
            part = place.of(slab)
            return part if place.size >= _LARGE else part.clone()

        return mapped(self._batch, view, lambda value: move(value) if hasattr(value, "to") else value)


def _is_plain(tensor: torch.Tensor) -> bool:
    strided = tensor.layout is torch.strided and not tensor.is_quantized
    plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and strided and not (tensor.is_conj() or tensor.is_neg())
