"""Calls that may end their process, as decoders in C do over a hostile file, made in a process of their own.

::

    run(work, [first, second])  # [what work(first) returned, the error that work(second) raised]

The process that holds a half-written shard, or the user's program, never makes such a call. Values travel in memory
that both processes map. A process that dies is replaced: the values it was given are tried again one at a time, each
in a fork of a fresh process, so that an error is of the value that caused it. Processes stay for the next `run`, of any
thread, until `end`.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pickle import PickleBuffer
from typing import Any, NamedTuple, TypeVar

from shardstream.errors import WorkerError
from shardstream.memory_files import map_shared, memory_file
from shardstream.pack.execution.channel import WorkerEnd
from shardstream.pack.execution.isolating import Arguments, Crash, Work
from shardstream.pack.execution.process import ending, exit_code, signal_name, start
from shardstream.waits import watched

T = TypeVar("T")

_AT_ONCE, _BYTES_AT_ONCE = 16, 8 << 20
_MODULE = "shardstream.pack.execution.isolating"
_idle: list[_Isolated] = []
os.register_at_fork(after_in_child=_idle.clear)  # they are the parent's


def run(work: Work, values: Sequence[Any]) -> list[Any]:
    """Call ``work`` with each value in another process.

    Args:
        work: What to do.
        values: Its arguments; bytes and memoryviews arrive as memoryviews.

    Returns:
        For each value what was returned, or the exception that was raised. For a value that ended the process, or took
        longer than ``work.seconds``, it is what ``work.ended`` makes of it.

    Raises:
        WorkerError: No such process can be started.
    """
    try:
        isolated = _idle.pop()
    except IndexError:
        isolated = _Isolated()
    try:
        outcomes = isolated.run(work, values)
    except BaseException:  # an answer may still be on its way
        isolated.end()
        raise
    _idle.append(isolated)
    return outcomes


def finish(loads: Sequence[Generator[Any, Any, T]], work: Work | None) -> list[T]:
    """What generators return that yield the arguments of a call, made in another process.

    Args:
        loads: The generators.
        work: The call; ``None`` if none of them yields anything.

    Returns:
        What each of them returned. The first that raises ends it.
    """
    outcomes: dict[int, T] = {}
    values: dict[int, Any] = {}

    def go_on(number: int, result: Any) -> None:
        load = loads[number]
        try:
            values[number] = load.throw(result) if isinstance(result, Exception) else load.send(result)
        except StopIteration as stop:
            outcomes[number] = stop.value

    for number in range(len(loads)):
        go_on(number, None)
    while values:
        assert work is not None, "what is yielded is for it"
        numbers, arguments = list(values), list(values.values())
        values.clear()
        for number, result in zip(numbers, run(work, arguments), strict=True):
            go_on(number, result)
    return [outcomes[number] for number in range(len(loads))]


def together(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """As many items at once as are best given to one `run`: waking a process is cheap then, and so is a crash.

    Args:
        items: The items; few are held at a time.
        size: Gives the bytes of an item.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if len(batch) >= _AT_ONCE or total >= _BYTES_AT_ONCE:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def end() -> None:
    """End the processes that are idle."""
    while _idle:
        with suppress(IndexError):  # another thread was faster
            _idle.pop().end()


class _Isolated:
    """A process that makes calls, and once one has died, a process that makes each call in a fork."""

    def __init__(self) -> None:
        self._processes: dict[bool, _Process] = {}

    def run(self, work: Work, values: Sequence[Any]) -> list[Any]:
        """See `run`."""
        answer = self._ask(work, values, alone=False)
        if isinstance(answer, _Death):
            answer = self._ask(work, values, alone=True)
        if isinstance(answer, _Death):  # which makes no call itself
            raise WorkerError(
                f"a worker process {ending(answer.code)} before it had done anything",
                hint="was memory short (dmesg tells)? pack again, with fewer workers",
            )
        return [_judged(work, outcome) for outcome in answer]

    def _ask(self, work: Work, values: Sequence[Any], *, alone: bool) -> list[Any] | _Death:
        process = self._processes.get(alone)
        if process is None:
            process = self._processes[alone] = _Process(alone=alone)
        answer = process.ask(work, values)
        if isinstance(answer, _Death):
            self._processes.pop(alone).end()
        return answer

    def end(self) -> None:
        """End both."""
        for process in self._processes.values():
            process.end()


def _judged(work: Work, outcome: Any) -> Any:
    if not isinstance(outcome, Crash):
        return outcome
    if outcome.code == -signal.SIGPROF:
        return work.ended(f"took more than {work.seconds:g} s")
    return work.ended(f"ended its process by {signal_name(-outcome.code)}" if outcome.code < 0 else "ended its process")


class _Death(NamedTuple):
    """How a process ended."""

    code: int | None


class _Process:
    """A process as its parent sees it.

    Args:
        alone: Whether each call is made in a fork of it.
    """

    def __init__(self, *, alone: bool) -> None:
        self._file = memory_file("shardstream-values", mmap.PAGESIZE)  # it grows
        self._area = map_shared(self._file, 0)
        self._work: Work | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = [theirs.fileno(), self._file]
            self._process = start(_MODULE, [*descriptors, int(alone)], descriptors)
        self._end = WorkerEnd(ours.detach())

    def ask(self, work: Work, values: Sequence[Any]) -> list[Any] | _Death:
        """The outcomes of all values, or how the process ended over them."""
        try:
            if work != self._work:
                self._end.send(pickle.dumps(work))
                self._work = work
            self._end.send(self._laid_out(values))
            with watched(f"the worker process {self._process.pid} to decode or render {len(values)} values"):
                answer = self._end.receive()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return _Death(exit_code(self._process))
        pickled: list[bytes] = pickle.loads(answer)  # noqa: S301 - of our own process
        return [pickle.loads(one) for one in pickled]  # noqa: S301 - of our own process

    def end(self) -> None:
        """End it, also in the middle of a call: it holds nothing."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # with a fork of it
            exit_code(self._process)
        self._end.close()
        self._area.close()
        os.close(self._file)

    def _laid_out(self, values: Sequence[Any]) -> bytes:
        """A message of the values, whose bytes are in the shared memory."""
        buffers: list[PickleBuffer] = []
        wrapped = [PickleBuffer(one) if isinstance(one, bytes | memoryview) else one for one in values]
        pickled = pickle.dumps(wrapped, protocol=5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
        bounds = list(accumulate(map(len, views), initial=0))
        if bounds[-1] > len(self._area):
            os.ftruncate(self._file, bounds[-1])
            self._area.close()
            self._area = map_shared(self._file, 0)
        for (begin, end), view in zip(pairwise(bounds), views, strict=True):
            self._area[begin:end] = view
        return pickle.dumps(Arguments(pickled, bounds))
