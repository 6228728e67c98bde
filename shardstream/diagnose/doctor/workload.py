"""``Workload``: the workers and batches that a machine has to carry."""

from __future__ import annotations

from dataclasses import dataclass

from shardstream.sizes import plural, size

PREFETCHED = 2
"""Batches that each worker has on their way, torch's default of ``prefetch_factor``."""


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


def expected(num_workers: int | None, batch_bytes: int) -> Workload:
    """What training here will consist of; ``None`` for as many workers as a loader takes by itself."""
    from shardstream.load.workers import chosen_workers  # with torch, which the command line loads for few verbs
    from shardstream.stream.iteration.ranks import local_ranks

    return Workload(local_ranks(), chosen_workers("auto" if num_workers is None else num_workers), batch_bytes)
