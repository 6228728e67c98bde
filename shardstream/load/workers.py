"""``Workers``: torch's iterator over worker processes, each of whose waits ends.

Torch waits for workers without limit: for a batch, and for each of them to begin the next iteration; and at the end 5
seconds for each, one after another. A worker that hangs (a store, a file system, a user's callable) would so keep a
training process that has long gone elsewhere. Here whoever waits looks up four times a second, and leaves when nobody
wants the batch any more; and workers that do not end by themselves are ended.
"""

from __future__ import annotations

import atexit
import errno
import logging
import math
import multiprocessing
import os
import re
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from multiprocessing import connection
from typing import Any

from torch.utils.data import DataLoader

from shardstream.errors import StorageError, UsageError, WorkerError
from shardstream.extras import lacking, private
from shardstream.sizes import plural
from shardstream.stream.iteration.ranks import local_ranks
from shardstream.threads import cores

try:
    from torch._C import _remove_worker_pids
    from torch.utils.data import _utils
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter
except ImportError as error:
    raise lacking("torch", str(error)) from error
private(DataLoader, "_get_iterator", "torch")  # which `Loader` replaces: torch would go past one of another name

logger = logging.getLogger(__name__)

LEAVE_S = 7.0
"""Seconds that leaving an iteration waits for what is on its way. Tests shorten it."""

_GOODBYE_S = 4.0  # for workers to end by themselves, all of them together
_END_S = 1.0  # for the system to end them
_LOOK_S = 0.25
_METHODS = ("_reset", "_shutdown_workers", "_try_get_data")
_ATTRIBUTES = (
    *("_index_queues", "_rcvd_idx", "_shutdown", "_task_info", "_worker_result_queue", "_workers"),
    "_workers_done_event",
)
"""Of torch's iterator: methods that are replaced, and what is read. See docs/dev/insides.md."""

_LOCKS = "/dev/shm"  # noqa: S108 - where the system keeps the semaphores of multiprocessing
_NO_LOCKS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOSYS)
_REFUSED = {
    errno.ENOSPC: "their locks need room in /dev/shm: remove what is left over there, or enlarge it (mount -o "
    "remount,size=1g /dev/shm; containers: docker run --shm-size=1g)",
    errno.EAGAIN: "raise the limit of processes (ulimit -u; containers: --pids-limit), or use fewer workers",
    errno.ENOMEM: "there is too little memory for so many processes: use fewer workers",
}
"""What to do where the system refuses something that workers need."""

_NO_GUARD = (
    'start workers only below `if __name__ == "__main__":`, since under {} each worker runs the script from its top; '
    "if the script does so, look at the worker's own error"
)


_DEAD = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([0-9, ]+)\)")
_SAME_ORDER = (8, 4, 2, 1)
"""Numbers of workers under which batches are the same: divisors of the virtual workers of `shardstream.order`."""


def chosen_workers(asked: int | str) -> int:
    """How many workers a loader has; with ``"auto"``, of the processors of this rank, all but one, rounded down."""
    if isinstance(asked, int):
        return asked
    if asked != "auto":
        raise UsageError(f'num_workers must be a number or "auto", got {asked!r}', hint="leave it out")
    there, ranks = cores(), local_ranks()
    free = there // ranks - 1
    number = next((number for number in _SAME_ORDER if number <= free), 1)
    _say_workers(number, there, ranks)
    return number


@cache
def _say_workers(number: int, there: int, ranks: int) -> None:
    logger.info('num_workers="auto" is %d here: %s for %s', number, plural(there, "processor"), plural(ranks, "rank"))


class NoAnswerError(Exception):
    """Workers did not begin a new iteration in time: they hang in the one before."""


def still_busy(what: str) -> UsageError:
    """The error where a new iteration cannot begin, since the one before has not ended."""
    return UsageError(
        f"the iteration before has not ended: after {LEAVE_S:g} s it still waits for {what}",
        hint="what hangs there needs a time limit of its own; batches that workers make (num_workers=1 or more) can be "
        "given up",
    )


class Workers(_MultiProcessingDataLoaderIter):
    """The workers of a loader, and the batches that they make.

    Attributes:
        given_up: Whether nobody wants the batch any more that is waited for; raises what whoever asked is to get.

    Raises:
        OSError: The system refuses what they need, see `refused`.
        MissingExtraError: Torch's iterator is another one than the one that is known.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        _need(_METHODS, super())
        self.given_up: Callable[[], None] = _never
        self._deadline = math.inf
        self._start_method = (loader.multiprocessing_context or multiprocessing).get_start_method()
        try:
            super().__init__(loader)
        except (OSError, EOFError) as error:
            self._shutdown = True  # for torch, which would look for what was not made
            for worker in getattr(self, "_workers", ()):  # those that were started before
                worker.kill()
            if isinstance(error, ConnectionError | EOFError) and self._start_method != "fork":
                what = f"workers could not be started: {getattr(error, 'strerror', None) or error}"
                # The other end has failed.
                raise WorkerError(what, hint=_NO_GUARD.format(self._start_method)) from error
            raise
        _need(_ATTRIBUTES, self)
        self._processes = _Processes(self)
        # Of the cycle collector, torch's own __del__ gets queues that have been closed before it.
        weakref.finalize(self, self._processes.end, _GOODBYE_S).atexit = False

    @property
    def usable(self) -> bool:
        """Whether all are there, so that another iteration can begin."""
        return not self._shutdown and all(worker.is_alive() for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def how_ended(self, process: int) -> str:
        """What is known of the end of a process: ``"exited with code 1"``; empty if nothing is."""
        code = self._exit_code(process)
        if code is not None and code < 0:
            return f"was killed by signal: {signal.strsignal(-code) or -code}"
        return f"exited with code {code}" if code else ""

    def hint_of_start(self, process: int) -> str | None:
        """What to do about a process that has ended before it began with a sample; ``None``: nothing is known."""
        failed = (self._exit_code(process) or 0) > 0
        return _NO_GUARD.format(self._start_method) if failed and self._start_method != "fork" else None

    def _exit_code(self, process: int) -> int | None:
        return next((worker.exitcode for worker in self._workers if worker.pid == process), None)

    @property
    def awaited(self) -> int | None:
        """The process whose batch is the next one, where that is known."""
        task = self._task_info.get(self._rcvd_idx)
        return None if task is None else self._workers[task[0]].pid

    def end(self) -> None:
        """End them now, whatever they are doing."""
        self._processes.end(0)
        self._shutdown_workers()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self.given_up = _never
        self._deadline = math.inf if first_iter else time.monotonic() + LEAVE_S
        super()._reset(loader, first_iter)
        self._deadline = math.inf

    def _try_get_data(self, timeout: float = _utils.MP_STATUS_CHECK_INTERVAL) -> tuple[bool, Any]:
        end = time.monotonic() + timeout
        while True:
            self.given_up()
            now = time.monotonic()
            if now > self._deadline:
                raise NoAnswerError
            found = self._get_data_for(max(0, min(_LOOK_S, end - now)))
            if found[0] or time.monotonic() >= end:
                return found

    def _get_data_for(self, seconds: float) -> tuple[bool, Any]:
        try:
            found: tuple[bool, Any] = super()._try_get_data(seconds)  # type: ignore[no-untyped-call]  # torch's
        except RuntimeError as error:
            if not str(error).startswith(os.strerror(errno.EMFILE)):
                raise
            raise WorkerError(
                f"batches of workers cannot be received: {os.strerror(errno.EMFILE)}",
                hint="raise the limit of open files (ulimit -n)",
            ) from error
        return found

    def _shutdown_workers(self) -> None:
        processes = getattr(self, "_processes", None)  # without: not all of them were started
        if processes is not None and processes.owner != os.getpid():
            return  # a process that was forked: torch would tell workers that are not its own to end
        if processes is not None and not self._shutdown and _utils.python_exit_status is False:
            self._end_pinning()
            processes.end(_GOODBYE_S)
            self._worker_pids_set = False
            done: Any = threading.Event()  # nobody is left to be told, or to hold the lock of the other
            self._workers_done_event = done
        super()._shutdown_workers()

    def _end_pinning(self) -> None:
        """As torch ends its thread, which comes first; but one that hangs in half a message is left behind."""
        if not hasattr(self, "_pin_memory_thread"):
            return
        self._pin_memory_thread_done_event.set()
        self._worker_result_queue.put((None, None))
        self._pin_memory_thread.join(_END_S)
        self._worker_result_queue.cancel_join_thread()
        self._worker_result_queue.close()
        del self._pin_memory_thread


def refused(error: OSError) -> WorkerError:
    """The error where the system refuses what workers need."""
    what, reason = "workers could not be started", error.strerror or str(error)
    if error.errno in _NO_LOCKS and not os.access(_LOCKS, os.W_OK):
        hint = f"mount {_LOCKS} for writing (containers: --tmpfs {_LOCKS}), or use num_workers=0"
        return WorkerError(f"{what}: their locks are in {_LOCKS}, which cannot be written ({reason})", hint=hint)
    return WorkerError(f"{what}: {reason}", hint=_REFUSED.get(error.errno or 0, StorageError.of(error).hint))


def find_death(error: Exception, arriving: Any) -> tuple[list[int], str] | None:
    """The processes whose death is behind an error, and what torch says of it; ``None`` if it is another error."""
    said = str(error)
    if not _DEAD.search(said) and not isinstance(error, RuntimeError):
        # Fetching what a worker had promised to send failed: has it died? Torch's signal handler says so in between.
        workers = getattr(arriving, "_workers", [])
        deadline = time.monotonic() + 1
        try:
            while workers and time.monotonic() < deadline:
                dead = [worker.pid for worker in workers if worker.exitcode]
                if dead:
                    return dead, said
                time.sleep(0.01)
        except WorkerError:  # it has been named
            raise
        except RuntimeError as later:
            said = str(later)
    found = _DEAD.search(said)
    return None if found is None else ([int(pid) for pid in found[1].split(",")], said)


def _need(names: Iterable[str], owner: object) -> None:
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        raise lacking("torch", f"{', '.join(missing)} of _MultiProcessingDataLoaderIter")


def _never() -> None:
    pass


class _Processes:
    """What it takes to end the workers of an iterator, without the iterator."""

    def __init__(self, workers: Workers) -> None:
        self.owner = os.getpid()
        self._key = id(workers)
        self._workers = workers._workers
        self._queues = workers._index_queues
        self._done = workers._workers_done_event
        _running.add(self)

    def end(self, patience: float) -> None:
        """Have them end.

        Args:
            patience: Seconds for them to do so by themselves, after the batches that they are at.
        """
        if self not in _running or os.getpid() != self.owner:
            return
        _running.discard(self)
        _remove_worker_pids(self._key)  # how they end now is not an error
        if patience and all(worker.is_alive() for worker in self._workers):
            self._done.set()
            for queue in self._queues:
                queue.put(None)
            self._wait(patience)
        for worker in self._workers:
            worker.terminate()
        self._wait(_END_S)
        for worker in self._workers:
            if worker.is_alive():  # SIGTERM is blocked, or it is in a call of the system that only SIGKILL ends
                worker.kill()
        self._wait(_END_S)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while waiting := [worker.sentinel for worker in self._workers if worker.is_alive()]:
            if not connection.wait(waiting, max(0, deadline - time.monotonic())):
                return


_running: set[_Processes] = set()


@atexit.register
def _end_all() -> None:
    """Before `multiprocessing` waits, without limit, for each worker to follow a SIGTERM."""
    for processes in list(_running):
        processes.end(0)
