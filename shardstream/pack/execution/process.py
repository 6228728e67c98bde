"""Processes of our own: plain children of this one, each with a socket to it.

They are not ``multiprocessing``'s: those run the caller's script again, which has to be written for it, or are forked
from a process that may hold locks.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Collection

_log = logging.getLogger(__name__)

_PATIENCE_S = 5.0
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from {module} import main; main(*json.loads(sys.argv[1]))"
)


def start(module: str, arguments: list[int | None], descriptors: Collection[int]) -> subprocess.Popen[bytes]:
    """Start a process that calls ``main`` of a module.

    Args:
        module: Name of the module.
        arguments: Arguments of ``main``.
        descriptors: File descriptors that the process inherits, under the same numbers.
    """
    return subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-c", _PROGRAM.format(module=module), json.dumps(arguments), json.dumps(sys.path)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for the parent, which then ends this process
    )


def exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for a process that is about to end, and kill it if it does not; ``None`` if it hangs in the system."""
    for kill in (process.kill, None):
        try:
            return process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            if kill is not None:
                kill()
    _log.warning(
        "the worker process %d does not end: it hangs in the system, on a disk or a network file system", process.pid
    )
    return None


def end_all(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Wait for processes that were told to end, and kill those that take long."""
    deadline = time.monotonic() + _PATIENCE_S
    for process in processes:  # all are killed before the first of them is waited for
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    for process in processes:
        exit_code(process)


def ending(code: int | None) -> str:
    """How a process ended, in words.

    >>> ending(-11)
    'was killed by SIGSEGV'
    """
    if code is None:
        return "does not answer any more"
    return f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"


def signal_name(number: int) -> str:
    """Name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
