"""``Crew``: threads that decode the samples of a batch side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait


def default_threads(*, in_worker: bool) -> int:
    """Threads of a process that was told no number."""
    return 1


class Crew:
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
        if self._others is None:
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

        others = [self._others.submit(take_turns) for _ in range(self.threads - 1)]
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
