"""Cases that are tried in a process of their own, with little memory and little time, and what comes of them."""

from __future__ import annotations

import mmap
import os
import pickle
import resource
import signal
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

LONGEST_S = 5  # of one case
_PROGRESS = struct.Struct("<Q")  # the case that is tried


class Finding(NamedTuple):
    """What must not be.

    Attributes:
        case: Its number.
        what: In a sentence.
    """

    case: int
    what: str


class TooLongError(BaseException):
    """The alarm: nothing that catches errors may take it for one."""


def tried(
    count: int, case: Callable[[int], str | None], *, memory: int, seconds: float = float("inf")
) -> tuple[int, list[Finding]]:
    """Try cases 0 to ``count`` - 1, in order, in children that are forked off this process.

    A child that dies, or does not hear its alarm, is one finding, of the case that it was at; another goes on behind.

    Args:
        count: How many.
        case: Tries the one of a number; says what is wrong, or ``None``.
        memory: Bytes of address space that a child may take beyond what it has after its first case.
        seconds: After which no other is begun.

    Returns:
        How many were tried, and what is wrong.
    """
    first, findings, until = 0, list[Finding](), time.monotonic() + seconds
    with mmap.mmap(-1, _PROGRESS.size) as progress:
        while first < count and time.monotonic() < until:
            sent = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115 - a pipe would fill, and nobody reads it
            _PROGRESS.pack_into(progress, 0, first)
            child = os.fork()
            if not child:
                _try_all(range(first, count), case, memory, progress, sent.fileno(), until)
            code = _waited(child, progress)
            sent.close()
            findings += _sent(Path(sent.name).read_bytes())
            os.unlink(sent.name)
            (at,) = _PROGRESS.unpack_from(progress, 0)
            if code:
                findings.append(Finding(at, f"the process ended with {code}"))
            first = at + 1
    return first, findings


def _sent(data: bytes) -> Iterator[Finding]:
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        yield Finding(*pickle.loads(data[at + 4 : at + 4 + size]))  # noqa: S301 - of our own child
        at += 4 + size


def _waited(child: int, progress: mmap.mmap) -> int:
    """The exit code of a child; one that stays at a case is killed."""
    at, since = -1, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        (now,) = _PROGRESS.unpack_from(progress, 0)
        if now != at:
            at, since = now, time.monotonic()
        elif time.monotonic() - since > 4 * LONGEST_S:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def _try_all(
    numbers: range,
    case: Callable[[int], str | None],
    memory: int,
    progress: mmap.mmap,
    findings: int,
    until: float,
) -> None:
    """In the child, which ends with it."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, _too_long)
        for number in numbers:
            _PROGRESS.pack_into(progress, 0, number)
            signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
            try:
                found = case(number)
            except TooLongError:
                found = f"it takes longer than {LONGEST_S} s"
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            signal.setitimer(signal.ITIMER_REAL, 0)
            if found is not None:
                sent = pickle.dumps((number, found))
                os.write(findings, struct.pack("<I", len(sent)) + sent)
            if time.monotonic() > until:
                break
            if number == numbers.start:
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + memory, resource.RLIM_INFINITY))
        status = 0
    finally:
        os._exit(status)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError
