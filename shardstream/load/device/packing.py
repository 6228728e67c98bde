"""The tensors of a batch side by side in one piece of memory, so that one copy moves them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from shardstream.errors import UsageError
from shardstream.extras import lacking
from shardstream.stream.tensors.nested import mapped, tensors_in
from shardstream.stream.tensors.slabs import is_dense

try:
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass
except ImportError as error:
    raise lacking("torch", str(error)) from error

_ALIGNMENT = 512  # what CUDA's allocator gives, and more than any dtype or kernel asks for
_LARGE = 1 << 20


class _Span(NamedTuple):
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
    (sparse, quantised, nested, with gradients, on a device already) moves by itself, and so does what is in an object
    that has a ``to`` of its own, by that.

    Args:
        batch: However nested, see `mapped`.

    Attributes:
        size: Bytes of the slab.
        alone: Number of tensors that travel, but not in the slab.

    Raises:
        UsageError: A tensor of a kind that cannot be handed out.
    """

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._tensors: list[torch.Tensor] = []
        self._spans: list[_Span] = []
        self.size = 0
        self.alone = 0
        mapped(batch, self._plan, own=self._plan_own)

    def _plan(self, tensor: torch.Tensor) -> torch.Tensor:
        if _is_plain(tensor):
            stride = tensor.stride() if is_dense(tensor) else torch.empty_like(tensor, device="meta").stride()
            span = _Span(self.size, tensor.dtype, tensor.shape, stride)
            self._tensors.append(tensor)
            self._spans.append(span)
            self.size += -(-span.size // _ALIGNMENT) * _ALIGNMENT
        else:
            memory_of(tensor)
            self.alone += tensor.device.type == "cpu"
        return tensor

    def _plan_own(self, value: Any) -> Any:
        self.alone += sum(tensor.device.type == "cpu" for tensor in tensors_in(value))
        return value

    def fill(self, slab: torch.Tensor) -> None:
        """Copy the tensors into a slab: uint8, at least ``size``."""
        for tensor, span in zip(self._tensors, self._spans, strict=True):
            span.of(slab).copy_(tensor)

    def unpacked(self, slab: torch.Tensor, move: Callable[[Any], Any]) -> Any:
        """The batch with its tensors in a slab that holds what `fill` wrote.

        Large ones are views of it. Small ones are copied out, so that whoever keeps the labels of an epoch does not
        keep its images.

        Args:
            slab: On any device.
            move: For what does not lie in the slab.
        """
        spans: Iterator[_Span] = iter(self._spans)

        def view(tensor: torch.Tensor) -> Any:
            if not _is_plain(tensor):
                return move(tensor)
            span = next(spans)
            part = span.of(slab)
            return part if span.size >= _LARGE else part.clone()

        return mapped(self._batch, view, own=move)


def _is_plain(tensor: torch.Tensor) -> bool:
    plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and is_strided(tensor) and not (tensor.is_conj() or tensor.is_neg())


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether its elements are all that it has, in one piece of memory."""
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested


_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_coo: ("_indices", "_values"),
}


def memory_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Ordinary tensors on all the memory that one of any kind has: ``record_stream`` knows no others.

    Raises:
        UsageError: It does not show its memory.
    """
    parts: list[torch.Tensor]
    outside: Any = tensor
    if is_traceable_wrapper_subclass(outside):  # jagged ones, distributed ones
        parts = [getattr(outside, name) for name in outside.__tensor_flatten__()[0]]
    elif tensor.layout in _COMPRESSED:
        parts = [getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]]
    elif tensor.layout is not torch.strided:
        raise UsageError(
            f"a tensor of layout {tensor.layout} cannot be moved to a device ahead of the loop",
            hint="convert it in the data set's transform, for example with to_dense()",
        )
    elif tensor.is_nested:
        parts = [tensor.values()]
    elif tensor.is_quantized:
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        of_channels = tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
        return [whole, *([tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()] if of_channels else [])]
    else:
        return [tensor]
    return [whole for part in parts for whole in memory_of(part)]
