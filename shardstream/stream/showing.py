"""``show``: a batch or some samples as a contact sheet, which a dict or a tuple cannot be by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.stream.contact_sheet import FIELDS, Cell, contact_sheet, label_words, text_sheet
from shardstream.stream.tensors.crops import Crops
from shardstream.stream.tensors.ragged import Ragged

_MOST = 24  # samples
_SPECIAL = ("__key__", "__valid__", "__source__")


class Sheet:
    """What `show` returns: a contact sheet where HTML can be shown, a table as text elsewhere."""

    def __init__(self, title: str, cells: Sequence[Cell]) -> None:
        self._title = title
        self._cells = cells

    def __repr__(self) -> str:
        return text_sheet(self._title, self._cells)

    def _repr_html_(self) -> str:
        return contact_sheet(self._title, self._cells)


def show(value: Any, *, classes: Sequence[str] | None = None) -> Sheet:
    """Show a batch, a sample, or some samples: as the last line of a notebook's cell, a contact sheet.

    It is what training gets: crops and flips as they are, and images of floats in fixed ranges, see `Scale`.

    Args:
        value: A batch or a sample as `ShardDataset.peek`, an iteration or a `Reader` give it, dict or tuple; or a list
            of samples. At most 24 samples are shown.
        classes: Names of the labels, as ``ds.classes`` has them.

    Raises:
        UsageError: It is none of these.

    Example:
        >>> ss.show(ss.ShardDataset("out/", fields=["cls"], batch_size=2).peek())
        2 samples
          key      cls
          photo/0  17
          photo/1  18
    """
    if isinstance(value, Mapping) and isinstance(value.get("__key__"), str):
        value = [value]
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        count = len(value)
        samples, scales = value[:_MOST], {}
    else:
        outputs = dict(enumerate(value)) if isinstance(value, tuple | list) else value
        if not isinstance(outputs, Mapping) or not outputs or any(_length(one) is None for one in outputs.values()):
            raise UsageError(
                f"a {type(value).__name__} is neither a batch nor a sample",
                hint="give what ds.peek(), a loader's iteration, reader[0] or reader[:8] returns",
            )
        count = min(_length(one) or 0 for one in outputs.values())
        samples = [{name: one[i] for name, one in outputs.items()} for i in range(min(count, _MOST))]
        scales = {name: scale_of(one) for name, one in outputs.items()}
    title = f"{count:,} sample{'s'[: count != 1]}" + (f", the first {_MOST} of them" if count > _MOST else "")
    return Sheet(title, [_cell(i, one, classes, scales) for i, one in enumerate(samples)])


def _length(value: Any) -> int | None:
    sized = isinstance(value, Ragged | Crops | Sequence) and not isinstance(value, str | bytes)
    return len(value) if sized or (hasattr(value, "ndim") and value.ndim) else None


def _cell(number: int, sample: Mapping[Any, Any], classes: Sequence[str] | None, scales: Mapping[Any, Scale]) -> Cell:
    pixels: NDArray[np.uint8] | None = None
    lines: dict[str, str] = {}
    for name, value in sample.items():
        found = as_pixels(value, scales.get(name)) if pixels is None else None
        if found is not None:
            pixels = found
        elif name not in _SPECIAL and len(lines) < FIELDS and (words := _words(str(name), value, classes)) is not None:
            lines[str(name)] = words
    return Cell(str(sample.get("__key__", number)), lines, pixels)


class Scale(NamedTuple):
    """How the floats of an image become pixels: ``value * std + mean`` is in 0..1.

    Scales are fixed, so that colors stay comparable and a wrong mean shows as wrong colors: numbers in 0..1, 0..255 or
    -1..1 are shown as such, all others as images normalized with the mean and std of ImageNet.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]


_UNIT = Scale((0.0,), (1.0,))
_BYTES = Scale((0.0,), (1 / 255,))
_SIGNED = Scale((0.5,), (0.5,))
_IMAGENET = Scale((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_MOST_NORMALIZED = 10  # larger than any number that a common std gives
_NEAR = 0.1  # how near to -1 and 1 numbers come that were scaled to -1..1


def scale_of(values: Any) -> Scale:
    """The scale of images that belong together, such as those of a batch, by the range of their numbers."""
    if not isinstance(values, torch.Tensor | np.ndarray) or values.ndim not in (3, 4) or not all(values.shape):
        return _UNIT
    least, most = map(float, torch.as_tensor(values).float().aminmax())
    if least >= 0:
        return _UNIT if most <= 1 else _BYTES if most > _MOST_NORMALIZED else _IMAGENET
    signed = abs(least + 1) < _NEAR and abs(most - 1) < _NEAR
    return _SIGNED if signed else _IMAGENET


def as_pixels(value: Any, scale: Scale | None = None) -> NDArray[np.uint8] | None:
    """uint8 (H, W, 3) of an image, channels first as in batches or last as in samples; ``None`` for anything else.

    Args:
        value: What may be an image.
        scale: What its floats mean. Default: by the range of its own.
    """
    if not isinstance(value, torch.Tensor | np.ndarray) or value.ndim != 3 or not all(value.shape):
        return None
    image = torch.as_tensor(value).detach().cpu()
    if image.shape[-1] not in (1, 3):
        image = image.permute(1, 2, 0)
    if image.shape[-1] not in (1, 3):
        return None
    if image.dtype != torch.uint8:
        scale = scale_of(image) if scale is None else scale
        image = image.float() * torch.tensor(scale.std) + torch.tensor(scale.mean)
        image = (image * 255).nan_to_num().round().clamp(0, 255).to(torch.uint8)
    pixels: NDArray[np.uint8] = image.expand(*image.shape[:2], 3).numpy()
    return pixels


def _words(name: str, value: Any, classes: Sequence[str] | None) -> str | None:
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        if value.ndim:
            return None
        value = value.item()
    if isinstance(value, int | float):
        return label_words(name, value, classes)
    return value if isinstance(value, str) else None
