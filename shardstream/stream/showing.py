"""``show``: a batch or some samples as a contact sheet, which a dict or a tuple cannot be by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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

    It is what training gets: crops, flips and normalised images as they are, the latter stretched to what can be seen.

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
        samples = value[:_MOST]
    else:
        outputs = dict(enumerate(value)) if isinstance(value, tuple | list) else value
        if not isinstance(outputs, Mapping) or not outputs or any(_length(one) is None for one in outputs.values()):
            raise UsageError(
                f"a {type(value).__name__} is neither a batch nor a sample",
                hint="give what ds.peek(), a loader's iteration, reader[0] or reader[:8] returns",
            )
        count = min(_length(one) or 0 for one in outputs.values())
        samples = [{name: one[i] for name, one in outputs.items()} for i in range(min(count, _MOST))]
    title = f"{count:,} sample{'s'[: count != 1]}" + (f", the first {_MOST} of them" if count > _MOST else "")
    return Sheet(title, [_cell(i, one, classes) for i, one in enumerate(samples)])


def _length(value: Any) -> int | None:
    sized = isinstance(value, Ragged | Crops | Sequence) and not isinstance(value, str | bytes)
    return len(value) if sized or (hasattr(value, "ndim") and value.ndim) else None


def _cell(number: int, sample: Mapping[Any, Any], classes: Sequence[str] | None) -> Cell:
    pixels: NDArray[np.uint8] | None = None
    lines: dict[str, str] = {}
    for name, value in sample.items():
        found = as_pixels(value) if pixels is None else None
        if found is not None:
            pixels = found
        elif name not in _SPECIAL and len(lines) < FIELDS and (words := _words(str(name), value, classes)) is not None:
            lines[str(name)] = words
    return Cell(str(sample.get("__key__", number)), lines, pixels)


def as_pixels(value: Any) -> NDArray[np.uint8] | None:
    """uint8 (H, W, 3) of an image, channels first as in batches or last as in samples; ``None`` for anything else."""
    if not isinstance(value, torch.Tensor | np.ndarray) or value.ndim != 3 or not all(value.shape):
        return None
    image = torch.as_tensor(value).detach().cpu()
    if image.shape[-1] not in (1, 3):
        image = image.permute(1, 2, 0)
    if image.shape[-1] not in (1, 3):
        return None
    if image.dtype != torch.uint8:
        image = image.float()
        least, most = image.min(), image.max()
        image = ((image - least) / (most - least).clamp(min=1e-12) * 255).nan_to_num().to(torch.uint8)
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
