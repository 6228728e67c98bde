"""``StepPipeline``: what one process makes the samples and batches of a `Content` with, in all iterations."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from shardstream.dataset.indexes import OpenShards
from shardstream.dataset.read_ahead import ReadAhead
from shardstream.dataset.rows import RowReader
from shardstream.dataset.shared import TRACED_SINCE, WorkerStatus
from shardstream.dataset.step import Step
from shardstream.decode.usercall import SampleCalls, UserCall, global_states_kept
from shardstream.errors import ShardStreamError, UsageError
from shardstream.images.geometry import UPRIGHT, Geometry, as_stored
from shardstream.sizes import parse_size
from shardstream.storage import ReadQueue, counters
from shardstream.storage.base.awaited import listen
from shardstream.storage.base.heap import keep_freed_memory
from shardstream.storage.cache.capacity import memory_left
from shardstream.stream.batching.batches import BatchBuilder, chosen_slots, kept_slots, no_mask, none_kept, own_slots
from shardstream.stream.batching.lost_slots import LostSlots
from shardstream.stream.batching.samples import SampleDecoder, StageClock, StepDecoding, decode_pool_of
from shardstream.stream.ipc.orphans import end_with_parent
from shardstream.stream.ipc.spans import SpanRecorder
from shardstream.stream.ipc.worker_batch import BatchFailure, WorkerBatch
from shardstream.stream.iteration.content import Content, ContentPart
from shardstream.stream.iteration.epoch_run import WorkerSteps
from shardstream.stream.iteration.ranks import local_ranks
from shardstream.stream.iteration.settings import StreamOptions
from shardstream.stream.tensors.crops import refuse_samples
from shardstream.stream.tensors.nested import refuse_devices
from shardstream.stream.tensors.numbers import Numbers
from shardstream.stream.tensors.slabs import HomePool, begin_sharing

_PER_RANK = 2 << 30  # the default windows count on it: the open ones take half at most
_LEAST = 64 << 20
_SHARE = 4  # of what memory is left, one part: the rest is for the model, batches and other ranks' surprises


class StepPipeline:
    """Makes batches of steps. Open indexes and stores live as long as this.

    Args:
        content: What is streamed.
        settings: How.
        status: Where to report which sample is being made, or ``None``.
        workers: Of the loader, 0 for none, among which it is divided what is read ahead over a network; ``None``: only
            what is asked for is read.
    """

    def __init__(
        self, content: Content, settings: StreamOptions, status: WorkerStatus | None, workers: int | None = None
    ) -> None:
        self.content = content
        self._settings = settings
        self._names = settings.names
        self._by_cost = content.by_cost is not None
        self._status = status
        if status is not None:
            listen(status.awaits)
        self._in_worker = get_worker_info() is not None
        if self._in_worker:
            end_with_parent()
            keep_freed_memory()
            if settings.deliver != "items":
                begin_sharing()
        self._pool = HomePool()
        self._threads = decode_pool_of(settings.reads.threads)
        self._clock = StageClock()
        self._recorder = SpanRecorder()
        groups, decoder_of = _alike(content.parts)
        sources = [part.source for part in content.parts]
        max_values = [parse_size(part.options.reads.max_value, name="max_value") for part in content.parts]
        self._shards = OpenShards(sources, max_values=max_values)
        self._ahead: ReadAhead | None = None
        if workers is not None and any(one.over_network for one in sources):
            budget = read_budget(settings.reads.prefetch, num_workers=workers, local_ranks=local_ranks())
            for dataset in (dataset for one in sources for dataset in one.datasets):
                dataset.prepare(workers)
            queue = ReadQueue()
            self._shards = OpenShards(sources, queue, max_values=max_values)
            fields = [groups[number].plan.sources for number in decoder_of]
            self._ahead = ReadAhead(self._shards, fields, queue, budget=budget, status=status)
        numbers = content.numbers
        self._decoders = [
            self._decoder(part, numbers[decoder_of.index(number)], settings.seed, status)
            for number, part in enumerate(groups)
        ]
        self._counted = counters().snapshot()
        self._iteration: object = None  # what `steps` is at
        self._turn = threading.Lock()
        self._single = settings.batch_size is None
        self._short = settings.dropped == "short"
        self._lost = LostSlots()
        self._mark = settings.marks or (self._names is not None and "__valid__" in self._names)
        self._batches = BatchBuilder(
            self._decoders,
            np.array(decoder_of),
            self._clock,
            batch_transform=settings.batch_transform,
            mark=self._mark,
            keys=self._names is None or "__key__" in self._names or settings.batch_transform is not None,
            short=self._short,
        )
        calls: list[Any] = [self._batches.transform]
        for decoder in self._decoders:
            calls += [decoder.transform, *(call for output in decoder.plan.outputs for call in output.calls)]
        # Seeding the global generators costs less where they are saved and restored once a step.
        seeds = any(isinstance(call, UserCall | SampleCalls) and call.uses_global_states for call in calls)
        self._kept = global_states_kept if seeds else nullcontext

    def _decoder(self, part: ContentPart, numbers: Numbers, seed: int, status: WorkerStatus | None) -> SampleDecoder:
        fields = {name: part.source.fields[name] for name in part.plan.sources}
        reader = RowReader(self._shards, fields, verify=part.options.reads.verify, status=status, ahead=self._ahead)
        return SampleDecoder(reader, part, numbers, self._clock, seed=seed, status=status, pool=self._threads)

    def begin(self) -> Self:
        """Begin an iteration: skips are counted anew, and transforms may return other types."""
        for decoder in self._decoders:
            decoder.policy.begin()
            decoder.numbers.begin()
        return self

    def steps(self, coming: WorkerSteps) -> Iterator[Step]:
        """The steps of an iteration, each with its bytes on their way. When it ends, or is left, threads go.

        An iteration that is left may end only when it is collected, after the next one began in another thread. Then
        everything belongs to the next one.
        """
        with self._turn:
            self._iteration = mine = object()
        try:
            steps = iter(coming) if self._ahead is None else self._ahead.steps(coming)
            yield from steps if coming.together == 1 else self._apart(steps, coming)
        finally:
            with self._turn:
                if self._iteration is mine:
                    self._end()

    def _apart(self, together: Iterator[Step], coming: WorkerSteps) -> Iterator[Step]:
        """Steps that are read at once, each by itself."""
        for whole in together:
            steps = coming.split(whole)
            if len(steps) > 1:
                self._batches.expect(whole, steps)
            yield from steps

    def batches(self, coming: WorkerSteps, *, lists: bool, worker: int | None) -> Iterator[WorkerBatch | BatchFailure]:
        """The batches of an iteration, for a `Loader`; in a worker, of this number, an error of ours ends them."""
        self._recorder.worker = worker
        if self._status is not None:
            self._status.at("read")
        for number, step in zip(coming.numbers, self.steps(coming), strict=True):
            since = 0 if self._status is None else self._status.head[TRACED_SINCE]
            try:
                if since or self._recorder.since:
                    made = self._recorded(step, number, since, lists=lists)
                else:
                    made = self.batch(step, lists=lists)
            except ShardStreamError as error:
                if worker is None:
                    raise
                yield BatchFailure.of(error, worker)
                return
            if self._status is None:
                yield made
                continue
            self._status.at("idle")
            yield made
            self._status.at("read")
        if self._status is not None:
            self._status.at("idle")

    def _recorded(self, step: Step, number: int, since: int, *, lists: bool) -> WorkerBatch:
        """The batch of a step, with what took how long since a trace is recorded; the first without one ends it."""
        recorder = self._recorder
        if since != recorder.since:
            recorder.follow(since)
            self._clock.record(recorder.lap if since else None)
        if not since:
            return self.batch(step, lists=lists)
        with recorder:
            made = self.batch(step, lists=lists)
        made.spans = recorder.spans(step.epoch, number)
        return made

    def _end(self) -> None:
        self._pool.clear()
        self._batches.expect(None)
        if self._threads is not None:
            self._threads.close()

    def only(self, step: Step, *, lists: bool) -> WorkerBatch:
        """The one step of an iteration, see `batch`."""
        try:
            return self.batch(step, lists=lists)
        finally:
            self._end()

    @property
    def looks_at_batches(self) -> bool:
        """Whether what becomes of a sample may depend on others of its batch."""
        return self._batches.transform is not None

    def geometry(self, step: Step) -> dict[str, Geometry]:
        """What decoders do to the images of the first sample of a step, by output; of the first source.

        All is said of the image as it is stored, but for the flip: whether left and right of what is seen change.
        """
        decoder = self._decoders[0]
        if self._by_cost:
            step = self._of_samples(step)
        rows, broken = decoder.read(step.only(np.array([0])))
        if rows is None:
            raise none_kept(broken, 1)
        with self._kept():
            context = StepDecoding(decoder, rows, step, decoder.plan.outputs).sample(0)[1]
        turns = context.upright
        return {
            name: as_stored(one, turns.get(name, UPRIGHT))[0]._replace(flip=one.flip)
            for name, one in context.geometry.items()
        }

    def batch(self, step: Step, *, lists: bool) -> WorkerBatch:
        """A step as a batch, or as a list of those of its samples that can be used."""
        self._clock.begin()
        if self._by_cost:
            step = self._of_samples(step)
        with self._kept(), self._pool.in_charge():
            made = self._samples(step) if lists else self._batch(step)
        self._clock.lap("assemble")
        self._lost.steps += 1
        self._lost.slots += len(step.rows)
        if (made.filtered or made.skipped) and not self._single:
            self._lost.add(made.filtered, len(made.skipped))
        if self._by_cost:
            made.positions, made.members = 1, len(step.rows)
        made.stages = self._clock.seconds
        if self._ahead is not None:
            made.transfers = counters().since(self._counted)
            self._counted = counters().snapshot()
        return made

    def _of_samples(self, step: Step) -> Step:
        """A step with samples in the place of the batch by cost that its one position is."""
        source = 0 if step.sources is None else int(step.sources[0])
        batches = self._shards.open(source, int(step.shards[0])).batches
        assert batches is not None
        return step.of_members(*batches.members(step.rows))

    def _samples(self, step: Step) -> WorkerBatch:
        for decoder in self._decoders:
            refuse_samples(decoder.plan.cut)
        samples, broken = self._batches.samples(step)
        dropped = {slot: broken.get(slot, "") for slot, sample in enumerate(samples) if sample is None}
        kept = [slot for slot in range(len(samples)) if slot not in dropped]
        if dropped and not self._single:
            kept = kept_slots(dropped, len(samples))
        repeat = bool(dropped) and not (self._short or self._single)
        chosen = chosen_slots(kept, len(samples), short=not repeat)
        own = own_slots(np.ones(len(samples), np.bool_) if step.valid is None else step.valid, kept)
        valid = own if repeat else own[kept]
        return WorkerBatch(
            [self._sample(samples[slot], is_valid) for slot, is_valid in zip(chosen, valid.tolist(), strict=True)],
            int(own.sum()),
            list(broken.values()),
            sources={} if step.sources is None else self._counts(step.sources[own]),
            positions=len(samples),
            slots=kept if dropped and not repeat else None,
            filtered=len(dropped) - len(broken),
        )

    def _sample(self, sample: Any, is_valid: bool) -> Any:
        """A sample as it is handed out; one that is repeated comes again, as another dict."""
        if self._mark and isinstance(sample, dict):
            sample = copy(sample)
            sample["__valid__"] = is_valid
        elif self._mark and not self._single:
            raise no_mask(sample)
        if self._in_worker:
            refuse_devices(sample)
        return sample if self._names is None else self._as_tuple(sample, self._names)

    def _batch(self, step: Step) -> WorkerBatch:
        batch, own, kept, broken = self._batches.batch(step)
        if self._batches.transform is not None and isinstance(batch, dict):
            self._settings.check_mask(batch)
        return WorkerBatch(
            batch if self._names is None else self._as_tuple(batch, self._names),
            int(own.sum()),
            list(broken.values()),
            sources={} if step.sources is None else self._counts(step.sources[own]),
            positions=len(step.rows),
            slots=kept if self._short else None,
            filtered=0 if kept is None else len(step.rows) - len(kept) - len(broken),
        )

    def _counts(self, sources: NDArray[np.int64]) -> dict[str, int]:
        counts = np.bincount(sources, minlength=len(self.content.names))
        return dict(zip(self.content.names, counts.tolist(), strict=True))

    @staticmethod
    def _as_tuple(value: Any, names: tuple[str, ...]) -> Any:
        if not isinstance(value, dict):
            raise UsageError(
                f"to_tuple needs a dict, but a transform returned {type(value).__name__}", hint="leave to_tuple out"
            )
        missing = [name for name in names if name not in value]
        if missing:
            raise UsageError(
                f"there is no {missing[0]!r} to put into a tuple",
                field=missing[0],
                hint=f"there are {', '.join(value)}",
            )
        return tuple(value[name] for name in names)


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


def read_budget(prefetch: int | str | None, *, num_workers: int, local_ranks: int) -> int:
    """Bytes that one worker may have on their way or at hand.

    Args:
        prefetch: What was asked for; ``None``: 2 GiB for each rank, less where memory is short.
        num_workers: Workers of a rank; 0 counts as one.
        local_ranks: Ranks on this machine.
    """
    if prefetch is not None:
        return parse_size(prefetch, name="prefetch")
    workers = max(num_workers, 1)
    available = _available() // (_SHARE * max(local_ranks, 1) * workers)
    return max(min(_PER_RANK // workers, available), _LEAST)


def _available() -> int:
    """Bytes of memory that could be taken now, by what the machine and the container allow."""
    left = memory_left()
    try:
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return free if left is None else min(free, left)
