"""``Stream``: what `ShardDataset` and `Mixture` have in common: iteration, epochs, ranks and states."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Self

from torch.utils.data import IterableDataset, get_worker_info

from shardstream.dataset.shared import WorkerStatus
from shardstream.errors import UsageError
from shardstream.order import OrderParameters
from shardstream.shards.manifest import unknown_field
from shardstream.stream.batching.pipeline import StepPipeline
from shardstream.stream.ipc.worker_batch import WorkerBatch, items_of
from shardstream.stream.iteration.assignment import Assignment
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.dealt import check_can_be_sent, check_resumes, find_dealt
from shardstream.stream.iteration.epoch_run import Cursor, EpochRun, count_items, say_shape
from shardstream.stream.iteration.epoch_state import SharedEpochState
from shardstream.stream.iteration.ranks import Rank, RankOfAll, find_rank
from shardstream.stream.iteration.settings import StreamOptions
from shardstream.stream.iteration.state import (
    ResumePoint,
    check_counts,
    check_worker,
    content_of,
    make_state,
    parse_state,
)
from shardstream.stream.iteration.versions import VersionedContent

logger = logging.getLogger(__name__)


class Stream(IterableDataset[Any]):
    """Samples or batches in an order that is a pure function of seed and epoch. Not to be made directly."""

    _settings: StreamOptions
    _clock: SharedEpochState

    def _start(self, content: Content, settings: StreamOptions, clock: SharedEpochState | None = None) -> None:
        super().__init__()
        self._settings = settings
        self._clock = clock or SharedEpochState()
        self._followed = VersionedContent(content, self._clock)
        self._found_rank: tuple[int, Rank] | None = None  # and the process that found it when it pickled this
        self._forget()

    def _forget(self) -> None:
        """What belongs to one process only."""
        self._assignment: Assignment | None = None
        self._own_begin: ResumePoint | None = None
        self._own_order: OrderParameters | None = None
        self._own_version: int | None = None
        self._used_order: OrderParameters | None = None
        self._seen = 0
        self._progress: Cursor | None = None
        self._held: tuple[int, StepPipeline] | None = None
        self._checked = False

    @property
    def _content(self) -> Content:
        return self._followed.content

    # ------------------------------------------------------------------------------------------------ what it is

    @property
    def fingerprint(self) -> str:
        """Identity of what is streamed, data and view: 32 hexadecimal digits."""
        return self._content.fingerprint

    @property
    def batch_size(self) -> int | None:
        """Samples a batch, ``None`` for single samples."""
        return self._settings.batch_size

    @property
    def drops_samples(self) -> bool:
        """Whether single samples can be missing: broken ones that are skipped, or those a transform leaves out."""
        return self._content.drops_samples

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self._settings.seed

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, label i being ``classes[i]``; ``None`` if unknown, or not the same in all sources."""
        return self._content.classes

    @property
    def rank_source(self) -> str:
        """Where rank and world size are known from, at this moment."""
        return self._rank().source

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads. It advances by one when an epoch's last item is handed out."""
        return self._clock.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration reads; reaches persistent workers too.

        Setting the current one changes nothing: not a loaded state either.

        Raises:
            UsageError: Not an integer in [0, 2**32).
        """
        begin = self._own_begin or self._clock.pending()
        if begin is not None:
            check_resumes(begin.epoch, epoch)
        find_dealt(self._settings)  # or rank 0 alone would find what is wrong, in a worker
        self._clock.set(epoch)
        self._checked = self._checked or check_can_be_sent(lambda: self.first_batch().data, single=self._lists)

    def _rank(self) -> Rank:
        parent = multiprocessing.parent_process()
        if get_worker_info() is not None and self._found_rank is not None and parent is not None:
            process, rank = self._found_rank
            if process == parent.pid:  # else it came from a launcher, and this worker was forked: it finds out itself
                return rank
        dealt = find_dealt(self._settings)
        if dealt is not None:
            return RankOfAll.of(dealt, "Accelerate, which deals out samples to ranks")
        return find_rank(self._settings.rank, self._settings.world_size)

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch; samples, if there is no batch size."""
        if self._content.endless:
            raise TypeError("an endless mixture has no length")
        self._settings.check_complete()
        return count_items(self._content, self._settings, self._rank())

    # ------------------------------------------------------------------------------------------------- variations

    def _with(self, content: Content, settings: StreamOptions) -> Self:
        copy: Self = object.__new__(type(self))
        copy._start(content, settings, self._clock)
        return copy

    def replace(self, **changes: Any) -> Self:
        """The same with other settings; it shares this one's epoch.

        Raises:
            UsageError: The settings do not go together.
        """
        return self._with(self._content, dataclasses.replace(self._settings, **changes))

    def to_tuple(self, *names: str) -> Self:
        """The same, delivering tuples of these outputs in place of dicts; it shares this one's epoch.

        ``"__key__"`` and ``"__valid__"`` can be named too, and ``"__source__"`` of a mixture.

        Raises:
            FieldError: There is no such output.

            >>> images, labels = next(iter(ds.to_tuple("jpg", "cls")))
        """
        if not names:
            raise UsageError("to_tuple needs names", hint='for example to_tuple("jpg", "cls")')
        parts = self._content.parts
        outputs = list(dict.fromkeys(output.name for part in parts for output in part.plan.outputs))
        known = {*outputs, "__key__", "__valid__", "__source__"}
        if self._settings.batch_transform is None and all(part.recipe.transform is None for part in parts):
            for name in names:
                if name not in known:
                    raise unknown_field(name, outputs, url=self._content.url)
        return self.replace(names=names)

    def peek(self) -> Any:
        """The first batch (or sample) of the next epoch of this rank, made in this process; moves nothing on."""
        first = self.first_batch()
        return next(iter(first.data)) if self._lists else first.data

    def first_batch(self) -> WorkerBatch:
        """The same as it travels."""
        self._settings.check_complete()
        run = EpochRun(self._content, self._settings, self._rank(), self._fresh(), 0)
        if not run.steps:
            raise UsageError("there is nothing to look at: this rank has no samples", url=self._content.url)
        return StepPipeline(self._content, self._settings, None).only(run.step(0), lists=self._lists)

    # -------------------------------------------------------------------------------------------------- iteration

    @property
    def _lists(self) -> bool:
        return self._settings.deliver == "lists" or self._settings.batch_size is None

    def __iter__(self) -> Iterator[Any]:
        self._settings.check_complete()
        info = get_worker_info()
        worker, workers = (0, 0) if info is None else (info.id, info.num_workers)
        if self._assignment is not None:
            run = self._assignment.run(self._content, self._settings, workers)
            pipeline = self._pipeline(self._assignment.status(worker), workers)
            steps = self._assignment.steps(run, worker, workers)
            return pipeline.batches(steps, lists=self._lists, worker=None if info is None else worker)
        begin, resumed = self._take_begin(info)
        run = EpochRun(self._content, self._settings, self._rank(), begin, workers)
        mark = self._clock.begin(info, run.begin, resumed=resumed, dealt=run.rank.dealt is not None)
        progress = self._progress = Cursor(run, worker, workers, mark)
        if workers and worker == 0 and self._settings.batch_size is None:
            logger.info("single samples cost more on their way to the training process than batches: use ss.Loader")
        if not progress.numbers:  # nobody need ask for anything to have had it all
            self._finish(progress)
        return self._items(progress, self._pipeline(None, workers))

    def _take_begin(self, info: Any) -> tuple[ResumePoint, bool]:
        """Where the iteration that begins now begins, and whether a state said so."""
        begin, self._own_begin = self._own_begin, None
        if begin is not None and begin.epoch == self.epoch:
            return begin, True
        loaded = self._clock.take(info, self._seen)
        if loaded is not None:
            self._seen = self._clock.loaded
            return loaded, True
        return self._fresh(), False

    def _fresh(self) -> ResumePoint:
        """The beginning of the next epoch."""
        parameters, version = self._own_order or self._clock.pinned, self._own_version or self._clock.version
        return ResumePoint(self.epoch, parameters=parameters, version=version)

    def _pipeline(self, status: WorkerStatus | None, workers: int) -> StepPipeline:
        """That of this process: another one that a fork made must not share what is on its way."""
        content = self._content
        if self._held is None or self._held[0] != os.getpid() or self._held[1].content is not content:
            self._held = (os.getpid(), StepPipeline(content, self._settings, status, workers))
        return self._held[1].begin()

    def _items(self, progress: Cursor, pipeline: StepPipeline) -> Iterator[Any]:
        made = partial(next, self._made(progress, pipeline), None)
        single = self._settings.batch_size is None
        for item in items_of(made, len(progress.numbers), [], single=single, drops=self.drops_samples):
            progress.taken = progress.before + item.after
            if item.last:  # whoever gets it may begin the next epoch at once
                self._finish(progress)
            data = item.data
            del item
            yield data
            del data
        self._finish(progress)

    def _made(self, progress: Cursor, pipeline: StepPipeline) -> Iterator[WorkerBatch]:
        for step in pipeline.steps(progress.steps):
            batch = pipeline.batch(progress.begin(step), lists=self._lists)
            if batch.slots is not None:
                self._clock.drop(progress.mark)
            yield batch

    def _finish(self, progress: Cursor) -> None:
        if progress.finished:  # said once: a later word could be taken for one of the next iteration
            return
        progress.finish()
        epoch = progress.run.begin.epoch
        if progress.workers:
            self._clock.finish_worker(epoch, progress.worker, progress.workers, progress.mark)
        else:
            self._clock.finish(epoch)
            if self._progress is progress:
                self._progress = None

    # -------------------------------------------------------------------------------------------------- for Loader

    def for_loader(self, num_workers: int, *, workers_stay: bool, **changes: Any) -> Self:
        """The same for one loader: it says where iterations begin, and counts by itself what was consumed."""
        copy = self.replace(**changes)
        copy._assignment = Assignment(num_workers, workers_stay=workers_stay)
        return copy

    def assign(self, num_workers: int) -> EpochRun:
        """Say to the workers of the loader what the iteration that begins now reads.

        Raises:
            UsageError: There is nothing to read, or it cannot be read like that.
        """
        assert self._assignment is not None
        self._settings.check_complete()
        begin, resumed = self._take_begin(None)
        run = EpochRun(self._content, self._settings, self._rank(), begin, num_workers)
        if resumed:
            say_shape(run.begin, run.rank, num_workers)
        self._assignment.give(run.begin, run.rank)
        self._used_order = run.begin.parameters
        return run

    def plan(self, run: EpochRun) -> dict[str, Any]:
        """What all ranks must agree on: the state that an iteration begins with, and its shape."""
        return run.state_at(run.begin) | self._shape(run.rank)

    def _shape(self, rank: Rank) -> dict[str, int | None]:
        return {"world_size": rank.world_size, "batch_size": self._settings.batch_size}

    def finish_epoch(self, epoch: int) -> None:
        """All of ``epoch`` was consumed, so that the next iteration reads the one after."""
        self._clock.finish(epoch)

    def reading(self, process: int) -> tuple[int, dict[str, Any]] | None:
        """The worker of this process id, and the place of the sample or shard that it is at; ``None``: no worker."""
        found = None if self._assignment is None else self._assignment.reading(process)
        if found is None:
            return None
        worker, place, row = found
        return worker, {} if place < 0 else self._content.place(place, row)

    # ------------------------------------------------------------------------------------------------------ states

    def state_dict(
        self, *, batches: int | None = None, num_workers: int | None = None, batch_size: int | None = None
    ) -> dict[str, Any]:
        """Where training is: a small JSON-able dict that says which samples of the epoch are left.

        It holds the position of the consumer; from an epoch's last item on, that is the beginning of the next epoch.
        Without arguments, that of an iteration in this process (also inside a worker of torchdata's
        ``StatefulDataLoader``); `Loader.state_dict` knows its own. With workers of a plain
        ``DataLoader``, which fetch ahead, only the training loop knows what it consumed, and says so. One rank's state
        serves all ranks, and any other number of them.

        Args:
            batches: Batches that the loop has received from a ``DataLoader`` in the running iteration.
            num_workers: Of that ``DataLoader``.
            batch_size: Of that ``DataLoader``, if it makes the batches; ``None`` where the data set does.

        Raises:
            UsageError: Workers are at it, and ``batches`` is not said; or it cannot be known from that.

            >>> state = ds.state_dict(batches=10, num_workers=4)
        """
        progress = self._progress
        if self._clock.dealt and self._assignment is None and (batches or progress is not None or self._clock.busy):
            raise UsageError(
                "Accelerate deals out to ranks what is read, so the data set cannot know what they have consumed",
                hint="use ss.Loader, which Accelerate hands on, and its state_dict; Trainer skips what was trained on",
            )
        if batches is not None:
            return self._state_after_batches(batches, num_workers, batch_size)
        if get_worker_info() is not None and progress is not None:
            return progress.worker_state(self._settings.batch_size)
        if self._clock.busy and self._assignment is None:
            raise UsageError(
                "workers fetch ahead, so the data set cannot know what the training loop has consumed",
                hint="use ss.Loader and its state_dict, or say state_dict(batches=n, num_workers=K), also after a loop",
            )
        if progress is not None:
            return progress.run.state_at(progress.run.after((progress.taken,)))
        begin = self._to_begin()
        used = self._clock.used if self._assignment is None else self._used_order
        # between two epochs the order is still that of the run
        begin = dataclasses.replace(begin, parameters=begin.parameters or used)
        return make_state(self._content, self._settings, begin)

    def _to_begin(self) -> ResumePoint:
        """Where the next iteration begins."""
        return self._own_begin or self._clock.pending() or self._fresh()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration hands out what was left, the one after it begins a fresh epoch.

        Other ranks, workers and batch sizes are fine; the order stays that of the run that was interrupted. So do the
        data: of a data set that grew since, the version that the state was saved at is read from now on.

        Raises:
            UsageError: A state of other data, another view or another seed; names both values. Or one that no run has
                saved: positions beyond the epoch, text or floats for counts.
        """
        content = content_of(state, self._content)
        begin = parse_state(state, content, self._settings)
        self._followed.move_to(content)
        info = get_worker_info()
        if "worker" in state:
            check_worker(state, info, self._shape(self._rank()), self._content.url)
        if self._assignment is not None:
            self._own_order, self._own_version = begin.parameters, begin.version
        elif info is None and "worker" not in state:
            self._clock.load(begin)
            self._progress = None
            return
        else:
            self._clock.pin(begin)
        if info is not None:
            self._clock.forget_finished(info.id)
        self._clock.set(begin.epoch)
        self._own_begin = begin
        self._progress = None

    def _state_after_batches(self, batches: int, num_workers: int | None, batch_size: int | None) -> dict[str, Any]:
        num_workers = check_counts(batches, num_workers)
        received = batches > 0 or self._progress is not None
        following = self._to_begin()  # looked up first: a worker may begin from it at this moment
        begin = self._clock.begun(num_workers, received=received) or following
        run = EpochRun(self._content, self._settings, self._rank(), begin, num_workers)
        if not received and self._clock.fetched and run.steps:
            raise UsageError(
                "before the first batch it is not known whether workers are already at the next epoch",
                hint="ask for the state before the loop, or after its first batch",
            )
        return run.state_at(run.after_batches(batches, num_workers, batch_size, dropped=self._clock.dropped))

    # --------------------------------------------------------------------------------------------------- pickling

    def __getstate__(self) -> dict[str, Any]:
        self._settings.check_picklable()
        for part in self._content.parts:
            part.recipe.check_picklable()
        state = self.__dict__ | {"_found_rank": (os.getpid(), self._rank())}
        for name in ("_own_begin", "_own_order", "_own_version", "_used_order", "_seen", "_progress", "_held"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._forget()
        self.__dict__.update(state)
