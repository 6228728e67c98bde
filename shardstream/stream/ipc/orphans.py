"""``end_with_parent``: a worker whose training process was killed goes too."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from typing import Any

from shardstream.threads import start

_LOOK_S = 1.0

_looking: int | None = None  # the process that has the thread: a fork does not take it along


def end_with_parent() -> None:
    """Have this worker end within seconds of the process that it works for, however that one ended.

    Torch's workers look whether their parent is still the one that they had when they began. So they miss one that was
    killed before, and one that uses a fork server, which is the parent then and lives as long as they do. And at their
    end Python waits until what is still to be sent has gone into the pipe: for ever, if that is full, for each worker
    holds the reading end that the others write to.
    """
    global _looking
    parent = multiprocessing.parent_process()
    if parent is not None and _looking != os.getpid():
        _looking = os.getpid()
        start(threading.Thread(target=_look, args=(parent, os.getppid()), name="shardstream-parent", daemon=True))


def _look(parent: Any, above: int) -> None:
    # Each of these misses something: other processes that it forked hold its end of the pipe, too; children of a fork
    # server keep their parent; and its number is there until it was waited for.
    while parent.is_alive() and os.getppid() == above and process_exists(parent.pid):
        time.sleep(_LOOK_S)
    os._exit(1)


def process_exists(process: int) -> bool:
    """Whether a process of ours has this number."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):  # or the number is somebody else's by now
        return False
    return True
