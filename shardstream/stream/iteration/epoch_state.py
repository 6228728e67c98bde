"""Where iterations begin: the epoch number and loaded states, shared between a data set's copies and with its workers.

A `DataLoader` tells its workers nothing, and without ``persistent_workers`` makes new copies for each iteration. So
what they must agree on lives in anonymous shared memory that every copy maps: the parent's ``set_epoch`` and
``load_state_dict`` reach persistent workers, and an epoch that all workers have finished is counted for copies that
do not exist yet.

A launcher may make a data set and hand it to its ranks, by a fork or by a pickle. They are not workers: each has epochs
of its own, and takes a copy of this memory before it uses it or forks workers.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any

from torch.utils.data import get_worker_info

from shardstream.dataset.shared import SharedRecord, SharedWords
from shardstream.errors import UsageError
from shardstream.order import OrderParameters, PlaceRange, ranges_of
from shardstream.stream.iteration.state import ResumePoint

_MOST_WORKERS = 1024

# Places of the words.
_EPOCH = 0
_LOADED = 1  # counts the states that were loaded
_TAKER = 2  # who began an iteration from the last one: 0 nobody, else a number that this iteration's workers share
_BEGUN_EPOCH = 3  # what the last iteration began: the epoch,
_BEGUN_LOADED = 4  # which state, 0 for the epoch's beginning,
_BEGUN_MARK = 5  # its mark,
_BEGUN_WORKERS = 6  # and the number of its workers
_BUSY = 7  # 1: workers began an iteration, 2: and have all come to its end, which the training loop may not have
_DROPPED = 8  # mark of the last iteration in which a single sample was dropped, so that samples do not tell positions
_PINNED = 9  # eight order parameters that a loaded state has brought; 0: none
_USED = 17  # those of the last iteration
_VERSION = 25  # the version of the order that a loaded state has brought; 0: none
_DEALT = 26  # 1: what the last iteration reads is dealt out to ranks by a framework
_WARNED = 27  # 1: it was said that dropped single samples are unequally many on each rank
_MARKS = 28  # a word a worker: the mark of the iteration that it has finished


class SharedEpochState:
    """Epoch number, loaded state, and a mark for each worker that has finished its part, of all copies of a data set.

    What one copy of them makes of it is for its `EpochState` to say, which has the table of what happens when.
    """

    def __init__(self) -> None:
        self._shared = SharedWords(_MARKS + _MOST_WORKERS)
        self._record = SharedRecord()
        self._versions = SharedRecord()
        self._skips = SharedRecord()
        self._owner = os.getpid()
        _clocks.add(self)

    def __getstate__(self) -> dict[str, Any]:
        self.own()
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _clocks.add(self)

    def as_plain(self) -> tuple[list[int], Any, Any]:
        """What it says, as numbers and JSON-able values, without what workers have come to."""
        return self._words[:_MARKS].tolist(), self._record.read(), self._skips.read()

    @classmethod
    def of_plain(cls, words: Sequence[int], record: Any, skips: Any = None) -> SharedEpochState:
        """Another one that says what `as_plain` gave; that of earlier versions has no ``skips``."""
        made = cls()
        made._words[: len(words)] = words  # earlier versions have fewer
        made._record.write(record)
        made._skips.write(skips)
        return made

    def own(self) -> None:
        """Let go of the memory of the process that this came from, unless this process is a worker of it."""
        if self._owner != os.getpid() and get_worker_info() is None:
            self._owner = os.getpid()
            self._shared = self._shared.copy()
            self._record, self._versions = self._record.copy(), self._versions.copy()
            self._skips = self._skips.copy()

    @property
    def _words(self) -> Any:
        if self._owner != os.getpid():
            self.own()
        return self._shared.words

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return int(self._words[_EPOCH])

    def set(self, epoch: int) -> None:
        """Choose the next iteration's epoch; a state of another epoch that was loaded and not used is forgotten.

        Raises:
            UsageError: Not an integer in [0, 2**32).
        """
        if type(epoch) is not int or not 0 <= epoch < 1 << 32:
            raise UsageError(f"epoch must be an integer in [0, 2**32), got {epoch!r}", hint="count epochs from 0")
        if epoch != self.epoch:
            self._words[_TAKER] = -1
            self._words[_BUSY] = 0
        self._words[_EPOCH] = epoch

    def finish(self, epoch: int) -> None:
        """The whole of ``epoch`` was handed out: the next one follows, unless something else was said meanwhile."""
        if self.epoch == epoch and not self._waits:
            self._words[_EPOCH] = epoch + 1

    # ------------------------------------------------------------------------------------------------ loaded states

    @property
    def moves(self) -> int:
        """How often `move_to` was called."""
        self.own()
        return self._versions.writes

    @property
    def versions(self) -> list[int]:
        """The versions of the data sets that all copies are to read, if `moves` is not 0."""
        found: list[int] = self._versions.read()
        return found

    def move_to(self, versions: Sequence[int]) -> None:
        """All copies read these versions of the data sets from now on: a state of theirs was loaded."""
        self.own()
        self._versions.write(list(versions))

    def load(self, resume_point: ResumePoint) -> None:
        """The next iteration begins there."""
        self.own()
        self._record.write(resume_point.as_json())
        self._words[_EPOCH] = resume_point.epoch
        self._words[_TAKER] = 0
        self._words[_LOADED] += 1
        self._words[_BUSY] = 0
        self.pin(resume_point)

    def pin(self, resume_point: ResumePoint) -> None:
        """All iterations from now on have an order of these parameters and version, and leave out the same."""
        self.own()
        self._skips.write(resume_point.skips)
        self._words[_PINNED:_USED] = 0 if resume_point.parameters is None else astuple(resume_point.parameters)
        self._words[_VERSION] = resume_point.version or 0

    @property
    def version(self) -> int | None:
        """The version of the order that a loaded state has brought; ``None``: that of new runs."""
        return int(self._words[_VERSION]) or None

    @property
    def pinned(self) -> OrderParameters | None:
        """The parameters that a loaded state has brought."""
        return self._parameters(_PINNED)

    @property
    def skips(self) -> tuple[PlaceRange, ...]:
        """What a loaded state leaves out."""
        self.own()
        return ranges_of(self._skips.read() or ())

    @property
    def used(self) -> OrderParameters | None:
        """The parameters of the last iteration."""
        return self._parameters(_USED)

    def _parameters(self, at: int) -> OrderParameters | None:
        values = self._words[at : at + _USED - _PINNED].tolist()
        return OrderParameters(*values) if values[0] else None

    @property
    def loaded(self) -> int:
        """How many states were loaded."""
        return int(self._words[_LOADED])

    def pending(self) -> ResumePoint | None:
        """The loaded state that no iteration has begun from yet."""
        return ResumePoint.from_json(self._record.read()) if self._waits else None

    @property
    def _waits(self) -> bool:
        return bool(self._words[_LOADED]) and not self._words[_TAKER]

    def take(self, worker: Any, seen: int) -> ResumePoint | None:
        """The loaded state, if the iteration that begins now is the first since it was loaded.

        Args:
            worker: Of ``get_worker_info``, or ``None``. The workers of one iteration share a seed, which the first one
                leaves here, so that the others may take the same state, and those of later iterations may not.
            seen: `loaded` when this copy of the data set took a state last: a persistent worker takes each once.
        """
        if not self.loaded or seen == self.loaded:
            return None
        taker = _tag(worker)
        if self._words[_TAKER] not in (0, taker):
            return None
        resume_point = ResumePoint.from_json(self._record.read())
        # First: at no moment is the state neither pending nor begun from.
        self._note(worker, resume_point, resumed=True)
        self._words[_TAKER] = taker or -1
        return resume_point

    # ------------------------------------------------------------------------------------------------------ workers

    def begin(self, worker: Any, resume_point: ResumePoint, *, resumed: bool, dealt: bool = False) -> int:
        """An iteration begins in this process; all its workers say so, whichever is the first.

        Args:
            worker: Of ``get_worker_info``, or ``None``.
            resume_point: Where, with the order's parameters.
            resumed: Whether a loaded state said so.
            dealt: Whether what it reads is dealt out to ranks by a framework.

        Returns:
            The iteration's mark. Those of two sets of workers differ, so that a worker that has not begun yet is not
            taken for one that has finished the same epoch earlier.
        """
        mark = _mark(worker, resume_point.epoch)
        if worker is not None:
            if worker.num_workers > _MOST_WORKERS:
                raise UsageError(
                    f"num_workers must be at most {_MOST_WORKERS}, got {worker.num_workers}",
                    hint=f"write num_workers={_MOST_WORKERS} or less",
                )
            self.forget_finished(worker.id)
        elif self._words[_DROPPED] == mark:
            self._words[_DROPPED] = 0
        assert resume_point.parameters is not None
        self._words[_USED:_VERSION] = astuple(resume_point.parameters)
        self._words[_DEALT] = int(dealt)
        self._note(worker, resume_point, resumed=resumed)
        return mark

    def _note(self, worker: Any, resume_point: ResumePoint, *, resumed: bool) -> None:
        words = self._words
        words[_BEGUN_EPOCH] = resume_point.epoch
        words[_BEGUN_LOADED] = self.loaded if resumed else 0
        words[_BEGUN_MARK] = _mark(worker, resume_point.epoch)
        words[_BEGUN_WORKERS] = 0 if worker is None else worker.num_workers
        words[_BUSY] = 0 if worker is None else 1  # last: whoever sees it may read the others

    def forget_finished(self, worker: int) -> None:
        """Worker ``worker`` is at the beginning of what it may have finished before."""
        self._words[_MARKS + worker] = 0

    def finish_worker(self, epoch: int, worker: int, workers: int, mark: int) -> None:
        """Worker ``worker`` of ``workers`` has delivered all of its part; the last one to say so ends the epoch."""
        self._words[_MARKS + worker] = mark
        if bool((self._words[_MARKS : _MARKS + workers] == mark).all()):
            self._words[_BUSY] = 2
            self.finish(epoch)

    def first_warning(self) -> bool:
        """Whether nobody has warned of dropped single samples before; from now on somebody has."""
        first = not self._words[_WARNED]
        self._words[_WARNED] = 1
        return first

    def drop(self, mark: int) -> None:
        """A single sample was dropped in the iteration of this mark."""
        self._words[_DROPPED] = mark

    @property
    def busy(self) -> bool:
        """Whether workers were at it last, so that only the training loop knows what it has consumed."""
        return bool(self._words[_BUSY])

    @property
    def dealt(self) -> bool:
        """Whether what the last iteration reads is dealt out to ranks by a framework."""
        return bool(self._words[_DEALT])

    @property
    def fetched(self) -> bool:
        """Whether all workers of the last iteration have come to its end: the next one may be meant, or still this."""
        return bool(self._words[_BUSY] == 2)

    @property
    def dropped(self) -> bool:
        """Whether single samples were dropped in the last iteration."""
        return bool(self._words[_BEGUN_MARK] and self._words[_DROPPED] == self._words[_BEGUN_MARK])

    def begun(self, num_workers: int, *, received: bool) -> ResumePoint | None:
        """Where the running iteration began; ``None`` if, as far as is known, it is still to begin.

        Args:
            num_workers: Of the loader, as the caller knows it.
            received: Whether the training loop has anything of it.

        Raises:
            UsageError: The iteration has another number of workers.
        """
        if not received and not self._words[_BUSY]:
            return None
        workers = int(self._words[_BEGUN_WORKERS])
        if self._words[_BEGUN_MARK] and workers != num_workers:
            raise UsageError(
                f"num_workers={num_workers}, but the last iteration had {workers} workers",
                hint="pass the DataLoader's own num_workers",
            )
        if self._words[_BEGUN_LOADED] and self._words[_BEGUN_LOADED] == self.loaded:
            return ResumePoint.from_json(self._record.read())
        epoch = int(self._words[_BEGUN_EPOCH])
        return ResumePoint(epoch, parameters=self.pinned, version=self.version, skips=self.skips)


class EpochState:
    """Where the iterations of one copy of a data set begin: nobody else knows.

    Copies that `ShardDataset.replace` and its like made share an epoch, and a state that was loaded. A `Loader` has a
    state of its own, whose order is for its iterations alone; so has a worker of a ``StatefulDataLoader``.

    ===============================================  ====================  ======================================
    what happens                                     the epoch             a loaded state
    ===============================================  ====================  ======================================
    ``set_epoch``, the present one                   stays                 stays
    ``set_epoch``, another one                       is that one           is forgotten
    a state is loaded                                is that of the state  waits for an iteration
    a loader loads a state                           is that of the state  waits for an iteration of this loader
    a worker loads its own state                     is that of the state  waits for an iteration of this worker
    an iteration begins                              stays                 is taken, by this iteration alone
    one begins of which this rank has nothing        is the next one       is taken
    it is left before its last item                  stays                 is not there again: the epoch begins anew
    its last item is handed out, in this process     is the next one       as it was
    one of its workers hands out its own last item   stays                 as it was
    the last of them does                            is the next one       as it was
    another epoch's last item is handed out          stays                 as it was
    one is while a state waits                       stays                 waits
    it is pickled, but for a worker                  is the same           waits in both; from here on each by itself
    ===============================================  ====================  ======================================

    Args:
        shared: What all copies share.

    Attributes:
        shared: The same.
    """

    def __init__(self, shared: SharedEpochState) -> None:
        self.shared = shared
        self._own: ResumePoint | None = None  # of a loader, or of a worker by itself
        self._loaded: ResumePoint | None = None  # by a loader
        self._used: OrderParameters | None = None
        self._seen = 0

    def pending(self) -> ResumePoint | None:
        """The loaded state that no iteration has begun from yet."""
        return self._own or self.shared.pending()

    def upcoming(self) -> ResumePoint:
        """Where the next iteration begins."""
        return self.pending() or self.fresh()

    def fresh(self) -> ResumePoint:
        """The beginning of the next epoch."""
        shared, loaded = self.shared, self._loaded
        if loaded is None:
            return ResumePoint(shared.epoch, parameters=shared.pinned, version=shared.version, skips=shared.skips)
        parameters = loaded.parameters or shared.pinned
        return ResumePoint(shared.epoch, parameters=parameters, version=loaded.version, skips=loaded.skips)

    def after_a_run(self, *, of_loader: bool) -> ResumePoint:
        """The same as `upcoming`; between two epochs the order is still that of the run."""
        resume_point, used = self.upcoming(), self._used if of_loader else self.shared.used
        return replace(resume_point, parameters=resume_point.parameters or used)

    def take(self, worker: Any) -> tuple[ResumePoint, bool]:
        """Where the iteration that begins now begins, and whether a state said so.

        Args:
            worker: Of ``get_worker_info``, or ``None``.
        """
        resume_point, self._own = self._own, None
        if resume_point is not None and resume_point.epoch == self.shared.epoch:
            return resume_point, True
        loaded = self.shared.take(worker, self._seen)
        if loaded is not None:
            self._seen = self.shared.loaded
            return loaded, True
        return self.fresh(), False

    def use(self, parameters: OrderParameters | None) -> None:
        """An iteration of a loader begins, in an order of these parameters."""
        self._used = parameters

    def load(self, resume_point: ResumePoint, worker: Any, *, of_loader: bool, of_worker: bool) -> None:
        """The next iteration begins there.

        Args:
            resume_point: Where.
            worker: Of ``get_worker_info``, or ``None``.
            of_loader: Whether this copy is a loader's: others that share the epoch keep their order.
            of_worker: Whether one worker saved the state, for itself alone.
        """
        if of_loader:
            self._loaded = resume_point
        elif worker is None and not of_worker:
            self.shared.load(resume_point)
            return
        else:
            self.shared.pin(resume_point)
        if worker is not None:
            self.shared.forget_finished(worker.id)
        self.shared.set(resume_point.epoch)
        self._own = resume_point


_clocks: weakref.WeakSet[SharedEpochState] = weakref.WeakSet()


def _own_all() -> None:
    for clock in list(_clocks):
        clock.own()


os.register_at_fork(before=_own_all)  # workers are to share what this process has


def _tag(worker: Any) -> int:
    """A number below 2**30 that the workers of one iteration share (0: no worker); each new set of them has another."""
    return 0 if worker is None else 1 + (worker.seed - worker.id) % ((1 << 30) - 1)


def _mark(worker: Any, epoch: int) -> int:
    return _tag(worker) << 33 | epoch + 1
