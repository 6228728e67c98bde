"""Small facts in anonymous shared memory, which the copies of a data set in all its processes map.

A ``DataLoader`` tells the workers of an iterable data set nothing. What they have to know (where to begin), and what
has to be known of them (what they are reading), stands here. Nothing has a name on the host: the memory ends with the
last process that maps it, however that ends.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from contextlib import suppress
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UsageError

_RECORD_WORDS = 1024


class SharedMemory:
    """Bytes, zero at first, that all processes share which a copy of this is handed to as they start.

    Outside of the start of a process a pickle, and so a copy, holds the bytes themselves: it has memory of its own.

    Args:
        size: Number of bytes, at least 1.
    """

    def __init__(self, size: int) -> None:
        file = _memory_file()
        os.ftruncate(file, size)
        self._map(file, size)

    def _map(self, file: int, size: int) -> None:
        self._file = file
        self.bytes = np.frombuffer(mmap.mmap(file, size), np.uint8)

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was never made
            os.close(self._file)

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return _copied, (self.bytes.tobytes(),)
        return _handed_over, (DupFd(self._file), len(self.bytes))


def _memory_file() -> int:
    """The descriptor of a new file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("shardstream")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _copied(data: bytes) -> SharedMemory:
    made = SharedMemory(len(data))
    made.bytes[:] = np.frombuffer(data, np.uint8)
    return made


def _handed_over(file: Any, size: int) -> SharedMemory:
    made = object.__new__(SharedMemory)
    made._map(file.detach(), size)
    return made


class SharedWords:
    """``count`` 64-bit integers, zero at first. Single words are read and written atomically."""

    def __init__(self, count: int) -> None:
        self.__setstate__(SharedMemory(8 * count))

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> SharedWords:
        """These numbers, of which there is one at least."""
        made = cls(len(numbers))
        made.words[:] = numbers
        return made

    def copy(self) -> SharedWords:
        """The same numbers in memory of their own."""
        return SharedWords.of(self.words)

    def __getstate__(self) -> SharedMemory:
        return self._memory

    def __setstate__(self, state: SharedMemory) -> None:
        self._memory = state
        self.words = state.bytes.view(np.int64)


class SharedBytes:
    """Bytes that never change, once for all processes. ``view`` is read-only."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        memory = SharedMemory(max(len(data), 1))
        memory.bytes[: len(data)] = np.frombuffer(data, np.uint8)
        self.__setstate__((memory, len(data)))

    def __getstate__(self) -> tuple[SharedMemory, int]:
        return self._memory, len(self.view)

    def __setstate__(self, state: tuple[SharedMemory, int]) -> None:
        self._memory, length = state
        self.view = self._memory.bytes.data[:length].toreadonly()


class SharedRecord:
    """One JSON value that a process leaves for others; ``None`` at first.

    One process writes at a time, others may read meanwhile: there are two halves, written in turn, and a number that
    says which one counts.
    """

    def __init__(self) -> None:
        self._shared = SharedWords(1 + 2 * _RECORD_WORDS)

    def write(self, value: Any) -> None:
        """Replace the value.

        Raises:
            UsageError: It is far larger than anything of ours.
        """
        data = json.dumps(value).encode()
        if len(data) > 8 * (_RECORD_WORDS - 1):
            raise UsageError(f"a state of {len(data)} bytes is too large", hint="pass a state as it was saved")
        version = int(self._shared.words[0]) + 1
        half = self._half(version)
        half[0] = len(data)
        half[1:].view(np.uint8)[: len(data)] = memoryview(data)
        self._shared.words[0] = version

    def copy(self) -> SharedRecord:
        """The same value in memory of its own."""
        made = SharedRecord()
        made._shared = self._shared.copy()
        return made

    @property
    def writes(self) -> int:
        """How many values were written."""
        return int(self._shared.words[0])

    def read(self) -> Any:
        """The value that was written last."""
        while version := int(self._shared.words[0]):
            half = self._half(version).copy()
            if int(self._shared.words[0]) - version < 2:  # else it was written again meanwhile
                return json.loads(half[1:].view(np.uint8)[: int(half[0])].tobytes())
        return None

    def _half(self, version: int) -> Any:
        begin = 1 + version % 2 * _RECORD_WORDS
        return self._shared.words[begin : begin + _RECORD_WORDS]


class WorkerStatuses:
    """Which sample each worker is at, so that the parent can say so when a worker dies.

    Args:
        workers: Number of workers.
    """

    def __init__(self, workers: int) -> None:
        self._shared = SharedWords(3 * workers)

    def of(self, worker: int) -> WorkerStatus:
        """Where worker ``worker`` writes."""
        return WorkerStatus(self._shared.words[3 * worker : 3 * worker + 3])

    def find(self, process: int) -> tuple[int, int, int] | None:
        """Worker, shard and row of the process of this id; shard or row are -1 if it was at none."""
        for worker, (pid, shard_id, row) in enumerate(self._shared.words.reshape(-1, 3).tolist()):
            if pid == process:
                return worker, shard_id - 1, row - 1
        return None


class WorkerStatus:
    """One worker's three words: process, shard + 1, row + 1."""

    def __init__(self, words: Any) -> None:
        self._words = words
        words[:] = os.getpid(), 0, 0

    def report(self, shard_id: int, row: int = -1) -> None:
        """The worker is busy with this shard, a number that `shard_ids` made, or with this row of it."""
        self._words[1:] = shard_id + 1, row + 1  # in one step: threads of the worker write here too


_SOURCE = 40


def shard_ids(sources: Any, shards: Any) -> Any:
    """Numbers, or arrays of numbers, that tell the shards of all sources apart; ``None`` for the only source."""
    return shards if sources is None else sources << _SOURCE | shards


def source_and_shard(shard_id: int) -> tuple[int, int]:
    """What `shard_ids` made one number of."""
    return shard_id >> _SOURCE, shard_id & (1 << _SOURCE) - 1
