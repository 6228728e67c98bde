"""What an engine has to do, and what runs on its workers."""

from __future__ import annotations

import logging
import os
import pickle
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import ClassVar

from shardstream.errors import ShardStreamError, UsageError, WorkerError
from shardstream.pack.execution.task import Task
from shardstream.pack.output.receipts import ShardResult
from shardstream.version import __version__

_log = logging.getLogger(__name__)

_AHEAD = 2  # tasks a slot that are handed out: the next one is there when one ends, and a cluster that grows sees need
_AT_LEAST = 4  # tasks handed out where no worker is there yet: they are what makes such a cluster start some
_ALONE_S = 30.0  # without workers: one that died may be started again
_MAX_REASON = 300
_LAST_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b: .+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PackedTask:
    """A task on its way. Engines log and show what they were given, so its bytes, which may hold keys, are not shown.

    Attributes:
        name: Of its shard.
        version: Of this package here: another one there could write other bytes.
        path: Folders of modules, where the worker is on this machine; else empty.
        data: The task, pickled.
    """

    name: str
    version: str
    path: tuple[str, ...]
    data: bytes = field(repr=False)


class Engine(ABC):
    """Something that runs functions on workers. What it had to start, it ends.

    Attributes:
        name: As users call it.
        dumps: Pickles, with what the engine brings for functions that have no importable name.
        local: Whether its workers are processes of this machine, started by us.
        at_most: Tasks to hand out at once, where the user limits them.
    """

    name: ClassVar[str]
    dumps: Callable[[object], bytes]
    local: bool
    at_most: int | None

    @abstractmethod
    def start(self, task: PackedTask) -> Future[bytes]:
        """Hand out a task: a worker calls `run_task` with it. Cancelling the future cancels it, where that can be."""

    @abstractmethod
    def slots(self) -> int:
        """How many tasks it runs at once now; a cluster may grow."""

    @abstractmethod
    def end(self) -> None:
        """Cancel what runs, and leave the engine as it was found."""

    def room(self) -> int:
        """How many tasks to have handed out."""
        return self.at_most or max(_AT_LEAST, _AHEAD * self.slots())


class Watch:
    """Notices that an engine has no workers, and has had none for a while."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._since: float | None = None
        self._warned = False

    def look(self) -> None:
        """To be called while nothing comes.

        Raises:
            WorkerError: Those that were started here are gone. A cluster of somebody else's may still get some.
        """
        if self._engine.slots():
            self._since = None
            return
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since < _ALONE_S:
            return
        if self._engine.local:
            raise WorkerError(
                "all workers of the local cluster are gone",
                hint="was memory short (dmesg tells)? finished shards are kept: pack again, with fewer workers",
            )
        if not self._warned:
            _log.warning("the %s cluster has no workers: waiting for some", self._engine.name)
            self._warned = True


def pack_task(engine: Engine, task: Task) -> PackedTask:
    """A task for the workers of an engine."""
    path = tuple(entry or os.getcwd() for entry in sys.path) if engine.local else ()
    return PackedTask(task.name, __version__, path, engine.dumps(task))


def run_task(packed: PackedTask) -> bytes:
    """On a worker: run a task. An error is a result too, so that no engine wraps it, logs it, or tries again."""
    outcome: ShardResult | Exception
    try:
        outcome = _task_of(packed).run()
    except Exception as error:
        outcome = error
    try:
        return pickle.dumps(outcome)
    except Exception:  # whatever an error of somebody else's holds
        return pickle.dumps(ShardStreamError(f"{type(outcome).__name__}: {outcome}", shard=packed.name))


def _task_of(packed: PackedTask) -> Task:
    if packed.version != __version__:
        raise UsageError(
            f"a worker has shardstream {__version__}, but this run is of {packed.version}",
            hint="install the same version on all workers",
        )
    sys.path.extend(entry for entry in packed.path if entry not in sys.path)
    try:
        task: Task = pickle.loads(packed.data)  # noqa: S301 - ours: engines bring functions to workers like this
    except ImportError as error:
        raise UsageError(
            f"a worker cannot load its task: {error}",
            hint="what transform= and the source need has to be installed on all workers",
        ) from error
    return task


def unpack_result(future: Future[bytes], name: str) -> ShardResult:
    """What a task returned, or the error that it ended with.

    Args:
        future: What `Engine.start` gave.
        name: Of the shard.

    Raises:
        WorkerError: The engine could not run it, or lost it as often as it tries.
    """
    try:
        packed = future.result()
    except Exception as error:
        _log.debug("the engine gave up %s", name, exc_info=True)
        raise WorkerError(
            f"the cluster could not run a task: {_reason(error)}",
            shard=name,
            hint="was a worker killed (memory?), or does it lack shardstream? finished shards are kept: pack again",
        ) from None
    outcome: ShardResult | Exception = pickle.loads(packed)  # noqa: S301 - from our own workers
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _reason(error: Exception) -> str:
    """An engine's error in one line: the last one that names an exception of its wall of text, or its first."""
    text = str(error)
    named = _LAST_LINE.findall(text)
    line = named[-1] if named else next(iter(text.strip().splitlines()), "")
    return f"{type(error).__name__}: {line}"[:_MAX_REASON]
