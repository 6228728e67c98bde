"""Batches as people nest them: dicts, tuples, lists, dataclasses, with tensors somewhere inside."""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Set
from functools import lru_cache
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np
import torch

from shardstream.errors import UsageError
from shardstream.stream.tensors.crops import Crops
from shardstream.stream.tensors.ragged import Ragged


def mapped(
    value: Any,
    tensor: Callable[[torch.Tensor], Any],
    *,
    own: Callable[[Any], Any] | None = None,
    crops: Callable[[Crops], Any] | None = None,
) -> Any:
    """``value`` with a function applied to all tensors in it, and the rest as it is.

    Args:
        value: A tensor, `Ragged`, `Crops`, or a dict, list, tuple, named tuple or dataclass of such, however nested.
        tensor: What becomes of a tensor.
        own: What becomes of other objects that have a ``to`` of their own, as torch's ``PackedSequence``: they may know
            better than what they consist of. By default they are as any others.
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
    if own is not None and callable(getattr(value, "to", None)):
        return own(value)
    if type(value) is dict:
        return {name: mapped(part, tensor, own=own, crops=crops) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(part, tensor, own=own, crops=crops) for part in value))
    if isinstance(value, Mapping):
        changed = {name: mapped(part, tensor, own=own, crops=crops) for name, part in value.items()}
        if not isinstance(value, MutableMapping):
            return changed
        whole = copy.copy(value)  # with what a subclass keeps beside the items
        whole.update(changed)
        return whole
    if isinstance(value, list | tuple):
        return type(value)(mapped(part, tensor, own=own, crops=crops) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        instance: Any = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(instance, field.name, mapped(getattr(value, field.name), tensor, own=own, crops=crops))
        return instance
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in a value: in containers of any kind, and in attributes and slots of objects that are unknown here.

    >>> len(list(tensors_in({"x": [torch.zeros(2)], "p": torch.nn.utils.rnn.pack_sequence([torch.zeros(2)])})))
    3
    """
    seen: dict[int, Any] = {}  # with the objects, whose numbers would be given to others if they went
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, torch.Tensor):
            yield one
        elif not isinstance(one, _WITHOUT) and id(one) not in seen:
            seen[id(one)] = one
            left += _parts(one)


_WITHOUT = (str, bytes, int, float, complex, type(None), type, ModuleType, FunctionType, np.ndarray, np.generic)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | Set | deque):
        yield from value
    yield from getattr(value, "__dict__", {}).values()
    kind: type = type(value)
    for name in _slots(kind):
        yield getattr(value, name, None)


@lru_cache(maxsize=256)
def _slots(kind: Hashable) -> tuple[str, ...]:
    assert isinstance(kind, type)
    return tuple(
        name for base in kind.__mro__ for name, member in vars(base).items() if isinstance(member, MemberDescriptorType)
    )


def refuse_devices(value: Any) -> None:
    """Refuse tensors that are not in CPU memory: they cannot leave a worker.

    Raises:
        UsageError: There is one; says what to do instead.
    """
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise UsageError(
                f"a worker produced a tensor on {value.device}, which cannot be handed to the training process",
                hint="keep transforms on the CPU and move whole batches in the training loop (batch.to(device), after "
                "ss.Loader(..., pin_memory=True)); work for the device belongs after the loader",
            )
    elif isinstance(value, Ragged | Crops):
        refuse_devices(value.values)
    elif isinstance(value, dict):
        for part in value.values():
            refuse_devices(part)
    elif isinstance(value, list | tuple):
        for part in value:
            if not isinstance(part, str):  # keys
                refuse_devices(part)
