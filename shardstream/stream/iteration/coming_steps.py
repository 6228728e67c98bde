"""``WorkerSteps``: the steps of one worker, from where it begins to the end of the epoch, and on."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from shardstream.dataset.step import Located, Step
from shardstream.errors import ShardStreamError
from shardstream.stream.iteration.epoch_run import EpochRun


class WorkerSteps:
    """The steps of one worker in one epoch.

    Args:
        run: The epoch.
        numbers: Its steps.
        num_workers: DataLoader workers, 0 for none.
        goes_on: Whether this process reads the next epoch too, as far as can be known.
    """

    def __init__(self, run: EpochRun, numbers: range, num_workers: int, *, goes_on: bool) -> None:
        self._run = run
        self._numbers = numbers
        self._workers = num_workers
        self._goes_on = goes_on

    def __iter__(self) -> Iterator[Step]:
        return self._run.steps_of(self._numbers)

    @property
    def key(self) -> Hashable:
        """What is equal for equal steps."""
        return self._run.begin, self._run.rank[:2], self._numbers

    @property
    def open_samples(self) -> int | None:
        """Samples of the windows that are open at a time; ``None`` where windows should not be read whole."""
        return self._run.open_samples(self._workers)

    def located(self) -> Iterator[Located]:
        """The steps, one after another."""
        return map(self._run.located, self._numbers)

    def following(self) -> WorkerSteps | None:
        """The steps of this worker in the next epoch; ``None`` if it is not known that there is one."""
        if not self._goes_on:
            return None
        try:
            run = self._run.next_epoch(self._workers)
        except ShardStreamError:  # there is none after the last epoch that can be counted
            return None
        first = self._numbers.start % self._numbers.step
        return WorkerSteps(run, range(first, run.steps, self._numbers.step), self._workers, goes_on=True)
