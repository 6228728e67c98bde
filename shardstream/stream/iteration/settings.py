"""The arguments of a `ShardDataset` or a `Mixture`, as values: how samples are made, and how they are dealt."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, get_args

from shardstream.decode.usercall import Names
from shardstream.errors import DataError, TooManySkipsError, UsageError, did_you_mean
from shardstream.images.backends import Backend, BackendName, check_backend
from shardstream.order import BLOCK, PlaceRange, Tail, ranges_of
from shardstream.shards.framing import MAX_VALUE
from shardstream.sizes import parse_size, plural
from shardstream.stream.iteration.ranks import Affinity, find_rank

logger = logging.getLogger(__name__)

OnError: TypeAlias = Literal["raise", "skip"]
Dropped: TypeAlias = Literal["short", "repeat"]
"""What becomes of the slot of a sample that is dropped: it is cut away, or repeats the first sample that is kept."""
Fields: TypeAlias = Mapping[str, Any] | Sequence[str] | None
Deliver: TypeAlias = Literal["items", "worker batches", "lists"]
"""What an iteration yields: batches or single samples; these with counters, as they travel; or lists of samples so."""


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How samples of one source are made. See `ShardDataset` for the meaning of each.

    Several transforms, called in turn, are a tuple. ``delivered`` names outputs of ``fields`` with the names that they
    are delivered under, in this order; ``None`` for all as they are.
    """

    fields: Fields = None
    backend: Backend | BackendName = "auto"
    transform: Callable[..., Any] | tuple[Callable[..., Any] | Names, ...] | None = None
    on_error: OnError = "raise"
    max_skips: int | None = 100
    verify: bool = True
    max_value: int | str = MAX_VALUE
    delivered: tuple[tuple[str, str], ...] | None = None

    def __post_init__(self) -> None:
        parse_size(self.max_value, name="max_value")
        check_backend(self.backend)
        for one in self.transforms:
            if not isinstance(one, Names):
                _check_callable("transform", one)
        SkipPolicy(self.on_error, self.max_skips)

    @property
    def transforms(self) -> tuple[Any, ...]:
        """What is called for each sample, one after another."""
        if self.transform is None:
            return ()
        return self.transform if isinstance(self.transform, tuple) else (self.transform,)

    def makes_the_same(self, other: DecodeOptions) -> bool:
        """Whether both make the same of the same stored values."""
        try:
            return bool(self == other)
        except (TypeError, ValueError):  # arguments of a user's callable that cannot be compared
            return False


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How samples are dealt to ranks, workers and batches; ``names`` is what ``to_tuple`` was given.

    ``skip`` is in order, ranges that touch being one.
    """

    batch_size: int | None = None
    shuffle: bool = False
    seed: int = 0
    tail: Tail | None = None
    dropped: Dropped = "short"
    batch_transform: Callable[..., Any] | None = None
    rank: int | None = None
    world_size: int | None = None
    affinity: Affinity | None = None
    lanes: int | None = None
    chunk: int | None = None
    window: int | None = None
    prefetch: int | str | None = None
    threads: int | None = None
    names: tuple[str, ...] | None = None
    deliver: Deliver = "items"
    skip: Sequence[PlaceRange] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "skip", ranges_of(self.skip))
        for name in ("batch_size", "lanes", "chunk", "window", "threads"):
            check_positive(name, getattr(self, name))
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise UsageError(f"seed must be an integer, got {self.seed!r}", hint="write seed=0, or any other integer")
        _check_one_of("tail", self.tail, (*get_args(Tail), None))
        _check_one_of("dropped", self.dropped, get_args(Dropped))
        _check_one_of("affinity", self.affinity, (*get_args(Affinity), None))
        if self.prefetch is not None:
            parse_size(self.prefetch, name="prefetch")
        if self.rank is not None or self.world_size is not None:
            find_rank(self.rank, self.world_size)
        _check_callable("batch_transform", self.batch_transform)
        if self.names is not None and self.batch_transform is None:
            self.check_mask(("__valid__",) if self.marks else ())

    @property
    def marks(self) -> bool:
        """Whether batches have ``__valid__``, since slots may repeat samples."""
        return self.effective_tail == "pad" or self.dropped == "repeat"

    def check_mask(self, outputs: Container[str]) -> None:
        """Refuse a ``to_tuple`` that would lose the mask of a batch.

        Args:
            outputs: The names of what a batch has.

        Raises:
            UsageError: There is a mask, and it is not named; says what to write.
        """
        if self.names is None or "__valid__" in self.names or "__valid__" not in outputs:
            return
        argument = f'tail="{self.tail}"' if self.tail == "pad" else f'dropped="{self.dropped}"'
        names = ", ".join(f'"{name}"' for name in (*self.names, "__valid__"))
        raise UsageError(
            f'{argument} repeats samples, and to_tuple leaves out "__valid__", which tells them from the others',
            hint=f"write to_tuple({names})",
        )

    @property
    def step_samples(self) -> int:
        """Samples of a step, at most."""
        return self.batch_size or BLOCK

    @property
    def effective_tail(self) -> Tail:
        """The tail in force: ``None`` means ``"drop"`` when shuffling and ``"exact"`` otherwise."""
        return self.tail or ("drop" if self.shuffle else "exact")

    def dealt(self, unit: int) -> StreamOptions:
        """Those of a run that reads for all ranks, what it reads being dealt out to them in so many samples."""
        return replace(self, batch_size=unit, tail="exact")

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


def as_dict(options: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are."""
    return {one.name: getattr(options, one.name) for one in fields(options)}


def check_positive(name: str, value: Any) -> None:
    """Refuse what is neither ``None`` nor an integer from 1 on.

    Raises:
        UsageError: Names the argument.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(
            f"{name} must be a positive integer or None, got {value!r}", hint=f"write {name}=1 or more, or None"
        )


def _check_one_of(name: str, value: Any, known: Sequence[str | None]) -> None:
    if value not in known:
        names = [one for one in known if one is not None]
        hint = f"{did_you_mean(str(value), names)}write {name}={names[0]!r}, for example"
        choice = ", ".join(names) + " or None" * (None in known)
        raise UsageError(f"{name} must be one of {choice}, got {value!r}", hint=hint)


def _check_callable(name: str, value: Any) -> None:
    if value is not None and not callable(value):
        raise UsageError(f"{name} must be callable, got {value!r}", hint="pass a function or an object with __call__")


def check_picklable(options: DecodeOptions | StreamOptions) -> None:
    """Say which argument cannot travel to a worker that does not fork.

    Raises:
        UsageError: One cannot.
    """
    for name, value in as_dict(options).items():
        try:
            pickle.dumps(value)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"`{name}` cannot be pickled, which workers under spawn and forkserver need: {error}",
                hint="replace lambdas and local functions by functions at the top of a module or by "
                'functools.partial, or use multiprocessing_context="fork"',
            ) from error


class SkipPolicy:
    """Raises or counts. Only permanent faults of data are skipped; a store that fails raises in any case.

    Args:
        on_error: ``"raise"`` or ``"skip"``.
        max_skips: Samples that one iteration of one worker may skip; ``None`` for any number.

    Raises:
        UsageError: Other values.
    """

    def __init__(self, on_error: OnError, max_skips: int | None) -> None:
        if on_error not in get_args(OnError):
            raise UsageError(
                f"on_error must be 'raise' or 'skip', got {on_error!r}",
                hint="write on_error='skip' to go on without damaged samples",
            )
        if max_skips is not None and max_skips < 0:
            raise UsageError(
                f"max_skips must be a non-negative integer or None, got {max_skips}", hint="None allows any number"
            )
        self.skips = on_error == "skip"
        self._limit = max_skips
        self._count = 0

    def begin(self) -> None:
        """Begin an iteration: count anew."""
        self._count = 0

    def admit(self, error: DataError) -> str:
        """Say how this error is recorded, if it may be skipped; raise it if not.

        Raises:
            DataError: The error itself, under ``on_error="raise"``.
            TooManySkipsError: This one passes ``max_skips``.
        """
        if not self.skips:
            raise error
        self._count += 1
        if self._limit is not None and self._count > self._limit:
            raise TooManySkipsError(
                f"{plural(self._count, 'sample')} had to be skipped, max_skips is {self._limit}; the last: {error}",
                hint="run `shardstream verify`; raise max_skips to go on without them",
            ) from error
        text = str(error).replace("\n", " ")
        logger.warning("skipped: %s", text)
        return text
