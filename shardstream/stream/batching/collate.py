"""``collate_*``: values of many samples as one value of a batch, where they are not decoded into slabs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType, NoneType
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from shardstream.decode.crops import Cut
from shardstream.errors import BatchError
from shardstream.stream.tensors.crops import collate_cuts
from shardstream.stream.tensors.joined import bytes_rows
from shardstream.stream.tensors.numbers import Numbers, Where, is_number
from shardstream.stream.tensors.ragged import Ragged, type_name
from shardstream.stream.tensors.slabs import channels_first, empty_slab, torch_dtype

_CONVERT = "convert them by a callable in `fields`"
_UNMASKED = "return value.filled(0), for example, and the mask under a name of its own: np.ma.getmaskarray(value)"

Form: TypeAlias = Literal["image", "CHW", "HWC", "mask", "rows", "arrays"] | None
"""What the arrays of an output are in a batch, where more is known than what they look like: images, which are never
`Ragged` (those in a layout of the user's keep it); rows, which always are; arrays as they are stored, which are too
unless they are tensors of one shape."""

_IMAGES = ("image", "CHW", "HWC")


def collate_values(
    name: str,
    values: Sequence[Any],
    *,
    numbers: Numbers,
    form: Form = None,
    where: Where | None = None,
    slots: int = 0,
) -> Any:
    """One output's values as they stand in a batch.

    Arrays and tensors of one shape become one slab, those of several a `Ragged`; numbers a tensor, bytes a `Ragged`,
    crops for the device `Crops`; all else stays a list, and so does an output that some sample has no value of, unless
    it is stored numbers.

    Args:
        name: The output.
        values: One a sample.
        numbers: What decides the dtype of numbers.
        form: What is known of arrays. Those (H, W, 3) of an ``"image"`` become (B, 3, H, W), channels last in memory,
            as those of ``"CHW"`` are; those of ``"HWC"`` become (B, H, W, 3).
        where: Where a sample lies, for errors.
        slots: Of the step, some of which may have no value; see `empty_slab`.

    Raises:
        BatchError: Arrays whose dtypes or numbers of dimensions differ, pictures of several sizes, or numbers, see
            `Numbers.slab`.
    """
    kinds = set(map(type, values))
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
        slot = next(i for i, value in enumerate(values) if isinstance(value, np.ma.MaskedArray))
        what = "a masked array (numpy.ma) cannot be part of a batch: its mask would be lost"
        raise BatchError(what, field=name, hint=_UNMASKED, **({} if where is None else where(slot)))
    if form == "rows" or form == "arrays":
        return collate_rows(name, values, numbers=numbers, where=where, always=form == "rows", slots=slots)
    first = values[0]
    if Cut in kinds:
        return collate_cuts(name, values)
    if NoneType in kinds:
        numbers.lacking(name, values, where)
        # Views of buffers neither travel from a worker nor outlive them.
        return [bytes(value) if isinstance(value, memoryview) else value for value in values]
    if len(kinds) > 1 and any(issubclass(kind, torch.Tensor | np.ndarray) for kind in kinds):
        _check_types(name, values, where)
    if isinstance(first, torch.Tensor | np.ndarray):
        equal = _of_one_shape(name, values, form, where)
        numbers.settle(name, first.dtype if isinstance(first, torch.Tensor) else torch_dtype(first.dtype), where)
        if not equal:
            return Ragged.of(values)
        if isinstance(first, torch.Tensor):
            return _stacked_tensors(values, slots)
        return _stacked(values, slots, form)
    if isinstance(first, bytes | bytearray | memoryview):
        return bytes_rows(values)
    if all(map(is_number, kinds)):
        return numbers.slab(name, values, where)
    return list(values)


def _stacked_tensors(values: Sequence[torch.Tensor], slots: int) -> torch.Tensor:
    first = values[0]
    slab = empty_slab((len(values), *first.shape), first.dtype, slots) if first.device.type == "cpu" else None
    return torch.stack(list(values), out=slab)


def _stacked(values: Sequence[np.ndarray[Any, Any]], slots: int, form: Form) -> torch.Tensor:
    if form == "CHW" and values[0].ndim == 3:  # mostly views of channels last
        values = [value.transpose(1, 2, 0) for value in values]
    first = values[0]
    slab = empty_slab((len(values), *first.shape), torch_dtype(first.dtype), slots)
    np.stack(values, out=slab.numpy())
    # One channel is that of a picture with 16 bits; what a callable makes of an image may have one as well.
    channels = (1, 3) if first.dtype == np.uint16 else (3,)
    moved = form == "CHW" or (form == "image" and first.ndim == 3 and first.shape[2] in channels)
    return channels_first(slab) if moved and first.ndim == 3 else slab


def _check_types(name: str, values: Sequence[Any], where: Where | None) -> None:
    """Refuse arrays or tensors beside anything else."""
    kinds = [next((kind for kind in (torch.Tensor, np.ndarray) if isinstance(value, kind)), None) for value in values]
    if len(set(kinds)) > 1:
        few = ", ".join(sorted({type(value).__name__ for value in values}))
        what = f"values of different types cannot become one batch ({few})"
        raise BatchError(what, field=name, hint=_CONVERT, **_first_other(kinds, where))


def _first_other(values: Sequence[Any], where: Where | None) -> dict[str, Any]:
    """Where the first lies that is not like the one before all."""
    return {} if where is None else dict(where(next(i for i, value in enumerate(values) if value != values[0])))


def _of_one_shape(name: str, values: Sequence[Any], form: Form, where: Where | None) -> bool:
    """Whether arrays or tensors are one slab; else they are rows.

    Raises:
        BatchError: They are neither: they differ in dtype or number of dimensions, or are pictures.
    """
    kinds = [(tuple(value.shape), type_name(value)) for value in values]
    if len(set(kinds)) == 1:
        return True
    hint = _why_no_rows(name, values, form)
    if not hint:
        return False
    shapes = sorted(set(kinds))
    few = ", ".join(f"{list(shape)} {dtype}" for shape, dtype in shapes[:3]) + ", ..." * (len(shapes) > 3)
    what = f"values of {len(shapes)} different shapes or dtypes cannot become one batch ({few})"
    raise BatchError(what, field=name, hint=hint, **_first_other(kinds, where))


def _why_no_rows(name: str, values: Sequence[Any], form: Form) -> str:
    """What to do about arrays or tensors that differ in shape or dtype; ``""`` where they are rows as they are."""
    first = values[0]
    if len({value.ndim for value in values}) > 1:
        return (
            "give them as many dimensions each: a picture with grey ones, [..., None]; rows of four without any,"
            " np.zeros((0, 4), np.float32)"
        )
    if len({type_name(value) for value in values}) > 1:
        return "make them one dtype where they are made: value.astype(np.float32), or value.to(torch.float32)"
    if form == "mask" and first.ndim == 2:
        return f'masks follow the crop of their image: fields={{"{name}": ss.decode.Mask(like=...)}}'
    if _is_picture(first, form):
        return (
            f'images: fields={{"{name}": ss.decode.RandomResizedCrop(224)}}, or CenterCrop(224, resize=256), makes'
            " them equal, and so can a transform; to keep their sizes, pass collate_fn to ss.Loader"
        )
    return ""


def _is_picture(value: Any, form: Form) -> bool:
    """Whether an array or tensor is a picture, and no row of numbers: also one that a callable made of an image."""
    return bool(value.ndim == 3 and (form in _IMAGES or (value.shape[2] == 3 and type_name(value) == "uint8")))


def collate_rows(
    name: str,
    values: Sequence[Any],
    *,
    numbers: Numbers,
    where: Where | None = None,
    always: bool = False,
    slots: int = 0,
) -> Any:
    """Arrays or tensors as `Ragged` rows, whatever their shapes; tensors that happen to be equal are stacked.

    What a transform made of something else is collated as that.

    Args:
        name: The output.
        values: One a sample.
        numbers: As of `collate_values`.
        where: As of `collate_values`.
        always: Tensors are rows also where they are equal. What has no dimension never is.
        slots: As of `collate_values`.

    Raises:
        BatchError: They differ in dtype or number of dimensions.
    """
    arrays = all(isinstance(value, np.ndarray) for value in values)
    if not arrays and not all(isinstance(value, torch.Tensor) for value in values):
        return collate_values(name, values, numbers=numbers, where=where, slots=slots)
    if always and values[0].ndim == 0:
        return collate_values(name, values, numbers=numbers, where=where, slots=slots)
    kinds = [(type_name(value), value.ndim) for value in values]
    if len(set(kinds)) > 1:
        few = ", ".join(f"{dtype} with {ndim} dimensions" for dtype, ndim in sorted(set(kinds))[:3])
        what = f"arrays of different kinds in one batch: {few}"
        raise BatchError(what, field=name, hint=_why_no_rows(name, values, None), **_first_other(kinds, where))
    if not arrays and not always and len({value.shape for value in values}) == 1:
        return _stacked_tensors(values, slots)
    return Ragged.of(values)


def collate_samples(
    samples: Sequence[Any],
    *,
    numbers: Numbers,
    forms: Mapping[str, Form] = MappingProxyType({}),
    where: Where | None = None,
    slots: int = 0,
) -> Any:
    """Samples as one batch: dicts by name, tuples by place, anything else by itself.

    Args:
        samples: The samples.
        numbers: As of `collate_values`. What stands in tuples, or by itself, has no declared dtype.
        forms: By name, as of `collate_values`.
        where: As of `collate_values`.
        slots: As of `collate_values`.

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
            batch[name] = collate_values(name, values, numbers=numbers, form=forms.get(name), where=where, slots=slots)
        return batch
    if isinstance(first, tuple):
        if any(len(sample) != len(first) for sample in samples):
            raise BatchError("samples of a batch are tuples of different lengths", hint="return equally long ones")
        columns = enumerate(zip(*samples, strict=True))
        return tuple(
            collate_values(f"[{i}]", column, numbers=numbers, where=where, slots=slots) for i, column in columns
        )
    return collate_values("the sample", samples, numbers=numbers, where=where, slots=slots)
