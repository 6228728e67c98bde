"""One epoch of one rank as steps: where each of their samples lies, who reads them, and how far somebody has come."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.step import Located, Step, StepWindows, member_positions
from shardstream.errors import ShardStreamError, UsageError
from shardstream.order import (
    BLOCK,
    Stop,
    Tail,
    sample_count,
    step_count,
    step_positions,
    taken_by_batches,
    worker_samples,
)
from shardstream.stream.iteration.content import Content, ContentOrder
from shardstream.stream.iteration.ranks import Dealt, Rank
from shardstream.stream.iteration.recipe import recipe_of
from shardstream.stream.iteration.settings import StreamOptions
from shardstream.stream.iteration.state import ResumePoint, make_state, moving_entries, whole_schedule

WAYS_OUT = "set batch_size=, or choose the samples before: rows = ss.find_rows(url, keep), then where=rows"
"""What helps where ranks take unequally many single samples."""

_LOCATED_TOGETHER = 4096  # positions
_PLANNED_TOGETHER = 256  # positions that are located with their windows


def _check_steps(content: Content, settings: StreamOptions, rank: Rank, begin: ResumePoint) -> None:
    """Refuse data of which there is not one step of this rank in an epoch of which nothing is skipped."""
    if (
        content.samples
        and settings.effective_tail == "drop"
        and not _steps_of(begin.samples_of(content, settings, rank), settings, rank)
    ):
        batch, what = f"a batch of {settings.batch_size}" if settings.batch_size else "one sample", "samples"
        if content.by_cost is not None:
            batch, what = f"a batch of {content.by_cost}", "batches"
        raise UsageError(
            f"{batch} on each of {rank.world_size} ranks needs more than the {content.samples} {what} there are, "
            'and tail="drop" leaves out what does not fill a batch on every rank',
            url=content.url,
            hint='use a smaller batch_size, or tail="pad" or "exact"',
        )


def _steps_of(samples: int, settings: StreamOptions, rank: Rank) -> int:
    tail, batch_size = settings.effective_tail, settings.batch_size
    if rank.dealt is not None:
        return -(-_even(samples, tail, rank.dealt) // rank.dealt.unit)
    return step_count(samples, rank=rank.rank, world_size=rank.world_size, batch_size=batch_size, tail=tail)


def count_items(content: Content, settings: StreamOptions, rank: Rank, begin: ResumePoint) -> int:
    """What ``len`` says: batches of the epoch that begins there, or samples where there is no batch size.

    Raises:
        UsageError: There is data, but not one step of it under ``tail="drop"``.
    """
    _check_steps(content, settings, rank, begin)
    samples = _left(content, settings, rank, begin)
    if settings.batch_size is not None:
        return _steps_of(samples, settings, rank)
    if rank.dealt is not None:
        return _even(samples, settings.effective_tail, rank.dealt)
    return sample_count(
        samples, rank=rank.rank, world_size=rank.world_size, batch_size=None, tail=settings.effective_tail
    )


def count_samples(content: Content, settings: StreamOptions, rank: Rank, begin: ResumePoint) -> int:
    """Samples that all ranks get of the epoch that begins there, each counted once; batches by cost if it has these."""
    samples = _left(content, settings, rank, begin)
    if settings.effective_tail != "drop":
        return samples
    if rank.dealt is not None:
        return _even(samples, "drop", rank.dealt)
    row = (settings.batch_size or 1) * rank.world_size
    return samples - samples % row


def _left(content: Content, settings: StreamOptions, rank: Rank, begin: ResumePoint) -> int:
    left = begin.skipping(settings.skip, content).left_of(begin.samples_of(content, settings, rank))
    return left.samples - left.start


def _even(samples: int, tail: Tail, dealt: Dealt) -> int:
    """So many of these samples as are handed out where a framework deals them out to ranks."""
    return samples - samples % dealt.multiple if tail == "drop" else samples


def _joined(
    valid: Sequence[NDArray[np.bool_] | None], positions: Sequence[NDArray[np.int64]]
) -> NDArray[np.bool_] | None:
    """Which positions of several steps repeat none."""
    if all(one is None for one in valid):
        return None
    parts = zip(valid, positions, strict=True)
    return np.concatenate([np.ones(len(of), np.bool_) if one is None else one for one, of in parts])


def _windows_of(columns: Sequence[NDArray[np.int64]], those: slice) -> StepWindows:
    return StepWindows(*(column[those] for column in columns))


class EpochRun:
    """The steps of one rank in what is left of one epoch; the first costs O(shards), each O(b).

    Args:
        content: What is streamed.
        settings: How.
        rank: This rank.
        resume_point: Where it begins; without parameters, those of this shape are taken.
        num_workers: DataLoader workers of this rank, 0 for none.

    Attributes:
        resume_point: As given, with parameters.
        rank: As given.
        batch_size: Samples a step, of all but the last one; ``None`` where they are delivered one by one.
        samples: Length of the line that the steps are taken on, see `Remaining`.
        start: Where on it the first one begins.
        steps: How many there are.
        together: How many are read at once, at most.

    Raises:
        UsageError: There is nothing to do in a whole epoch; see `count_items`.
    """

    def __init__(
        self, content: Content, settings: StreamOptions, rank: Rank, resume_point: ResumePoint, num_workers: int
    ) -> None:
        if resume_point.fresh:
            _check_steps(content, settings, rank, resume_point)
        tail, dealt = settings.effective_tail, rank.dealt
        if dealt is not None:
            settings = settings.dealt(dealt.unit)
        parameters = resume_point.parameters_of(content, settings, rank, num_workers)
        self.resume_point = replace(resume_point.skipping(settings.skip, content), parameters=parameters)
        self.rank = rank
        self.batch_size = settings.batch_size
        self._tail = settings.effective_tail
        self._content = content
        self._settings = settings
        self._left = self.resume_point.left_of(content.dealt_samples(parameters))
        self.samples = self._left.samples
        self.start = self._left.start
        if dealt is not None:
            self.samples = self.start + _even(self.samples - self.start, tail, dealt)
        # The arguments of functions of `order` that say which part of the line is this rank's.
        self._share: dict[str, Any] = {
            "start": self.start,
            "rank": rank.rank,
            "world_size": rank.world_size,
            "tail": self._tail,
        }
        self.steps = step_count(self.samples, batch_size=self.batch_size, **self._share)
        self.together = content.read_together(settings)

    @cached_property
    def _order(self) -> ContentOrder:
        assert self.resume_point.parameters is not None
        return self._content.order(self._settings, self.resume_point.epoch, self.resume_point.parameters)

    def step(self, number: int) -> Step:
        """Step ``number`` in [0, steps)."""
        return next(self.steps_of(range(number, number + 1)))

    def steps_of(self, numbers: range) -> Iterator[Step]:
        """These steps, those that are read at once as one, see `Step.split`.

        Still more are located at once, since small batches cost as much as large.
        """
        done, together = 0, 1  # nobody shall wait for what follows the first
        while part := numbers[done : done + together]:
            for step, _ in self._located(part, self._order.locate):
                yield step
            done += len(part)
            together = min(2 * together, max(1, _LOCATED_TOGETHER // (self.batch_size or BLOCK)))

    def _located(
        self, numbers: range, locate: Callable[[NDArray[np.int64]], tuple[Any, ...]]
    ) -> Iterator[tuple[Step, Callable[[], StepWindows]]]:
        """These steps, as of `steps_of`, located at once, with what makes their windows, if ``locate`` finds them."""
        positions, valid = zip(*map(self._positions, numbers), strict=True)
        every = np.concatenate(positions)
        sources, shards, rows, *around = locate(every)
        last = 0
        for begin in range(0, len(numbers), self.together):
            mine = slice(begin, begin + self.together)
            first, last = last, last + sum(map(len, positions[mine]))
            those = slice(first, last)
            origin = None if sources is None else sources[those]
            of_mine = valid[begin] if self.together == 1 else _joined(valid[mine], positions[mine])
            step = Step(self.resume_point.epoch, every[those], shards[those], rows[those], of_mine, origin)
            yield step, partial(_windows_of, around, those)

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shard and row of positions in the epoch: int64 (n,) each; with several sources, each in its own."""
        _, shards, rows = self._order.locate(positions)
        return shards, rows

    def windows(self, step: Step) -> StepWindows:
        """The windows around the samples of a step."""
        return StepWindows(*self._order.locate_windows(step.positions)[3:])

    def located(self, numbers: range) -> Iterator[Located]:
        """These steps, as of `steps_of`, located at once, with the windows around their samples."""
        return map(Located._make, self._located(numbers, self._order.locate_windows))

    def positions(self, number: int, members: int | None = None) -> NDArray[np.int64]:
        """The positions in the epoch of step ``number``, slot by slot: int64 (b,). Looks at no data.

        Args:
            number: The step.
            members: Where it is a batch by cost: how many samples it has, see `member_positions`.
        """
        found = self._positions(number)[0]
        return found if members is None else member_positions(found, np.array([members]))

    def _positions(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        virtual, valid = step_positions(number, samples=self.samples, batch_size=self.batch_size, **self._share)
        return self._left.positions(virtual), valid

    @property
    def done_before(self) -> int:
        """Items of this rank in a whole epoch, as `count_items` counts them, less those that are left."""
        whole = self.resume_point.at_beginning_of(self.resume_point.epoch)
        left = self._positions_of_rank if self.batch_size is None else self.steps
        return count_items(self._content, self._settings, self.rank, whole) - left

    @property
    def unpadded(self) -> int:
        """Samples in the last step of all ranks that are not padding; 0 where there is none."""
        if self._tail != "pad" or self.batch_size is None:
            return 0
        return (self.samples - self.start) % (self.rank.world_size * self.batch_size)

    def next_epoch(self, num_workers: int) -> EpochRun:
        """All of the next epoch, in the same order."""
        return EpochRun(self._content, self._settings, self.rank, self._following, num_workers)

    @property
    def _following(self) -> ResumePoint:
        return self.resume_point.at_beginning_of(self.resume_point.epoch + 1)

    def open_samples(self, num_workers: int) -> int | None:
        """Samples in the windows that one worker has open at a time; ``None`` where it does not read them whole.

        A worker reads whole windows where it has whole lanes to itself.
        """
        order = self.resume_point.parameters
        if order is None or not self._settings.shuffle:
            return None
        ranks, workers = self.rank.world_size, max(num_workers, 1)
        if ranks * workers == 1:
            return order.lanes * order.window
        aligned = order.chunk * order.sublanes == (self.batch_size or BLOCK)
        if not order.spread or not aligned or order.ranks != ranks or order.virtual % workers:
            return None
        return order.lanes // (ranks * workers) * order.window

    def after(self, taken: tuple[int, ...]) -> ResumePoint:
        """Where to go on after so many positions of each worker's stream were handed out, here and on all ranks alike.

        After the last of this rank, that is the beginning of the next epoch.

        Args:
            taken: Positions, a number for each worker; with a batch size their sum counts, as whole steps.
        """
        if sum(taken) >= self._positions_of_rank:
            return self._following
        if self.batch_size is None:
            left = self._left.after(Stop(self.rank.world_size, self._tail, taken))
        else:
            steps = -(-sum(taken) // self.batch_size)
            left = self._left.after_batches(steps, world_size=self.rank.world_size, batch_size=self.batch_size)
        return replace(self.resume_point, position=left.start, stops=left.stops, taken=0)

    @cached_property
    def _positions_of_rank(self) -> int:
        """Positions of this rank's steps, padding included."""
        return sample_count(self.samples, batch_size=self.batch_size, **self._share)

    def after_batches(self, batches: int, num_workers: int, batch_size: int | None, *, dropped: bool) -> ResumePoint:
        """Where to go on after a training loop has received so many batches of a plain ``DataLoader``.

        Args:
            batches: How many.
            num_workers: Of that ``DataLoader``.
            batch_size: Of that ``DataLoader``, if it makes the batches.
            dropped: Whether samples were dropped.

        Raises:
            UsageError: That does not say it.
        """
        ours = self.batch_size
        if ours is not None:
            if batch_size not in (None, ours):
                raise UsageError(f"the data set makes batches of {ours}, not of {batch_size}", hint="leave it out")
            if batches > self.steps:
                raise UsageError(
                    f"{batches} batches are more than the {self.steps} of this iteration",
                    hint="count the batches of this epoch, since its beginning or the state that was loaded",
                )
            return self.after((batches * ours,))
        if batch_size is None:
            raise UsageError(
                "the data set delivers single samples, so a batch is unknown to it",
                hint="pass batch_size= of the DataLoader (1 where it has none), or use ss.Loader",
            )
        if dropped:
            raise UsageError(
                "samples were dropped, so the number of batches does not tell the position",
                hint=WAYS_OUT if self.rank.world_size > 1 else "use ss.Loader, which knows it",
            )
        lengths = [
            worker_samples(self.samples, worker=worker, num_workers=num_workers, **self._share)
            for worker in range(max(num_workers, 1))
        ]
        taken = taken_by_batches(batches, num_workers=num_workers, batch_size=batch_size, samples_per_worker=lengths)
        return self.after(taken)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        return make_state(self._content, self._settings, replace(self.resume_point, stops=()))

    def state_at(self, resume_point: ResumePoint) -> dict[str, Any]:
        """The state that says: go on there, in this order."""
        return (
            self._identity
            | {"epoch": resume_point.epoch, "position": resume_point.position}
            | moving_entries(self._content, resume_point)
        )

    def plan(self) -> dict[str, Any]:
        """The state that it begins with; without the epoch where all epochs read the same."""
        plan = self.state_at(self.resume_point)
        if self._content.repeats(self._settings) and not self.resume_point.skips:
            del plan["epoch"]
        return plan

    def recipe(self) -> dict[str, Any]:
        """What is made of each sample, see `recipe_of`."""
        return recipe_of(self._content, self._settings)

    def state_where_it_began(self) -> dict[str, Any]:
        """The state before the first step. It has the whole schedule, since workers do not know how far others are."""
        return self.state_at(self.resume_point) | whole_schedule(self._content)

    def first_step(self, worker: int, num_workers: int) -> tuple[int, int]:
        """The step that worker ``worker`` goes on with after `ResumePoint.taken`, and how much of it was handed out."""
        unit = self.batch_size or BLOCK
        steps, inside = divmod(self.resume_point.taken, unit)
        if self.batch_size is not None and inside:  # the short last batch of "exact"
            steps, inside = steps + 1, 0
        return worker + steps * max(num_workers, 1), inside


class WorkerSteps:
    """The steps of one worker in one epoch.

    Args:
        run: The epoch.
        numbers: Its steps.
        num_workers: DataLoader workers, 0 for none.
        goes_on: Whether this process reads the next epoch too, as far as can be known.

    Attributes:
        together: How many are read at once, at most.
    """

    def __init__(self, run: EpochRun, numbers: range, num_workers: int, *, goes_on: bool) -> None:
        self._run = run
        self.together = run.together
        self._numbers = numbers
        self._workers = num_workers
        self._goes_on = goes_on

    def __iter__(self) -> Iterator[Step]:
        return self._run.steps_of(self._numbers)

    def split(self, step: Step) -> list[Step]:
        """The steps that one of these is made of: several where they are read at once."""
        return [step] if self._run.batch_size is None else step.split(self._run.batch_size)

    @property
    def numbers(self) -> range:
        """Which steps of the epoch they are."""
        return self._numbers

    @property
    def key(self) -> Hashable:
        """What is equal for equal steps."""
        return self._run.resume_point, self._run.rank[:2], self._numbers

    @property
    def open_samples(self) -> int | None:
        """Samples of the windows that are open at a time; ``None`` where windows should not be read whole."""
        return self._run.open_samples(self._workers)

    def located(self, in_windows: Callable[[], bool]) -> Iterator[Located]:
        """The steps, one after another, those that are read at once as one.

        Args:
            in_windows: Whether the windows will be asked for: finding both at once is faster.
        """
        done, together = 0, 1
        while left := self._numbers[done:]:
            windowed = in_windows()
            if windowed:
                coming = self._run.located(left[:together])
                together = min(2 * together, max(1, _PLANNED_TOGETHER // (self._run.batch_size or BLOCK)))
            else:
                coming = (Located(one, partial(self._run.windows, one)) for one in self._run.steps_of(left))
            for located in coming:
                yield located
                done += len(self.split(located.step))
                if in_windows() != windowed:
                    together = 1
                    break

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
