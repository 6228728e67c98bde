"""``top``: what each worker of a run on this machine is at, read from memory that the run shares with its workers.

Nobody is asked, and nothing is attached to the run: the memory has no name, and is found among what its processes have
open. Another account, or a container, may have written it: sizes, types, and names are checked before they are used.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, TypeAlias

from shardstream.dataset.shared import HEAD_BYTES, RunStatus, WorkerStage, WorkerState, source_and_shard
from shardstream.errors import UsageError
from shardstream.shards.table import NamedShards
from shardstream.text import in_one_line

_PROC = Path("/proc")
_NAMED = "/memfd:shardstream"
_MOST_BYTES = 1 << 30
"""Read of all memory of a process and those below it: 4,000 workers with batches of 1,000 have 300 MB."""

_Places: TypeAlias = list[list[tuple[str, int, list[NamedShards]]]]
"""Of each source its datasets: URL, number of shards, and how those are named."""


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """What a worker is at.

    Attributes:
        worker: Its number.
        process: Its process.
        stage: What it does; ``"idle"``: its batches are made, or nobody asked for any.
        seconds: For how long.
        url: The data set that it reads; ``None`` where it is at no shard that is known.
        shard: The shard, or its number where the data set names each of its shards by itself.
        sample: Number of the sample in it.
        key: Its key; empty where there is none.
        request: The object of the oldest request that it waits for; empty for none.
        attempts: How often that was made.
        request_seconds: For how long it has been waited for.
        requests: How many requests it waits for.
    """

    worker: int
    process: int
    stage: WorkerStage
    seconds: float
    url: str | None
    shard: str | None
    sample: int | None
    key: str
    request: str
    attempts: int
    request_seconds: float
    requests: int


@dataclass(frozen=True, slots=True)
class RunSeen:
    """A loader with its workers.

    Attributes:
        process: The training process.
        rank: Its rank.
        world_size: Of how many.
        num_workers: Workers of the loader, 1 where the training process makes the batches.
        urls: The data sets that are read.
        workers: Those that have begun.
    """

    process: int
    rank: int
    world_size: int
    num_workers: int
    urls: tuple[str, ...]
    workers: tuple[WorkerSeen, ...]


def top(process: int) -> list[RunSeen]:
    """What the workers of each `Loader` of a process, and of the processes that it started, are at.

    Args:
        process: The number of a training process of this machine, or of what launched several, such as torchrun.

    Returns:
        One for each loader, by rank. Loaders of which no worker has begun are left out.

    Raises:
        UsageError: No such process; it is another user's; it reads nothing with a `Loader`, or with that of another
            version.

    >>> loader = ss.Loader(ss.ShardDataset("out/", batch_size=10, fields=["cls"]), num_workers=0)
    >>> batch = next(iter(loader))
    >>> [run] = ss.diagnose.top(os.getpid())
    >>> run.workers[0].stage
    'idle'
    """
    if not _PROC.joinpath("self").exists():
        raise UsageError("top reads /proc, which this system does not have", hint="use the warnings of stall=")
    if not _PROC.joinpath(str(process)).is_dir():
        raise UsageError(f"there is no process {process}", hint="pgrep -af python lists those of this machine")
    runs, malformed, left = [], "", _MOST_BYTES
    for file in _memory_of(process):
        try:
            run, read = _run_in(file, left)
        except (ValueError, RecursionError) as error:
            malformed = str(error)
            continue
        left -= read
        if run is not None:
            runs.append(run)
    if malformed and not runs:
        what = f"the shared memory of process {process} is not what a run writes: {in_one_line(malformed)[:200]}"
        raise UsageError(what, hint=f"look whose process it is: ps -fp {process}")
    if not runs:
        who = f"process {process}"
        hint = "name the training process, or what launched it; a run is seen from the first iter() of its ss.Loader on"
        raise UsageError(f"neither {who} nor any that it started reads with an ss.Loader", hint=hint)
    return sorted((run for run in runs if run.workers), key=lambda run: (run.rank, run.process))


def _memory_of(process: int) -> Iterator[FileIO]:
    """Memory without a name that a process and those below it have open, each piece once, opened to be read."""
    seen = set()
    for one in (process, *_below(process)):
        folder = _PROC / str(one) / "fd"
        try:
            names = os.listdir(folder)
        except PermissionError:
            if one == process:
                raise _not_ours(process) from None
            continue
        except FileNotFoundError:  # it ended meanwhile
            continue
        for name in names:
            with suppress(OSError):  # closed meanwhile
                path = folder / name
                if not os.readlink(path).startswith(_NAMED):
                    continue
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)  # a container may name a FIFO so
                with FileIO(descriptor) as file:
                    status = os.fstat(descriptor)
                    if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
                        seen.add((status.st_dev, status.st_ino))
                        yield file


def _run_in(file: FileIO, most: int) -> tuple[RunSeen | None, int]:
    """What memory says of a run, and its size; ``None``: it is not that of a run.

    Raises:
        UsageError: Another version of shardstream wrote it.
        ValueError, RecursionError: It is not what a run writes, or longer than ``most``.
    """
    head = file.read(HEAD_BYTES)
    length = RunStatus.length(head)
    if length is None:
        return None, 0
    size = os.fstat(file.fileno()).st_size
    if length != size or length > most:
        raise ValueError(f"{size} bytes where {length} belong, at most {most}")
    return run_of(head + file.read(length - len(head))), length


def _below(process: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        with suppress(OSError, ValueError):  # no process, or it ended meanwhile
            fields = folder.joinpath("stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [process]
    for one in found:
        found += children.get(one, [])
    return found[1:]


def _not_ours(process: int) -> UsageError:
    folder = _PROC.joinpath(str(process))
    try:
        owner = folder.owner()
    except KeyError:  # a number without a name, as in containers
        owner = str(folder.stat().st_uid)
    what = f"process {process} is of another user ({owner}): its memory is not shown"
    return UsageError(what, hint="ask as that user")


def run_of(data: bytes) -> RunSeen:
    """What the memory of a run says.

    Raises:
        ValueError, RecursionError: It is not what a run writes.
    """
    status = RunStatus.of(data)
    places = _places(status.about)
    urls = tuple(dict.fromkeys(url for source in places for url, _, _ in source))
    workers = tuple(_worker(state, places) for state in status.states)
    return RunSeen(status.process, status.rank, status.world_size, status.workers, urls, workers)


def _places(about: Any) -> _Places:
    """What is read, as `WorkerStatuses` was given it; ValueError: it is something else."""
    try:
        places = [
            [(url, count, [NamedShards(*run) for run in naming]) for url, count, naming in source]
            for source in about or []
        ]
    except UsageError as error:
        raise ValueError(error.what) from None
    except TypeError as error:
        raise ValueError(str(error)) from None
    for url, count, _ in itertools.chain.from_iterable(places):
        if type(url) is not str or type(count) is not int:
            raise ValueError(f"a dataset {url!r} of {count!r} shards")
    return places


def _worker(state: WorkerState, places: _Places) -> WorkerSeen:
    idle = state.stage == "idle"  # what it was at before says nothing
    url, shard = (None, None) if idle or state.shard_id < 0 else _place(state.shard_id, places)
    return WorkerSeen(
        state.worker,
        state.process,
        state.stage,
        state.seconds,
        url,
        shard,
        None if idle or state.row < 0 else state.row,
        "" if idle else state.key,
        state.url,
        state.attempts,
        state.request_seconds,
        state.requests,
    )


def _place(shard_id: int, places: _Places) -> tuple[str | None, str]:
    """The dataset and the name of a shard."""
    source, number = source_and_shard(shard_id)
    for url, count, naming in places[source] if source < len(places) else []:
        if number >= count:
            number -= count
            continue
        for run in naming:
            if number < run.count:
                return url, run.pattern.format(number)
            number -= run.count
        return url, str(number)
    return None, str(number)
