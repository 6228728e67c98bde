"""Values of many samples as one value of a batch."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from shardstream.decode.crops import Cut
from shardstream.errors import BatchError
from shardstream.stream.tensors.crops import collate_cuts
from shardstream.stream.tensors.numbers import Numbers, Where, is_number
from shardstream.stream.tensors.ragged import Ragged, ragged_of_tensors
from shardstream.stream.tensors.slabs import empty_slab, torch_dtype

_CONVERT = "convert them by a callable in `fields`"


def channels_first(slab: torch.Tensor) -> torch.Tensor:
    """Images (B, H, W, 3) as (B, 3, H, W) with channels-last strides: the same memory."""
    return slab.permute(0, 3, 1, 2)


def collate_values(
    name: str, values: Sequence[Any], *, numbers: Numbers, image: bool = False, where: Where | None = None
) -> Any:
    """One output's values as they stand in a batch.

    Arrays and tensors of one shape become one slab, numbers a tensor, bytes a `Ragged`, crops for the device `Crops`;
    all else stays a list, and so does an output that some sample has no value of, unless it is stored numbers.

    Args:
        name: The output.
        values: One a sample.
        numbers: What decides the dtype of numbers.
        image: Arrays (H, W, 3) are images: the slab is (B, 3, H, W), channels last.
        where: Where a sample lies, for errors.

    Raises:
        BatchError: Arrays whose shapes or dtypes differ, or numbers, see `Numbers.slab`.
    """
    first = values[0]
    kinds = set(map(type, values))
    if Cut in kinds:
        return collate_cuts(name, values)
    if _lacks(values):
        numbers.lacking(name, values, where)
        # Views of buffers neither travel from a worker nor outlive them.
        return [bytes(value) if isinstance(value, memoryview) else value for value in values]
    if len(kinds) > 1 and any(issubclass(kind, torch.Tensor | np.ndarray) for kind in kinds):
        _check_types(name, values, where)
    if isinstance(first, torch.Tensor | np.ndarray):
        _check_shapes(name, values, where)
        numbers.settle(name, first.dtype if isinstance(first, torch.Tensor) else torch_dtype(first.dtype), where)
        return _stacked_tensors(values) if isinstance(first, torch.Tensor) else _stacked(values, image=image)
    if isinstance(first, bytes | bytearray | memoryview):
        return bytes_rows(values)
    if all(map(is_number, kinds)):
        return numbers.slab(name, values, where)
    return list(values)


def _lacks(values: Sequence[Any]) -> bool:
    return any(map(operator.is_, values, itertools.repeat(None)))


def _stacked_tensors(values: Sequence[torch.Tensor]) -> torch.Tensor:
    first = values[0]
    slab = empty_slab((len(values), *first.shape), first.dtype) if first.device.type == "cpu" else None
    return torch.stack(list(values), out=slab)


def _stacked(values: Sequence[np.ndarray[Any, Any]], *, image: bool) -> torch.Tensor:
    first = values[0]
    slab = empty_slab((len(values), *first.shape), torch_dtype(first.dtype))
    np.stack(values, out=slab.numpy())
    return channels_first(slab) if image and first.ndim == 3 and first.shape[2] == 3 else slab


def _check_types(name: str, values: Sequence[Any], where: Where | None) -> None:
    """Refuse arrays or tensors beside anything else."""
    kinds = [next((kind for kind in (torch.Tensor, np.ndarray) if isinstance(value, kind)), None) for value in values]
    if len(set(kinds)) > 1:
        few = ", ".join(sorted({type(value).__name__ for value in values}))
        what = f"values of different types cannot become one batch ({few})"
        raise BatchError(what, field=name, hint=_CONVERT, **_first_other(kinds, where))


def _first_other(values: Sequence[Any], where: Where | None) -> dict[str, Any]:
    """The place of the first that is not like the one before all."""
    return {} if where is None else dict(where(next(i for i, value in enumerate(values) if value != values[0])))


def _check_shapes(name: str, values: Sequence[Any], where: Where | None) -> None:
    shapes = sorted({(tuple(value.shape), str(value.dtype)) for value in values})
    if len(shapes) > 1:
        few = ", ".join(f"{list(shape)} {dtype}" for shape, dtype in shapes[:3])
        raise BatchError(
            f"values of {len(shapes)} different shapes or dtypes cannot become one batch ({few}, ...)",
            field=name,
            hint=f'images: fields={{"{name}": ss.decode.RandomResizedCrop(224)}}, or CenterCrop(224, resize=256), makes'
            " them equal; other arrays: stored ones come as ss.Ragged, or pass collate_fn to ss.Loader",
            **_first_other([(tuple(value.shape), str(value.dtype)) for value in values], where),
        )


def bytes_rows(values: Sequence[bytes | bytearray | memoryview]) -> Ragged:
    """Byte strings as rows of uint8."""
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    slab = empty_slab((int(ends[-1]),), torch.uint8)
    whole = memoryview(slab.numpy())  # type: ignore[arg-type]  # numpy arrays are buffers; the stubs of 3.11 cannot say so
    for value, start, end in zip(values, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        whole[start:end] = value
    return Ragged(slab, torch.from_numpy(ends))


def collate_rows(name: str, values: Sequence[Any], *, numbers: Numbers, where: Where | None = None) -> Any:
    """Arrays or tensors of varying shape: `Ragged` rows; tensors that happen to be equal are stacked.

    What a transform made of something else is collated as that.

    Raises:
        BatchError: They differ in dtype or number of dimensions.
    """
    if _lacks(values):
        # Views of buffers neither travel from a worker nor outlive them.
        return [bytes(value) if isinstance(value, memoryview) else value for value in values]
    if all(isinstance(value, np.ndarray) for value in values):
        return _array_rows(name, values)
    if not all(isinstance(value, torch.Tensor) for value in values):
        return collate_values(name, values, numbers=numbers, where=where)
    if len({(value.shape, value.dtype) for value in values}) == 1:
        return _stacked_tensors(values)
    if len({(value.ndim, value.dtype) for value in values}) > 1:
        raise BatchError("tensors of different dtypes or dimensions in one batch", field=name, hint=_CONVERT)
    slab = empty_slab((sum(value.numel() for value in values),), values[0].dtype)
    return ragged_of_tensors(values, slab)


def _array_rows(name: str, values: Sequence[np.ndarray[Any, Any]]) -> Ragged:
    kinds = sorted({(value.dtype.name, value.ndim) for value in values})
    if len(kinds) > 1:
        few = ", ".join(f"{dtype} with {ndim} dimensions" for dtype, ndim in kinds[:3])
        raise BatchError(f"arrays of different kinds in one batch: {few}", field=name, hint=_CONVERT)
    slab = empty_slab((sum(value.size for value in values),), torch_dtype(values[0].dtype))
    return ragged_of_tensors([torch.from_numpy(value) for value in values], slab)


def collate_samples(
    samples: Sequence[Any],
    *,
    numbers: Numbers,
    images: frozenset[str] = frozenset(),
    ragged: frozenset[str] = frozenset(),
    where: Where | None = None,
) -> Any:
    """Samples as one batch: dicts by name, tuples by place, anything else by itself.

    Args:
        samples: The samples.
        numbers: As of `collate_values`. What stands in tuples, or by itself, has no declared dtype.
        images: Names of images, as of `collate_values`.
        ragged: Names that become `Ragged` rows while they are arrays, also where all happen to be of one shape.
        where: As of `collate_values`.

    Raises:
        BatchError: Samples of different keys or shapes.
    """
    first = samples[0]
    if isinstance(first, dict):
        if any(sample.keys() != first.keys() for sample in samples):
            differ = sorted({str(name) for sample in samples for name in sample.keys() ^ first.keys()})
            raise BatchError(f"some samples of a batch have {', '.join(differ)} and some not", hint="return equal keys")
        batch: dict[str, Any] = {}
        for name in first:
            values = [sample[name] for sample in samples]
            if name in ragged:
                batch[name] = collate_rows(name, values, numbers=numbers, where=where)
            else:
                batch[name] = collate_values(name, values, numbers=numbers, image=name in images, where=where)
        return batch
    if isinstance(first, tuple):
        if any(len(sample) != len(first) for sample in samples):
            raise BatchError("samples of a batch are tuples of different lengths", hint="return equally long ones")
        columns = enumerate(zip(*samples, strict=True))
        return tuple(collate_values(f"[{i}]", column, numbers=numbers, where=where) for i, column in columns)
    return collate_values("the sample", samples, numbers=numbers, where=where)
