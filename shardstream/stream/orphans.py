"""``end_with_parent``: a worker whose training process was killed goes too."""

from __future__ import annotations

import os
from multiprocessing import util


def end_with_parent() -> None:
    """Have this worker, at its end, not wait for batches to be taken by a parent that is no more.

    Torch's workers notice within seconds that their parent has died, and leave. Then Python waits until what is still
    to be sent has gone into the pipe: for ever, if that is full, for each worker holds the reading end that the others
    write to.
    """
    # Before what waits, which has a lower priority.
    util.Finalize(None, _leave, args=(os.getppid(),), exitpriority=100)


def _leave(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(1)
