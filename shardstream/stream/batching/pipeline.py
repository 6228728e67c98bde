"""``StepPipeline``: what one process makes the samples and batches of a `Content` with, in all iterations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
from torch.utils.data import get_worker_info

from shardstream.dataset.indexes import OpenShards
from shardstream.dataset.read_ahead import ReadAhead
from shardstream.dataset.rows import RowReader
from shardstream.dataset.shared import WorkerStatus
from shardstream.dataset.step import Step
from shardstream.decode.usercall import UserCall, global_states_kept
from shardstream.errors import UsageError
from shardstream.sizes import parse_size
from shardstream.storage import ReadQueue, counters
from shardstream.storage.base.heap import keep_freed_memory
from shardstream.stream.batching.batches import BatchBuilder
from shardstream.stream.batching.budget import read_budget
from shardstream.stream.batching.decode_pool import decode_pool_of
from shardstream.stream.batching.samples import SampleDecoder
from shardstream.stream.batching.stages import StageClock
from shardstream.stream.ipc.orphans import end_with_parent
from shardstream.stream.ipc.worker_batch import WorkerBatch
from shardstream.stream.iteration.coming_steps import WorkerSteps
from shardstream.stream.iteration.content import Content, ContentPart
from shardstream.stream.iteration.ranks import local_ranks
from shardstream.stream.iteration.settings import StreamOptions
from shardstream.stream.iteration.skips import SkipPolicy
from shardstream.stream.tensors.crops import refuse_samples
from shardstream.stream.tensors.nested import refuse_devices
from shardstream.stream.tensors.numbers import Numbers
from shardstream.stream.tensors.pool import HomePool
from shardstream.stream.tensors.shared_slabs import begin_sharing


class StepPipeline:
    """Makes parcels of steps. Open indexes and stores live as long as this.

    Args:
        content: What is streamed.
        settings: How.
        desk: Where to say which sample is being made, or ``None``.
        workers: Of the loader, 0 for none, among which it is divided what is read ahead over a network; ``None``: only
            what is asked for is read.
    """

    def __init__(
        self, content: Content, settings: StreamOptions, desk: WorkerStatus | None, workers: int | None = None
    ) -> None:
        self.content = content
        self._names = settings.names
        self._in_worker = get_worker_info() is not None
        if self._in_worker:
            end_with_parent()
            keep_freed_memory()
            if settings.deliver != "items":
                begin_sharing()
        self._pool = HomePool()
        self._crew = decode_pool_of(settings.threads)
        self._clock = StageClock()
        groups, maker_of = _alike(content.parts)
        self._sources = [part.source for part in content.parts]
        self._shards = OpenShards(self._sources)
        self._ahead: ReadAhead | None = None
        if workers is not None and any(one.over_network for one in self._sources):
            budget = read_budget(settings.prefetch, num_workers=workers, local_ranks=local_ranks())
            queue = ReadQueue()
            self._shards = OpenShards(self._sources, queue)
            fields = [groups[number].plan.sources for number in maker_of]
            self._ahead = ReadAhead(self._shards, fields, queue, budget=budget)
        numbers = content.numbers
        self._makers = [
            self._maker(part, numbers[maker_of.index(number)], settings, desk) for number, part in enumerate(groups)
        ]
        self._counted = counters().snapshot()
        self._mark = settings.effective_tail == "pad" or any(maker.policy.skips for maker in self._makers)
        self._batches = BatchBuilder(
            self._makers,
            np.array(maker_of),
            self._clock,
            batch_transform=settings.batch_transform,
            mark=self._mark,
            keys=self._names is None or "__key__" in self._names or settings.batch_transform is not None,
        )
        calls: list[Any] = [self._batches.transform]
        for maker in self._makers:
            calls += [maker.transform, *(call for output in maker.plan.outputs for call in output.calls)]
        # Seeding the global generators costs less where they are saved and restored once a step.
        seeds = any(isinstance(call, UserCall) and call.uses_global_states for call in calls)
        self._kept = global_states_kept if seeds else nullcontext

    def _maker(
        self, part: ContentPart, numbers: Numbers, settings: StreamOptions, desk: WorkerStatus | None
    ) -> SampleDecoder:
        recipe = part.recipe
        fields = {name: part.source.fields[name] for name in part.plan.sources}
        reader = RowReader(
            self._shards,
            fields,
            verify=recipe.verify,
            max_value=parse_size(recipe.max_value, name="max_value"),
            status=desk,
            ahead=self._ahead,
        )
        return SampleDecoder(
            reader,
            part.plan,
            part.source.fields,
            numbers,
            self._clock,
            seed=settings.seed,
            transform=recipe.transform,
            policy=SkipPolicy(recipe.on_error, recipe.max_skips),
            desk=desk,
            crew=self._crew,
        )

    def begin(self) -> Self:
        """Begin an iteration: skips are counted anew, and transforms may return other types."""
        for maker in self._makers:
            maker.policy.begin()
            maker.numbers.begin()
        return self

    def steps(self, coming: WorkerSteps) -> Iterator[Step]:
        """The steps of an iteration, each with its bytes on their way. When it ends, or is left, threads go."""
        try:
            yield from coming if self._ahead is None else self._ahead.steps(coming)
        finally:
            self._end()

    def _end(self) -> None:
        self._pool.clear()
        if self._crew is not None:
            self._crew.close()

    def only(self, step: Step, *, lists: bool) -> WorkerBatch:
        """The one step of an iteration, see `parcel`."""
        try:
            return self.parcel(step, lists=lists)
        finally:
            self._end()

    def parcel(self, step: Step, *, lists: bool) -> WorkerBatch:
        """A step as a batch, or as a list of those of its samples that can be used."""
        self._clock.begin()
        with self._kept(), self._pool.in_charge():
            parcel = self._samples(step) if lists else self._batch(step)
        self._clock.lap("assemble")
        parcel.stages = self._clock.taken()
        if self._ahead is not None:
            parcel.transfers = counters().since(self._counted)
            self._counted = counters().snapshot()
        return parcel

    def _samples(self, step: Step) -> WorkerBatch:
        for maker in self._makers:
            refuse_samples(maker.plan.cut)
        samples, broken = self._batches.samples(step)
        valid = np.ones(len(samples), np.bool_) if step.valid is None else step.valid
        own = np.array([sample is not None for sample in samples], np.bool_) & valid
        kept, slots = [], []
        for slot, (sample, is_valid) in enumerate(zip(samples, valid.tolist(), strict=True)):
            if sample is None:
                continue
            if self._mark and isinstance(sample, dict):
                sample["__valid__"] = is_valid
            if self._in_worker:
                refuse_devices(sample)
            kept.append(self._as_tuple(sample))
            slots.append(slot)
        return WorkerBatch(
            kept,
            int(own.sum()),
            list(broken.values()),
            sources=self._counts(step, own),
            slots=None if len(slots) == len(samples) else slots,
            positions=len(samples),
        )

    def _batch(self, step: Step) -> WorkerBatch:
        batch, valid, broken = self._batches.batch(step)
        return WorkerBatch(
            self._as_tuple(batch),
            int(valid.sum()),
            list(broken.values()),
            sources=self._counts(step, valid),
            positions=len(step.rows),
        )

    def _counts(self, step: Step, own: np.ndarray[Any, np.dtype[np.bool_]]) -> dict[str, int]:
        if step.sources is None:
            return {}
        counts = np.bincount(step.sources[own], minlength=len(self.content.names))
        return dict(zip(self.content.names, counts.tolist(), strict=True))

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


def _alike(parts: tuple[ContentPart, ...]) -> tuple[list[ContentPart], list[int]]:
    """One part of each group that can be decoded alike, and the group of each part."""
    groups: list[ContentPart] = []
    group_of: list[int] = []
    for part in parts:
        found = next((number for number, other in enumerate(groups) if other.goes_with(part)), len(groups))
        if found == len(groups):
            groups.append(part)
        group_of.append(found)
    return groups, group_of
