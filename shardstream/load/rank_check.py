"""Ranks that do not agree on what to read would train on duplicates, or wait for each other for ever.

So before a loader's first iteration, and the first after a state was loaded, each rank writes what it is about to read
into the key-value store of ``torch.distributed``, where the first one is kept, and compares. Nobody waits for anybody:
it is one round trip, and a rank that comes alone passes.

Loaders are told apart by where in the program they were made, so that one that a single rank makes for itself, to look
at its data, does not shift those of all others.

Under ``torchrun --max-restarts`` the store outlives the ranks. What an earlier start wrote is told by its time:
a process group exists only once all of its ranks do, so what is older than this process is of no rank of today.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import xxhash

from shardstream.errors import RankError
from shardstream.stream.iteration.ranks import Rank


class RankCheck:
    """The comparisons of one loader."""

    _made: ClassVar[Counter[str]] = Counter()  # loaders by where they were made

    def __init__(self) -> None:
        where = _where()
        self._name = f"{where}/{RankCheck._made[where]}"
        RankCheck._made[where] += 1
        self._checks = 0
        self._gatherings = 0
        self._due = True

    def renew(self) -> None:
        """Compare again at the next iteration: a state was loaded."""
        self._due = True

    def next_gathering(self) -> tuple[str, str]:
        """The key under which all ranks leave what they tell one another now, and the one of the time before."""
        number, self._gatherings = self._gatherings, self._gatherings + 1
        return f"shardstream/{self._name}/stats/{number}", f"shardstream/{self._name}/stats/{number - 1}"

    def check(self, rank: Rank, describe: Callable[[], dict[str, Any]]) -> None:
        """Compare what is about to be read with what the rank that came first reads.

        Does nothing where ranks are not those of ``torch.distributed``: there is no store then.

        Args:
            rank: This rank.
            describe: Makes what is compared, JSON-able values by name.

        Raises:
            RankError: They differ; names what differs, with both values.
        """
        if not self._due or rank.source != "torch.distributed" or rank.world_size == 1:
            return
        self._due = False
        key = f"shardstream/{self._name}/{self._checks}"
        self._checks += 1
        mine = describe()
        from torch.distributed import distributed_c10d

        store, entry = distributed_c10d._get_default_store(), json.dumps([time.time(), rank.rank, mine])
        first = store.compare_set(key, "", entry).decode()
        if json.loads(first)[0] < process_start():
            first = store.compare_set(key, first, entry).decode()
        _, other, theirs = json.loads(first)
        differ = [
            f"{name} is {value!r} on rank {rank.rank} and {theirs.get(name)!r} on rank {other}"
            for name, value in mine.items()
            if value != theirs.get(name)
        ]
        if differ:
            raise RankError(
                f"ranks do not read the same: {'; '.join(differ)}",
                hint="all ranks need the same data set, seed, state, batch size and number of workers; loaders that "
                "are meant to differ need rank= and world_size=",
            )


def _where() -> str:
    """Where the program is: the functions that are running, outside of this package, as a hash."""
    frame: FrameType | None = sys._getframe(1)
    calls = []
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != __package__.partition(".")[0]:
            calls.append((Path(frame.f_code.co_filename).name, frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return xxhash.xxh3_64_hexdigest(repr(calls).encode())


def process_start() -> float:
    """When this process began, as ``time.time`` counts; 0 where the system does not say."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
