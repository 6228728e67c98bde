"""``Mixture``: several data sets drawn from by weight, as one reproducible stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from shardstream.decode.plan import Output
from shardstream.decode.usercall import UserCall
from shardstream.errors import FieldError, UsageError, did_you_mean
from shardstream.order import MixBy, Tail, quotas_of
from shardstream.stream.base import Stream
from shardstream.stream.dataset import ShardDataset
from shardstream.stream.iteration.content import Content, ContentPart
from shardstream.stream.iteration.ranks import Affinity
from shardstream.stream.iteration.settings import StreamOptions

Weighted: TypeAlias = ShardDataset | tuple[ShardDataset, float | Fraction | str]

_ENDLESS = 1 << 43  # samples; at a million a second they last for 100 days


class Mixture(Stream):
    """Draws from several data sets by weight, always shuffled; as deterministic, elastic and resumable as one.

    Weights become whole numbers, and every block of so many samples of a lane holds exactly its share of each source
    (see `shares`). Each source is walked through endlessly, in an order of its own epochs: all of its samples come
    once before any comes again, also across the mixture's epochs. Its position is known from the mixture's alone, so a
    state is no larger than that of a data set.

    Batches and samples have ``__source__``, the number of the source (int64), in the order of ``sources``.

    Args:
        sources: Data sets by name, each with a weight, or all without: then a source weighs what its epoch has
            samples, so that `ShardDataset.repeat` and `ShardDataset.choose` say how often it is drawn. Of the data
            sets only what they read and how they decode it counts; seed, ranks, batches and tail are the mixture's.
        by: ``"samples"`` (default) mixes inside each batch, and all sources must deliver the same outputs; numbers of
            different dtypes come in the narrowest that holds all of them exactly. ``"batches"`` draws the source of a
            whole batch, so that they may differ.
        epoch: When an epoch ends: ``"total"`` (default), after as many samples as all sources have; a source's name,
            when that source was seen once; a number of samples, over all ranks; or ``"endless"``.
        batch_size: Samples a batch on each rank. Default ``None``: single samples.
        seed: Of everything random. Default 0.
        tail: See `ShardDataset`. Default ``"drop"``.
        batch_transform: See `ShardDataset`.
        rank: See `ShardDataset`.
        world_size: See `ShardDataset`.
        affinity: See `ShardDataset`.
        threads: See `ShardDataset`.
        lanes: See `ShardDataset`.
        chunk: See `ShardDataset`.
        window: See `ShardDataset`.
        prefetch: See `ShardDataset`. Caches and credentials are those of the sources.

    Raises:
        UsageError: No sources, some without weight, an empty one, an unknown epoch, or sources of different outputs.
        FieldError: An output is of a different kind or shape in two sources, or no dtype holds the numbers of both.

    Example:
        >>> photos, more = ss.ShardDataset("out/", fields=["cls"]), ss.ShardDataset("out/", fields=["cls"])
        >>> mix = ss.Mixture({"photos": (photos, 0.7), "more": (more, 0.3)}, batch_size=100, tail="exact")
        >>> sum(int((batch["__source__"] == 1).sum()) for batch in mix)
        120
    """

    def __init__(
        self,
        sources: Mapping[str, Weighted],
        *,
        by: MixBy = "samples",
        epoch: str | int = "total",
        batch_size: int | None = None,
        seed: int = 0,
        tail: Tail | None = None,
        batch_transform: Callable[..., Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        affinity: Affinity | None = None,
        threads: int | None = None,
        lanes: int | None = None,
        chunk: int | None = None,
        window: int | None = None,
        prefetch: int | str | None = None,
    ) -> None:
        settings = StreamOptions(
            batch_size=batch_size,
            shuffle=True,
            seed=seed,
            tail=tail,
            batch_transform=batch_transform,
            rank=rank,
            world_size=world_size,
            affinity=affinity,
            lanes=lanes,
            chunk=chunk,
            window=window,
            prefetch=prefetch,
            threads=threads,
        )
        if by not in ("samples", "batches"):
            raise UsageError(f"by must be 'samples' or 'batches', got {by!r}", hint="correct it")
        datasets, weights = _weighted(sources)
        quotas = quotas_of(weights)
        parts = tuple(dataset._content.parts[0] for dataset in datasets)
        if by == "samples":
            _check_outputs(tuple(sources), parts)
        content = Content(
            parts,
            epoch_size=_epoch_size(epoch, tuple(sources), [one._content.samples for one in datasets], quotas),
            quotas=quotas,
            names=tuple(sources),
            by=by,
            endless=epoch == "endless",
        )
        _ = content.numbers  # refuses numbers that cannot stand side by side
        self._start(content, settings)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sources; ``__source__`` counts them."""
        return self._content.names

    @property
    def shares(self) -> dict[str, float]:
        """The share of each source that is drawn, from whole numbers: within 1 % of its weight, mostly exact."""
        total = sum(self._content.quotas)
        return {name: quota / total for name, quota in zip(self.names, self._content.quotas, strict=True)}

    @property
    def samples(self) -> int:
        """Samples of an epoch, over all ranks."""
        return self._content.samples

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {share:.3g}" for name, share in self.shares.items())
        unit = f"batches of {self.batch_size}" if self.batch_size else "single samples"
        epoch = "without end" if self._content.endless else f"epochs of {self.samples}"
        return f"Mixture({shares}: {epoch}, mixed by {self._content.by}, as {unit})"


def _weighted(sources: Any) -> tuple[list[ShardDataset], Sequence[float | Fraction | str]]:
    if not (isinstance(sources, Mapping) and sources):
        raise UsageError("a mixture needs sources by name", hint='for example {"a": (ds_a, 0.7), "b": (ds_b, 0.3)}')
    datasets: list[ShardDataset] = []
    weights: list[float | Fraction | str] = []
    for name, source in sources.items():
        dataset, weight = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
        if not isinstance(dataset, ShardDataset):
            raise UsageError(
                f"source {name!r} is {type(dataset).__name__}, not a ShardDataset", hint="pass (dataset, weight)"
            )
        if not dataset.samples:
            raise UsageError(f"source {name!r} has no samples", hint="leave it out, or check its split and filter")
        datasets.append(dataset)
        if weight is not None:
            weights.append(weight)
    if not weights:
        return datasets, [dataset._content.samples for dataset in datasets]
    if len(weights) < len(datasets):
        raise UsageError("some sources have a weight and some not", hint="give all of them one, or none")
    return datasets, weights


def _check_outputs(names: Sequence[str], parts: Sequence[ContentPart]) -> None:
    """Samples of one batch need the same outputs; what a transform makes of them is seen when they are made."""
    plain = [
        (name, set(part.plan.names)) for name, part in zip(names, parts, strict=True) if not part.options.transform
    ]
    for name, outputs in plain[1:]:
        if outputs != plain[0][1]:
            raise UsageError(
                f"sources {plain[0][0]!r} and {name!r} do not deliver the same: only one of them has "
                + ", ".join(sorted(outputs ^ plain[0][1])),
                hint='choose equal outputs by `fields`, or mix by="batches"',
            )
    first: dict[str, tuple[str, ContentPart, Output]] = {}
    for name, part in zip(names, parts, strict=True):
        for output in () if part.options.transform else part.plan.outputs:
            if any(isinstance(step, UserCall) for step in output.steps):
                continue
            other = first.setdefault(output.name, (name, part, output))
            if _unlike(output, other[2]):
                found = f"{_kind_of(other[1], other[2])} in {other[0]!r} and {_kind_of(part, output)} in {name!r}"
                raise FieldError(
                    f"{output.name!r} is {found}, which cannot become one batch",
                    field=output.name,
                    hint='make them equal by `fields`, or mix by="batches"',
                )


def _unlike(one: Output, other: Output) -> bool:
    """Whether it is known that values of both cannot be one slab; what dtype numbers get is settled elsewhere."""
    if one.slot is None or other.slot is None:
        return one.slot is not other.slot and any(output.slot is None and output.stored for output in (one, other))
    if one.plain and other.plain:
        return one.slot.shape != other.slot.shape
    return one.slot != other.slot


def _kind_of(part: ContentPart, output: Output) -> str:
    if output.slot is None:
        return str(part.source.fields[output.sources[0]])
    shape = f" {list(output.slot.shape)}" if output.slot.shape else ""
    return f"{output.slot.dtype}{shape}"


def _epoch_size(epoch: str | int, names: Sequence[str], sizes: Sequence[int], quotas: Sequence[int]) -> int:
    if epoch == "endless":
        return _ENDLESS
    if epoch == "total":
        return sum(sizes)
    if epoch in names:
        number = names.index(str(epoch))
        return math.ceil(Fraction(sizes[number] * sum(quotas), quotas[number]))
    if isinstance(epoch, int) and not isinstance(epoch, bool) and epoch > 0:
        return epoch
    raise UsageError(
        f"epoch must be a source, a number of samples, 'total' or 'endless', got {epoch!r}",
        hint=did_you_mean(str(epoch), names) + f"sources are {', '.join(names)}",
    )
