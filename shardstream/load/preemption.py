"""``Preemption``: SIGTERM, as a fact that all ranks learn in the same step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Self

import torch
import torch.distributed as dist

from shardstream.errors import UsageError

WorkerInit = Callable[[int], object]
"""What ``worker_init_fn`` of a ``DataLoader`` is: called in each worker with its number."""

_FLIGHT_SECONDS = 1.0  # more than a thread needs to run the handler of a signal that it has taken

_noting = False  # whether this process notes SIGTERM in place of ending


class Preemption:
    """Notes SIGTERM, which clusters send before they take a machine away, so that a run saves and ends by itself.

    The signal reaches ranks at different moments, some perhaps never. If each acted for itself, one would leave while
    others wait for it in a collective. So it is only noted, and after every step the ranks agree: an all-reduce of one
    integer, on the CPU, so that no GPU has to be waited for.

    Inside ``with``, SIGTERM does not end this process. Workers that a `Loader` starts there leave its process group,
    since torchrun sends the signal to all of it; they end when their rank does, however that ends.

    Raises:
        UsageError: On entry: not in the main thread, to which Python gives signals.

    Example:
        >>> with ss.Preemption() as preemption:
        ...     for batch in ss.Loader(ds, batch_size=64, num_workers=0):
        ...         if preemption.agreed():   # on every rank, after every step
        ...             break                 # save, and leave
    """

    def __init__(self) -> None:
        self._noted = False
        self._handled = self._due = 0  # calls of the handler, and how many it owes for signals that were seen
        self._group: dist.ProcessGroup | None = None

    def __enter__(self) -> Self:
        global _noting
        if threading.current_thread() is not threading.main_thread():
            raise UsageError(
                "SIGTERM can be noted in the main thread only: Python gives signals to no other",
                hint="enter ss.Preemption() there, before the loop",
            )
        # Blocked, in workers too from their first moment on; the handler is for threads that were there before.
        self._handler = signal.signal(signal.SIGTERM, self._note)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        _noting = True
        return self

    def __exit__(self, *failure: object) -> None:
        global _noting
        _noting = False
        self._look()  # what came was for the loop that ends here
        deadline = time.monotonic() + _FLIGHT_SECONDS
        while self._handled < self._due and time.monotonic() < deadline:
            time.sleep(0.001)
            signal.pthread_sigmask(signal.SIG_BLOCK, ())  # runs handlers that are due; sleeping may never do
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.signal(signal.SIGTERM, self._handler)

    def _note(self, signum: int, frame: object) -> None:
        self._noted = True
        self._handled += 1

    def _look(self) -> None:
        """Takes the signal that waits: once seen it is noted, although a thread that does not block it may be first."""
        handled = self._handled
        if signal.SIGTERM in signal.sigpending():
            self._noted = True
            if signal.sigtimedwait({signal.SIGTERM}, 0) is None:
                self._due = handled + 1

    def agreed(self) -> bool:
        """Whether any rank was told to stop.

        A collective of all ranks of ``torch.distributed``: each calls it after every step. Without a process group it
        is this process alone.

        Returns:
            The same on every rank.

            >>> with ss.Preemption() as preemption:
            ...     signal.raise_signal(signal.SIGTERM)
            ...     preemption.agreed()
            True
        """
        self._look()
        if not (dist.is_available() and dist.is_initialized()):
            return self._noted
        if self._group is None:  # one of its own: that of training may know GPUs only
            self._group = dist.new_group(backend="gloo")
        told = torch.tensor(int(self._noted))
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self._group)
        return bool(told)


def outliving(init: WorkerInit | None) -> WorkerInit | None:
    """What begins the workers of this process: ``init``, after they have left the way of SIGTERM where it is noted."""
    return partial(_outlive, init) if _noting else init


def _outlive(init: WorkerInit | None, worker: int) -> None:
    os.setpgrp()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what was sent before is forgotten
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if init is not None:
        init(worker)
