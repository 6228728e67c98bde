"""``gather_stats``: what the loaders of all ranks have counted, on every rank.

It uses the key-value store of ``torch.distributed``, as the comparison in `rank_check` does: that works with every
backend, and a late or missing rank leaves no collective half done. Rank 0 reads the numbers of all ranks at once and
publishes them as one value, so each rank makes four requests, however many ranks there are.
"""

from __future__ import annotations

import json
import time
import zlib
from datetime import timedelta
from typing import Any

from shardstream.errors import RankError, UsageError
from shardstream.load.loader import Loader
from shardstream.load.prefetcher import DevicePrefetcher
from shardstream.load.rank_stats import RankStats, RankTable, named
from shardstream.stream.iteration.rank_entries import default_store, is_current, make_entry, process_start

_LOOK_S = 0.02  # between two looks at an entry that an earlier start of the job has left
_WAIT_S = 5.0  # of one request: torch's wait notices neither Ctrl-C nor SIGTERM before it ends


def gather_stats(loader: Loader | DevicePrefetcher, *, timeout: float = 30.0) -> RankTable:
    """The numbers of all ranks of ``torch.distributed``, by rank: the slow node is a line.

    A collective: to be called on all ranks, equally often. ``Loader(stats_file=)`` with `LoaderStats.merged` is the way
    that waits for nobody.

    Args:
        loader: The rank's own, made in the same place of the program on each.
        timeout: Seconds that rank 0 waits for the others, who wait twice as long for its answer. Default 30.

    Returns:
        A `RankTable`, the same on all ranks; of this process alone, where there are no others.

    Raises:
        RankError: Not all ranks called it in time; names the missing ranks. All ranks that called it raise.
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
    exchange = RankExchange(default_store(), dist.get_rank(), dist.get_world_size())
    rows = exchange.gather(own.rank_check.next_gathering(), mine.to_json(), timeout)
    return RankTable.of(map(RankStats.from_json, rows))


class RankExchange:
    """Gathers one value of each rank on every rank.

    Args:
        store: A ``torch.distributed.Store`` that all ranks share.
        rank: This rank.
        count: The number of ranks.
    """

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self._store = store
        self._rank = rank
        self._count = count
        self._started = process_start()

    def gather(self, keys: tuple[str, str], value: Any, timeout: float) -> list[Any]:
        """The values of all ranks, by rank.

        Args:
            keys: The key of this exchange, and the key of the one before.
            value: The value of this rank; JSON-able.
            timeout: Seconds that rank 0 waits for the others.

        Raises:
            RankError: Not all ranks came in time.
        """
        key, previous = keys
        if self._rank:
            values, missing = self._ask(key, value, timeout)
        else:
            values, missing = self._collect(key, value, timeout)
            self._store.set(key, _packed([] if missing else values, missing))
            if not missing:
                self._store.delete_key(previous)  # all have read it, or have given up
        if missing:
            raise RankError(
                f"gather_stats waited {timeout:g} s for {named(missing)} of {self._count}",
                hint="call it on all ranks, or use Loader(stats_file=) and LoaderStats.merged, which wait for no rank",
            )
        return values

    def _collect(self, key: str, value: Any, timeout: float) -> tuple[list[Any], list[int]]:
        """The values of all ranks, and the ranks that are missing; on rank 0."""
        others = {f"{key}/{rank}": rank for rank in range(1, self._count)}
        values = {0: value}
        values |= {others[name]: entry[1] for name, entry in self._read(list(others), timeout).items()}
        missing = [rank for rank in range(self._count) if rank not in values]
        return [values[rank] for rank in sorted(values)], missing

    def _ask(self, key: str, value: Any, timeout: float) -> tuple[list[Any], list[int]]:
        """The same as rank 0 publishes it."""
        own = f"{key}/{self._rank}"
        self._store.set(own, _packed(value))
        answer = self._read([key], 2 * timeout)
        if not answer:
            return [], [0]
        self._store.delete_key(own)
        _, values, missing = answer[key]
        return values, missing

    def _read(self, keys: list[str], timeout: float) -> dict[str, list[Any]]:
        """The entries under these keys; fewer if the time is over before all are there."""
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            present = keys
            try:
                self._store.wait(keys, timedelta(seconds=min(max(left, 0.001), _WAIT_S)))
            except RuntimeError:  # the time is over; if the store has failed, it says so once more
                present = [key for key in keys if self._store.check([key])] if left <= 0 else []
            found = self._store.multi_get(present) if present else []
            entries = {key: json.loads(zlib.decompress(packed)) for key, packed in zip(present, found, strict=True)}
            current = {key: entry for key, entry in entries.items() if is_current(entry, self._started)}
            if len(current) == len(keys) or left <= 0:
                return current
            if present:
                time.sleep(_LOOK_S)


def _packed(*values: Any) -> bytes:
    """An entry as it is stored: rank 0 sends the numbers of all ranks to each rank."""
    return zlib.compress(json.dumps(make_entry(*values)).encode(), 1)
