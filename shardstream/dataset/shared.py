"""Small facts in anonymous shared memory, which the copies of a data set in all its processes map.

A ``DataLoader`` tells the workers of an iterable data set nothing. What they have to know (where to begin), and what
has to be known of them (what they are reading), stands here. Nothing has a name on the host: the memory ends with the
last process that maps it, however that ends.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import torch

from shardstream.errors import UsageError

_RECORD_WORDS = 1024


class SharedWords:
    """``count`` 64-bit integers, zero at first. Single words are read and written atomically."""

    def __init__(self, count: int) -> None:
        self._tensor = torch.zeros(count, dtype=torch.int64)
        self._share()

    def copy(self) -> SharedWords:
        """The same numbers in memory of their own."""
        made = SharedWords(len(self.words))
        made.words[:] = self.words
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {"tensor": self._tensor}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._tensor = state["tensor"]
        self._share()

    def _share(self) -> None:
        if not self._tensor.is_shared():
            self._tensor.share_memory_()
        self.words = self._tensor.numpy()


class SharedBytes:
    """Bytes that never change, once for all processes. ``view`` is read-only."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._tensor = torch.empty(max(len(data), 1), dtype=torch.uint8).share_memory_()
        self._tensor.numpy()[: len(data)] = np.frombuffer(data, np.uint8)
        self._look(len(data))

    def _look(self, length: int) -> None:
        self.view = memoryview(self._tensor.numpy())[:length].toreadonly()

    def __getstate__(self) -> dict[str, Any]:
        return {"tensor": self._tensor, "length": len(self.view)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._tensor = state["tensor"]
        self._look(state["length"])


class SharedRecord:
    """One JSON value that a process leaves for others; ``None`` at first.

    One process writes at a time, others may read meanwhile: there are two places, written in turn, and a number that
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
        place = self._place(version)
        place[0] = len(data)
        place[1:].view(np.uint8)[: len(data)] = memoryview(data)
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
            place = self._place(version).copy()
            if int(self._shared.words[0]) - version < 2:  # else the place was written again meanwhile
                return json.loads(place[1:].view(np.uint8)[: int(place[0])].tobytes())
        return None

    def _place(self, version: int) -> Any:
        begin = 1 + version % 2 * _RECORD_WORDS
        return self._shared.words[begin : begin + _RECORD_WORDS]


class WorkerStatuses:
    """Which sample each worker is at, so that the parent can say so when a worker dies.

    Args:
        workers: Number of workers.
    """

    def __init__(self, workers: int) -> None:
        self._places = SharedWords(3 * workers)

    def place(self, worker: int) -> WorkerStatus:
        """Where worker ``worker`` writes."""
        return WorkerStatus(self._places.words[3 * worker : 3 * worker + 3])

    def find(self, process: int) -> tuple[int, int, int] | None:
        """Worker, place and row of the process of this id; place or row are -1 if it was at none."""
        for worker, (pid, place, row) in enumerate(self._places.words.reshape(-1, 3).tolist()):
            if pid == process:
                return worker, place - 1, row - 1
        return None


class WorkerStatus:
    """One worker's three words: process, place + 1, row + 1."""

    def __init__(self, words: Any) -> None:
        self._words = words
        words[:] = os.getpid(), 0, 0

    def at(self, place: int, row: int = -1) -> None:
        """The worker is busy with this shard, a number that `place_of` made, or with this row of it."""
        self._words[1:] = place + 1, row + 1  # in one step: threads of the worker write here too


_SOURCE = 40


def place_of(sources: Any, shards: Any) -> Any:
    """Numbers, or arrays of numbers, that tell the shards of all sources apart; ``None`` for the only source."""
    return shards if sources is None else sources << _SOURCE | shards


def source_and_shard(place: int) -> tuple[int, int]:
    """What `place_of` made one number of."""
    return place >> _SOURCE, place & (1 << _SOURCE) - 1
