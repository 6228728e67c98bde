"""The arguments of a `ShardDataset` or a `Mixture`, as values: how samples are made, and how they are dealt."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from shardstream.decode.usercall import Names
from shardstream.errors import DataError, TooManySkipsError, UsageError
from shardstream.images.backends import Backend, BackendName, check_backend
from shardstream.options import FlatNames, Rewrite, check_choices, option
from shardstream.order import BLOCK, PlaceRange, Tail, ranges_of
from shardstream.shards.framing import MAX_VALUE
from shardstream.sizes import parse_size, plural
from shardstream.stream.iteration.ranks import Affinity, Ranks, find_rank

logger = logging.getLogger(__name__)

T = TypeVar("T", "DecodeOptions", "StreamOptions")

OnError: TypeAlias = Literal["raise", "skip"]
Dropped: TypeAlias = Literal["short", "repeat"]
"""What becomes of the slot of a sample that is dropped: it is cut away, or repeats the first sample that is kept."""
Fields: TypeAlias = Mapping[str, Any] | Sequence[str] | None
Deliver: TypeAlias = Literal["items", "worker batches", "lists"]
"""What an iteration yields: batches or single samples; these with counters, as they travel; or lists of samples so."""


@dataclass(frozen=True, kw_only=True)
class OrderOptions:
    """How the order spreads over a dataset, as ``order=`` of `ShardDataset` and `Mixture`.

    The defaults follow from the shape of the run. Other values are another order: a state brings its own along.

    Attributes:
        lanes: Places of the dataset that are read side by side. Default: by the batch size and the ranks.
        chunk: Consecutive samples of one lane in a batch. Default: by the batch size and the lanes.
        window: Samples of a lane that are shuffled among themselves. Default: what memory has room for.
        affinity: ``"node"`` keeps shards with a node (``LOCAL_WORLD_SIZE`` consecutive ranks) from epoch to epoch, so
            that its caches stay warm; ``"none"`` spreads every shard over all nodes. Default: ``"node"`` if there is
            a ``cache`` that is used, else ``"none"``.

    Raises:
        UsageError: A value that is not allowed.

    Example:
        >>> order = ss.OrderOptions(window=100_000)
    """

    lanes: int | None = option(None)
    chunk: int | None = option(None)
    window: int | None = option(None)
    affinity: Affinity | None = option(None)

    def __post_init__(self) -> None:
        for name in ("lanes", "chunk", "window"):
            check_positive(name, getattr(self, name))
        check_choices(self)


_DECODES = ("ShardDataset", "Reader")
_STREAMS = ("ShardDataset", "Mixture")


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How samples are read and decoded, as ``reads=`` of `ShardDataset`, `Mixture` and `Reader`.

    Attributes:
        verify: Compare checksums of the index and of each value read. Default true: it costs less than 1 % of decoding.
            Not for `Mixture`: its sources have their own.
        max_value: Bytes that one value may have as it is delivered, as ``"1GiB"`` (default) or a number. It also bounds
            parts of compressed objects that can only be decompressed as a whole, if they have more than 16 MiB. A few
            bytes of a file may announce gigabytes; beyond this it is a `DecodeError` with shard and field. The default
            does not count for files, text and bytes that are stored as they are; a limit that you set does. Not for
            `Mixture`.
        threads: Threads that decode the samples of a batch inside one process, where decoders let go of the GIL: JPEG,
            PNG, WebP, resizing. Pixels, order and errors are those of one thread, which also calls your callables, in
            order. Default: as many as torch uses in the process (``torch.get_num_threads()``, at most 8): one in a
            DataLoader worker, where more workers do as well. Not for `Reader`.
        prefetch: Bytes that each worker reads ahead over a network, as ``"512MB"`` or a number. Default: 2 GiB divided
            by the workers of a rank, which the default windows count on, and less if memory is short. Not for `Reader`.
        backend: The library that decodes images, if a decoder in ``fields`` names none: ``"auto"`` (default) is
            simplejpeg for JPEG and Pillow for the rest; ``"simplejpeg"``, ``"pillow"``, ``"opencv"``,
            ``"torchvision"``, ``"imageio"``, ``"accimage"``, or a `shardstream.decode.Backend` of your own. Files that
            it does not read are decoded as by ``"auto"`` (``docs/backends.md``). For `ShardDataset` alone.

    Raises:
        UsageError: A value that is not allowed.

    Example:
        >>> reads = ss.ReadOptions(prefetch="256MB", backend="pillow")
    """

    verify: bool = option(True, verbs=_DECODES)
    max_value: int | str = option(MAX_VALUE, verbs=_DECODES)
    threads: int | None = option(None, verbs=_STREAMS)
    prefetch: int | str | None = option(None, verbs=_STREAMS)
    backend: Backend | BackendName = option("auto", verbs=("ShardDataset",))

    def __post_init__(self) -> None:
        parse_size(self.max_value, name="max_value")
        check_positive("threads", self.threads)
        if self.prefetch is not None:
            parse_size(self.prefetch, name="prefetch")
        check_backend(self.backend)


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How samples of one source are made. See `ShardDataset` for the meaning of each.

    Several transforms, called in turn, are a tuple. ``delivered`` names outputs of ``fields`` with the names that they
    are delivered under, in this order; ``None`` for all as they are.
    """

    fields: Fields = None
    transform: Callable[..., Any] | tuple[Callable[..., Any] | Names, ...] | None = None
    on_error: OnError = "raise"
    max_skips: int | None = 100
    reads: ReadOptions = field(default_factory=ReadOptions)
    delivered: tuple[tuple[str, str], ...] | None = None

    def __post_init__(self) -> None:
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
        one, two = (replace(each, reads=replace(each.reads, threads=None, prefetch=None)) for each in (self, other))
        try:
            return bool(one == two)
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
    ranks: Ranks | None = None
    order: OrderOptions = field(default_factory=OrderOptions)
    reads: ReadOptions = field(default_factory=ReadOptions)
    names: tuple[str, ...] | None = None
    deliver: Deliver = "items"
    skip: Sequence[PlaceRange] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "skip", ranges_of(self.skip))
        check_positive("batch_size", self.batch_size)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise UsageError(f"seed must be an integer, got {self.seed!r}", hint="write seed=0, or any other integer")
        check_choices(self)
        if self.ranks is not None:
            find_rank(self.ranks)
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


def _flat_rank(place: int) -> Rewrite:
    """Puts one of the old arguments `rank` and `world_size` in its place of ``ranks=``."""

    def put(given: dict[str, Any], value: Any) -> str:
        ranks = list(given.get("ranks") or (None, None))
        if ranks[place] is not None:
            raise UsageError("got rank= or world_size=, and ranks=", hint="write ranks=(rank, world_size) alone")
        ranks[place] = value
        given["ranks"] = None if ranks == [None, None] else tuple(ranks)
        return "ranks=(rank, world_size)"

    return put


_GROUPS: Mapping[str, type] = {"order": OrderOptions, "reads": ReadOptions}
REPLACEABLE = frozenset(("batch_size", "seed", "tail", "dropped", "skip", "batch_transform", "ranks", "order", "reads"))
"""Arguments of every stream that say how it is read; others say which data."""
FLAT_RANKS: Mapping[str, Rewrite] = {"rank": _flat_rank(0), "world_size": _flat_rank(1)}


def regrouped(changes: Mapping[str, Any], kind: str, known: Collection[str], now: StreamOptions) -> dict[str, Any]:
    """What `Stream.replace` got, with options in objects; a flat name changes one option of those that there are.

    Args:
        changes: Arguments by name.
        kind: The class of the stream.
        known: Names of what can be replaced.
        now: The settings that there are.

    Raises:
        UsageError: There is no such argument, or it cannot be replaced; both forms at once.
    """
    new = FlatNames(f"{kind}.replace", known, FLAT_RANKS, _GROUPS).grouped(
        changes, {"order": now.order, "reads": now.reads}
    )
    return {name: _GROUPS[name]() if value is None and name in _GROUPS else value for name, value in new.items()}


def as_dict(options: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are."""
    return {one.name: getattr(options, one.name) for one in fields(options)}


def as_plain(settings: DecodeOptions | StreamOptions) -> dict[str, Any]:
    """All settings by name, those in objects too: pickles hold names and values alone."""
    plain = as_dict(settings)
    for group in [name for name in _GROUPS if name in plain]:
        plain |= as_dict(plain.pop(group))
    return plain


def of_plain(kind: type[T], plain: Mapping[str, Any]) -> T:
    """Make settings of what `as_plain` gave, also of an earlier version, which wrote a rank and a world size."""
    left, known = dict(plain), [one.name for one in fields(kind)]
    ranks = left.pop("rank", None), left.pop("world_size", None)
    left |= {} if ranks == (None, None) else {"ranks": ranks}
    for group, table in [(name, table) for name, table in _GROUPS.items() if name in known]:
        left[group] = table(**{one.name: left.pop(one.name) for one in fields(table) if one.name in left})
    return kind(**left)


def check_positive(name: str, value: Any) -> None:
    """Refuse what is neither ``None`` nor an integer from 1 on.

    Raises:
        UsageError: Names the argument.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(
            f"{name} must be a positive integer or None, got {value!r}", hint=f"write {name}=1 or more, or None"
        )


def _check_callable(name: str, value: Any) -> None:
    if value is not None and not callable(value):
        raise UsageError(f"{name} must be callable, got {value!r}", hint="pass a function or an object with __call__")


def check_picklable(options: DecodeOptions | StreamOptions) -> None:
    """Say which argument cannot travel to a worker that does not fork.

    Raises:
        UsageError: One cannot.
    """
    for name, value in as_plain(options).items():
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
