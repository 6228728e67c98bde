"""``Mixture``: several data sets drawn from by weight, as one reproducible stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from shardstream.dataset.costs import CostSpec, sized
from shardstream.decode.plan import Output
from shardstream.decode.usercall import UserCall
from shardstream.errors import FieldError, UsageError, did_you_mean
from shardstream.options import takes_flat
from shardstream.order import MixBy, PlaceRange, Schedule, Tail, as_fraction, quotas_of, schedule_in_effect
from shardstream.sizes import plural
from shardstream.stream.base import Stream
from shardstream.stream.dataset import ShardDataset
from shardstream.stream.iteration.content import Content, ContentPart
from shardstream.stream.iteration.epoch_run import count_samples
from shardstream.stream.iteration.ranks import Ranks
from shardstream.stream.iteration.seen import has_bins, samples_seen, tokens_seen
from shardstream.stream.iteration.settings import (
    FLAT_RANKS,
    REPLACEABLE,
    Dropped,
    OrderOptions,
    ReadOptions,
    StreamOptions,
)
from shardstream.stream.iteration.state import content_of, parse_state

Weighted: TypeAlias = ShardDataset | tuple[ShardDataset, float | Fraction | str]


class Seen(NamedTuple):
    """What a run has had of a source.

    Attributes:
        samples: How many samples; batches, where these are by cost.
        epochs: How often that is the whole source.
        tokens: Of bins, their tokens, with what is free in them; ``None`` of anything else, or bins of several sizes.
        of_documents: Of bins, the tokens of documents in them, without what is free: by how full its bins are on the
            average, or exact where that was asked for.
    """

    samples: int
    epochs: float
    tokens: int | None
    of_documents: int | None


_ENDLESS = 1 << 43  # samples; at a million a second they last for 100 days


class Mixture(Stream):
    """Draws from several data sets by weight, always shuffled; as deterministic, elastic and resumable as one.

    Weights become whole numbers, and every block of so many samples of a lane holds exactly its share of each source
    (see `shares`); with a ``schedule`` shares change on the way. They are shares of *positions*: a source whose
    ``transform`` drops samples has less than its share of those that are kept. For shares of kept samples, choose them
    first: ``where=`` on the source, with what ``find_rows`` found. Each source continues from one of its own epochs to
    the next, also across the mixture's epochs, so in the long run all of its samples come equally often. Around the end
    of a source's epoch some samples come again before others have come: one use apart, or a few uses in a source with
    fewer samples than lanes. Its position is known from the mixture's alone, so a state is no larger than that of a
    data set.

    Batches and samples have ``__source__``, the number of the source (int64), in the order of ``sources``.

    Args:
        sources: Data sets by name, each with a weight, or all without: then a source weighs what its epoch has
            samples, so that `ShardDataset.repeat` and `ShardDataset.choose` say how often it is drawn. With a
            ``schedule`` they have none. Of the data sets only what they read and how they decode it counts; seed,
            ranks, batches and tail are the mixture's.
        schedule: Weights that change: pairs of a position and a weight for each source by name, in order of position,
            the first at 0. Weights become shares, which are linear in between and stay behind the last one; two at one
            position are a jump, and 0 leaves a source out. A position counts the samples of the run, over all ranks,
            and a knot acts exactly there; with ``by="batches"``, at the next whole row of chunks. A resumed run may
            have other knots after its state, and more sources after the others. Default: constant weights.
        unit: What positions of the schedule count: ``"samples"``, or, where all sources are bins of one size,
            ``"tokens"``: what a bin has free counts, too.
        by: ``"samples"`` (default) mixes inside each batch, and all sources must deliver the same outputs; numbers of
            different dtypes come in the narrowest that holds all of them exactly. ``"batches"`` draws the source of a
            whole batch, so that they may differ.
        epoch: When an epoch ends: ``"total"`` (default), after as many samples as all sources have; a source's name,
            when that source was seen once; a number of samples, over all ranks; or ``"endless"`` (default with a
            schedule).
        batch_size: Samples a batch on each rank; or what a batch may cost, as ``{"seconds": 120}``, see `ShardDataset`:
            each batch then has one source, and weights, positions and epochs count batches. Default ``None``: single
            samples.
        seed: Of everything random. Default 0.
        tail: See `ShardDataset`. Default ``"drop"``.
        dropped: See `ShardDataset`.
        skip: See `ShardDataset`; with a schedule, its clock goes on through what is left out.
        batch_transform: See `ShardDataset`.
        ranks: See `ShardDataset`.
        order: See `OrderOptions`.
        reads: ``threads`` and ``prefetch`` of `ReadOptions`. All else about reading is the sources' own.

    Raises:
        UsageError: No sources, some without weight, an empty one, an unknown epoch, a schedule that is none, or sources
            of different outputs.
        FieldError: An output is of a different kind or shape in two sources, or no dtype holds the numbers of both.

    Example:
        >>> photos, more = ss.ShardDataset("out/", fields=["cls"]), ss.ShardDataset("out/", fields=["cls"])
        >>> mix = ss.Mixture({"photos": (photos, 0.7), "more": (more, 0.3)}, batch_size=100, tail="exact")
        >>> sum(int((batch["__source__"] == 1).sum()) for batch in mix)
        120
    """

    _kind = "Mixture"
    _replaceable = REPLACEABLE

    @takes_flat(FLAT_RANKS, order=OrderOptions, reads=ReadOptions)
    def __init__(
        self,
        sources: Mapping[str, Weighted],
        *,
        schedule: Sequence[tuple[float, Mapping[str, float | Fraction | str]]] | None = None,
        unit: Literal["samples", "tokens"] = "samples",
        by: MixBy = "samples",
        epoch: str | int | None = None,
        batch_size: int | Mapping[str, float] | None = None,
        seed: int = 0,
        tail: Tail | None = None,
        dropped: Dropped = "short",
        skip: Sequence[PlaceRange] = (),
        batch_transform: Callable[..., Any] | None = None,
        ranks: Ranks | None = None,
        order: OrderOptions | None = None,
        reads: ReadOptions | None = None,
    ) -> None:
        by_cost, size = sized(batch_size)
        settings = StreamOptions(
            batch_size=size,
            shuffle=True,
            seed=seed,
            tail=tail,
            dropped=dropped,
            skip=skip,
            batch_transform=batch_transform,
            ranks=ranks,
            order=order or OrderOptions(),
            reads=reads or ReadOptions(),
        )
        if by not in ("samples", "batches"):
            raise UsageError(
                f"by must be 'samples' or 'batches', got {by!r}", hint='write by="samples" or by="batches"'
            )
        datasets, weights = _weighted(sources, scheduled=schedule is not None)
        names = tuple(sources)
        planned = None if schedule is None else _schedule_of(schedule, names, unit, datasets)
        if planned is None and unit != "samples":
            raise UsageError(f"unit={unit!r} is an option of a schedule", hint="leave it out")
        if epoch is None:
            epoch = "total" if planned is None else "endless"
        if planned is not None and epoch in names:
            what = f"when {epoch!r} was seen once is not known where its share changes"
            raise UsageError(what, hint="say how many samples: epoch=10**6")
        own = [_in_batches(dataset._content, by_cost) for dataset in datasets]
        parts, sizes = tuple(one.parts[0] for one in own), [one.samples for one in own]
        quotas = quotas_of(weights or sizes) if planned is None else (1,) * len(names)
        _check_layouts(names, parts)
        if by == "samples":
            _check_outputs(names, parts)
        content = Content(
            parts,
            epoch_size=_epoch_size(epoch, names, sizes, quotas),
            quotas=quotas,
            names=names,
            by=by,
            endless=epoch == "endless",
            schedule=planned,
        )
        _ = content.numbers  # refuses numbers that cannot stand side by side
        self._start(content, settings)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sources; ``__source__`` counts them."""
        return self._content.names

    @property
    def shares(self) -> dict[str, float]:
        """The share of each source that is drawn, from whole numbers: within 1 % of its weight, mostly exact.

        With a schedule, those of its beginning.
        """
        if self._content.schedule is not None:
            return dict(zip(self.names, map(float, self._content.schedule.shares_at(0)), strict=True))
        total = sum(self._content.quotas)
        return {name: quota / total for name, quota in zip(self.names, self._content.quotas, strict=True)}

    @property
    def schedule(self) -> list[tuple[int, dict[str, float]]] | None:
        """The knots of the schedule where they act, in samples, and the shares.

        They act at the positions that were given. With ``by="batches"``, and after a state of order version 1 or 2,
        they act at the next whole row of lanes, whose length follows from the batch size and the ranks, from the loaded
        state, or from the iteration before. Knots that change nothing are left out. Without a schedule, this is
        ``None``.
        """
        content = self._content
        if content.schedule is None:
            return None
        run = self._epochs.after_a_run(of_loader=self._assignment is not None)
        parameters = run.parameters_of(content, self._settings, self._rank(), 0)
        knots = schedule_in_effect(content.schedule, parameters, content.by).knots
        return [(one.position, dict(zip(self.names, map(float, one.shares), strict=True))) for one in knots]

    def seen(self, state: Mapping[str, Any] | None = None, *, exact: bool = False) -> dict[str, Seen]:
        """What a run has had of each source, up to a state: counted from positions, without reading anything.

        Args:
            state: Of this mixture, or of a `Loader` of it. Default: where this mixture stands.
            exact: Count the tokens of documents in bins one by one: each position is looked at, a million of them in a
                second or two, and how long documents are is read of those bins that came more or less often than the
                others. Default: an estimate.

        Returns:
            By source, see `Seen`. Exact, whoever read, and without what was skipped; of a run whose number of ranks
            changed between epochs, as the epoch of the state counts those before it. What ``tail="drop"`` leaves out at
            the end of an epoch, less than a step of all ranks, counts as had.

        Raises:
            UsageError: A state of another mixture, see `load_state_dict`.
            DataError, StorageError: With ``exact``, what is stored of bins cannot be read.

        Example:
            >>> photos, more = ss.ShardDataset("out/", fields=["cls"]), ss.ShardDataset("out/", fields=["cls"])
            >>> mix = ss.Mixture({"photos": (photos, 0.7), "more": (more, 0.3)}, batch_size=100, tail="exact")
            >>> _ = list(mix)
            >>> mix.seen()["more"].samples, mix.seen()["more"].epochs
            (120, 0.6)
        """
        state = self.state_dict() if state is None else state
        content = content_of(state, self._content)
        run = content, self._settings, self._rank(), parse_state(state, content, self._settings)
        counted = tokens_seen(*run) if exact else [None] * len(self.names)
        found: dict[str, Seen] = {}
        for name, part, samples, tokens in zip(
            self.names, content.parts, samples_seen(*run).tolist(), counted, strict=True
        ):
            manifests = part.source.manifests if has_bins(part.source) else ()
            bins = [one.bins for one in manifests if one.bins is not None]
            sizes = {one.size for one in bins}
            if bins and tokens is None:
                tokens = round(samples * sum(one.tokens for one in bins) / sum(one.samples for one in manifests))
            size = sizes.pop() if len(sizes) == 1 else None
            whole = None if size is None else samples * size
            found[name] = Seen(samples, samples / part.source.positions, whole, tokens)
        return found

    @property
    def samples(self) -> int:
        """Samples of the next epoch over all ranks, without what is left out at its end; batches, if these are by cost.

        ``tail="drop"`` leaves out what does not fill a step of all ranks. With ``by="batches"``, an epoch has whole
        rows of lanes only. ``len`` counts the batches of this rank.
        """
        if self._content.endless:
            return self._content.samples
        return count_samples(self._content, self._settings, self._rank(), self._epochs.fresh())

    def with_settings(self, **changes: Any) -> Self:
        """The same with other settings by their names; it shares this one's epoch.

        Raises:
            UsageError: The settings do not go together; another ``batch_size`` by cost, or samples in its place.
        """
        if "batch_size" in changes:
            by_cost, changes["batch_size"] = sized(changes["batch_size"])
            if by_cost != self._content.by_cost:
                what = "what a mixture's positions count, samples or batches by cost, cannot be replaced"
                raise UsageError(what, hint="make the Mixture with that batch_size")
        return super().with_settings(**changes)

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {share:.3g}" for name, share in self.shares.items())
        unit = f"batches of {self._content.by_cost or self.batch_size}" if self.batch_size else "single samples"
        epoch = "without end" if self._content.endless else f"epochs of {self._content.samples}"
        if self._content.schedule is not None:
            shares += f", {plural(len(self._content.schedule.knots), 'knot')}"
        return f"Mixture({shares}: {epoch}, mixed by {self._content.by}, as {unit})"


def _schedule_of(knots: Any, names: Sequence[str], unit: str, datasets: Sequence[ShardDataset]) -> Schedule:
    if unit not in ("samples", "tokens"):
        raise UsageError(f"unit must be 'samples' or 'tokens', got {unit!r}", hint='write unit="tokens"')
    form = 'schedule=[(0, {"a": 0.8, "b": 0.2}), (10**9, {"a": 0.5, "b": 0.5})]'
    if isinstance(knots, str | Mapping) or not isinstance(knots, Iterable):
        raise UsageError(f"a schedule must be pairs of a position and weights, got {knots!r}", hint=form)
    size = _bin_size(names, datasets) if unit == "tokens" else 1
    found: list[tuple[Fraction, list[Any]]] = []
    for knot in knots:
        if not (isinstance(knot, tuple | list) and len(knot) == 2 and isinstance(knot[1], Mapping)):
            raise UsageError(f"a knot of a schedule must be a position and weights by name, got {knot!r}", hint=form)
        position, weights = knot
        for name in weights:
            if name not in names:
                hint = f"{did_you_mean(str(name), names)}sources are {', '.join(names)}"
                raise UsageError(f"the schedule names {name!r} at {position!r}, which is no source", hint=hint)
        for name in names:
            if name not in weights:
                raise UsageError(f"the schedule has no weight of {name!r} at {position!r}", hint="0 leaves it out")
        exact = as_fraction(position, "the position of a knot")
        found.append((Fraction(math.ceil(exact / size)) if size > 1 else exact, [weights[name] for name in names]))
    return Schedule.of(found)


def _bin_size(names: Sequence[str], datasets: Sequence[ShardDataset]) -> int:
    """How many tokens the bins of all sources have."""
    found: dict[int, str] = {}
    for name, dataset in zip(names, datasets, strict=True):
        for manifest in dataset._content.parts[0].source.manifests:
            if manifest.bins is None:
                what = f"unit='tokens' needs sources of bins, and {name!r} has none"
                raise UsageError(what, hint="pack with bins=, or count samples")
            found.setdefault(manifest.bins.size, name)
    if len(found) > 1:
        told = ", ".join(f"{size:,} in {name!r}" for size, name in found.items())
        raise UsageError(f"unit='tokens' needs bins of one size, and they are of {told}", hint="count samples")
    return next(iter(found))


def _weighted(sources: Any, *, scheduled: bool = False) -> tuple[list[ShardDataset], Sequence[float | Fraction | str]]:
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
        if dataset._content.by_cost is not None:
            what = f"source {name!r} has batches by cost, and batches are the mixture's"
            raise UsageError(what, hint=f"give the mixture batch_size={dataset.batch_size}, and the source none")
        if not dataset.samples:
            raise UsageError(f"source {name!r} has no samples", hint="leave it out, or widen its split= and where=")
        datasets.append(dataset)
        if weight is not None:
            weights.append(weight)
    if weights and scheduled:
        raise UsageError("sources have weights, and there is a schedule", hint="leave the weights to the schedule")
    if weights and len(weights) < len(datasets):
        raise UsageError("some sources have a weight and some not", hint="give all of them one, or none")
    return datasets, weights


def _in_batches(own: Content, by_cost: CostSpec | None) -> Content:
    return replace(own, parts=(own.parts[0].batched(by_cost, own.epoch_size),))


def _check_layouts(names: Sequence[str], parts: Sequence[ContentPart]) -> None:
    """The axes of images of one name are the same, whichever source a batch is of."""
    first: dict[str, tuple[str, Output]] = {}
    for name, part in zip(names, parts, strict=True):
        for output in (output for output in part.plan.outputs if output.is_image):
            other, same = first.setdefault(output.name, (name, output))
            if output.layout != same.layout:
                raise FieldError(
                    f"{output.name!r} has layout={same.layout!r} in {other!r} and {output.layout!r} in {name!r}",
                    field=output.name,
                    hint='give its decoders one layout in all sources: layout="CHW"',
                )


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
