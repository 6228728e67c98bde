"""``DecodePool``: threads that decode the samples of a batch side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import torch

_MOST = 8
"""Threads by default: where one process decodes for a machine with more cores, workers gain more."""


def decode_pool_of(threads: int | None) -> DecodePool | None:
    """The threads of this process.

    Args:
        threads: How many; ``None`` for as many as torch takes for itself, at most 8: the cores of a process that
            trains alone, one in a DataLoader worker and where ``OMP_NUM_THREADS`` says so, as under torchrun.

    Returns:
        ``None`` where one thread does everything, and torch's operators have one.
    """
    own = torch.get_num_threads()
    number = threads or min(own, _MOST)
    return DecodePool(number) if max(number, own) > 1 else None


class DecodePool:
    """The calling thread and some more, which come when they are needed first and go with `close`.

    Args:
        threads: How many there are, with the calling one.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._others: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[int], bool], numbers: Iterable[int]) -> None:
        """Call ``work`` for each number, from several threads at once; return when all calls have.

        After a call that returns False no further one is begun, but all that come before it are.

        Args:
            work: Must not raise.
            numbers: What it is called with, in ascending order.
        """
        if self._others is None and self.threads > 1:
            self._others = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="shardstream-decode")
        left = iter(tuple(numbers))  # a step of this iterator is atomic
        end = math.inf

        def take_turns() -> None:
            nonlocal end
            for number in left:
                if number >= end:
                    return
                if not work(number):
                    end = min(end, number)

        with _operators_in_one_thread():
            others = [] if self._others is None else [self._others.submit(take_turns) for _ in range(self.threads - 1)]
            try:
                take_turns()
            except BaseException:  # an interruption of this thread
                end = -1
                raise
            finally:  # the others write to the same batch
                wait(others)

    def close(self) -> None:
        """End the other threads; `run` brings new ones."""
        others, self._others = self._others, None
        if others is not None:
            others.shutdown()


@contextmanager
def _operators_in_one_thread() -> Iterator[None]:
    """Have torch's operators use the thread that calls them, here and in threads that call their first one now.

    A single picture is too small to be shared out among torch's threads: on a busy machine, decoding with two of them
    took six times the processor time of one (`docs/decisions/009-gathering-and-threads.md`).
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
