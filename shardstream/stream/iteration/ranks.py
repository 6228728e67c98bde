"""Which rank of how many this process is. Looked up when an iteration begins, since training code may start late."""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from shardstream.errors import UsageError

logger = logging.getLogger(__name__)

Affinity: TypeAlias = Literal["node", "none"]
Ranks: TypeAlias = tuple[int, int]
"""A rank, and the number of ranks."""

# Launchers' variables: rank, world size; the first pair that is set counts. SLURM's step comes before its job, since
# a step of one task inside a larger job is one process.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
# This process among those of its node, and their number.
_LOCAL_VARIABLES = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)


class Dealt(NamedTuple):
    """How a framework deals out to all ranks what one of them reads.

    Attributes:
        unit: Consecutive samples that one DataLoader worker has to hold: they become one batch.
        multiple: What does not fill so many samples would be filled up by repeating others.
    """

    unit: int
    multiple: int


class Rank(NamedTuple):
    """This process among the data-parallel ones.

    Attributes:
        rank: In [0, world_size).
        world_size: Number of ranks.
        source: Where this is known from.
    """

    rank: int
    world_size: int
    source: str

    @property
    def dealt(self) -> Dealt | None:
        """How a framework deals out to all ranks what this one reads; ``None``: it reads its own share."""
        return None


class RankOfAll(Rank):
    """Rank 0 of 1, where what it reads is dealt out to all ranks."""

    _dealt: Dealt

    @classmethod
    def of(cls, dealt: Dealt, source: str) -> RankOfAll:
        """The one whose samples are dealt out like that."""
        rank = cls(0, 1, source)
        rank._dealt = dealt
        return rank

    @property
    def dealt(self) -> Dealt | None:
        return self._dealt


def find_rank(ranks: Ranks | None = None) -> Rank:
    """Find the rank: as given, of ``torch.distributed``, of torchrun's, SLURM's or Open MPI's variables, else 0 of 1.

    Args:
        ranks: What a user gave as ``ranks=``.

    Raises:
        UsageError: It is not a rank of so many, or variables contradict each other.

        >>> find_rank((1, 4)).source
        'arguments'
    """
    if ranks is not None:
        given: Any = ranks
        if not isinstance(given, tuple | list) or len(given) != 2 or None in given:
            raise UsageError(
                f"ranks must be (rank, world_size), got {ranks!r}",
                hint="ranks=(0, 8) for the first of eight; without it, torch.distributed or the launcher says it",
            )
        return _checked(Rank(*ranks, "arguments"))
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return Rank(dist.get_rank(), dist.get_world_size(), "torch.distributed")
    for names in _VARIABLES:
        values = _integers(names)
        if values is not None:
            return _checked(Rank(*values, " and ".join(names)))
    return Rank(0, 1, "single process")


def _checked(found: Rank) -> Rank:
    if type(found.rank) is not int or type(found.world_size) is not int or not 0 <= found.rank < found.world_size:
        raise UsageError(
            f"rank must be an integer in [0, world_size), got rank {found.rank} of {found.world_size} ({found.source})",
            hint="count ranks from 0",
        )
    return found


def _integers(names: tuple[str, str]) -> tuple[int, int] | None:
    """The values of two environment variables; ``None`` if one is not set."""
    values = [os.environ.get(name) for name in names]
    if any(not value for value in values):
        return None
    try:
        first, second = (int(value) for value in values if value)
    except ValueError as error:
        raise UsageError(
            f"{' and '.join(names)} must be integers: {error}",
            hint=f"unset both, or set them as for one process: {names[0]}=0 {names[1]}=1",
        ) from error
    return first, second


def local_ranks() -> int:
    """Ranks on this machine, as far as the launcher says; else 1."""
    return max(_local()[1], 1)


def local_rank() -> int:
    """Which of them this is, as far as the launcher says; else 0."""
    return _local()[0]


def _local() -> tuple[int, int]:
    return next(filter(None, map(_integers, _LOCAL_VARIABLES)), (0, 1))


def find_groups(found: Rank, affinity: Affinity | None, *, cached: bool = False) -> int:
    """The number of affinity groups: one a node under ``"node"``, else 1.

    ``None`` is ``"node"`` where there is a cache on each node, whose shards should stay with it.

    A node is so many consecutive ranks as ``LOCAL_WORLD_SIZE`` says (or SLURM's or Open MPI's variable). Where ranks
    are placed in another way, or their placement is unknown, there is one group, and a warning in the log says why.
    """
    asked = affinity == "node"
    if found.world_size == 1 or not (asked or (affinity is None and cached)):
        return 1
    local = next(filter(None, map(_integers, _LOCAL_VARIABLES)), None)
    if local is None:
        return _no_groups(asked, "how many ranks a node has is unknown: LOCAL_RANK and LOCAL_WORLD_SIZE are not set")
    local_rank, ranks_per_node = local
    launched = next(filter(None, map(_integers, _VARIABLES)), None)
    if found.source == "arguments" and (launched is None or launched[1] != found.world_size):
        return _no_groups(asked, "ranks= are not those of the launcher, so which ranks share a node is unknown")
    if ranks_per_node < 1 or found.world_size % ranks_per_node:
        return _no_groups(asked, f"{found.world_size} ranks are not a multiple of {ranks_per_node} ranks a node")
    if local_rank != found.rank % ranks_per_node:
        return _no_groups(
            asked,
            f"rank {found.rank} is number {local_rank} of {ranks_per_node} on its node: ranks are placed on the nodes "
            "in turn (cyclic), not one node after another (block)",
        )
    return found.world_size // ranks_per_node


@cache
def _no_groups(asked: bool, reason: str) -> int:  # said once in each process, not at every epoch
    level = logging.WARNING if asked else logging.INFO
    logger.log(level, 'affinity="node" has no effect, every node reads all shards: %s', reason)
    return 1
