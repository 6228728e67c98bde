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

from shardstream.dataset.image_field import virtual_image
from shardstream.dataset.shared import WorkerState, WorkerStatus
from shardstream.errors import UsageError
from shardstream.shards.fields import IMAGE, FieldType
from shardstream.shards.manifest import DAMAGED, unknown_field
from shardstream.stream.batching.pipeline import StepPipeline
from shardstream.stream.ipc.worker_batch import Requests, WorkerBatch, items_of
from shardstream.stream.iteration.assignment import Assignment
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.cursor import Cursor, StreamPlace, say_beginning
from shardstream.stream.iteration.dealt import check_can_be_sent, check_resumes, find_dealt
from shardstream.stream.iteration.epoch_run import EpochRun, count_items
from shardstream.stream.iteration.epoch_state import EpochState, SharedEpochState
from shardstream.stream.iteration.ranks import Rank, RankOfAll, find_rank
from shardstream.stream.iteration.settings import StreamOptions, regrouped
from shardstream.stream.iteration.state import (
    check_counts,
    check_worker,
    content_of,
    make_state,
    parse_state,
)
from shardstream.stream.iteration.versions import VersionedContent
from shardstream.stream.iteration.worker_logs import WorkerLogs
from shardstream.stream.pickling import Pickled

logger = logging.getLogger(__name__)


class Stream(Pickled, IterableDataset[Any]):
    """Samples or batches in an order that is a pure function of seed and epoch. Not to be made directly."""

    _settings: StreamOptions
    _kind: str
    """Name of the class that users make."""
    _replaceable: frozenset[str]
    """Settings that are arguments of their own."""

    def _start(self, content: Content, settings: StreamOptions, shared: SharedEpochState | None = None) -> None:
        super().__init__()
        self._settings = settings
        self._shared = shared or SharedEpochState()
        self._versioned = VersionedContent(content, self._shared)
        self._found_rank: tuple[int, Rank] | None = None  # and the process that found it when it pickled this
        self._assignment: Assignment | None = None
        self._checked = False
        self._forget()

    def _forget(self) -> None:
        """What belongs to one process only."""
        self._epochs = EpochState(self._shared)
        self._cursor: Cursor | None = None
        self._held: tuple[int, StepPipeline] | None = None

    @property
    def _content(self) -> Content:
        return self._versioned.content

    # ------------------------------------------------------------------------------------------------ what it is

    @property
    def fingerprint(self) -> str:
        """Identity of what is streamed, data and view: 32 hexadecimal digits."""
        return self._content.fingerprint

    @property
    def batch_size(self) -> int | Mapping[str, float] | None:
        """Samples a batch, or what it may cost by field; ``None`` for single samples."""
        by_cost = self._content.by_cost
        return self._settings.batch_size if by_cost is None else by_cost.given

    @property
    def drops_samples(self) -> bool:
        """Whether single samples can be missing: broken ones that are skipped, or those a transform leaves out."""
        return self._content.drops_samples

    @property
    def cuts_batches(self) -> bool:
        """Whether batches may have fewer samples than slots, since samples can be dropped."""
        return self.drops_samples and self._settings.dropped == "short"

    @property
    def decodes_images(self) -> bool:
        """Whether pictures are decoded, and not only handed on as they are stored."""
        return any(output.is_image for part in self._content.parts for output in part.plan.outputs)

    @property
    def jpegs_addressable(self) -> bool:
        """Whether packing has made the JPEG files that are decoded addressable, as far as they can be."""
        return all(
            any(manifest.kinds.get(name, {}).keys() - {DAMAGED} for name in names)
            for part in self._content.parts
            for manifest in part.source.manifests
            for output in part.plan.outputs
            if output.is_image and (names := [one for one in output.sources if _may_be_jpeg(manifest.fields.get(one))])
        )

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self._settings.seed

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, label i being ``classes[i]``; ``None`` if unknown, or not the same in all sources.

        Several data sets with other classes each are refused when they are opened, if ``cls`` is read of them.
        """
        return self._content.classes

    def label_of(self, name: str) -> int:
        """The number of a class, as it stands in the field ``cls``.

        Raises:
            UsageError: There is no such class, or no one list of them; names the nearest.

        Example:
            >>> _ = ss.pack([{"txt": "a bark", "cls": "dog"}], "sounds/", classes=["cat", "dog"])
            >>> ss.ShardDataset("sounds/").label_of("dog")
            1
        """
        return self._content.label_of(name)

    @property
    def rank_source(self) -> str:
        """Where rank and world size are known from, at this moment."""
        return self._rank().source

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads. It advances by one when an epoch's last item is handed out."""
        return self._shared.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration reads; reaches persistent workers too.

        Setting the current one changes nothing: not a loaded state either.

        Raises:
            UsageError: Not an integer in [0, 2**32).
        """
        resume_point = self._epochs.pending()
        if resume_point is not None:
            check_resumes(resume_point.epoch, epoch)
        find_dealt(self._settings)  # or rank 0 alone would find what is wrong, in a worker
        self._shared.set(epoch)
        self._checked = self._checked or check_can_be_sent(
            lambda: self.first_batch().data, single=self._lists, uneven=self.cuts_batches
        )

    def _rank(self) -> Rank:
        parent = multiprocessing.parent_process()
        if get_worker_info() is not None and self._found_rank is not None and parent is not None:
            process, rank = self._found_rank
            if process == parent.pid:  # else it came from a launcher, and this worker was forked: it finds out itself
                return rank
        dealt = find_dealt(self._settings)
        if dealt is not None:
            return RankOfAll.of(dealt, "Accelerate, which deals out samples to ranks")
        return find_rank(self._settings.ranks)

    def __getitem__(self, index: object) -> Any:
        raise UsageError(
            f"samples of a stream come one after another, so that [{index!r}] has no meaning",
            url=self._content.url,
            hint="ss.Reader(url)[0] reads a sample by its number; peek() is the first batch, next(iter(ds)) too",
        )

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch, the next one; samples, if there is no batch size."""
        if self._content.endless:
            # A TypeError, which `list`, tqdm and Lightning take for "of unknown length".
            total = sum(part.source.positions for part in self._content.parts)
            raise TypeError(
                'an endless mixture has no length, and epoch="endless" is the default with a schedule\n'
                f"  hint: say how many samples of all ranks an epoch has: ss.Mixture(..., epoch={total})"
            )
        self._settings.check_complete()
        return count_items(self._content, self._settings, self._rank(), self._epochs.fresh())

    # ------------------------------------------------------------------------------------------------- variations

    def _with(self, content: Content, settings: StreamOptions) -> Self:
        copy: Self = object.__new__(type(self))
        copy._start(content, settings, self._shared)
        return copy

    def replace(self, **changes: Any) -> Self:
        """The same with other arguments; it shares this one's epoch.

        Args:
            **changes: Arguments by name. Those that say which data are read take a new dataset.

        Raises:
            FieldError, UsageError: They do not go together, or not with the data; there is no such argument.
        """
        return self.with_settings(**regrouped(changes, self._kind, self._replaceable, self._settings))

    def with_settings(self, **changes: Any) -> Self:
        """The same with other settings by their names; it shares this one's epoch."""
        return self._with(self._content, dataclasses.replace(self._settings, **changes))

    def to_tuple(self, *names: str) -> Self:
        """The same, delivering tuples of these outputs in place of dicts; it shares this one's epoch.

        ``"__key__"`` and ``"__valid__"`` can be named too, and ``"__source__"`` of a mixture. ``"__valid__"`` is all
        True if no sample is repeated.

        Raises:
            FieldError: There is no such output.
            UsageError: Batches have ``"__valid__"``, and it is not named.

            >>> images, labels = next(iter(ds.to_tuple("jpg", "cls")))
        """
        if not names:
            raise UsageError("to_tuple needs names", hint='for example to_tuple("jpg", "cls")')
        parts = self._content.parts
        outputs = list(dict.fromkeys(output.name for part in parts for output in part.plan.outputs))
        known = {*outputs, "__key__", "__valid__", "__source__"}
        if self._settings.batch_transform is None and all(part.options.transform is None for part in parts):
            for name in names:
                if name not in known:
                    error = unknown_field(name, outputs, url=self._content.url)
                    if name == IMAGE and any(virtual_image(part.source.fields) for part in parts):
                        error.hint = f"name it in fields: fields={list(names)}; {error.hint}"
                    raise error
        return self.with_settings(names=names)

    def peek(self) -> Any:
        """The first batch (or sample) of the next epoch of this rank, made in this process; moves nothing on.

        In a notebook, ``ss.show(ds.peek(), classes=ds.classes)`` is a contact sheet of it.
        """
        first = self.first_batch()
        return next(iter(first.data)) if self._lists else first.data

    def first_batch(self) -> WorkerBatch:
        """The same as it travels."""
        self._settings.check_complete()
        run = EpochRun(self._content, self._settings, self._rank(), self._epochs.fresh(), 0)
        if not run.steps:
            raise UsageError("there is nothing to look at: this rank has no samples", url=self._content.url)
        return StepPipeline(self._content, self._settings, None).only(run.step(0), lists=self._lists)

    def looked_into(self, epoch: int, num_workers: int) -> tuple[EpochRun, StepPipeline]:
        """The steps of this rank in an epoch of a loader, and what makes them here; moves nothing on.

        Args:
            epoch: Which.
            num_workers: Of the loader: its order may depend on that.
        """
        self._settings.check_complete()
        begin = dataclasses.replace(self._epochs.fresh(), epoch=epoch)
        run = EpochRun(self._content, self._settings, self._rank(), begin, num_workers)
        return run, StepPipeline(self._content, self._settings, None)

    # -------------------------------------------------------------------------------------------------- iteration

    @property
    def _lists(self) -> bool:
        return self._settings.deliver == "lists" or self._settings.batch_size is None

    def __iter__(self) -> Iterator[Any]:
        self._settings.check_complete()
        info = get_worker_info()
        worker, workers = (0, 0) if info is None else (info.id, info.num_workers)
        if self._assignment is not None:
            if info is not None:
                self._assignment.logs.speak(worker)
            steps = self._assignment.steps(self._content, self._settings, worker, workers)
            pipeline = self._pipeline(self._assignment.status(worker), workers)
            return pipeline.batches(steps, lists=self._lists, worker=None if info is None else worker)
        resume_point, resumed = self._epochs.take(info)
        run = EpochRun(self._content, self._settings, self._rank(), resume_point, workers)
        mark = self._shared.begin(info, run.resume_point, resumed=resumed, dealt=run.rank.dealt is not None)
        cursor = self._cursor = Cursor(run, self._shared, worker, workers, mark)
        say_beginning(cursor, self._content, workers, resumed=False)
        if workers and worker == 0 and self._settings.batch_size is None:
            logger.info("single samples cost more on their way to the training process than batches: use ss.Loader")
        if not cursor.numbers:  # nobody need ask for anything to have had it all
            self._finish(cursor)
        return self._items(cursor, self._pipeline(None, workers))

    def _pipeline(self, status: WorkerStatus | None, workers: int) -> StepPipeline:
        """That of this process: another one that a fork made must not share what is on its way."""
        content = self._content
        if self._held is None or self._held[0] != os.getpid() or self._held[1].content is not content:
            self._held = (os.getpid(), StepPipeline(content, self._settings, status, workers))
        return self._held[1].begin()

    def _items(self, cursor: Cursor, pipeline: StepPipeline) -> Iterator[Any]:
        made = partial(next, self._made(cursor, pipeline), None)
        single = self._settings.batch_size is None
        for item in items_of(Requests(made), len(cursor.numbers), [], single=single, drops=self.drops_samples):
            cursor.advance(cursor.before + item.after)
            if item.last:  # whoever gets it may begin the next epoch at once
                self._finish(cursor)
            data = item.data
            del item
            yield data
            del data
        self._finish(cursor)

    def _made(self, cursor: Cursor, pipeline: StepPipeline) -> Iterator[WorkerBatch]:
        for step in pipeline.steps(cursor.steps):
            batch = pipeline.batch(cursor.begin(step), lists=self._lists)
            if batch.slots is not None:
                self._shared.drop(cursor.mark)
            yield batch

    def _finish(self, cursor: Cursor) -> None:
        if cursor.finished:  # said once: a later word could be taken for one of the next iteration
            return
        cursor.finish()
        epoch = cursor.run.resume_point.epoch
        if cursor.workers:
            self._shared.finish_worker(epoch, cursor.worker, cursor.workers, cursor.mark)
        else:
            self._shared.finish(epoch)
            if self._cursor is cursor:
                self._cursor = None

    # -------------------------------------------------------------------------------------------------- for Loader

    def for_loader(self, num_workers: int, *, workers_stay: bool, **changes: Any) -> Self:
        """The same for one loader: it says where iterations begin, and counts by itself what was consumed."""
        copy = self.with_settings(**changes)
        copy._assignment = Assignment(
            num_workers, workers_stay=workers_stay, samples=copy._content.listed(copy._settings), content=copy._content
        )
        return copy

    def assign(self, num_workers: int) -> StreamPlace:
        """Say to the workers of the loader what the iteration that begins now reads; the place where that begins.

        Raises:
            UsageError: There is nothing to read, or it cannot be read like that.
        """
        assert self._assignment is not None
        self._settings.check_complete()
        resume_point, resumed = self._epochs.take(None)
        run = EpochRun(self._content, self._settings, self._rank(), resume_point, num_workers)
        place = StreamPlace(run, self._shared)
        say_beginning(place, self._content, num_workers, resumed=resumed)
        self._assignment.give(run.resume_point, run.rank)
        self._epochs.use(run.resume_point.parameters)
        return place

    @property
    def worker_logs(self) -> WorkerLogs:
        """What workers of the loader log."""
        assert self._assignment is not None
        return self._assignment.logs

    def trace(self, since: int) -> None:
        """Have workers of the loader record what takes how long.

        Args:
            since: When that began, by ``time.perf_counter_ns``; 0: no more.
        """
        assert self._assignment is not None
        self._assignment.trace(since)

    def plan(self, run: EpochRun) -> dict[str, Any]:
        """What all ranks must agree on: the state that an iteration begins with, and its shape."""
        shape = {"world_size": run.rank.world_size, "batch_size": self._settings.batch_size}
        return run.plan() | shape

    def finish_epoch(self, epoch: int) -> None:
        """All of ``epoch`` was consumed, so that the next iteration reads the one after."""
        self._shared.finish(epoch)

    def reading(self, process: int) -> tuple[int, dict[str, Any]] | None:
        """The worker of this process id, and the place of the sample or shard that it is at; ``None``: no worker."""
        found = None if self._assignment is None else self._assignment.reading(process)
        if found is None:
            return None
        worker, shard_id, row = found
        return worker, {} if shard_id < 0 else self._content.location_of(shard_id, row)

    def working(self) -> list[tuple[WorkerState, dict[str, Any]]]:
        """What each worker is at, with the place of its sample or shard."""
        states = [] if self._assignment is None else self._assignment.states()
        return [(one, {} if one.shard_id < 0 else self._content.location_of(one.shard_id, one.row)) for one in states]

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
        cursor = self._cursor
        if self._shared.dealt and self._assignment is None and (batches or cursor is not None or self._shared.busy):
            raise UsageError(
                "Accelerate deals out to ranks what is read, so the data set cannot know what they have consumed",
                hint="use ss.Loader, which Accelerate hands on, and its state_dict; Trainer skips what was trained on",
            )
        if batches is not None:
            return self._state_after_batches(batches, num_workers, batch_size)
        if get_worker_info() is not None and cursor is not None:
            return cursor.worker_state(self._settings.batch_size)
        if self._shared.busy and self._assignment is None:
            raise UsageError(
                "workers fetch ahead, so the data set cannot know what the training loop has consumed",
                hint="use ss.Loader and its state_dict, or say state_dict(batches=n, num_workers=K), also after a loop",
            )
        if cursor is not None:
            return cursor.state()
        resume_point = self._epochs.after_a_run(of_loader=self._assignment is not None)
        return make_state(self._content, self._settings, resume_point)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration hands out what was left, the one after it begins a fresh epoch.

        Other ranks, workers and batch sizes are fine; the order stays that of the run that was interrupted. So do the
        data: of a data set that grew since, the version that the state was saved at is read from now on.

        Raises:
            UsageError: A state of other data, another view or another seed; names both values. Or one that no run has
                saved: positions beyond the epoch, text or floats for counts.
        """
        content = content_of(state, self._content)
        resume_point = parse_state(state, content, self._settings)
        self._versioned.move_to(content)
        info = get_worker_info()
        if "worker" in state:
            check_worker(state, info, self._rank(), self._settings.batch_size, self._content.url)
        self._epochs.load(resume_point, info, of_loader=self._assignment is not None, of_worker="worker" in state)
        self._cursor = None

    def _state_after_batches(self, batches: int, num_workers: int | None, batch_size: int | None) -> dict[str, Any]:
        num_workers = check_counts(batches, num_workers)
        received = batches > 0 or self._cursor is not None
        following = self._epochs.upcoming()  # looked up first: a worker may begin from it at this moment
        resume_point = self._shared.begun(num_workers, received=received) or following
        run = EpochRun(self._content, self._settings, self._rank(), resume_point, num_workers)
        if not received and self._shared.fetched and run.steps:
            raise UsageError(
                "before the first batch it is not known whether workers are already at the next epoch",
                hint="ask for the state before the loop, or after its first batch",
            )
        return run.state_at(run.after_batches(batches, num_workers, batch_size, dropped=self._shared.dropped))

    # ----------------------------------------------------------------------------------------------------- copying

    def __copy__(self) -> Self:
        """A copy that shares this one's epoch."""
        copy: Self = object.__new__(type(self))
        copy.__setstate__(self.__getstate__())
        return copy

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"_found_rank": (os.getpid(), self._rank())}
        for name in ("_epochs", "_cursor", "_held"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()


def _may_be_jpeg(kind: FieldType | None) -> bool:
    """Whether a stored field, if there is one, may hold JPEG files."""
    return kind is not None and kind.name in ("jpg", "bytes")
