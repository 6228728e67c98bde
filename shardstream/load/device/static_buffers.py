"""The same tensors in each step, for what must find its input at one address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from shardstream.errors import UsageError
from shardstream.load.device.packing import is_strided
from shardstream.stream.tensors.nested import mapped


class StaticBuffers:
    """Tensors that each batch is copied into.

    The copy runs on the stream that the training loop works on, so that it comes after all that the loop does to the
    batch before.
    """

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []

    def filled(self, batch: Any) -> Any:
        """The batch with its tensors replaced by those of the first one, which now hold its values.

        Raises:
            UsageError: It is of another shape, or has tensors that are sparse, quantised or nested.
        """
        fresh: list[torch.Tensor] = []
        mapped(batch, fresh.append)
        other = next((tensor for tensor in fresh if not is_strided(tensor)), None)
        if other is not None:
            raise UsageError(
                f"reuse=True needs ordinary tensors, got one of {_kind(other)}: it has no memory that stays its own",
                hint="convert it in the transform, or leave reuse out",
            )
        if not self._tensors:
            self._tensors = [torch.empty_like(tensor) for tensor in fresh]
        shapes = [[(tensor.shape, tensor.dtype, tensor.device) for tensor in some] for some in (fresh, self._tensors)]
        if shapes[0] != shapes[1]:
            raise UsageError(
                "with reuse=True all batches must be of one shape",
                hint='use tail="drop" (or "pad"), dropped="repeat" if samples are dropped, and decoders that give one '
                "size; or leave reuse out",
            )
        for buffer, tensor in zip(self._tensors, fresh, strict=True):
            buffer.copy_(tensor)
        buffers: Iterator[torch.Tensor] = iter(self._tensors)
        return mapped(batch, lambda _: next(buffers))


def _kind(tensor: torch.Tensor) -> str:
    if tensor.is_nested:
        return "nested tensors"
    return str(tensor.dtype if tensor.is_quantized else tensor.layout)
