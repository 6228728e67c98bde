"""What is left of an epoch when a run stopped, and without what it is to skip: positions, as a line of their own.

A run in batches always stops at one position: everything before it was handed out. A run over single samples deals
blocks of 64 positions to its workers in turn, so when it stops, each block that was begun has been handed out up to
some place. What is left of those blocks, followed by all that was never begun, is laid end to end: the *virtual
line*, which a run of any other shape goes on with, and may stop inside again. A stop is a handful of integers,
whatever the length of the run, and the worker streams it speaks of are those of ``step_positions`` with
``batch_size=None``. Ranges that are skipped are not on that line: nobody hands them out, and none of them is left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardstream.errors import UsageError
from shardstream.order.lanes import Integers
from shardstream.order.skipping import Gaps
from shardstream.order.steps import BLOCK, TAILS, Tail, sample_count, step_count

_AS_SAVED = "pass a state as state_dict() returned it"


@dataclass(frozen=True, slots=True)
class Stop:
    """How far single samples had been handed out when a run stopped: by each rank alike.

    Attributes:
        world_size: Ranks of that run (R).
        tail: How its epoch would have ended.
        taken: For each of its K workers (one where it had none), how many positions of that worker's own stream, that
            is of the blocks t with ``t % K == k``, had been handed out. More than the stream holds means all of it.

    Raises:
        UsageError: A number out of range, or an unknown tail.

    Example::

        >>> Stop(world_size=2, tail="drop", taken=(70, 64)).taken
        (70, 64)
    """

    world_size: int
    tail: Tail
    taken: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.world_size < 1:
            raise UsageError(f"world_size must be at least 1, got {self.world_size}", hint=_AS_SAVED)
        if self.tail not in TAILS:
            raise UsageError(f"unknown tail {self.tail!r}", hint=f"use one of {', '.join(TAILS)}")
        if not self.taken or min(self.taken) < 0:
            raise UsageError(
                f"taken must hold a number of samples a worker, got {self.taken}",
                hint="without workers, pass the samples that the process itself handed out",
            )


class Remaining:
    """The positions of an epoch that are left after any number of stops, but for those that are skipped.

    A resumed run takes its steps on the virtual line, ``step_positions(step, samples=remaining.samples,
    start=remaining.start, ...)``, and ``positions`` says which positions of the epoch those are. Stops nest: each acts
    on the line that those before it left. They are kept in a normal form: what was handed out without a gap only moves
    ``start``, and stops that nothing ragged is left of are gone. So the state stays small, whatever the length of a
    run: making this costs O(workers), a few KB where a stop was uneven by a few blocks a worker.

    Attributes:
        start: Everything before this position was handed out, or skipped.
        stops: What was handed out beyond it.
        samples: Length of the virtual line: samples of the epoch less those handed out, or skipped, beyond ``start``.

    Args:
        samples: Samples of the epoch (N).
        position: Everything before it was handed out; cut to N.
        stops: Stops after it, in the order in which they happened.
        skips: Ranges of positions that are skipped, half open, in order. Stops took none of them.

    Raises:
        UsageError: Negative numbers.

    Example: two workers that had handed out 70 and 60 samples. The first block is done, the second lacks its last 4,
    the third its last 58::

        >>> rest = Remaining(1000, stops=[Stop(world_size=1, tail="drop", taken=(70, 60))])
        >>> rest.start, rest.samples
        (64, 934)
        >>> rest.positions(np.arange(64, 70))
        array([124, 125, 126, 127, 134, 135])
    """

    def __init__(
        self,
        samples: int,
        *,
        position: int = 0,
        stops: Sequence[Stop] = (),
        skips: Sequence[tuple[int, int]] = (),
    ) -> None:
        if samples < 0 or position < 0:
            raise UsageError(f"samples and position must not be negative, got {samples} and {position}", hint=_AS_SAVED)
        self._of_epoch = samples
        self._skips = [(begin, min(end, samples)) for begin, end in skips if begin < samples]
        self._ragged: list[_Ragged] = []
        self._begin_at(min(position, samples))
        for stop in stops:
            self._add(stop)

    @property
    def stops(self) -> tuple[Stop, ...]:
        """What was handed out beyond ``start``, in normal form."""
        return tuple(ragged.stop for ragged in self._ragged)

    def positions(self, virtual: Integers) -> Integers:
        """The positions of the epoch at places of the virtual line.

        Args:
            virtual: int64 in [0, samples), shape (n,), in any order.

        Returns:
            int64 in [0, N), shape (n,); the same numbers below ``start``, and where there are no stops.
        """
        for ragged in reversed(self._ragged):
            virtual = ragged.positions(virtual)
        return self._gaps.positions(virtual) if self._gaps.count else virtual

    def handed_out(self) -> Integers:
        """The positions beyond ``start`` that were handed out, in order: int64 (n,)."""
        left = self.positions(np.arange(self.start, self._ragged_end()))
        end = self._ragged_end() + self._whole - self.samples
        return np.setdiff1d(self._gaps.positions(np.arange(self.start, end)), left, assume_unique=True)

    @property
    def reached(self) -> int:
        """From this position on nothing was handed out, nor counted on by a stop."""
        end = self._ragged_end() + self._whole - self.samples
        return int(self._gaps.positions(np.array([end - 1]))[0]) + 1 if end > self.start else self.start

    def after(self, stop: Stop) -> Remaining:
        """What is left after another run over single samples, which began at ``start`` of this line."""
        return Remaining(self._of_epoch, position=self.start, stops=(*self.stops, stop), skips=self._skips)

    def after_batches(self, count: int, *, world_size: int, batch_size: int) -> Remaining:
        """What is left after another run in batches, which began at ``start`` of this line.

        Args:
            count: Whole steps that it made.
            world_size: Its ranks (R).
            batch_size: Samples of a batch of one rank (b).

        Raises:
            UsageError: A number out of range.
        """
        if count < 0 or world_size < 1 or batch_size < 1:
            raise UsageError(
                f"count must not be negative, world_size and batch_size must be positive, got {count}, {world_size} "
                f"and {batch_size}",
                hint="pass count from 0 on, world_size and batch_size from 1 on",
            )
        return self.after(_prefix(count * world_size * batch_size))

    def _begin_at(self, position: int) -> None:
        """Everything before a position was handed out, and nothing beyond it."""
        self._gaps = Gaps(self._skips, position)
        if position < self._of_epoch:
            position = int(self._gaps.positions(np.array([position]))[0])  # behind what is skipped there
            self._gaps = Gaps(self._skips, position)
        self.start = position
        self.samples = self._whole = self._of_epoch - self._gaps.count
        self._ragged.clear()

    def _add(self, stop: Stop) -> None:
        """Put a stop behind those that are there, in normal form."""
        head, rest = _split_head(stop, self.samples - self.start)
        if rest is None and self._ragged and self._ragged[-1].stop == _prefix(self._ragged[-1].handed_out):
            earlier = self._ragged.pop()  # one stretch with what was handed out before it
            self.samples += earlier.handed_out
            head += earlier.handed_out
        # what is ragged by now lies at the beginning of the virtual line; is all of it handed out?
        if head >= self._ragged_end() - self.start:
            done = self._whole - self.samples + head
            self._begin_at(int(self._gaps.positions(np.array([self.start + done]))[0]))
            if rest is None:
                return
            stop = rest
        elif rest is None:
            if head == 0:
                return
            stop = _prefix(head)
        ragged = _Ragged(stop, start=self.start, samples=self.samples)
        self.samples -= ragged.handed_out
        self._ragged.append(ragged)

    def _ragged_end(self) -> int:
        """Where the part of the virtual line begins that no stop has touched."""
        end = self.start
        for ragged in self._ragged:
            end = max(end, ragged.end) - ragged.handed_out
        return end


class _Ragged:
    """One stop on the line that it found: the rows of blocks, one block a rank, that it touched.

    Args:
        stop: The stop.
        start: Where its first row begins.
        samples: Length of the line.
    """

    def __init__(self, stop: Stop, *, start: int, samples: int) -> None:
        ranks, workers = stop.world_size, len(stop.taken)
        row_length = ranks * BLOCK
        whole_rows, rest = divmod(samples - start, row_length)
        touched = max(worker + 1 + workers * ((taken - 1) // BLOCK) for worker, taken in enumerate(stop.taken) if taken)
        row = np.arange(min(touched, whole_rows + (rest > 0)))
        block = np.full(len(row), BLOCK)
        if len(row) > whole_rows:
            block[-1] = _block_length(stop, rest)
        taken = np.minimum(np.maximum(np.array(stop.taken)[row % workers] - row // workers * BLOCK, 0), block)
        left = ranks * (block - taken)
        end = start + len(row) * row_length
        if len(row) > whole_rows:
            end = samples
            if stop.tail == "drop":
                end = start + whole_rows * row_length + ranks * int(block[-1])
            else:
                left[-1] = _left_in_cut_row(rest, int(taken[-1]))
        self.stop = stop
        self.end = end
        self.handed_out = end - start - int(left.sum())
        self._start = start
        self._left_before = np.cumsum(left) - left  # of each row: how much is left of those before it
        self._row, self._block, self._taken = start + row * row_length, block, taken

    def positions(self, virtual: Integers) -> Integers:
        """From the line that the stop left to the line that it found."""
        if virtual.size == 0 or virtual.min() >= self.end - self.handed_out:
            return virtual + self.handed_out
        inside = virtual - self._start
        # of rows that begin alike all but the last have nothing left
        row = np.searchsorted(self._left_before, np.maximum(inside, 0), side="right") - 1
        inside_row = inside - self._left_before[row]
        taken = self._taken[row]
        width = np.maximum(self._block[row] - taken, 1)
        rank, inside_block = divmod(inside_row, width)
        found = self._row[row] + rank * self._block[row] + taken + inside_block
        found = np.where(virtual >= self.end - self.handed_out, virtual + self.handed_out, found)
        return np.where(inside < 0, virtual, found)


def _prefix(samples: int) -> Stop:
    """A run that handed out the next ``samples`` positions without a gap."""
    return Stop(world_size=1, tail="exact", taken=(samples,))


def _split_head(stop: Stop, left: int) -> tuple[int, Stop | None]:
    """How many of the next ``left`` positions a stop handed out without a gap, and what it handed out after them.

    The gap-free head is whole rows, and beyond them only where nothing but one stretch was handed out; the rest, as a
    stop that begins behind the head, is ``None`` where there is none.
    """
    ranks, workers = stop.world_size, len(stop.taken)
    rows, rest = divmod(left, ranks * BLOCK)
    done = min(worker + workers * (taken // BLOCK) for worker, taken in enumerate(stop.taken))
    head = min(done, rows) * ranks * BLOCK
    if done >= rows:  # only the last row, of shorter blocks, may be left
        block = _block_length(stop, rest)
        taken = max(0, stop.taken[rows % workers] - rows // workers * BLOCK)
        if taken >= block:
            return head + (ranks * block if stop.tail == "drop" else rest), None
        done = rows
    # row t + done of the stop is row t of what follows
    rebased = tuple(
        max(0, stop.taken[(worker + done) % workers] - (worker + done) // workers * BLOCK) for worker in range(workers)
    )
    if not any(rebased):
        return head, None
    following = Stop(ranks, stop.tail, rebased)
    first = rebased[0]  # of rank 0 in the first row, which is not whole
    if _Ragged(following, start=0, samples=left - head).handed_out == first:
        return head + first, None
    return head, following


def _block_length(stop: Stop, rest: int) -> int:
    """Length of the longest block in the last row, of ``rest`` positions."""
    return rest // stop.world_size if stop.tail == "drop" else min(rest, BLOCK)


def _left_in_cut_row(rest: int, taken: int) -> int:
    """What is left of a row that is cut after ``rest`` positions, where ``taken`` of each block were handed out."""
    blocks, cut = divmod(rest, BLOCK)
    return blocks * (BLOCK - taken) + max(0, cut - taken)


def worker_samples(
    samples: int, *, start: int = 0, rank: int, world_size: int, worker: int, num_workers: int, tail: Tail
) -> int:
    """How many positions the stream of single samples of one worker holds, those that ``"pad"`` repeats among them.

    Args:
        samples: Samples of the epoch, or of the virtual line (N).
        start: Where the first block begins.
        rank: This rank.
        world_size: Ranks (R).
        worker: The worker, in [0, num_workers).
        num_workers: Workers a rank (K); 0, for none, counts as one.
        tail: How the epoch ends.

    Raises:
        UsageError: A number out of range, or an unknown tail.

    Example::

        >>> [worker_samples(1000, rank=0, world_size=2, worker=k, num_workers=3, tail="drop") for k in range(3)]
        [192, 180, 128]
    """
    workers = max(num_workers, 1)
    if not 0 <= worker < workers:
        raise UsageError(
            f"worker must be in [0, num_workers), got worker={worker}, num_workers={num_workers}",
            hint=f"count workers from 0: 0 to {workers - 1}",
        )
    steps = step_count(samples, start=start, rank=rank, world_size=world_size, batch_size=None, tail=tail)
    whole = (steps - worker + workers - 1) // workers * BLOCK
    if steps == 0 or (steps - 1) % workers != worker:
        return max(whole, 0)
    held = sample_count(samples, start=start, rank=rank, world_size=world_size, batch_size=None, tail=tail)
    return whole - (steps * BLOCK - held)


def taken_by_batches(
    batches: int, *, num_workers: int, batch_size: int, samples_per_worker: Sequence[int]
) -> tuple[int, ...]:
    """How much of each worker's stream a ``DataLoader`` that batches single samples itself has handed out.

    torch's loader takes its batches from the workers in turn, in their order (``in_order=True``, its default). A
    worker whose stream has ended is left out of the turn; its last batch may be short.

    Args:
        batches: Batches that the training loop has received.
        num_workers: Workers of the loader (K); 0, for none, counts as one.
        batch_size: Samples of a batch.
        samples_per_worker: Length of each worker's stream, from ``worker_samples``. With ``drop_last=True`` round
            them down to whole batches.

    Returns:
        Samples handed out of each worker's stream: what ``Stop.taken`` wants.

    Raises:
        UsageError: More batches than there are, or a number out of range.

    Example::

        >>> taken_by_batches(4, num_workers=2, batch_size=10, samples_per_worker=[15, 40])
        (15, 20)
        >>> taken_by_batches(5, num_workers=2, batch_size=10, samples_per_worker=[15, 40])
        (15, 30)
    """
    workers = max(num_workers, 1)
    if batches < 0 or batch_size < 1:
        raise UsageError(
            f"batches must not be negative and batch_size positive, got {batches} and {batch_size}",
            hint="pass batches from 0 on and batch_size from 1 on",
        )
    if len(samples_per_worker) != workers or min(samples_per_worker) < 0:
        raise UsageError(
            f"samples_per_worker must hold {workers} lengths, got {list(samples_per_worker)}",
            hint="one a worker; without workers, one",
        )
    held = [-(-samples // batch_size) for samples in samples_per_worker]
    if batches > sum(held):
        raise UsageError(
            f"{batches} batches are more than the {sum(held)} that {workers} workers can give",
            hint="count the batches of this epoch, since its beginning or the state that was loaded",
        )
    # whole rounds, in which every worker that has a batch left gives one
    after = bisect_right(range(max(held) + 1), batches, key=lambda rounds: sum(min(n, rounds) for n in held))
    given = [min(n, after - 1) for n in held]
    extra = batches - sum(given)
    for worker, n in enumerate(held):
        if extra and n >= after:
            given[worker] += 1
            extra -= 1
    return tuple(min(n * batch_size, samples) for n, samples in zip(given, samples_per_worker, strict=True))
