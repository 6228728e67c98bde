"""``gather_stats``: what the loaders of all ranks have counted, on every rank.

It goes through the key-value store of ``torch.distributed``, as the comparison of `rank_check` does: that works with
every backend, needs no group, and a rank that comes late, or never, leaves no collective half done.
"""

from __future__ import annotations

import json
import time
from typing import Any

from shardstream.errors import RankError, UsageError
from shardstream.load.loader import Loader
from shardstream.load.prefetcher import DevicePrefetcher
from shardstream.load.rank_check import process_start
from shardstream.load.rank_stats import RankStats, RankTable, named

_LOOK_S = 0.02


def gather_stats(loader: Loader | DevicePrefetcher, *, timeout: float = 30.0) -> RankTable:
    """The numbers of all ranks of ``torch.distributed``, by rank: the slow node is a line.

    A collective: to be called on all ranks, equally often. ``Loader(stats_file=)`` with `LoaderStats.merged` is the way
    that waits for nobody.

    Args:
        loader: The rank's own, made in the same place of the program on each.
        timeout: Seconds that this rank waits for the others. Default 30.

    Returns:
        A `RankTable`, the same on all ranks; of this process alone, where there are no others.

    Raises:
        RankError: Not all ranks called it in time; names those that are missing.
        UsageError: There are other ranks, but no process group to meet them in.

    Example:
        >>> loader = ss.Loader(ss.ShardDataset("out/", batch_size=10, fields=["cls"]), num_workers=0)
        >>> batches = list(loader)
        >>> print(str(ss.gather_stats(loader)).splitlines()[-1])
        no rank waits for data much longer than the others
    """
    own = loader.loader if isinstance(loader, DevicePrefetcher) else loader
    if not isinstance(own, Loader):
        raise UsageError(f"gather_stats needs a Loader, got {type(own).__name__}", hint="use ss.Loader")
    mine = own.stats.of_rank()
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        if own.stats.world_size == 1:
            return RankTable.of([mine])
        hint = "call torch.distributed.init_process_group before, or use Loader(stats_file=) and LoaderStats.merged"
        raise UsageError(f"{own.stats.world_size} ranks have no process group to meet in", hint=hint)
    mine.values.update(rank=dist.get_rank(), world_size=dist.get_world_size())
    rows = _exchanged(own.rank_check.next_gathering(), mine.to_json(), timeout)
    return RankTable.of(map(RankStats.from_json, rows))


def _exchanged(keys: tuple[str, str], mine: Any, timeout: float) -> list[Any]:
    """What each rank has left in the store under this key.

    Args:
        keys: That of this meeting, and that of the one before.
        mine: What this rank leaves; JSON-able.
        timeout: Seconds to wait for the others.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    store, (key, old), rank = distributed_c10d._get_default_store(), keys, dist.get_rank()
    count, started, end = dist.get_world_size(), process_start(), time.monotonic() + timeout
    store.set(f"{key}/{rank}", json.dumps([time.time(), mine]))
    found: dict[int, Any] = {}
    while True:
        for other in sorted(set(range(count)) - set(found)):
            if store.check([f"{key}/{other}"]):
                written, value = json.loads(store.get(f"{key}/{other}"))
                if other == rank or written >= started:  # else it is what an earlier start of the job has left
                    found[other] = value
            elif time.monotonic() < end:
                break  # the others need not be asked for yet
        if len(found) == count:
            break
        if time.monotonic() >= end:
            missing = sorted(set(range(count)) - set(found))
            raise RankError(
                f"gather_stats waited {timeout:g} s for {named(missing)} of {count}",
                hint="call it on all ranks, or use Loader(stats_file=) and LoaderStats.merged, which wait for nobody",
            )
        time.sleep(_LOOK_S)
    store.delete_key(f"{old}/{rank}")  # all have come here: nobody looks at it any more
    return [found[other] for other in range(count)]
