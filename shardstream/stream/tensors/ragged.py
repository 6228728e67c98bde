"""Values of different lengths as one batch: one slab of values, and where each row ends."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.stream.tensors.slabs import empty_slab, torch_dtype


class Ragged:  # no Sequence: torch's DataLoader would make a list of one, and so would other libraries
    """A batch of arrays of different sizes, all in one tensor.

    ``rows[3]`` is a tensor, ``rows[2:5]`` a `Ragged`: both are views. A slice with a step, row numbers as an integer
    tensor, or a mask as a bool tensor (B,) give a `Ragged` that is a copy. ``len(rows)`` counts rows.
    ``docs/ragged.md`` says where it comes from, and how models take it.

    Args:
        values: All elements, row after row: (total,), any dtype.
        offsets: int64 (B + 1,): row i is ``values[offsets[i]:offsets[i + 1]]``.
        shapes: int64 (B, dimensions) for rows of more than one dimension; ``None`` for flat rows.

    Example:
        >>> rows = Ragged(torch.arange(5), torch.tensor([0, 2, 5]))
        >>> rows
        Ragged(2 rows of 2 to 3, 5 x int64, cpu)
        >>> rows[1]
        tensor([2, 3, 4])
    """

    def __init__(self, values: torch.Tensor, offsets: torch.Tensor, shapes: torch.Tensor | None = None) -> None:
        self.values = values
        self.offsets = offsets
        self.shapes = shapes

    @classmethod
    def of(cls, rows: Iterable[torch.Tensor | NDArray[Any]]) -> Ragged:
        """Rows, copied into one slab.

        Args:
            rows: At least one tensor or array, all of one dtype and number of dimensions: a list of them, or a tensor
                (B, n, ...) of B rows. What is `Ragged` is returned as it is.

        Raises:
            UsageError: There is none, or they differ in dtype or number of dimensions.

            >>> Ragged.of([torch.zeros(3), torch.zeros(1)]).lengths
            tensor([3, 1])
        """
        if isinstance(rows, Ragged):
            return rows
        given = list(rows)
        if not all(isinstance(row, torch.Tensor | np.ndarray) for row in given):
            few = ", ".join(sorted({type(row).__name__ for row in given}))
            raise UsageError(f"rows must be tensors or arrays, got {few}", hint="make arrays of them: np.asarray(row)")
        if len({(type_name(row), row.ndim) for row in given}) != 1:
            few = ", ".join(sorted({f"{type_name(row)} with {row.ndim} dimensions" for row in given})) or "none"
            raise UsageError(
                f"rows must be of one dtype and number of dimensions, got {few}",
                hint="convert them with .to(...) or .astype(...); an empty one of rows of four is np.zeros((0, 4))",
            )
        sizes = [math.prod(row.shape) for row in given]
        offsets = torch.tensor([0, *sizes], dtype=torch.int64).cumsum(0)
        values = _joined(given, sum(sizes))
        shapes = None
        if given[0].ndim != 1:
            shapes = torch.tensor([row.shape for row in given], dtype=torch.int64).reshape(len(given), given[0].ndim)
            shapes = shapes.to(values.device)
        return cls(values, offsets.to(values.device), shapes)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> torch.Tensor: ...
    @overload
    def __getitem__(self, index: slice | torch.Tensor) -> Ragged: ...
    def __getitem__(self, index: int | slice | torch.Tensor) -> torch.Tensor | Ragged:
        if isinstance(index, torch.Tensor) and index.ndim == 1:
            return self._take(torch.arange(len(self))[index.cpu()].tolist())
        if isinstance(index, slice):
            chosen = range(len(self))[index]
            return self._slice(chosen) if chosen.step == 1 else self._take(chosen)
        i = range(len(self))[index]
        row = self.values[int(self.offsets[i]) : int(self.offsets[i + 1])]
        return row if self.shapes is None else row.reshape(self.shapes[i].tolist())

    def _take(self, rows: Sequence[int]) -> Ragged:
        return Ragged.of([self[i] for i in rows]) if rows else self._slice(range(0))

    def _slice(self, chosen: range) -> Ragged:
        start, stop = (chosen.start, chosen.stop) if chosen else (0, 0)
        offsets = self.offsets[start : stop + 1]
        values = self.values[int(offsets[0]) : int(offsets[-1])]
        return Ragged(values, offsets - offsets[0], None if self.shapes is None else self.shapes[start:stop])

    def __iter__(self) -> Iterator[torch.Tensor]:
        ends = self.offsets.tolist()  # at once: on a device, each number would be waited for
        shapes = None if self.shapes is None else self.shapes.tolist()
        for i in range(len(self)):
            row = self.values[ends[i] : ends[i + 1]]
            yield row if shapes is None else row.reshape(shapes[i])

    @property
    def lengths(self) -> torch.Tensor:
        """Elements of each row: int64 (B,)."""
        return self.offsets.diff()

    def padded(self, value: float = 0, *, to: int | Sequence[int | None] | None = None) -> torch.Tensor:
        """All rows in one tensor, those that are shorter filled up at the end.

        Args:
            value: What fills up.
            to: Length of every row; **longer ones are cut at the end**, as by ``Text(pad_to=)``. ``None``: that of the
                longest. For rows of several dimensions one length for each, ``None`` where the longest one counts;
                a number alone is that of the first.

        Returns:
            (B, length), or (B, length, ...) for rows of several dimensions; a copy, of the dtype and on the device of
            the values.

        Raises:
            UsageError: The dtype cannot hold ``value``, or ``to`` is not a length.

            >>> Ragged(torch.arange(5), torch.tensor([0, 2, 5])).padded(-1)
            tensor([[ 0,  1, -1],
                    [ 2,  3,  4]])
        """
        longest = self._shapes.amax(0).tolist() if len(self) else [0] * self._shapes.shape[1]
        size = [most if asked is None else asked for most, asked in zip(longest, _lengths(to, longest), strict=True)]
        return self._filled(list(self), value, size)

    def padded_groups(self, groups: int, value: float = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Rows of similar length together, each group filled up to its own longest row.

        For batches by cost, whose rows are of all lengths, so that one tensor of all is mostly filler. Of all ways to
        make so many groups it is one that fills up least.

        Args:
            groups: How many; fewer where there are not as many rows.
            value: What fills up.

        Returns:
            For each group, the shortest rows first: which rows, int64 (b,), in order, and these as of `padded`. Rows of
            several dimensions count by their first.

        Raises:
            UsageError: Fewer than one group, or the dtype cannot hold ``value``.

            >>> rows = Ragged(torch.arange(8), torch.tensor([0, 1, 4, 8]))
            >>> [(which.tolist(), list(tensor.shape)) for which, tensor in rows.padded_groups(2)]
            [([0], [1, 1]), ([1, 2], [2, 4])]
        """
        if type(groups) is not int or groups < 1:
            raise UsageError(f"groups must be a positive integer, got {groups!r}", hint="write padded_groups(4)")
        lengths, rows = self._shapes[:, 0].cpu().numpy(), list(self)
        found = []
        for which in _alike(lengths, groups):
            size = self._shapes[which.to(self._shapes.device)].amax(0).tolist()
            found.append((which, self._filled([rows[i] for i in which.tolist()], value, size)))
        return found

    @property
    def _shapes(self) -> torch.Tensor:
        return self.lengths[:, None] if self.shapes is None else self.shapes

    def _filled(self, rows: Sequence[torch.Tensor], value: float, size: Sequence[int]) -> torch.Tensor:
        """These rows in one tensor, each cut or filled up to a size."""
        _check_filler(value, self.values.dtype)
        out = _empty((len(rows), *size), like=self.values).fill_(value)
        whole = tuple(slice(length) for length in size)
        for i, row in enumerate(rows):
            kept = row[whole]
            out[i][tuple(slice(length) for length in kept.shape)] = kept
        return out

    def nested(self) -> torch.Tensor:
        """The same as a nested tensor of torch, in the jagged layout, on the same memory.

        Returns:
            (B, ragged), or (B, ragged, ...) for rows of several dimensions.

        Raises:
            UsageError: The rows differ in more than their first dimension.

            >>> Ragged(torch.arange(5), torch.tensor([0, 2, 5])).nested().unbind()[1]
            tensor([2, 3, 4])
        """
        values, offsets = self.values, self.offsets
        if self.shapes is not None:
            rest = self.shapes[:, 1:].unique(dim=0).tolist()
            if len(rest) != 1 or self.shapes.shape[1] == 0:
                raise UsageError(
                    f"a nested tensor needs rows that differ in their first dimension only, got {self!r}",
                    hint="take padded(), or turn them in the worker so that what varies comes first: spectrum.T",
                )
            values = values.reshape(int(self.shapes[:, 0].sum()), *rest[0])
            offsets = torch.cat([offsets[:1], self.shapes[:, 0].cumsum(0)])
        nested: torch.Tensor = torch.nested.nested_tensor_from_jagged(values, offsets, **_bounds(offsets.diff()))
        return nested

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
        return f"Ragged({self._rows()}, {len(self.values)} x {type_name(self.values)}, {self.values.device})"

    def _rows(self) -> str:
        """``"3 rows of 0 to 7"``, ``"2 rows of (1 to 3, 4)"``."""
        count = f"{len(self)} row{'s' * (len(self) != 1)}"
        if not len(self):
            return count
        shapes = self.lengths[:, None] if self.shapes is None else self.shapes
        bounds = zip(shapes.amin(0).tolist(), shapes.amax(0).tolist(), strict=True)
        sides = ", ".join(str(least) if least == most else f"{least} to {most}" for least, most in bounds)
        return f"{count} of {sides}" if self.shapes is None else f"{count} of ({sides})"


def type_name(value: torch.Tensor | NDArray[Any]) -> str:
    """The name of the dtype of a tensor or array: ``"float32"``."""
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else value.dtype.name


def _empty(shape: tuple[int, ...], *, like: torch.Tensor) -> torch.Tensor:
    return empty_slab(shape, like.dtype) if like.device.type == "cpu" else like.new_empty(shape)


def _joined(rows: Sequence[Any], size: int) -> torch.Tensor:
    """Tensors or arrays of one dtype one after another: (size,)."""
    if all(isinstance(row, np.ndarray) for row in rows):
        slab = empty_slab((size,), torch_dtype(rows[0].dtype))
        np.concatenate([row.reshape(-1) for row in rows], out=slab.numpy())
        return slab
    tensors = [row if isinstance(row, torch.Tensor) else torch.from_numpy(row.copy()) for row in rows]
    out = _empty((size,), like=tensors[0]) if tensors[0].device.type == "cpu" else None
    return torch.cat([tensor.reshape(-1) for tensor in tensors], out=out)


def _alike(lengths: NDArray[np.int64], groups: int) -> list[torch.Tensor]:
    """The rows of each of so many groups, the shortest first, that are filled up least, each to its longest."""
    order = np.argsort(lengths, kind="stable")
    rising, count = lengths[order], len(lengths)
    ends = np.arange(count + 1)
    # what the first j rows take, in as many groups as there are so far, and where the last of these begins
    filled = np.concatenate([[0], rising * ends[1:]])
    begins = [np.zeros(count + 1, np.int64)]
    for _ in range(1, min(groups, count)):
        whole = filled[None, :] + np.concatenate([[0], rising])[:, None] * (ends[:, None] - ends[None, :])
        whole[ends[None, :] > ends[:, None]] = np.iinfo(np.int64).max
        begins.append(whole.argmin(1))
        filled = whole.min(1)
    found, end = [], count
    for begin in reversed(begins):
        if end:
            found.append(torch.from_numpy(np.sort(order[begin[end] : end])))
            end = int(begin[end])
    return found[::-1]


def _lengths(to: int | Sequence[int | None] | None, longest: Sequence[int]) -> list[int | None]:
    """What ``to`` asks of each dimension."""
    asked = [to] if to is None or isinstance(to, int) else list(to)
    if len(asked) > len(longest) or any(one is not None and one < 0 for one in asked):
        raise UsageError(
            f"to={to!r} is not a length of rows of {len(longest)} dimensions",
            hint="give the length of the first dimension, or one for each, None for that of the longest",
        )
    return asked + [None] * (len(longest) - len(asked))


def _bounds(lengths: torch.Tensor) -> dict[str, Any]:
    """Shortest and longest, without which torch pads to the sum of all. Torch 2.4 does not take them."""
    if "max_seqlen" not in inspect.signature(torch.nested.nested_tensor_from_jagged).parameters:
        return {}
    least, most = torch.stack(lengths.aminmax()).tolist() if len(lengths) else (0, 0)
    return {"min_seqlen": least, "max_seqlen": most}


def _check_filler(value: float, dtype: torch.dtype) -> None:
    if dtype.is_floating_point or dtype.is_complex or torch.tensor(value).to(dtype).item() == value:
        return
    name = str(dtype).removeprefix("torch.")
    raise UsageError(
        f"{name} cannot hold {value!r} to pad with", hint="convert first: rows.to(torch.int64).padded(...)"
    )
