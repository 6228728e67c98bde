"""Which part of a batch are its images and labels, and the same batch with others in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from shardstream.errors import UsageError

Name = str | int


class Parts:
    """The images and labels of a batch.

    A tensor is the images. In a tuple or list they come first and labels second. In a dict the only 4-D tensor of three
    channels is the images (of uint8 where there is one, else of floating point), and the only 1-D tensor of integers
    the labels; names that begin with ``__`` are passed over.

    Args:
        batch: A tensor, tuple, named tuple, list or dict.
        image: Name or place of the images; ``None``: as above.
        label: Name or place of the labels; ``None``: as above.

    Raises:
        UsageError: There are no such images, or several.
    """

    def __init__(self, batch: Any, image: Name | None, label: Name | None) -> None:
        self._batch = batch
        self._label = label
        self._image = _chosen(batch, image, "image", 0, _is_image_of(torch.uint8), _is_float_image)

    @property
    def images(self) -> Any:
        """The images."""
        return self._batch if self._image is None else self._batch[self._image]

    @property
    def labels(self) -> Any:
        """The labels.

        Raises:
            UsageError: There are none, or several.
        """
        if self._image is None:
            raise UsageError("a batch of nothing but images has no labels to soften", hint=_hint("label"))
        self._label = _chosen(self._batch, self._label, "label", 1, _is_label)
        return self._batch[self._label]

    def replaced(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        """The batch with these in place of its images, and of its labels where given."""
        if self._image is None:
            return images
        changed = {self._image: images} if labels is None else {self._image: images, self._label: labels}
        if isinstance(self._batch, Mapping):
            return {**self._batch, **changed}
        parts = [changed.get(place, part) for place, part in enumerate(self._batch)]
        kind = type(self._batch)
        return kind._make(parts) if hasattr(kind, "_make") else kind(parts)


def _chosen(batch: Any, name: Name | None, what: str, place: int, *kinds: Callable[[Any], bool]) -> Name | None:
    if isinstance(batch, torch.Tensor):
        return None
    if isinstance(batch, Mapping):
        if name is not None and name not in batch:
            raise UsageError(f"the batch has no {name!r} to take as its {what}", hint=f"it has {sorted(batch)}")
        return name if name is not None else _only(batch, what, *kinds)
    if not isinstance(batch, tuple | list):
        raise UsageError(
            f"expected a batch, got a {type(batch).__name__}",
            hint="a tensor of images, or a tuple, list or dict that holds one",
        )
    name = place if name is None else name
    if not isinstance(name, int) or not -len(batch) <= name < len(batch):
        raise UsageError(f"{what}={name!r} is outside of a batch of {len(batch)} parts", hint=_hint(what))
    return name % len(batch)


def _only(batch: Mapping[str, Any], what: str, *kinds: Callable[[Any], bool]) -> str:
    found: list[str] = []
    for fits in kinds:
        found = [name for name, value in batch.items() if not name.startswith("__") and fits(value)]
        if found:
            break
    if len(found) != 1:
        which = f"{' and '.join(map(repr, found))} could all be" if found else f"none of {sorted(batch)} can be"
        last = [name for name, value in batch.items() if what == "image" and not found and _has_channels_last(value)]
        hint = f'{last[0]!r} is (B, H, W, 3), and images are (B, 3, H, W) here: layout="CHW"' if last else _hint(what)
        raise UsageError(f"{which} the {what} of the batch", hint=hint)
    return found[0]


def _hint(what: str) -> str:
    return f"name it: {what}= takes a name in a dict, or a place in a tuple"


def _is_image_of(dtype: torch.dtype) -> Callable[[Any], bool]:
    return lambda value: _has_channels(value) and value.dtype == dtype


def _is_float_image(value: Any) -> bool:
    return _has_channels(value) and value.is_floating_point()


def _has_channels(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 4 and value.shape[1] == 3


def _has_channels_last(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 4 and value.shape[3] == 3


def _is_label(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.dim() != 1:
        return False
    return not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
