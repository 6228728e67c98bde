"""What runs in a process that may be ended by its calls: values come in, outcomes go out. See `isolated`."""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import signal
from contextlib import closing, suppress
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from shardstream.pack.execution.channel import WorkerEnd, portable

_SIZES = (*range(24, 1040, 16), *(1 << n for n in range(11, 17)))  # those that glibc keeps lists of, and larger ones
_OF_EACH = 64


class Work(Protocol):
    """A call that is made in another process: picklable, and compared by what it holds, as it is sent once."""

    @property
    def seconds(self) -> float:
        """Processor time that a call may take: not that of clocks, so that a busy machine rejects no more."""

    def __call__(self, value: Any, /) -> Any:
        """Make it."""

    def prepare(self) -> None:
        """Import what it needs, and touch no value."""

    def ended(self, how: str) -> Exception:
        """The error of a value whose call ended its process or took too long."""


class Arguments(NamedTuple):
    """Arguments of calls, as they travel.

    Attributes:
        pickled: A list of them, whose bytes are elsewhere.
        bounds: Where each of these begins in the shared memory, and where the last one ends.
    """

    pickled: bytes
    bounds: list[int]

    def taken(self, area: mmap.mmap) -> list[Any]:
        """The arguments."""
        view = memoryview(area).toreadonly()
        buffers = [view[begin:end] for begin, end in pairwise(self.bounds)]
        values: list[Any] = pickle.loads(self.pickled, buffers=buffers)  # noqa: S301 - of our own parent
        return values


class Crash(NamedTuple):
    """A call that ended its process: with an exit code, or below zero a signal."""

    code: int


def main(handle: int, file: int, alone: int) -> None:
    """Make calls until the other end is closed.

    Args:
        handle: File descriptor of our end.
        file: That of the shared memory.
        alone: Whether to make each call in a fork, and say how it ended.
    """
    with suppress(ImportError):  # a system that limits no process
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what dies here is expected to
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads would not survive a fork
    call = _forked if alone else _called
    area = mmap.mmap(file, 0)
    work: Work | None = None
    with closing(WorkerEnd(handle)) as channel, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            message: Work | Arguments = pickle.loads(channel.receive())  # noqa: S301 - of our own parent
            if not isinstance(message, Arguments):
                work = message
                signal.setitimer(signal.ITIMER_PROF, 0)  # that of the last call
                with suppress(Exception):  # which the calls will raise
                    work.prepare()
                continue
            assert work is not None, "the work is sent before values"
            if message.bounds[-1] > len(area):
                area = mmap.mmap(file, 0)
            channel.send(pickle.dumps([call(work, value) for value in message.taken(area)]))


def _called(work: Work, value: Any) -> bytes:
    """What a call returned or raised, pickled."""
    # Its signal ends this process, whatever that is doing. It goes on after the call: a heap that was overrun may keep
    # the process busy later. Waiting takes none of this time.
    signal.setitimer(signal.ITIMER_PROF, work.seconds)
    try:
        outcome = work(value)
    except Exception as error:
        outcome = portable(error)
    return pickle.dumps(outcome)


def _forked(work: Work, value: Any) -> bytes:
    """The same, of a call in a fork; `Crash` if that ended."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)  # a library's last words were printed the first time
            with os.fdopen(theirs, "wb") as out:
                out.write(_called(work, value))
                _search_heap()
            os._exit(0)
        finally:
            os._exit(1)
    os.close(theirs)
    with open(ours, "rb") as answer:
        data = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return pickle.dumps(Crash(code)) if code or not data else data


def _search_heap() -> None:
    """Have the C library look at its free memory: if a call wrote past its own, the library ends this process now.

    By itself it comes to such a place at some later allocation, be it over another value.
    """
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    taken = [library.malloc(size) for size in _SIZES for _ in range(_OF_EACH)]
    for address in taken:
        library.free(ctypes.c_void_p(address))
