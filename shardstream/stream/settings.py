"""The arguments of a `ShardDataset`, checked, as one value."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from shardstream.errors import UsageError
from shardstream.order import Tail
from shardstream.stream.skips import OnError

Fields: TypeAlias = Mapping[str, Any] | Sequence[str] | None
Deliver: TypeAlias = Literal["items", "parcels", "lists"]
"""What an iteration yields: batches or single samples; the same in parcels; or parcels with lists of samples."""


@dataclass(frozen=True, slots=True)
class Settings:
    """See `ShardDataset` for the meaning of each; ``names`` is what `ShardDataset.to_tuple` was given."""

    fields: Fields
    batch_size: int | None
    shuffle: bool
    seed: int
    tail: Tail | None
    transform: Callable[..., Any] | None
    batch_transform: Callable[..., Any] | None
    on_error: OnError
    max_skips: int | None
    verify: bool
    rank: int | None
    world_size: int | None
    lanes: int | None
    chunk: int | None
    window: int | None
    names: tuple[str, ...] | None = None
    deliver: Deliver = "items"

    def __post_init__(self) -> None:
        for name in ("batch_size", "lanes", "chunk", "window"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise UsageError(f"{name} must be a positive integer or None, got {value!r}", hint="correct it")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise UsageError(f"seed must be an integer, got {self.seed!r}", hint="correct it")
        if self.tail is not None and self.tail not in get_args(Tail):
            raise UsageError(
                f"tail must be one of {', '.join(get_args(Tail))} or None, got {self.tail!r}", hint="correct it"
            )
        for name in ("transform", "batch_transform"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise UsageError(
                    f"{name} must be callable, got {value!r}", hint="pass a function or an object with __call__"
                )

    def check_complete(self) -> None:
        """Say what an iteration still lacks; a loader may have added it since the data set was made.

        Raises:
            UsageError: There is a ``batch_transform``, but no batches of ours for it.
        """
        if self.batch_transform is not None and (self.batch_size is None or self.deliver == "lists"):
            raise UsageError(
                "batch_transform needs batches, but there is "
                + ("no batch_size" if self.batch_size is None else "a collate_fn in place of our batching"),
                hint="pass batch_size; where there is a collate_fn, let it do this work; transform is for samples",
            )

    def check_picklable(self) -> None:
        """Say which argument cannot travel to a worker that does not fork.

        Raises:
            UsageError: One cannot.
        """
        for name in ("fields", "transform", "batch_transform"):
            try:
                pickle.dumps(getattr(self, name))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise UsageError(
                    f"`{name}` cannot be pickled, which workers under spawn and forkserver need: {error}",
                    hint="replace lambdas and local functions by functions at the top of a module or by "
                    'functools.partial, or use multiprocessing_context="fork"',
                ) from error
