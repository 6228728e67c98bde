"""``Workload``: the workers and batches that a machine has to carry."""

from __future__ import annotations

from dataclasses import dataclass

from shardstream.sizes import plural, size

PREFETCHED = 2
"""Batches that each worker has on their way, torch's default of ``prefetch_factor``."""

_EVEN = (8, 4, 2, 1)  # numbers of workers under which batches are the same


@dataclass(frozen=True, slots=True)
class Workload:
    """What training on this machine consists of.

    Attributes:
        ranks: Training processes on this machine.
        workers: Worker processes of each.
        batch_bytes: Bytes of a batch.
    """

    ranks: int
    workers: int
    batch_bytes: int

    @property
    def all_workers(self) -> int:
        """Worker processes of all ranks."""
        return self.ranks * self.workers

    @property
    def in_flight(self) -> int:
        """Bytes of the batches that are on their way at one time; without workers, one batch a rank."""
        return max(self.ranks, self.all_workers * PREFETCHED) * self.batch_bytes

    def __str__(self) -> str:
        return f"{plural(self.all_workers, 'worker')} x {PREFETCHED} batches of {size(self.batch_bytes)}"


def fitting_workers(processors: int, ranks: int) -> int:
    """Workers of each rank that leave it a core, as a number under which batches are the same: 8, 4, 2, 1 or 0.

    >>> fitting_workers(16, 2), fitting_workers(1, 1)
    (4, 0)
    """
    return next((number for number in _EVEN if ranks * (number + 1) <= processors), 0)


def expected(num_workers: int | None, batch_bytes: int, processors: int) -> Workload:
    """What training here will consist of; ``None`` for as many workers as fit."""
    from shardstream.stream.iteration.ranks import local_ranks  # with torch, which the command line loads for few verbs

    ranks = local_ranks()
    return Workload(ranks, fitting_workers(processors, ranks) if num_workers is None else num_workers, batch_bytes)
