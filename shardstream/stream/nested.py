"""Batches as people nest them: dicts, tuples, lists, dataclasses, with tensors somewhere inside."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch

from shardstream.stream.crops import Crops
from shardstream.stream.ragged import Ragged


def mapped(
    value: Any,
    tensor: Callable[[torch.Tensor], Any],
    other: Callable[[Any], Any] | None = None,
    *,
    crops: Callable[[Crops], Any] | None = None,
) -> Any:
    """``value`` with a function applied to all tensors in it, and the rest as it is.

    Args:
        value: A tensor, `Ragged`, `Crops`, or a dict, list, tuple, named tuple or dataclass of such, however nested.
        tensor: What becomes of a tensor.
        other: What becomes of anything else; it stays by default.
        crops: What becomes of `Crops`; by default their pixels are mapped.

        >>> mapped({"x": torch.zeros(2), "names": ["a"]}, lambda t: t + 1)
        {'x': tensor([1., 1.]), 'names': ['a']}
    """
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, Ragged):
        return value.mapped(tensor)
    if isinstance(value, Crops):
        return value.mapped(tensor) if crops is None else crops(value)
    if type(value) is dict:
        return {name: mapped(part, tensor, other, crops=crops) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(part, tensor, other, crops=crops) for part in value))
    if isinstance(value, Mapping):
        changed = {name: mapped(part, tensor, other, crops=crops) for name, part in value.items()}
        if not isinstance(value, MutableMapping):
            return changed
        own = copy.copy(value)  # with what a subclass keeps beside the items
        own.update(changed)
        return own
    if isinstance(value, list | tuple):
        return type(value)(mapped(part, tensor, other, crops=crops) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        instance: Any = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(instance, field.name, mapped(getattr(value, field.name), tensor, other, crops=crops))
        return instance
    return value if other is None else other(value)
