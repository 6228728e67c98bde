"""``ShardDataset``: a folder of shards as one reproducible stream of samples or batches."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from shardstream.dataset.conditions import Filter, Keys, Where
from shardstream.dataset.costs import sized
from shardstream.dataset.opening import Fingerprints, Versions, check_fingerprints, open_datasets
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.view import Split, ViewSpec
from shardstream.dataset.weights import Weights, WeightSpec
from shardstream.decode.plan import unknown_output
from shardstream.decode.usercall import Names, is_output_name
from shardstream.errors import FieldError, UsageError, did_you_mean
from shardstream.options import SourceOptions, takes_flat
from shardstream.order import PlaceRange, SplitBy, Tail
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural
from shardstream.storage import PathOrUrl
from shardstream.storage.base.location import flat_transport
from shardstream.storage.cache import Cache
from shardstream.stream.base import Stream
from shardstream.stream.iteration.content import Content, ContentPart
from shardstream.stream.iteration.ranks import Ranks
from shardstream.stream.iteration.settings import (
    FLAT_RANKS,
    REPLACEABLE,
    DecodeOptions,
    Dropped,
    Fields,
    OnError,
    OrderOptions,
    ReadOptions,
    StreamOptions,
    check_positive,
)

_DECODING = frozenset(field.name for field in dataclasses.fields(DecodeOptions))


class ShardDataset(Stream):
    """A data set of shards, streamed in an order that is a pure function of ``seed`` and epoch.

    Use it through `shardstream.Loader`, or a plain ``DataLoader(ds, batch_size=None, num_workers=4)``. Batches are the
    same with 0, 1, 2, 4 or 8 workers, and each rank and worker computes its own share. A sample is a dict with
    ``__key__`` and one value an output, images as uint8 arrays (H, W, 3). A batch is a dict of slabs: images uint8
    (B, 3, H, W) in channels-last memory, numbers (B,) in their stored dtype (``docs/decoding.md``), bytes and arrays of
    varying shape as `Ragged` (``docs/ragged.md``), all else as lists. ``__valid__``, bool (B,), is there if slots may
    repeat samples, and False where one does; an optional output that is a slab has ``NAME.__valid__``.

    Args:
        url: The directory of the dataset, or its URL: ``s3://``, ``az://``, ``abfss://``, ``gs://``, ``https://``,
            ``hf://``, or any that fsspec knows; or a `shardstream.storage.Store`, which must be picklable for workers
            that do not fork. A list of these, a local glob (``"data/part-*"``) or braces
            (``"s3://bucket/part-{000..011}"``) streams several datasets as one, end to end.
        fields: What to deliver: a list of stored fields, or output name -> ``None`` (stored type), ``"bytes"``, a
            decoder of `shardstream.decode`, a callable, a numpy type for numbers (``{"cls": np.int64}``), or a list of
            these applied in turn. A tuple of names stands for all that one ``decode.Call`` returns. Only what is asked
            for is read. Default: every field by its type.
        batch_size: Samples a batch on each rank. ``{"seconds": 120}`` makes batches whose samples cost so much
            together, by a stored number, or by the length of a field of ``values:DTYPE`` (``docs/costs.md``). Position,
            state and ``len`` count batches then. Default ``None``: single samples.
        shuffle: Whether to shuffle, differently each epoch. Default: the stored order, whatever the ranks and workers.
        seed: Of the order and of everything random in decoding and transforms. Default 0.
        split: A part and the shares of all parts: ``("val", {"train": 0.98, "val": 0.02})``. Parts are disjoint, exact,
            spread evenly over the shards, and keep their samples when shards are appended.
        split_by: ``"samples"`` (default), or ``"shards"`` to give every shard to one part, whole.
        where: Conditions on stored numbers, all of which hold: ``{"cls": [1, 5, 9]}``, one of these values, or names of
            classes; ``{"width": (">=", 256)}``, one comparison or a list of them; ``{("width", "height"): f}``, a
            callable that gets an array of each column and returns bool. ``{"__key__": keys}``: samples of these keys, a
            list or a file that has one a line. Rows of `find_rows`; or a list of dicts and rows. Numbers are compared
            exactly, in the column's dtype; samples that lack a value never match. Costs one scan of the indexes.
        exclude_keys: Keys of bad samples, a list or a file as in ``where``. They are dropped without being read. The
            others keep their positions, so a run resumes from its state with another list.
        weights: How often each sample comes: ``"weight"``, a stored number; ``{"cls": {"cat": 3, "dog": 1}}``, a weight
            for each label; or ``{"cls": "balanced"}``, the same share for each label. 0 means never. An epoch has
            ``epoch_size`` draws, by default as many as samples (``docs/order.md``). Default: once.
        version: Which version of a dataset that grew; of several datasets, a list. Default: the newest.
        fingerprint: The dataset's fingerprint as `shardstream info` shows it; of several datasets, a list. Another
            one is a DataError. Default: any.
        transform: Called in the worker with each sample's dict; what it returns is delivered, ``None`` drops the
            sample. Its random numbers are keyed by (seed, epoch, position): a ``generator=`` or ``rng=`` parameter
            gets one, Albumentations is seeded in its own way, else the global generators are.
        batch_transform: Called for each batch, like ``transform`` for each sample.
        epoch_size: Samples of an epoch over all ranks, for training by steps: epochs are then pieces of an endless walk
            through the dataset, each sample once before any comes again. Default: all samples.
        tail: What happens to samples that fill no batch on every rank: ``"drop"`` leaves them out, ``"pad"`` repeats
            others, marked in ``__valid__``, ``"exact"`` ends with a short batch. Default: ``"drop"`` when shuffling,
            else ``"exact"``, since an evaluation must not lose samples in silence.
        dropped: What becomes of a batch from which samples are dropped: ``"short"`` (default) has the others;
            ``"repeat"`` repeats the first one that is kept, marked in ``__valid__``, for code that needs one shape. A
            batch that keeps no sample is a `BatchError`. See ``docs/order.md``.
        skip: Ranges of places that all ranks leave out, ``[((0, 5000), (0, 6000))]``: from an epoch and a position to
            before another one; `positions` makes them from steps. Later samples keep their positions. A state keeps the
            ranges. Default: nothing.
        ranks: ``(rank, world_size)``: this process among the data-parallel ones. Default: ``torch.distributed``, else
            the variables of torchrun, SLURM or Open MPI, else 0 of 1, looked up when an iteration begins. Ranks that
            share a model replica (tensor or pipeline parallel) pass the same number.
        cache: Where blocks that come over a network are kept on this machine: a directory, or a `Cache` with sizes and
            a tier in memory. All processes of the machine share it. Default: none.
        replicas: Other places that have shards of the dataset, the nearest first: each shard is read from the first
            place that has it, known by its checksum.
        storage_options: Credentials and settings of the store by name (``docs/storage.md``). Default: those it finds.
        reading: Format and options of data of another library, which is read in place, see `SourceOptions`. Default:
            the format is recognized (``docs/foreign.md``).
        on_error: ``"raise"`` (default), or ``"skip"`` to drop samples whose stored data is damaged or does not decode.
            Failures of the store always raise.
        max_skips: Damaged samples that one worker may skip in an epoch before it raises; ``None``: any number. Samples
            that a transform or ``exclude_keys`` drops don't count. Default: 100.
        order: How the order spreads over the dataset and its nodes, see `OrderOptions`.
        reads: Checksums, limits, threads, reading ahead, and the library that decodes images, see `ReadOptions`.

    Raises:
        NotFoundError: There is no data set.
        FormatError: Data of another library are damaged, or of a kind that cannot be read.
        AccessError: The store refuses.
        StorageError: The store cannot be reached, and the cache has no manifest of the data set.
        FieldError: ``fields`` asks for what does not exist; names the nearest. ``where`` asks for a value that its
            column cannot hold. A weight is negative, infinite or NaN, or a sample or a label has none. At the first
            use of the dataset: a sample has no cost, or costs more than a batch may.
        MissingExtraError: The library of a backend is not installed.
        UsageError: Another argument cannot work; or 256 MB or more of another library have to be indexed first,
            which takes longer than a minute: names the command.

    Example:
        >>> ds = ss.ShardDataset("out/", fields=["cls"], batch_size=32, shuffle=True)
        >>> for batch in ss.Loader(ds, num_workers=2):
        ...     labels = batch["cls"]  # int64 (32,)
    """

    _kind = "ShardDataset"
    _replaceable = REPLACEABLE | _DECODING - {"delivered"} | {"shuffle", "epoch_size"}

    @takes_flat(
        {**FLAT_RANKS, **flat_transport("url", "replicas")},
        order=OrderOptions,
        reads=ReadOptions,
        reading=SourceOptions,
    )
    def __init__(
        self,
        url: PathOrUrl | Sequence[PathOrUrl],
        *,
        fields: Fields = None,
        batch_size: int | Mapping[str, float] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        # Which samples, and what is made of each.
        split: Split | None = None,
        split_by: SplitBy = "samples",
        where: Where | None = None,
        exclude_keys: Keys | None = None,
        weights: Weights | None = None,
        version: Versions = None,
        fingerprint: Fingerprints = None,
        transform: Callable[..., Any] | None = None,
        batch_transform: Callable[..., Any] | None = None,
        # How long an epoch is, and how it ends.
        epoch_size: int | None = None,
        tail: Tail | None = None,
        dropped: Dropped = "short",
        skip: Sequence[PlaceRange] = (),
        ranks: Ranks | None = None,
        # Storage.
        cache: str | os.PathLike[str] | Cache | None = None,
        replicas: Sequence[PathOrUrl] = (),
        storage_options: Mapping[str, Any] | None = None,
        reading: SourceOptions | None = None,
        # Damage, and how reading is done.
        on_error: OnError = "raise",
        max_skips: int | None = 100,
        order: OrderOptions | None = None,
        reads: ReadOptions | None = None,
    ) -> None:
        by_cost, size = sized(batch_size)
        reads = reads or ReadOptions()
        settings = StreamOptions(
            batch_size=size,
            shuffle=shuffle,
            seed=seed,
            tail=tail,
            dropped=dropped,
            skip=skip,
            batch_transform=batch_transform,
            ranks=ranks,
            order=order or OrderOptions(),
            reads=reads,
        )
        check_positive("epoch_size", epoch_size)
        options = DecodeOptions(
            fields=fields,
            transform=transform,
            on_error=on_error,
            max_skips=max_skips,
            reads=reads,
        )
        datasets = open_datasets(
            url,
            replicas=replicas,
            cache=cache,
            version=version,
            storage_options=storage_options,
            reading=reading,
        )
        check_fingerprints([one.manifest for one in datasets], fingerprint)
        excluded = None
        if exclude_keys is not None:
            from shardstream.dataset.keys.selection import keyed_rows  # workers do without

            excluded = keyed_rows(datasets, exclude_keys, "exclude_keys=", verify=reads.verify)
        source = DatasetSource(datasets, ViewSpec.of(split, split_by), verify=reads.verify, excluded=excluded)
        if where is not None:
            source = _narrowed(source, where)
        if weights is not None:
            source = source.weighted(WeightSpec.of(weights), epoch_size)
        part = ContentPart.of(source, options).batched(by_cost, epoch_size)
        self._start(Content((part,), epoch_size=epoch_size), settings)

    @property
    def manifest(self) -> Manifest:
        """The data set's manifest.

        Raises:
            UsageError: There are several data sets; see `manifests`.
        """
        if len(self.manifests) > 1:
            raise UsageError(f"there are {len(self.manifests)} data sets here", hint="use .manifests")
        return self.manifests[0]

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The manifests of all data sets that are streamed as one."""
        return self._source.manifests

    @property
    def samples(self) -> int:
        """Samples of the view, over all ranks; of an epoch, unless it has a size of its own."""
        return self._source.samples

    @property
    def part(self) -> ContentPart:
        """Which samples there are, and how each is made."""
        return self._content.parts[0]

    @property
    def _source(self) -> DatasetSource:
        return self.part.source

    def __repr__(self) -> str:
        source, settings = self._source, self._settings
        order = f"shuffled with seed {settings.seed}" if settings.shuffle else "in stored order"
        unit = f"batches of {self._content.by_cost or settings.batch_size}" if settings.batch_size else "single samples"
        size = f"{plural(source.samples, 'sample')} in {plural(source.shards, 'shard')}"
        view = f" ({source})" if str(source) else ""
        view += "" if source.weights is None else f", {source.weights}"
        epoch = "" if self._content.epoch_size is None else f", epochs of {self._content.epoch_size}"
        return f"ShardDataset({source.url!r}: {size}{view}, {order}{epoch}, as {unit})"

    # ------------------------------------------------------------------------------------------------- variations

    def with_settings(self, **changes: Any) -> Self:
        """The same with other settings by their names; it shares this one's epoch.

        Raises:
            FieldError, UsageError: The settings do not go together, or not with the data.
        """
        options = {name: changes[name] for name in _DECODING.intersection(changes)}
        changes = {name: value for name, value in changes.items() if name not in options or name == "reads"}
        part = self._content.parts[0]
        if options:
            part = ContentPart.of(part.source, dataclasses.replace(part.options, **options))
        size = changes.pop("epoch_size", self._content.epoch_size)
        check_positive("epoch_size", size)
        by_cost = self._content.by_cost
        if "batch_size" in changes:
            by_cost, changes["batch_size"] = sized(changes["batch_size"])
        part = part.batched(by_cost, size)
        if part.source.weights is not None:
            part = ContentPart.of(part.source.drawing(size), part.options)
        content = dataclasses.replace(self._content, parts=(part,), epoch_size=size)
        return self._with(content, dataclasses.replace(self._settings, **changes))

    def map(self, function: Callable[..., Any]) -> Self:
        """The same, each sample's dict being what ``function`` makes of it, or dropped if that is ``None``.

        It is called in the worker as ``transform`` is, after that and after maps before it, and draws random numbers
        of its own; ``dropped`` says what becomes of batches if samples are dropped. Stages come in this order, however
        they are written down: `filter`, decoding, transforms and maps with `rename` and `select` among them, batches,
        `to_tuple`. Shares this one's epoch.

        Raises:
            UsageError: Not callable, or after `to_tuple`.

            >>> names = ss.ShardDataset("out/", fields=["cls"]).map(lambda sample: {"cls": f"class {sample['cls']}"})
            >>> next(iter(names))
            {'cls': 'class 17'}
        """
        self._check_dicts("map")
        given: object = function
        if not callable(given):
            raise UsageError(f"map needs a function of a sample's dict, got {given!r}", hint="as in ds.map(augment)")
        return self.with_settings(transform=(*self._content.parts[0].options.transforms, function))

    def filter(self, where: Where) -> Self:
        """Those of the samples that ``where`` asks for, as the argument of this class, and as if it had been one.

        It looks at stored numbers and keys, before anything is decoded or mapped, also where `map` comes first. Further
        filters narrow it down. Shares this one's epoch; a state of what was not filtered does not fit.

        Raises:
            FieldError: A column that does not exist, is not a number in the index, or is made by decoding or a map.
            UsageError: ``where`` is not of the right form, or this is what `take` left.

            >>> len(ss.ShardDataset("out/").filter({"cls": ("<", 27)}))
            10
        """
        part = self._content.parts[0]
        made = [name for name in Filter.of(where).columns if name not in part.source.fields]
        if made and (made[0] in part.plan.names or part.options.transforms):
            raise FieldError(
                f"filter looks at stored numbers, before anything is decoded, and no field {made[0]!r} is stored",
                url=part.source.url,
                field=made[0],
                hint=did_you_mean(made[0], part.source.fields)
                + "name the stored field; by what decoding or a map makes, use ds.filter(ss.find_rows(ds, predicate))",
            )
        chosen = ContentPart.of(_narrowed(part.source, where), part.options)
        return self._with(dataclasses.replace(self._content, parts=(chosen,)), self._settings)

    def rename(self, names: Mapping[str, str]) -> Self:
        """The same with outputs under other names, ``{"old": "new"}``; shares this one's epoch.

        What comes later sees the new names: maps, ``batch_transform``, a `Mixture`. What is drawn at random stays.

        Raises:
            FieldError: There is no such output, or another one has the new name.
            UsageError: Not a dict of names, or after `to_tuple`.

            >>> next(iter(ss.ShardDataset("out/", fields=["cls"]).rename({"cls": "label"})))["label"]
            17
        """
        given: object = names
        if not isinstance(given, Mapping) or not all(map(is_output_name, [*given, *given.values()])):
            hint = 'for example ds.rename({"cls": "label"}): old names first; no name begins with "__"'
            raise UsageError(f"rename needs a dict of names, got {names!r}", hint=hint)
        return self._naming("rename", dict(names), rest=True)

    def select(self, *names: str) -> Self:
        """The same with these outputs only, of which alone is read what they need; shares this one's epoch.

        ``__key__`` and ``__valid__`` stay where they are. After a `map`, that still gets all it got before.

        Raises:
            FieldError: There is no such output.
            UsageError: No names, or after `to_tuple`.

            >>> sorted(next(iter(ss.ShardDataset("out/").select("cls"))))
            ['__key__', 'cls']
        """
        if not names or not all(map(is_output_name, names)):
            raise UsageError(
                f"select needs names of outputs, got {names!r}", hint='for example ds.select("jpg", "cls")'
            )
        return self._naming("select", {name: name for name in names}, rest=False)

    def _naming(self, verb: str, new: Mapping[str, str], *, rest: bool) -> Self:
        """With outputs under new names, and the rest if it is wanted; in the plan where nothing was mapped yet."""
        self._check_dicts(verb)
        options, outputs = self._content.parts[0].options, self._content.parts[0].plan.names
        if options.transforms:
            return self.with_settings(transform=(*options.transforms, Names(tuple(new.items()), rest)))
        for name in new:
            if name not in outputs:
                raise unknown_output(name, outputs)
        old = {now: then for then, now in options.delivered or [(name, name) for name in outputs]}
        kept = [name for name in outputs if rest or name in new]
        return self.with_settings(delivered=tuple((old[name], new.get(name, name)) for name in kept))

    def _check_dicts(self, verb: str) -> None:
        if self._settings.names is not None:
            raise UsageError(f"{verb} needs samples as dicts", hint=f"call to_tuple last: ds.{verb}(...).to_tuple(...)")

    def take(self, count: int) -> Self:
        """The first ``count`` samples in stored order, as a data set; it shares this one's epoch.

        Raises:
            UsageError: Not an integer from 0 on.

            >>> len(ss.ShardDataset("out/").take(100))
            100
        """
        part = self._content.parts[0]
        taken = ContentPart.of(part.source.taking(count), part.options)
        return self._with(dataclasses.replace(self._content, parts=(taken,)), self._settings)

    def repeat(self, times: float) -> Self:
        """Epochs of ``times`` as many samples as there are: over-sampling above 1, under-sampling below.

        Epochs are pieces of an endless walk, so that all samples are used equally often in the long run, and none
        twice before all others were used once. In a `Mixture` without weights, this is what the source counts.

        Raises:
            UsageError: Not a positive number, or fewer than one sample an epoch.

            >>> len(ss.ShardDataset("out/").repeat(2.5))
            500
        """
        if type(times) not in (int, float) or not 0 < times < math.inf:
            raise UsageError(f"times must be a positive number, got {times!r}", hint="for example repeat(2)")
        size = int(times * self.samples)
        if size < 1:
            raise UsageError(f"{times} times {self.samples} samples is less than one", hint="repeat more often")
        return self.replace(epoch_size=size)

    def choose(self, count: int) -> Self:
        """Epochs of ``count`` samples, other ones each time; see `repeat`.

        Raises:
            UsageError: Not a positive integer.

            >>> len(ss.ShardDataset("out/").choose(50))
            50
        """
        if count is None:
            raise UsageError("choose needs a number of samples", hint="for example choose(10_000)")
        return self.replace(epoch_size=count)


def _narrowed(source: DatasetSource, where: Where) -> DatasetSource:
    from shardstream.dataset.keys.selection import narrowed  # as above: workers do without

    return narrowed(source, where)
