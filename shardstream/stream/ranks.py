"""Which rank of how many this process is. Looked up when an iteration begins, since training code may start late."""

from __future__ import annotations

import os
from typing import NamedTuple

from shardstream.errors import UsageError


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


def find_rank(rank: int | None = None, world_size: int | None = None) -> Rank:
    """Explicit values, else ``torch.distributed``, else ``RANK`` and ``WORLD_SIZE``, else 0 of 1.

    Raises:
        UsageError: Only one of the two is given, or they contradict each other.

        >>> find_rank(1, 4).source
        'arguments'
    """
    if rank is not None and world_size is not None:
        return _checked(Rank(rank, world_size, "arguments"))
    if rank is not None or world_size is not None:
        raise UsageError(
            f"rank={rank} and world_size={world_size}: one without the other", hint="give both, or neither"
        )
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return Rank(dist.get_rank(), dist.get_world_size(), "torch.distributed")
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        try:
            found = Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "RANK and WORLD_SIZE")
        except ValueError as error:
            raise UsageError(f"RANK and WORLD_SIZE must be integers: {error}", hint="unset or correct them") from error
        return _checked(found)
    return Rank(0, 1, "single process")


def _checked(found: Rank) -> Rank:
    if not 0 <= found.rank < found.world_size:
        raise UsageError(
            f"rank {found.rank} of {found.world_size} ({found.source})", hint="rank must be in [0, world_size)"
        )
    return found
