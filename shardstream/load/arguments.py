"""Arguments that a `Loader` refuses: those that its dataset decides, and those that nothing takes."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from torch.utils.data import DataLoader

from shardstream.errors import UsageError, did_you_mean
from shardstream.options import written
from shardstream.stream.base import Stream
from shardstream.stream.dataset import ShardDataset

logger = logging.getLogger(__name__)

# Arguments of DataLoader, or old ones of the dataset, that the dataset decides, with what to use in their place.
_ELSEWHERE = {
    "shuffle": "use ShardDataset(..., shuffle=True)",
    "sampler": "use ShardDataset(..., shuffle=True); ranks and workers are found by themselves",
    "batch_sampler": "use ShardDataset(..., batch_size=...)",
    "drop_last": 'use ShardDataset(..., tail="drop"), or "pad" or "exact"',
    "in_order": "leave it out: batches arrive in the order of the dataset",
    "rank": "use ShardDataset(..., ranks=(rank, world_size))",
    "world_size": "use ShardDataset(..., ranks=(rank, world_size))",
}
_LONGEST = 60  # characters of a value that a hint repeats


def check_arguments(dataset: Stream, arguments: Mapping[str, Any], own: type) -> None:
    """Refuse arguments for torch's ``DataLoader`` that it does not take, or that the dataset decides.

    Args:
        dataset: What the loader reads.
        arguments: Those that are not the loader's own, by name.
        own: The loader's class, whose arguments are proposed for misspelt names.

    Raises:
        UsageError: There is one; the hint is the line to write.
    """
    torchs = inspect.signature(DataLoader.__init__).parameters
    for name, value in arguments.items():
        if name in _ELSEWHERE:
            if value is None and name in torchs:  # torch's default, which Lightning passes
                continue
            raise UsageError(f"{name} is decided by the dataset", hint=_ELSEWHERE[name])
        kinds = (type(dataset), ShardDataset)  # a mixture is made of datasets
        places = ((kind, written(kind.__init__, name)) for kind in kinds)
        use = next((f"{kind.__name__}(..., {_with(how, value)})" for kind, how in places if how), None)
        if use is not None:
            raise UsageError(f"{name} is decided by the dataset", hint=f"use {use}")
        if name not in torchs:
            names = [known for known in (*inspect.signature(own).parameters, *torchs) if known != "self"]
            near = did_you_mean(name, [known for known in names if known not in _ELSEWHERE])
            raise UsageError(f"Loader takes no argument {name!r}", hint=f"{near}see help(ss.Loader)")


def _with(how: str, value: Any) -> str:
    """An argument as it is written, with its value if that is short and written as it is shown."""
    plain = isinstance(value, str | int | float | list | tuple)
    return how.replace("=...", f"={value!r}") if plain and len(repr(value)) <= _LONGEST else how


@cache
def warn_replaced(old: str, new: str) -> None:
    """Log, once in a process, that a loader's batch size replaces that of its dataset."""
    logger.warning("batch_size=%s of the loader replaces batch_size=%s of the dataset", new, old)
