"""``Content``: which samples an epoch has, and the order they come in; of one source or of several mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.costs import CostSpec
from shardstream.dataset.joined import digest, joint_identity
from shardstream.dataset.selected.row_set import packed, unpacked
from shardstream.dataset.shared import SharedWords, source_and_shard
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.view import ViewSpec
from shardstream.decode.compiling import compile_fields
from shardstream.decode.plan import DecodePlan
from shardstream.decode.usercall import names_behind
from shardstream.errors import FieldError, UsageError
from shardstream.order import (
    ORDER_VERSION,
    ORDER_VERSIONS,
    SCHEDULED_VERSION,
    EpochOrder,
    MixBy,
    MixedOrder,
    OrderParameters,
    Schedule,
    SizedOrder,
    WeightedDraws,
    default_parameters,
    mixing_parameters,
    plain_knots,
)
from shardstream.shards.manifest import class_label
from shardstream.stream.iteration.plain import (
    costs_of,
    data_set_of,
    plain_costs,
    plain_data_set,
    plain_weights,
    weights_of,
)
from shardstream.stream.iteration.ranks import Rank, find_groups
from shardstream.stream.iteration.settings import DecodeOptions, StreamOptions, as_dict, as_plain, of_plain
from shardstream.stream.tensors.numbers import Numbers, common_dtype, declared_dtypes

_LISTED = 1024  # samples of a batch that may have any number
_STEPS_TOGETHER, _SAMPLES_TOGETHER, _BYTES_TOGETHER = 16, 4096, 1 << 20  # are read at once, at most


@dataclass(frozen=True, slots=True)
class ContentPart:
    """One source with how its samples are made. Make it with `ContentPart.of`.

    Attributes:
        source: The samples.
        options: What is asked for.
        plan: The same, compiled against what is stored.
    """

    source: DatasetSource
    options: DecodeOptions
    plan: DecodePlan

    @classmethod
    def of(cls, source: DatasetSource, options: DecodeOptions) -> ContentPart:
        """The part, checked.

        Raises:
            FieldError, UsageError: What is asked for is not stored, or not alike in all data sets of the source.
        """
        plan = compile_fields(options.fields, source.fields, backend=options.reads.backend)
        if options.delivered is not None:
            plan = plan.delivering(options.delivered)
        source.check_fields(plan.sources)
        return cls(source, options, plan)

    def batched(self, by_cost: CostSpec | None, epoch_size: int | None) -> ContentPart:
        """The same in batches by cost; ``None``: as samples.

        Args:
            by_cost: What a batch may cost.
            epoch_size: Samples of an epoch, where it has a size of its own.

        Raises:
            FieldError, UsageError, DataError, StorageError: As of `DatasetSource.batched`; epochs count samples.
        """
        if by_cost is not None and epoch_size is not None:
            raise UsageError(
                "epochs of another size count samples, and batches by cost have any number of them",
                url=self.source.url,
                hint="leave out epoch_size, repeat and choose; a loop may end after as many steps as it likes",
            )
        source = self.source.batched(by_cost)
        return self if source is self.source else ContentPart.of(source, self.options)

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """By output, as batches call it, the dtype of its numbers."""
        names = names_behind(self.options.transforms, self.plan.names)
        own = declared_dtypes(self.plan, self.source.fields)
        return {names[name]: dtype for name, dtype in own.items() if name in names}

    @property
    def width(self) -> int | None:
        """Bytes of a sample but for payloads, where batches are made of whole columns; ``None``: of samples."""
        if self.options.transforms or not self.plan.of_columns:
            return None
        kinds = [self.source.fields[name] for name in self.plan.sources]
        return sum(kind.width for kind in kinds if kind.kind != "payload")

    def as_plain(self) -> dict[str, Any]:
        """What it is, by URLs, arguments and versions, see `of_plain`."""
        source = self.source.__getstate__()
        filtered, chosen, excluded = source["filtered"], source["chosen"], source["excluded"]
        return {
            "data_sets": [plain_data_set(one.address) for one in source["datasets"]],
            "view": as_dict(source["spec"]),
            "fingerprint": source["fingerprint"],
            "counts": None if filtered is None else filtered.words.tobytes(),
            "options": as_plain(self.options),
            "chosen": None if chosen is None else [packed(chosen[0]), chosen[1]],
            "excluded": None if excluded is None else packed(excluded),
            "costs": None if source["costs"] is None else plain_costs(source["costs"]),
        } | ({} if source["weights"] is None else {"weights": plain_weights(*source["weights"])})

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> ContentPart:
        """The part that `as_plain` describes, opened anew.

        Raises:
            FormatError: There is another data set by now.
            StorageError: It cannot be read.
        """
        filtered = None if plain["counts"] is None else SharedWords.of(np.frombuffer(plain["counts"], np.int64))
        chosen, excluded = plain.get("chosen"), plain.get("excluded")  # earlier versions wrote neither
        options = of_plain(DecodeOptions, plain["options"])
        source: DatasetSource = object.__new__(DatasetSource)
        source.__setstate__(
            {
                "datasets": [data_set_of(one) for one in plain["data_sets"]],
                "fingerprint": plain["fingerprint"],
                "spec": ViewSpec(**plain["view"]),
                "verify": options.reads.verify,
                "filtered": filtered,
                "chosen": None if chosen is None else (unpacked(chosen[0]), tuple(chosen[1])),
                "excluded": None if excluded is None else unpacked(excluded),
                "weights": weights_of(plain["weights"]) if "weights" in plain else None,
                "costs": costs_of(plain["costs"]) if plain.get("costs") is not None else None,
            }
        )
        return cls.of(source, options)

    def goes_with(self, other: ContentPart) -> bool:
        """Whether samples of both can be made as if they were of one source."""
        kinds = [{name: part.source.fields.get(name) for name in part.plan.sources} for part in (self, other)]
        return kinds[0] == kinds[1] and self.options.makes_the_same(other.options)

    def __reduce__(self) -> tuple[Any, ...]:  # a plan is compiled anew in the worker: it is cheap, and has no pickle
        return ContentPart.of, (self.source, self.options)


@dataclass(frozen=True, slots=True)
class Content:
    """What is streamed.

    Attributes:
        parts: The sources; one for a data set.
        epoch_size: Positions of an epoch; ``None`` for each sample of the one source once.
        quotas: With several sources: samples of each in a block of the mixture; not used with a schedule.
        names: With several sources: what they are called.
        by: Whether the mixture is drawn for each sample or for each batch.
        endless: Whether there is one epoch without end; `epoch_size` is then merely large.
        schedule: Shares of the sources that change with the position, in place of `quotas`.
    """

    parts: tuple[ContentPart, ...]
    epoch_size: int | None = None
    quotas: tuple[int, ...] = (1,)
    names: tuple[str, ...] = ()
    by: MixBy = "samples"
    endless: bool = False
    schedule: Schedule | None = None

    def as_plain(self) -> dict[str, Any]:
        """What it is, by URLs, arguments and versions."""
        schedule = None if self.schedule is None else plain_knots(self.schedule.knots)
        return as_dict(self) | {"parts": [part.as_plain() for part in self.parts], "schedule": schedule}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Content:
        """What `as_plain` describes, opened anew; raises as `ContentPart.of_plain`."""
        knots = plain.get("schedule")  # earlier versions had none
        schedule = None if knots is None else Schedule.of(knots)
        return cls(**{**plain, "parts": tuple(map(ContentPart.of_plain, plain["parts"])), "schedule": schedule})

    @property
    def numbers(self) -> list[Numbers]:
        """What decides the dtypes of numbers, for each part; one for all where they share batches.

        Raises:
            FieldError: Parts that share batches hold numbers that no dtype has room for.
        """
        own = [part.dtypes for part in self.parts]
        if self.by == "batches":
            return [Numbers(dtypes) for dtypes in own]
        shared = {name: dtype for name in dict.fromkeys(chain(*own)) if (dtype := self._common(name, own)) is not None}
        return [Numbers(shared)] * len(self.parts)

    def _common(self, name: str, own: Sequence[Mapping[str, np.dtype[Any]]]) -> np.dtype[Any] | None:
        """The dtype of an output in all parts; ``None`` where it is left to the transforms that they all have."""
        having = [number for number, dtypes in enumerate(own) if name in dtypes]
        common = common_dtype([own[number][name] for number in having])
        if common is None and not all(self.parts[number].options.transform for number in having):
            kinds = ", ".join(f"{own[number][name]} in {self.names[number]!r}" for number in having)
            raise FieldError(
                f"no dtype holds all values of {name!r} exactly: {kinds}",
                url=self.url,
                field=name,
                hint=f'convert it in the `fields` of a source, as in {{"{name}": np.float32}}, or mix by="batches"',
            )
        return common

    @property
    def samples(self) -> int:
        """Positions of an epoch, before whole batches of a mixture by batches are made of them."""
        return self.parts[0].source.positions if self.epoch_size is None else self.epoch_size

    def listed(self, settings: StreamOptions) -> int:
        """How many samples of a step a worker can list, to say at which of them it is."""
        return settings.step_samples * self.read_together(settings) if self.by_cost is None else _LISTED

    def read_together(self, settings: StreamOptions) -> int:
        """How many steps are read at once: several where they are small and whole columns make their batches.

        What is done for each read takes longer than to copy some hundred kilobytes.
        """
        first, size = self.parts[0], settings.batch_size
        if size is None or settings.deliver == "lists" or self.by_cost is not None or first.width is None:
            return 1
        if not all(part.goes_with(first) for part in self.parts):
            return 1
        least = min(_BYTES_TOGETHER // max(size * first.width, 1), _SAMPLES_TOGETHER // size, _STEPS_TOGETHER)
        return max(least, 1)

    def repeats(self, settings: StreamOptions) -> bool:
        """Whether all epochs have the same samples in the same order."""
        source = self.parts[0].source
        if settings.shuffle or self.names or source.draws is not None:
            return False
        return self.epoch_size is None or self.epoch_size % max(source.positions, 1) == 0

    @property
    def by_cost(self) -> CostSpec | None:
        """What batches may cost, where a position is such a batch; ``None``: it is a sample."""
        return self.parts[0].source.by_cost

    @property
    def drops_samples(self) -> bool:
        """Whether single samples can be missing: broken ones that are skipped, or those a transform leaves out."""
        return any(
            part.options.transform is not None or part.options.on_error == "skip" or part.source.excluded is not None
            for part in self.parts
        )

    @property
    def excludes(self) -> bool:
        """Whether ``exclude_keys`` leaves samples out."""
        return any(part.source.excluded is not None for part in self.parts)

    @property
    def url(self) -> str:
        """The address, for messages."""
        first = self.parts[0].source.url
        return first if len(self.parts) == 1 else f"a mixture of {', '.join(self.names)}"

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, where all data sets that name them name the same."""
        named = {one.classes for part in self.parts for one in part.source.manifests if one.classes is not None}
        return named.pop() if len(named) == 1 else None

    def label_of(self, name: str) -> int:
        """The number of a class; UsageError where there is no such class, or no one list of them."""
        classes = self.classes
        if classes is None:
            named = any(one.classes for part in self.parts for one in part.source.manifests)
            raise UsageError(
                "the data sets have other classes each" if named else "the data set has no names of classes",
                url=self.url,
                hint="give them one list when they are packed: classes= (--classes)",
            )
        return class_label(name, classes, url=self.url)

    @property
    def data(self) -> str:
        """Identity of the stored data alone."""
        return joint_identity([part.source.data for part in self.parts])

    @property
    def versions(self) -> tuple[int, ...]:
        """The version of every data set of every part."""
        return tuple(one.version for part in self.parts for one in part.source.manifests)

    def at(self, versions: Sequence[int]) -> Content:
        """The same of the data sets as they were at these versions, in the order of `versions`.

        What was computed from numbers of samples (quotas, the size of an epoch) stays as it is.

        Raises:
            UsageError: Their number is another, there is no such version, or it has not what is asked for.
            FieldError: It lacks a field that is asked for.
            StorageError: One cannot be read.
        """
        if len(versions) != len(self.versions):
            raise UsageError(f"{len(versions)} versions for {len(self.versions)} data sets", url=self.url)
        left = iter(versions)
        sources = [part.source.at(list(islice(left, len(part.source.manifests)))) for part in self.parts]
        parts = [ContentPart.of(source, part.options) for source, part in zip(sources, self.parts, strict=True)]
        return replace(self, parts=tuple(parts))

    @property
    def fingerprint(self) -> str:
        """Identity of data, views, and how they are mixed: everything but seed that a position depends on."""
        return self._fingerprint_of(len(self.parts))

    def _fingerprint_of(self, sources: int) -> str:
        """The same of the first sources alone."""
        prints = [part.source.fingerprint for part in self.parts[:sources]]
        if len(self.parts) == 1 and self.epoch_size is None:
            return prints[0]
        mixed = self.quotas if self.schedule is None else "by a schedule"  # whose future may change
        return digest([prints, mixed, self.epoch_size, self.by, self.names[:sources]])

    def sources_of(self, fingerprint: str) -> int | None:
        """How many of its first sources make up what has this fingerprint; ``None``: it is something else.

        All of them, or some where there is a schedule: sources may join a run that goes on.
        """
        least = len(self.parts) if self.schedule is None else 1
        counts = range(len(self.parts), least - 1, -1)
        return next((count for count in counts if self._fingerprint_of(count) == fingerprint), None)

    def location_of(self, shard_id: int, row: int) -> dict[str, str | int]:
        """Where a shard lies, for an error, by the number that `shard_ids` gave it; and a row, unless that is -1."""
        source, shard = source_and_shard(shard_id)
        dataset, inside = self.parts[source].source.dataset_of(shard)
        return {"url": dataset.url, "shard": dataset.manifest.shard_name(inside)} | (
            {"sample": row} if row >= 0 else {}
        )

    def shard_names(self) -> list[list[tuple[str, int, list[tuple[str, int]]]]]:
        """How the shards of each source are named: of its data sets the URL, their number, and patterns with numbers.

        There are no patterns where each name is kept by itself.
        """
        return [
            [
                (one.url, one.manifest.shards, [(run.pattern, run.count) for run in one.manifest.naming])
                for one in part.source.datasets
            ]
            for part in self.parts
        ]

    def dealt_samples(self, parameters: OrderParameters) -> int:
        """Positions of an epoch of this order."""
        if self.by == "samples":
            return self.samples
        return self.samples - self.samples % (parameters.lanes * parameters.chunk)

    @property
    def order_version(self) -> int:
        """The version of the order of new runs."""
        return SCHEDULED_VERSION if self.schedule is not None and self.by == "samples" else ORDER_VERSION

    @property
    def order_versions(self) -> tuple[int, ...]:
        """All versions of the order that runs can continue with."""
        return tuple(sorted({*ORDER_VERSIONS, self.order_version}))

    def parameters(
        self, settings: StreamOptions, rank: Rank, num_workers: int, version: int | None = None
    ) -> OrderParameters:
        """The default parameters of a run of this shape; for a mixture by batches, of any number of workers.

        That one has epochs of whole rows, and how many batches these have must be known before workers are.

        Args:
            settings: How it is streamed.
            rank: Rank and number of ranks.
            num_workers: DataLoader workers per rank.
            version: Version of the order. Default ``None``: that of new runs.

        Raises:
            UsageError: There is nothing to fill an epoch with.
        """
        sources = [part.source for part in self.parts]
        shares = np.array(self.quotas) / sum(self.quotas)
        if self.schedule is not None:
            shares = np.mean([np.array(knot.shares, np.float64) for knot in self.schedule.knots], axis=0)
        shape: dict[str, Any] = {
            "batch_size": settings.batch_size,
            "world_size": rank.world_size,
            "num_workers": num_workers if self.by == "samples" else 0,
            "mean_bytes": float(sum(share * one.position_bytes for share, one in zip(shares, sources, strict=True))),
            "groups": find_groups(rank, settings.order.affinity, cached=any(one.cached for one in sources)),
            "largest_block": max(one.largest_block for one in sources),
            "lanes": settings.order.lanes,
            "chunk": settings.order.chunk,
            "window": settings.order.window,
        }
        if not self.names:
            if self.epoch_size is not None and not sources[0].samples:
                what = "there are no samples to fill an epoch with"
                raise UsageError(what, url=self.url, hint="widen split= and where=, or leave them out")
            samples = sources[0].positions if sources[0].draws is None else self.samples
            found = default_parameters(samples, shuffle=settings.shuffle, **shape)
        else:
            totals = [source.positions for source in sources]
            found = mixing_parameters(totals, self.schedule or self.quotas, samples=self.samples, **shape)
        return replace(found, version=version or self.order_version)

    def order(self, settings: StreamOptions, epoch: int, parameters: OrderParameters) -> ContentOrder:
        """The order of an epoch; O(shards)."""
        counts = [part.source.draws or part.source.position_counts for part in self.parts]
        seed, shuffle = settings.seed, settings.shuffle
        fixed: dict[str, Any] = {"seed": seed, "epoch": epoch, "parameters": parameters, "shuffle": shuffle}
        if self.names:
            quotas = self.schedule or self.quotas
            return ContentOrder(MixedOrder(counts, quotas=quotas, samples=self.samples, by=self.by, **fixed))
        if self.epoch_size is None or isinstance(counts[0], WeightedDraws):
            return ContentOrder(EpochOrder(counts[0], **fixed))
        return ContentOrder(SizedOrder(counts[0], samples=self.epoch_size, **fixed))


class ContentOrder:
    """One epoch's order of a `Content`."""

    def __init__(self, order: EpochOrder | SizedOrder | MixedOrder) -> None:
        self._order = order

    def locate(
        self, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.int64], NDArray[np.int64]]:
        """Source (``None`` where there is one data set), shard and row of each position: int64 (n,) each."""
        if isinstance(self._order, MixedOrder):
            return self._order.locate(positions)
        return (None, *self._order.locate(positions))

    def before(self, position: int) -> NDArray[np.int64]:
        """Of a mixture, how many samples of each source lie before a position, since the run began."""
        assert isinstance(self._order, MixedOrder)
        return self._order.before(position)

    def locate_windows(self, positions: NDArray[np.int64]) -> tuple[Any, ...]:
        """The same, then the windows around, as `EpochOrder.locate_windows` has them."""
        if isinstance(self._order, MixedOrder):
            return self._order.locate_windows(positions)
        return (None, *self._order.locate_windows(positions))
