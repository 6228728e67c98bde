"""``Loader``: torch's ``DataLoader`` with the right settings for shards, and a state of its own."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

from torch.utils.data import DataLoader

from shardstream.errors import StorageError, UsageError, WorkerError
from shardstream.load.arguments import check_arguments, warn_replaced
from shardstream.load.frameworks import ForFrameworks
from shardstream.load.iteration import ConsumerPosition, LoaderIteration
from shardstream.load.preemption import WorkerInit, outliving
from shardstream.load.rank_check import RankCheck
from shardstream.load.reporter import OnStats, StatsReporter
from shardstream.load.stall import workers_at
from shardstream.load.stats import LoaderStats
from shardstream.load.tracing import recorded_since
from shardstream.load.workers import LEAVE_S, NoAnswerError, Workers, chosen_workers, find_death, refused, still_busy
from shardstream.stream.base import Stream
from shardstream.stream.ipc.worker_batch import CollateWorkerBatch, keep
from shardstream.stream.iteration.epoch_run import EpochRun
from shardstream.stream.iteration.recipe import describe
from shardstream.waits import watched

logger = logging.getLogger(__name__)

_TIMED_OUT = re.compile(r"DataLoader timed out after")
# Attributes of a loader that its copy makes by itself: those of an iteration, and those that hold the dataset.
_MADE = re.compile(
    "_arguments|stats|reporter|rank_check|_shards|_delivered|_current|_before|_begun|_restarted|_iterator|__.*|_DataLoader__.*"
)


class Loader(ForFrameworks, DataLoader[Any]):
    """Delivers the batches of a `ShardDataset` or `Mixture`, made by worker processes.

    A ``DataLoader`` in all else: its arguments are forwarded. Batches are made in the workers, straight in shared
    memory, which workers fill again once nothing refers to a batch any more: whoever keeps a batch keeps its memory.
    Single samples travel in blocks. An epoch is over when its last batch is handed out: while the loop has that one,
    `epoch` and `state_dict` are those of the next epoch, also where the loop never asks for another batch. After a
    ``break`` before, the next iteration begins the same epoch again. What hangs does not hold it up: workers that have
    not come back after 7 seconds are replaced, as are those that died.

    `state_dict` says which samples are left, by what the training loop has received: what workers have fetched ahead is
    handed out again after `load_state_dict`. One rank's state serves all ranks, and any other number of ranks, workers
    and samples a batch.

    With a process group of ``torch.distributed``, ranks compare in each iteration what they read, and none waits for
    another: data, seed, and shape before the first batch, epoch and position before the second.

    Args:
        dataset: The data set or mixture.
        num_workers: Worker processes; 0 works in this process. Default ``"auto"``: a processor each, of those that this
            process may use, divided by the ranks of this machine; one is left for training, and the number is rounded
            down to 1, 2, 4 or 8, under which batches are the same: the order is that of any other machine.
        batch_size: Samples per batch, or what they may cost. It replaces that of the dataset, which a warning says
            once. Default: the dataset's own.
        collate_fn: Called in the worker with the list of samples of a batch, in place of our own batching; with single
            samples, with each of them. Default: slabs, as `ShardDataset` describes.
        persistent_workers: Keep workers from epoch to epoch, so that there is no pause between them. Default: true
            where there are workers.
        stall: Seconds after which a batch that does not come is a warning of the logger ``shardstream.waits``, which
            says of each worker what it is at; again after twice the time. Default 60. ``timeout`` raises with
            that text.
        on_stats: Called with the numbers of the run (a flat dict: `LoaderStats.as_dict`, and the rates of
            `LoaderStats.since` the last call) in the thread that takes the batches, as one of them is handed out.
        stats_every: Seconds between two such calls; the end of an iteration brings one, too. Default 10.
        stats_file: A file of this machine that is written as often: ``"run/stats-{rank}.json"`` for
            `LoaderStats.merged`, ``"/var/lib/.../stats-{rank}.prom"`` in the text format of Prometheus.
        compare_ranks: Whether ranks compare what they read. Default true; false is for separate trainings in one job,
            each with ``ranks=`` of its own.
        **arguments: Of ``DataLoader``: ``prefetch_factor``, ``pin_memory``, ``multiprocessing_context``, ``timeout``,
            ``worker_init_fn``, ``generator``, ...

    Raises:
        UsageError: An argument that the dataset decides, with the line to write; or one that does not exist.
        RankError: On iteration: other ranks read something else.
        WorkerError: On iteration: a worker died; names the shard it was reading. Or none gave a batch within
            ``timeout`` seconds; says what each of them is at.

    Example:
        >>> loader = ss.Loader(ds.to_tuple("jpg", "cls"), batch_size=64, num_workers=2)
        >>> sum(len(labels) for images, labels in loader)
        200
    """

    def __init__(
        self,
        dataset: Stream,
        *,
        num_workers: int | Literal["auto"] = "auto",
        batch_size: int | Mapping[str, float] | None = None,
        collate_fn: Callable[[Any], Any] | None = None,
        persistent_workers: bool | None = None,
        stall: float | None = None,
        on_stats: OnStats | None = None,
        stats_every: float = 10.0,
        stats_file: str | os.PathLike[str] | None = None,
        compare_ranks: bool = True,
        **arguments: Any,
    ) -> None:
        if not isinstance(dataset, Stream):
            raise UsageError(
                f"ss.Loader needs a ShardDataset or a Mixture, got {type(dataset).__name__}",
                hint="use torch's DataLoader for others",
            )
        self._arguments = self.remember_arguments(
            arguments | {"dataset": dataset, "num_workers": num_workers, "batch_size": batch_size},
            {"collate_fn": collate_fn, "persistent_workers": persistent_workers, "compare_ranks": compare_ranks},
            {"stall": stall, "on_stats": on_stats, "stats_every": stats_every, "stats_file": stats_file},
        )
        check_arguments(dataset, arguments, type(self))
        if stall is not None and not stall > 0:
            raise UsageError(f"stall must be a number of seconds, got {stall!r}", hint="leave it out for 60")
        num_workers = chosen_workers(num_workers)
        self._stall = stall
        size = dataset.batch_size if batch_size is None else batch_size
        if dataset.batch_size not in (None, size):
            warn_replaced(str(dataset.batch_size), str(size))
        self.stats = LoaderStats(num_workers, images=dataset.decodes_images, addressable=dataset.jpegs_addressable)
        self.reporter = StatsReporter(self.stats, on_stats, stats_every, stats_file)
        self.single = single = size is None
        self._current: ConsumerPosition | None = None
        self._before: ConsumerPosition | None = None  # the one that may still have a thread asking for a batch
        self._begun: weakref.ref[Workers] | None = None
        # An iteration that nobody had begun to take from, and the one in its place.
        self._restarted: tuple[ConsumerPosition, LoaderIteration] | None = None
        self.rank_check = RankCheck(compare=compare_ranks)
        lists = collate_fn is not None
        collate: Callable[[Any], Any] = keep if collate_fn is None else CollateWorkerBatch(collate_fn, each=single)
        persistent = num_workers > 0 if persistent_workers is None else persistent_workers
        self._shards = dataset.for_loader(
            num_workers,
            workers_stay=persistent or not num_workers,
            batch_size=size,
            deliver="lists" if lists else "worker batches",
        )
        self._starting = False
        super().__init__(
            dataset.with_settings(batch_size=size, deliver="lists" if lists else "items"),
            batch_size=None,
            num_workers=num_workers,
            collate_fn=collate,
            persistent_workers=persistent,
            **arguments,
        )
        _loaders.add(self)

    def __repr__(self) -> str:
        return f"Loader({self.dataset!r}, num_workers={self.num_workers})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For pickles and copies: a loader of the same arguments that is where this one is, and has what users set."""
        own = {name: value for name, value in vars(self).items() if not _MADE.fullmatch(name)}
        return _copied, (type(self), self._arguments, own, self.state_dict())

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or that the next iteration reads: from an epoch's last batch on, the next."""
        current = self._current
        return self._shards.epoch if current is None or current.over else current.run.resume_point.epoch

    @property
    def done_before(self) -> int:
        """Of the iteration that runs: batches (or samples) of its epoch that this rank need not read any more."""
        return 0 if self._current is None else self._current.run.done_before

    def __len__(self) -> int:  # torch's own keeps what it said first, and warns where a later epoch has more
        """Batches of this rank in a whole epoch, the next one; samples, if there is no batch size."""
        return len(self._shards)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration reads, see `ShardDataset.set_epoch`.

        Not needed from epoch to epoch: a completed iteration advances it. Frameworks call it before each of them, with
        the number that it has already.

        Raises:
            UsageError: Not an integer in [0, 2**32).

            >>> loader = ss.Loader(ds, batch_size=64, num_workers=2)
            >>> loader.set_epoch(3)
            >>> loader.epoch
            3
        """
        self._shards.set_epoch(epoch)
        self._offset = None

    def peek(self) -> Any:
        """The first batch (or sample) of the next epoch of this rank, made in this process; moves nothing on."""
        collate: Any = self.collate_fn
        first = collate(self._shards.first_batch())
        return next(iter(first.data)) if self.single else first.data

    @property
    def cuts_batches(self) -> bool:
        """Whether batches may have fewer samples than slots, since samples can be dropped."""
        return not self.single and self._shards.cuts_batches

    @property
    def seed(self) -> int:
        """The data set's seed."""
        return self._shards.seed

    @property
    def classes(self) -> int | None:
        """Number of classes of the labels, where the data set knows their names."""
        names = self._shards.classes
        return None if names is None else len(names)

    @property
    def dataset(self) -> Any:
        """The data set as others find it: a plain ``DataLoader`` over it gives what this one gives.

        Accelerate makes one where ``Trainer`` skips what was trained on already.
        """
        return self._shards if self._starting else self._delivered

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        self._delivered = dataset

    @property  # type: ignore[override]  # an attribute there
    def worker_init_fn(self) -> WorkerInit | None:
        """What each worker begins with; as they are started, also what a `Preemption` wants of them."""
        return outliving(self._worker_init) if self._starting else self._worker_init

    @worker_init_fn.setter
    def worker_init_fn(self, init: WorkerInit | None) -> None:
        self._worker_init = init

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch promises an object of its own there
        return self._loop(self.begin_iteration())

    def begin_iteration(self) -> LoaderIteration:
        """Begin an iteration whose consumer counts by itself what it has received; for `DevicePrefetcher`."""
        self.leave()
        self._make_way()
        place = self._shards.assign(self.num_workers)
        run = place.run
        ranks = self.rank_check.begin(run.rank, partial(self._shards.plan, run), partial(self._recipe, run))
        self.stats.rank, self.stats.world_size = run.rank.rank, run.rank.world_size
        self.reporter.begin()
        self._shards.trace(recorded_since())  # before workers begin: else their first batches may be left out
        arriving = self.explained(self._begin)
        finish = partial(self._shards.finish_epoch, run.resume_point.epoch)
        self._current = position = ConsumerPosition(place, finish, ranks)
        request = partial(next, arriving, None)
        if isinstance(arriving, Workers):
            arriving.given_up = position.check_open
            request = partial(self.explained, request, arriving)
        drops = self._shards.drops_samples
        trace = self._shards.trace
        return LoaderIteration(position, request, trace, self.awaited, self.wait, single=self.single, drops=drops)

    def _recipe(self, run: EpochRun) -> dict[str, Any]:
        """What ranks that read the same samples must agree on besides."""
        collate = getattr(self.collate_fn, "function", None)
        return run.recipe() | {"collate_fn": describe(collate), "num_workers": self.num_workers}

    def restart(self) -> None:
        """Let the iteration that has begun, if nothing of it was received, read the epoch that was chosen since."""
        current = self._current
        if current is not None and not current.taken and not current.over:
            self._restarted = (current, self.begin_iteration())

    def leave(self) -> None:
        """End the iteration that runs. Waits for nobody: not for a thread that is asking for a batch either."""
        if self._current is not None:
            self._current.close()
            self._before, self._current = self._current, None

    def _make_way(self) -> None:
        """Wait until nobody is asking for a batch of the iteration before."""
        if self._before is not None and not self._before.left(LEAVE_S / 4 if self.num_workers else LEAVE_S):
            if not self.num_workers:
                raise still_busy(self.awaited())
            self._replace("they hang")
        self._before = None

    def _begin(self) -> Iterator[Any]:
        """Torch's iterator at the beginning of an iteration."""
        if isinstance(self._iterator, Workers) and not self._iterator.usable:
            self._replace("one of them died")
        try:
            return super().__iter__()
        except NoAnswerError:
            self._replace("they hang in the iteration before")
            return super().__iter__()

    def _replace(self, why: str) -> None:
        workers, self._iterator = self._iterator, None
        if isinstance(workers, Workers):
            logger.warning("new workers are started: %s", why)
            workers.end()

    def _get_iterator(self) -> Any:
        self._starting = True  # what we begin gets batches as they travel
        try:
            if not self.num_workers:
                return super()._get_iterator()
            self.check_worker_number_rationality()
            self._shards.worker_logs.open()
            workers = Workers(self)
            self._shards.worker_logs.hear()  # in a thread: none is forked along
        except StorageError:
            raise
        except OSError as error:
            raise refused(error) from error
        finally:
            self._starting = False
        self._begun = weakref.ref(workers)
        _name_deaths()
        return workers

    def awaited(self) -> str:
        """What whoever asks for a batch waits for at this moment, for people."""
        workers = None if self._begun is None else self._begun()
        process = os.getpid() if not self.num_workers else None if workers is None else workers.awaited
        if process is None:
            return "a batch of DataLoader workers"
        number, place = self._shards.reading(process) or ("", {})  # nothing from a worker that has just begun
        worker = f"DataLoader worker {number}".rstrip()
        who = f"{worker} (process {process})" if self.num_workers else "this process"
        at = ", ".join(f"{name} {value}" for name, value in place.items())
        return f"a batch of {who}" + (f", which is at [{at}]" if at else "")

    def wait(self, what: Callable[[], str]) -> watched:
        """A wait for a batch: what is said of it after ``stall`` seconds has what all workers are at.

        Args:
            what: Says what is waited for.
        """
        return watched(what, after=self._stall, detail=self._workers_at)

    def _workers_at(self) -> str:
        return workers_at(self._shards.working())

    def state_dict(self) -> dict[str, Any]:
        """Where training is: a small JSON-able dict that says which samples of the epoch are left.

        It counts what the loop has received, the batch at hand included. Costs microseconds. From the last batch of an
        epoch on it is the beginning of the next. One rank's serves all; under ``tail="exact"``, where ranks end
        unevenly, rank 0's.

        Raises:
            UsageError: One of several ranks that take single samples has dropped one, in this epoch.

            >>> loader = ss.Loader(ss.ShardDataset("out/", batch_size=10, fields=["cls"]), num_workers=0)
            >>> batches = iter(loader)
            >>> batch = next(batches)
            >>> loader.state_dict()["position"]
            10
        """
        current = self._current
        if current is None or current.over:
            return self._shards.state_dict()
        return current.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration hands out what was left, the one after it begins a fresh epoch.

        Other ranks, workers and batch sizes are fine; the order stays that of the run that was interrupted.

        Raises:
            UsageError: A state of other data, another view or another seed; names both values. Or one that no run has
                saved: positions beyond the epoch, text or floats for counts.
        """
        self.leave()
        self._shards.load_state_dict(state)
        self._offset = None
        self.rank_check.renew()

    def _loop(self, iteration: LoaderIteration) -> Iterator[Any]:
        stats, first = self.stats, True
        if self._restarted is not None and self._restarted[0] is iteration.position:
            iteration = self._restarted[1]
        self._restarted = None
        with self.wait(self.awaited) as wait:
            while True:
                asked, wait.since = time.perf_counter(), time.monotonic()
                item = next(iteration, None)
                waited, wait.since = time.perf_counter() - asked, math.inf
                if item is None:
                    break
                stats.waited(waited, first=first)
                first = False
                stats.add(item.counted, asked)
                iteration.position.receive(item)
                data, last = item.data, item.last
                del item  # whoever takes the batch alone says how long it lives
                handed = time.perf_counter()
                if not self.reporter.idle:
                    self.reporter.step(last=last)
                yield data
                del data
                stats.seconds += time.perf_counter() - handed
        stats.ended(waited)
        stats.add(iteration.rest)
        iteration.position.end()

    def explained(self, request: Callable[[], Any], arriving: Any = None) -> Any:
        """What a request answers; where a worker's death is behind its error, one that says where that worker was."""
        try:
            return request()
        except (RuntimeError, EOFError, OSError) as error:
            if _TIMED_OUT.match(str(error)):
                raise WorkerError(
                    f"no batch came within {self.timeout:g} s (timeout=){self._workers_at()}",
                    hint="look at what the workers are at; a larger timeout= waits longer",
                ) from error
            death = find_death(error, self._iterator if arriving is None else arriving)
            if death is None:
                raise
            raise self._died(*death) from error

    def named(self, error: RuntimeError) -> WorkerError | None:
        """The same where torch tells of a death wherever the training loop is; ``None``: it was none of ours."""
        death = find_death(error, None)
        workers = None if self._begun is None else self._begun()
        if death is None or workers is None or not set(death[0]) & set(workers.pids):
            return None
        return self._died(*death)

    def _died(self, processes: list[int], message: str) -> WorkerError:
        found = next(filter(None, map(self._shards.reading, processes)), None)
        worker, place = found or (None, {})
        who = f"process {processes[0]}" if worker is None else f"DataLoader worker {worker} (process {processes[0]})"
        workers = None if self._begun is None else self._begun()
        signalled = message.partition("killed by signal: ")[2]
        ended = "" if workers is None else workers.how_ended(processes[0])
        how = f"was killed by signal: {signalled}" if signalled else ended or "died"
        hint = workers.hint_of_start(processes[0]) if found is None and workers is not None else None
        if hint is not None:
            return WorkerError(f"{who} {how} as it started", hint=hint)
        doing = " while it was at the sample named here" if "sample" in place else ""
        return WorkerError(
            f"{who} {how.rstrip('. ')}{doing}",
            hint="killed: look at the machine's memory (dmesg), use fewer workers or a smaller prefetch_factor; bus "
            "error: a local shard was cut while in use, or /dev/shm is full; else look at the sample with ss.Reader "
            "and at the code that decodes it",
            **place,
        )


def _copied(kind: type[Loader], arguments: Mapping[str, Any], own: Mapping[str, Any], state: dict[str, Any]) -> Loader:
    copy = object.__new__(kind)
    Loader.__init__(copy, **arguments)
    vars(copy).update(own)
    copy.load_state_dict(state)
    return copy


_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()
_naming = False


def _name_deaths() -> None:
    """Have what torch raises when a worker dies, whatever the main thread is doing, name the worker and its place."""
    global _naming
    previous = signal.getsignal(signal.SIGCHLD)
    if _naming or threading.current_thread() is not threading.main_thread() or not callable(previous):
        return
    _naming = True

    def tell(number: int, frame: Any) -> None:
        try:
            previous(number, frame)
        except RuntimeError as error:
            named = next(filter(None, (loader.named(error) for loader in list(_loaders))), None)
            if named is None:
                raise
            raise named from error

    signal.signal(signal.SIGCHLD, tell)
