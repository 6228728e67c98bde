"""One event loop a process, in a thread of its own, on which all transfers run.

It starts with its first use. A forked child gets another one with its own first use: threads do not survive a fork, and
the parent's loop must not be touched from the child, for they share the kernel's object behind it.

At exit everything that still runs is cancelled and given a moment to end; whoever waits for it gets a StorageError.
Python joins ordinary threads before that, so what they wait for is finished or fails by its own deadline. Libraries
whose threads are not Python's (obstore) hold a future of the loop for as long as they may still call into Python, and
a call that comes while the interpreter is torn down aborts the process: so the end waits for those futures to be gone.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import ctypes
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from shardstream.errors import StorageError
from shardstream.threads import start
from shardstream.waits import watched

T = TypeVar("T")

_LAST_WORD = 2.0  # seconds that cancelled transfers have to end in at exit
_PAUSES = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.3)  # between looks at what is still held: a second


class _Loop(asyncio.SelectorEventLoop):
    """Knows the futures that libraries made on it and that somebody still holds."""

    def __init__(self) -> None:
        super().__init__()
        self.held: weakref.WeakSet[asyncio.Future[Any]] = weakref.WeakSet()

    def create_future(self) -> asyncio.Future[Any]:
        future = super().create_future()
        # asyncio's own are of no interest, and tracebacks of cancelled tasks hold them for long. A variable with this
        # function's own frame, as from `inspect.currentframe`, would keep the future and all its callers until the next
        # collection of garbage.
        if not sys._getframe(1).f_globals.get("__name__", "").startswith("asyncio."):
            self.held.add(future)
        return future


class _Runner:
    def __init__(self) -> None:
        self.loop = _Loop()
        self.tasks: set[asyncio.Task[Any]] = set()  # asyncio knows them weakly, and one that waits may be a mere cycle
        self.at_stop: set[Callable[[], object]] = set()
        self.settled = False
        self.thread = threading.Thread(target=self._main, name="shardstream-loop", daemon=True)
        start(self.thread)

    def _main(self) -> None:
        self.loop.run_forever()
        if self.settled:
            self.loop.close()
        else:
            # A late call into a closed loop would be an error; into one that only stands still it is nothing.
            abandon(self.loop)

    def stop(self) -> None:
        """Cancel all, and end the thread; returns within a few seconds, whatever a task does."""
        ending = asyncio.run_coroutine_threadsafe(self._end(), self.loop)
        ending.add_done_callback(lambda _: self.loop.call_soon_threadsafe(self.loop.stop))
        self.thread.join(2 * _LAST_WORD)

    async def _end(self) -> None:
        await _cancel_all()
        for pause in _PAUSES:
            await asyncio.sleep(0)
            if not len(self.loop.held):
                break
            # What is held by nothing but a cycle of an error, its traceback and the task that it ended.
            gc.collect()
            await asyncio.sleep(pause)
            for settle in self.at_stop:
                settle()
        self.settled = not len(self.loop.held)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    # More than once: the handler of one cancellation may wait for something else.
    for _ in range(2):
        for task in tasks:
            task.cancel()
        if tasks:
            _, tasks = await asyncio.wait(tasks, timeout=_LAST_WORD / 2)
    for task in tasks:
        abandon(task)


_runner: _Runner | None = None
_starting = threading.Lock()
_exiting = False


def _current() -> _Runner:
    global _runner
    runner = _runner
    if runner is None:
        with _starting:
            if _exiting:
                raise StorageError("the interpreter is exiting: no transfer can begin")
            if _runner is None:
                _runner = _Runner()
            runner = _runner
    return runner


def submit(work: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
    """Start work on the loop; from any thread. Cancelling the future cancels it.

    Args:
        work: Called on the loop, for the coroutine to run. One that was made here would be left over, with a warning,
            where a signal's handler raises before the loop has it.

    Raises:
        StorageError: The interpreter is exiting.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    runner = _current()
    try:
        runner.loop.call_soon_threadsafe(_begin, runner, work, future)
    except RuntimeError as error:
        raise StorageError("the interpreter is exiting: no transfer can begin") from error
    return future


def _begin(runner: _Runner, work: Callable[[], Coroutine[Any, Any, T]], future: concurrent.futures.Future[T]) -> None:
    if not future.cancelled():
        loop = runner.loop
        task = loop.create_task(_done(work))
        runner.tasks.add(task)
        task.add_done_callback(runner.tasks.discard)
        task.add_done_callback(partial(_pass_on, future))
        future.add_done_callback(lambda _: task.done() or loop.call_soon_threadsafe(task.cancel))


async def _done(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await work()  # here, so that what this call raises is passed on too


def _pass_on(future: concurrent.futures.Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        future.cancel()
    error = None if task.cancelled() else task.exception()
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(task.result())
    else:
        future.set_exception(error)


def run(work: Callable[[], Coroutine[Any, Any, T]], *, wait: float | None, what: str) -> T:
    """The result of work on the loop. From any thread but the loop's.

    Args:
        work: Called on the loop, for the coroutine to run.
        wait: Seconds to wait at most; it is cancelled then. ``None`` only where the work has a deadline itself.
        what: What is being waited for, for the error: "bytes 0 to 5 of s3://bucket/name".

    Raises:
        StorageError: It took longer than ``wait``, or the interpreter is exiting.
    """
    if _runner is not None and threading.current_thread() is _runner.thread:
        raise RuntimeError("called on the loop's own thread, which would wait for itself; await the coroutine instead")
    started = time.monotonic()
    future = submit(work)
    try:
        with watched(what):
            return future.result(wait)
    except concurrent.futures.CancelledError:
        raise StorageError(f"stopped, after {time.monotonic() - started:.1f} s, while waiting for {what}") from None
    except TimeoutError:
        if future.done():  # its own error, not ours
            raise
        future.cancel()
        raise StorageError(
            f"waited {wait:g} s for {what}, in vain", hint="look at the network and at the store's health"
        ) from None
    except BaseException:
        future.cancel()
        raise


def at_stop(settle: Callable[[], object]) -> None:
    """Have something called, on the loop, while the loop waits at exit for what other libraries still hold.

    A library may drop what it holds only at the next call into it. From the loop only; equal functions are called once.
    """
    _current().at_stop.add(settle)


def ending() -> bool:
    """Whether all that runs is being cancelled, so that what begins now would be cut off. From the loop only."""
    return _runner is None


def abandon(thing: object) -> None:
    """Keep something that belongs to the parent process from ever being torn down in this one.

    Ending a client or a loop that was copied by a fork would talk to threads that do not exist here, or to kernel
    objects that the parent still uses.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _stop() -> None:
    global _exiting, _runner
    with _starting:
        _exiting, runner, _runner = True, _runner, None
    if runner is not None:
        runner.stop()


def _forget() -> None:
    global _runner, _starting, _exiting
    if _runner is not None:
        abandon(_runner)
        for task in asyncio.all_tasks(_runner.loop):  # or a collection of garbage would run their handlers here
            abandon(task)
    _runner, _starting, _exiting = None, threading.Lock(), False


atexit.register(_stop)
os.register_at_fork(after_in_child=_forget)
