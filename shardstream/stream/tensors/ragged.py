"""Values of different lengths as one batch: one slab of values, and where each row ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch


class Ragged(Sequence[torch.Tensor]):
    """A batch of arrays of different sizes: one slab, indexed into views.

    Args:
        values: All elements, row after row: (total,), any dtype.
        offsets: int64 (B + 1,): row i is ``values[offsets[i]:offsets[i + 1]]``.
        shapes: int64 (B, dimensions) for rows of more than one dimension; ``None`` for flat rows.

    Example:
        >>> rows = Ragged(torch.arange(5), torch.tensor([0, 2, 5]))
        >>> rows[1]
        tensor([2, 3, 4])
    """

    def __init__(self, values: torch.Tensor, offsets: torch.Tensor, shapes: torch.Tensor | None = None) -> None:
        self.values = values
        self.offsets = offsets
        self.shapes = shapes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> torch.Tensor:  # type: ignore[override]  # rows are not sliced
        i = range(len(self))[index]
        row = self.values[int(self.offsets[i]) : int(self.offsets[i + 1])]
        return row if self.shapes is None else row.reshape(self.shapes[i].tolist())

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> torch.Tensor:
        """Elements of each row: int64 (B,)."""
        return self.offsets.diff()

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        """The same on another device; arguments as of ``torch.Tensor.to``. Offsets and shapes keep their dtype."""
        values = self.values.to(*args, **kwargs)
        shapes = None if self.shapes is None else self.shapes.to(values.device)
        return Ragged(values, self.offsets.to(values.device), shapes)

    def mapped(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Ragged:
        """The same with a function applied to each of its tensors."""
        shapes = None if self.shapes is None else function(self.shapes)
        return Ragged(function(self.values), function(self.offsets), shapes)

    def pin_memory(self) -> Ragged:
        """The same in page-locked memory."""
        return self.mapped(torch.Tensor.pin_memory)

    def tobytes(self, index: int) -> bytes:
        """Row ``index`` as bytes."""
        return self[index].contiguous().view(torch.uint8).numpy().tobytes()

    def __repr__(self) -> str:
        kind = str(self.values.dtype).removeprefix("torch.")
        return f"Ragged({len(self)} rows, {len(self.values)} x {kind}, {self.values.device})"


def ragged_of_tensors(rows: Sequence[torch.Tensor], values: torch.Tensor) -> Ragged:
    """Rows of one number of dimensions, copied into ``values``: a flat tensor of as many elements as they have."""
    offsets = torch.tensor([0, *(row.numel() for row in rows)], dtype=torch.int64).cumsum(0)
    torch.cat([row.reshape(-1) for row in rows], out=values)
    shapes = None
    if rows[0].ndim != 1:
        shapes = torch.tensor([row.shape for row in rows], dtype=torch.int64).reshape(len(rows), rows[0].ndim)
    return Ragged(values, offsets, shapes)
