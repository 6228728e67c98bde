"""What is made of each sample, as JSON-able values that are equal on all ranks that run the same program.

Callables are named, and never shown by ``repr``, which has addresses of memory. A module that a launcher runs as
``__main__`` on one rank and imports on another is left out of the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import xxhash

from shardstream.decode.plan import Output
from shardstream.decode.specs import Decoder
from shardstream.decode.usercall import Names, UserCall
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.settings import StreamOptions

_MAIN = ("__main__", "__mp_main__")
_WITHOUT_EFFECT = "backend"  # all give the same pixels, and nodes may have other libraries


def recipe_of(content: Content, settings: StreamOptions) -> dict[str, Any]:
    """The outputs of a stream, by name, and how they are made.

    Args:
        content: What is streamed.
        settings: How.
    """
    parts = content.parts
    return {
        "outputs": describe(settings.names or [part.plan.names for part in parts]),
        "decoders": [{one.name: _describe_output(one) for one in part.plan.outputs} for part in parts],
        "transforms": describe([part.options.transforms for part in parts]),
        "batch_transform": describe(settings.batch_transform),
    }


def _describe_output(output: Output) -> Any:
    dtype = None if output.dtype is None else str(output.dtype)
    return [list(output.sources), dtype, describe(output.steps)]


def describe(value: Any) -> Any:
    """A value as JSON: decoders as class and parameters, callables by name, other objects by the name of their class.

    What a callable holds may rightly differ from rank to rank: a device, a path of the node.
    """
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float | np.generic | np.dtype):
        return str(value)
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), xxhash.xxh3_64_hexdigest(np.ascontiguousarray(value).tobytes())]
    if isinstance(value, UserCall):
        return describe(value.function)
    if isinstance(value, partial):
        return describe(value.func)
    if isinstance(value, Decoder | Names):
        named = {one.name: describe(getattr(value, one.name)) for one in fields(value) if one.name != _WITHOUT_EFFECT}
        return [_name(value), named]
    if isinstance(value, Mapping):
        return {str(key): describe(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, map(describe, value)))
    if isinstance(value, list | tuple):
        return list(map(describe, value))
    return _name(value)


def _name(value: Any) -> str:
    """The qualified name of a function, method or class; of any other object, that of its class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(named, "__module__", None)
    return named.__qualname__ if module in (None, *_MAIN) else f"{module}.{named.__qualname__}"
