"""``ShardDataset``: a folder of shards as one reproducible stream of samples or batches."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from shardstream.decode.plan import DecodePlan, compile_fields
from shardstream.decode.usercall import UserCall, global_states_kept
from shardstream.errors import FormatError, ShardStreamError, UsageError
from shardstream.order import Tail
from shardstream.shards.manifest import Manifest, unknown_field
from shardstream.stream.batches import BatchMaker
from shardstream.stream.collate import refuse_devices
from shardstream.stream.epochs import EpochClock
from shardstream.stream.parcel import Failure, Parcel
from shardstream.stream.ranks import Rank, find_rank
from shardstream.stream.rows import RowReader
from shardstream.stream.run import EpochRun, count_items, effective_tail
from shardstream.stream.samples import SampleMaker, Step
from shardstream.stream.settings import Fields, Settings
from shardstream.stream.skips import OnError, SkipPolicy

logger = logging.getLogger(__name__)


class ShardDataset(IterableDataset[Any]):
    """A data set of shards, streamed in an order that is a pure function of ``seed`` and epoch.

    Batches are the same with 0, 1, 2, 4 or 8 workers, and each rank and worker computes its own share: nothing is
    exchanged, and nothing in memory grows with the number of samples. Use it through `shardstream.Loader`, or through a
    plain ``DataLoader(ds, batch_size=None, num_workers=4)``.

    A sample is a dict with ``__key__`` and one value an output, images as uint8 arrays (H, W, 3). A batch is a dict
    of slabs: images uint8 (B, 3, H, W) in channels-last memory, numbers (B,) in their stored dtype, bytes and arrays of
    varying shape as `Ragged`, all else as lists. ``__valid__``, bool (B,), says which slots hold a sample of their own
    wherever some may not: under ``tail="pad"``, ``on_error="skip"``, or after ``transform`` dropped one. An optional
    output that is a slab has a mask of its own, ``NAME.__valid__``: False where the sample has no such field.

    Args:
        url: The folder of the data set.
        fields: What to deliver: a list of stored fields, or output name -> ``None`` (stored type), ``"bytes"``, a
            decoder of `shardstream.decode`, a callable, or a list of these applied in turn. Default: every field by
            its type. Only what is asked for is read; labels and other numbers come from the index alone.
        batch_size: Samples a batch on each rank. Default ``None``: single samples.
        shuffle: Whether to shuffle, differently each epoch. Default: the stored order, whatever the ranks and workers.
        seed: Of the order and of everything random in decoding and transforms. Default 0.
        tail: What happens to samples that fill no batch on every rank: ``"drop"`` leaves them out, ``"pad"`` repeats
            others, marked in ``__valid__``, ``"exact"`` ends with a short batch. Default: ``"drop"`` when shuffling,
            else ``"exact"``, since an evaluation must not lose samples in silence.
        transform: Called in the worker with each sample's dict; what it returns is delivered, ``None`` drops the
            sample. Its random numbers are keyed by (seed, epoch, position): a ``generator=`` or ``rng=`` parameter gets
            one, Albumentations is seeded in its own way, and for anything else the global generators are seeded
            before and restored after.
        batch_transform: The same for each batch.
        on_error: ``"raise"`` (default), or ``"skip"`` for samples whose stored data is damaged or does not decode.
            Failures of the store always raise.
        max_skips: Samples that one worker may skip in an epoch before it raises. Default 100; ``None``: any number.
        verify: Compare checksums of the index and of each value read. Default true: it costs less than 1 % of decoding.
        rank: This process among the data-parallel ones; with ``world_size``. Default: ``torch.distributed``, else
            ``RANK`` and ``WORLD_SIZE``, else 0 of 1, looked up when an iteration begins.
        world_size: Number of data-parallel processes.
        lanes: Places of the data set read side by side, in place of the default.
        chunk: Consecutive samples of one lane in a batch, in place of the default.
        window: Samples of a lane that are shuffled among themselves, in place of the default.

    Raises:
        NotFoundError: There is no data set.
        FieldError: ``fields`` asks for what does not exist; names the nearest.
        UsageError: Another argument cannot work.

    Example:
        >>> ds = ss.ShardDataset("out/", fields=["cls"], batch_size=32, shuffle=True)
        >>> for batch in ss.Loader(ds, num_workers=2):
        ...     labels = batch["cls"]  # int64 (32,)
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        fields: Fields = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        tail: Tail | None = None,
        transform: Callable[..., Any] | None = None,
        batch_transform: Callable[..., Any] | None = None,
        on_error: OnError = "raise",
        max_skips: int | None = 100,
        verify: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        lanes: int | None = None,
        chunk: int | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__()
        if (rank is None) != (world_size is None) or rank is not None:
            find_rank(rank, world_size)
        SkipPolicy(on_error, max_skips)
        self._settings = Settings(
            fields=fields,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            tail=tail,
            transform=transform,
            batch_transform=batch_transform,
            on_error=on_error,
            max_skips=max_skips,
            verify=verify,
            rank=rank,
            world_size=world_size,
            lanes=lanes,
            chunk=chunk,
            window=window,
        )
        self._clock = EpochClock()
        self._manifest = Manifest.load(url)
        self._plan = self._compile()

    def _compile(self) -> DecodePlan:
        return compile_fields(self._settings.fields, self._manifest.fields)

    # ------------------------------------------------------------------------------------------------ what it is

    @property
    def manifest(self) -> Manifest:
        """The data set's manifest."""
        return self._manifest

    @property
    def fingerprint(self) -> str:
        """Identity of the stored data: 32 hexadecimal digits."""
        return self._manifest.fingerprint

    @property
    def batch_size(self) -> int | None:
        """Samples a batch, ``None`` for single samples."""
        return self._settings.batch_size

    @property
    def rank_source(self) -> str:
        """Where rank and world size are known from, at this moment."""
        return self._rank().source

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads. A completed iteration advances it by one."""
        return self._clock.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration reads; reaches persistent workers too.

        Raises:
            UsageError: Not an integer in [0, 2**32).
        """
        self._clock.set(epoch)

    def finish_epoch(self, epoch: int) -> None:
        """Say that all of ``epoch`` was consumed, so that the next iteration reads the one after; `Loader` does."""
        self._clock.finish(epoch)

    def _rank(self) -> Rank:
        return find_rank(self._settings.rank, self._settings.world_size)

    def __len__(self) -> int:
        """Batches of this rank in an epoch; samples, if there is no batch size."""
        self._settings.check_complete()
        return count_items(self._manifest, self._settings, self._rank())

    def __repr__(self) -> str:
        manifest, settings = self._manifest, self._settings
        order = f"shuffled with seed {settings.seed}" if settings.shuffle else "in stored order"
        unit = f"batches of {settings.batch_size}" if settings.batch_size else "single samples"
        size = f"{manifest.samples} samples in {manifest.shards} shards"
        return f"ShardDataset({manifest.url!r}: {size}, {order}, as {unit})"

    # ------------------------------------------------------------------------------------------------- variations

    def replace(self, **changes: Any) -> ShardDataset:
        """The same data set with other settings; it shares this one's epoch.

        Raises:
            UsageError: The settings do not go together.
        """
        copy: ShardDataset = object.__new__(type(self))
        IterableDataset.__init__(copy)
        copy._settings = dataclasses.replace(self._settings, **changes)
        copy._clock = self._clock
        copy._manifest = self._manifest
        copy._plan = copy._compile() if "fields" in changes else self._plan
        return copy

    def to_tuple(self, *names: str) -> ShardDataset:
        """The same data set, delivering tuples of these outputs in place of dicts; it shares this one's epoch.

        ``"__key__"`` and ``"__valid__"`` can be named too.

        Raises:
            FieldError: There is no such output.

            >>> images, labels = next(iter(ds.to_tuple("jpg", "cls")))
        """
        if not names:
            raise UsageError("to_tuple needs names", hint='for example to_tuple("jpg", "cls")')
        known = {output.name for output in self._plan.outputs} | {"__key__", "__valid__"}
        if self._settings.transform is None and self._settings.batch_transform is None:
            for name in names:
                if name not in known:
                    raise unknown_field(name, [output.name for output in self._plan.outputs], url=self._manifest.url)
        return self.replace(names=names)

    def peek(self) -> Any:
        """The first batch (or sample) of the next epoch of this rank, made in this process; moves nothing on."""
        settings = self._settings
        settings.check_complete()
        run = EpochRun(self._manifest, settings, self._rank(), epoch=self.epoch, num_workers=0)
        if not run.steps:
            raise UsageError("there is nothing to look at: this rank has no samples", url=self._manifest.url)
        return next(self._items(_Makers(self), run.step(0)))

    # -------------------------------------------------------------------------------------------------- iteration

    def __iter__(self) -> Iterator[Any]:
        self._settings.check_complete()
        info = get_worker_info()
        worker, workers = (0, 0) if info is None else (info.id, info.num_workers)
        epoch = self.epoch
        makers = _Makers(self)
        run = EpochRun(self._manifest, self._settings, self._rank(), epoch=epoch, num_workers=workers)
        counts = self._settings.deliver == "items"  # ss.Loader counts for itself, by what was consumed
        if counts and workers:
            self._clock.begin_worker(worker, workers)
            if worker == 0 and self._settings.batch_size is None:
                logger.info("single samples cost more on their way to the training process than batches: use ss.Loader")
        for number in range(worker, run.steps, max(workers, 1)):
            try:
                yield from self._items(makers, run.step(number))
            except ShardStreamError as error:
                if counts or not workers:
                    raise
                yield Failure.of(error, worker)
                return
        if counts and workers:
            self._clock.finish_worker(epoch, worker, workers)
        elif counts:
            self._clock.finish(epoch)

    def _items(self, makers: _Makers, step: Step) -> Iterator[Any]:
        settings = self._settings
        lists = settings.deliver == "lists" or settings.batch_size is None
        parcel = makers.parcel(step, lists=lists)
        if settings.deliver != "items":
            yield parcel
        elif lists:
            yield from parcel.data
        else:
            yield parcel.data

    # --------------------------------------------------------------------------------------------------- pickling

    def __getstate__(self) -> dict[str, Any]:
        self._settings.check_picklable()
        return {
            "url": self._manifest.url,
            "fingerprint": self._manifest.fingerprint,
            "settings": self._settings,
            "clock": self._clock,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._settings = state["settings"]
        self._clock = state["clock"]
        self._manifest = Manifest.load(state["url"])
        if self._manifest.fingerprint != state["fingerprint"]:
            raise FormatError(
                "the data set was replaced by another one since this object was made",
                url=self._manifest.url,
                hint="make a new ShardDataset",
            )
        self._plan = self._compile()


class _Makers:
    """What one iteration in one process makes samples and batches with."""

    def __init__(self, dataset: ShardDataset) -> None:
        settings, manifest, plan = dataset._settings, dataset._manifest, dataset._plan
        policy = SkipPolicy(settings.on_error, settings.max_skips)
        reader = RowReader(manifest, plan.sources, verify=settings.verify)
        self._names = settings.names
        self._in_worker = get_worker_info() is not None
        self._mark = settings.on_error == "skip" or effective_tail(settings) == "pad"
        self._maker = SampleMaker(
            reader, plan, manifest.fields, seed=settings.seed, transform=settings.transform, policy=policy
        )
        self._batches = BatchMaker(self._maker, batch_transform=settings.batch_transform, mark=self._mark)
        calls = [self._maker.transform, self._batches.transform, *(step for one in plan.outputs for step in one.steps)]
        # Seeding the global generators costs less where they are saved and restored once a step.
        seeds = any(isinstance(call, UserCall) and call.uses_global_states for call in calls)
        self._kept = global_states_kept if seeds else nullcontext

    def parcel(self, step: Step, *, lists: bool) -> Parcel:
        """A step as a batch, or as a list of those of its samples that can be used."""
        start = time.perf_counter()
        with self._kept():
            parcel = self._samples(step) if lists else self._batch(step)
        parcel.seconds = time.perf_counter() - start
        return parcel

    def _samples(self, step: Step) -> Parcel:
        samples, broken = self._maker.samples(step)
        valid = np.ones(len(samples), np.bool_) if step.valid is None else step.valid
        kept = []
        own = 0
        for sample, is_valid in zip(samples, valid.tolist(), strict=True):
            if sample is None:
                continue
            own += is_valid
            if self._mark and isinstance(sample, dict):
                sample["__valid__"] = is_valid
            if self._in_worker:
                refuse_devices(sample)
            kept.append(self._as_tuple(sample))
        return Parcel(kept, own, list(broken.values()))

    def _batch(self, step: Step) -> Parcel:
        batch, valid, broken = self._batches.batch(step)
        return Parcel(self._as_tuple(batch), int(valid.sum()), list(broken.values()))

    def _as_tuple(self, value: Any) -> Any:
        if self._names is None:
            return value
        if not isinstance(value, dict):
            raise UsageError(
                f"to_tuple needs a dict, but a transform returned {type(value).__name__}", hint="leave to_tuple out"
            )
        missing = [name for name in self._names if name not in value]
        if missing:
            raise UsageError(
                f"there is no {missing[0]!r} to put into a tuple",
                field=missing[0],
                hint=f"there are {', '.join(value)}",
            )
        return tuple(value[name] for name in self._names)
