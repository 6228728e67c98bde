"""Small facts in anonymous shared memory, which the copies of a data set in all its processes map.

A ``DataLoader`` tells the workers of an iterable data set nothing. What they have to know (where to begin), and what
has to be known of them (what they are reading), stands here. Nothing has a name on the host: the memory ends with the
last process that maps it, however that ends.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Sequence
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UsageError
from shardstream.memory_files import map_shared, memory_file
from shardstream.storage.base.awaited import AwaitedRequest

_RECORD_WORDS = 1024


class SharedMemory:
    """Bytes, zero at first, that all processes share which a copy of this is handed to as they start.

    Outside of the start of a process a pickle, and so a copy, holds the bytes themselves: it has memory of its own.

    Args:
        size: Number of bytes, at least 1.
    """

    def __init__(self, size: int) -> None:
        self._file = memory_file("shardstream", size)
        self._map(size)

    def _map(self, size: int) -> None:
        self.bytes = np.frombuffer(map_shared(self._file, size), np.uint8)

    def __del__(self, close: Any = os.close) -> None:  # at the end of the process, globals and builtins may be gone
        file = self.__dict__.pop("_file", None)
        if file is not None:  # else it was never made
            close(file)

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return _copied, (self.bytes.tobytes(),)
        return _handed_over, (DupFd(self._file), len(self.bytes))


def _copied(data: bytes) -> SharedMemory:
    made = SharedMemory(len(data))
    made.bytes[:] = np.frombuffer(data, np.uint8)
    return made


def _handed_over(file: Any, size: int) -> SharedMemory:
    made = object.__new__(SharedMemory)
    made._file = file.detach()
    made._map(size)
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


WorkerStage: TypeAlias = Literal["idle", "read", "decode", "transform", "assemble"]
_STAGES = get_args(WorkerStage)
_NUMBER_OF: dict[WorkerStage, int] = {stage: number for number, stage in enumerate(_STAGES)}
_READ, DECODING, _TRANSFORM = _NUMBER_OF["read"], _NUMBER_OF["decode"], _NUMBER_OF["transform"]

# Words before those of workers: what this is, in which layout; workers; samples of a step that are told apart; the
# process of the loader; its rank, of how many; since when a trace is recorded, by
# ``time.perf_counter_ns``, 0 for none; bytes of the JSON text that
# follows.
_MAGIC = int.from_bytes(b"shrdstrm", "little")
_VERSION = 1
_IS, _LAYOUT, _WORKERS, _SAMPLES, _LOADER, _RANK, _WORLD, TRACED_SINCE, _ABOUT, _HEAD = range(10)
HEAD_BYTES = 8 * _HEAD
_MOST_ABOUT = 1 << 16  # bytes

# Words of a worker: its process; stage; slot of the sample in the step; shard + 1, where it is one; since when; samples
# listed; bytes of their keys; its oldest request: since when, attempts, bytes of the URL; number of requests. There
# follow the text of the URL, and of the samples of the step: shards, rows, keys.
_PROCESS, STAGE, SLOT, _SHARD, _SINCE, _LISTED, _KEYS, _ASKED, _ATTEMPTS, _URL, _REQUESTS, _NUMBERS = range(12)
_NO_SLOT = -1
_URL_WORDS = 38
_KEY_WORDS = 8  # a sample; where keys are longer, the last ones of a step are not told
_MOST_SAMPLES = 1 << 14


class WorkerState(NamedTuple):
    """What a worker is at.

    Attributes:
        worker: Its number.
        process: Its process.
        shard_id: The shard, a number that `shard_ids` made; -1 for none.
        row: The row of it; -1 for none.
        key: The key of that sample; empty where there is none.
        stage: What it does there.
        seconds: For how long; of a decoder, with the samples of its step before it: a look at the clock costs more than
            all else.
        url: The object of the oldest request that it waits for; empty for none.
        attempts: How often that was made.
        request_seconds: For how long it has been waited for.
        requests: How many requests it waits for.
    """

    worker: int
    process: int
    shard_id: int
    row: int
    key: str
    stage: WorkerStage
    seconds: float
    url: str
    attempts: int
    request_seconds: float
    requests: int


class WorkerStatuses:
    """What each worker is at, so that the parent can say so when a worker dies, or lets it wait.

    Args:
        workers: Number of workers.
        samples: Of a step, so many can be told apart.
        about: What is read, JSON-able, for other processes; left out where its text is longer than 64 KB.
    """

    def __init__(self, workers: int, samples: int, about: Any = None) -> None:
        text = json.dumps(about).encode()
        if len(text) > _MOST_ABOUT:
            text = b"null"
        samples = min(samples, _MOST_SAMPLES)
        self._shared = SharedWords(_HEAD + -(-len(text) // 8) + _size(samples) * workers)
        words = self._shared.words
        words[_LAYOUT:_HEAD] = _VERSION, workers, samples, os.getpid(), 0, 1, 0, len(text)
        words[_HEAD:].view(np.uint8)[: len(text)] = memoryview(text)
        words[_IS] = _MAGIC

    def of(self, worker: int) -> WorkerStatus:
        """Where worker ``worker`` writes."""
        words = self._shared.words
        return WorkerStatus(_of_workers(words)[worker], words[:_HEAD])

    def begin(self, rank: int, world_size: int) -> None:
        """Workers are told to begin, as this rank of so many."""
        words = self._shared.words
        words[_LOADER], words[_RANK], words[_WORLD] = os.getpid(), rank, world_size

    def trace(self, since: int) -> None:
        """Have workers record what takes how long, since then by ``time.perf_counter_ns``; 0: no more."""
        self._shared.words[TRACED_SINCE] = since

    def find(self, process: int) -> tuple[int, int, int] | None:
        """Worker, shard and row of the process of this id; shard or row are -1 if it was at none."""
        for state in self.states():
            if state.process == process:
                return state.worker, state.shard_id, state.row
        return None

    def states(self) -> list[WorkerState]:
        """What all workers that have begun are at. Nobody is asked: it may be read while they hang."""
        return _states(self._shared.words)


class RunStatus(NamedTuple):
    """What a loader of any process of this machine shares with its workers.

    Attributes:
        process: The training process.
        rank: Its rank.
        world_size: Of how many.
        workers: Number of workers; those that have not begun are not in ``states``.
        about: As given to `WorkerStatuses`, if that wrote it.
        states: What each worker is at.
    """

    process: int
    rank: int
    world_size: int
    workers: int
    about: Any
    states: list[WorkerState]

    @staticmethod
    def length(head: bytes) -> int | None:
        """How many bytes memory has that begins with these; ``None``: it is none of `WorkerStatuses`.

        Args:
            head: The first `HEAD_BYTES` bytes, which any process may have written.

        Raises:
            UsageError: Another version of shardstream wrote it.
            ValueError: No version writes such numbers.
        """
        words: list[int] = np.frombuffer(head, np.int64, len(head) // 8).tolist()
        if len(words) < _HEAD or words[_IS] != _MAGIC:
            return None
        if words[_LAYOUT] != _VERSION:
            what = f"the run writes its state in layout {words[_LAYOUT]}, known here is {_VERSION}"
            raise UsageError(what, hint="look with the version of shardstream that the run uses")
        workers, samples, about = words[_WORKERS], words[_SAMPLES], words[_ABOUT]
        if workers < 1 or not 1 <= samples <= _MOST_SAMPLES or not 0 <= about <= _MOST_ABOUT:
            raise ValueError(f"{workers} workers, {samples} samples of a step, {about} bytes of text")
        return 8 * (_HEAD + -(-about // 8) + _size(samples) * workers)

    @classmethod
    def of(cls, data: bytes) -> RunStatus:
        """What memory holds that has its `length`.

        Raises:
            ValueError, RecursionError: No version writes this.
        """
        words = np.frombuffer(data, np.int64)
        numbers = words[:_HEAD].tolist()
        about = json.loads(words[_HEAD:].tobytes()[: numbers[_ABOUT]])
        return cls(numbers[_LOADER], numbers[_RANK], numbers[_WORLD], numbers[_WORKERS], about, _states(words))


def _size(samples: int) -> int:
    """Words of a worker."""
    return _NUMBERS + _URL_WORDS + (2 + _KEY_WORDS) * samples


def _of_workers(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """The words of each worker, behind the others."""
    size = _size(int(words[_SAMPLES]))
    begin = _HEAD + -(-int(words[_ABOUT]) // 8)
    return words[begin : begin + size * int(words[_WORKERS])].reshape(-1, size)


def _states(words: NDArray[np.int64]) -> list[WorkerState]:
    now = time.monotonic_ns()
    workers = enumerate(_of_workers(words))
    return [_state(worker, one, now) for worker, one in workers if one[_PROCESS]]


def _state(worker: int, shared: NDArray[np.int64], now: int) -> WorkerState:
    words = shared.copy()
    numbers = words[:_NUMBERS].tolist()
    samples = (len(words) - _NUMBERS - _URL_WORDS) // (2 + _KEY_WORDS)
    url, shards, rows, keys = np.split(words[_NUMBERS:], np.cumsum([_URL_WORDS, samples, samples]))
    slot = numbers[SLOT]
    shard, row, key = numbers[_SHARD] - 1, -1, ""
    if 0 <= slot < min(numbers[_LISTED], samples):
        names = keys.tobytes()[: numbers[_KEYS]].split(b"\0")
        shard, row, key = (
            int(shards[slot]),
            int(rows[slot]),
            names[slot].decode(errors="replace") if slot < len(names) else "",
        )
    elif slot < 0 and shard < 0 and numbers[_LISTED] and (shards[: numbers[_LISTED]] == shards[0]).all():
        shard = int(shards[0])  # of several, none can be named
    return WorkerState(
        worker,
        numbers[_PROCESS],
        shard,
        row,
        key,
        _stage(numbers[STAGE]),
        (now - numbers[_SINCE]) / 1e9 if numbers[_SINCE] else 0.0,
        url.tobytes()[: numbers[_URL]].decode(errors="replace"),
        numbers[_ATTEMPTS],
        (now - numbers[_ASKED]) / 1e9 if numbers[_ASKED] else 0.0,
        numbers[_REQUESTS],
    )


def _stage(number: int) -> WorkerStage:
    if not 0 <= number < len(_STAGES):
        raise ValueError(f"stage {number}")
    stage: WorkerStage = _STAGES[number]
    return stage


class WorkerStatus:
    """What one worker writes of itself, in a word a sample, or four where it is transformed: few ever read it.

    Args:
        words: Where.
        head: What all workers share.

    Attributes:
        words: The same, as integers.
        head: As given; ``head[TRACED_SINCE]`` says whether a trace is recorded.
    """

    def __init__(self, words: Any, head: Any) -> None:
        self.head = head.data
        self._samples = (len(words) - _NUMBERS - _URL_WORDS) // (2 + _KEY_WORDS)
        self._url, self._shards, rows, keys = np.split(
            words[_NUMBERS:], np.cumsum([_URL_WORDS, self._samples, self._samples])
        )
        self._rows, self._keys = rows.data.cast("B").cast("q"), keys.view(np.uint8).data
        self.words = words.data
        words[:_NUMBERS] = 0
        words[SLOT] = _NO_SLOT
        self.words[_PROCESS] = os.getpid()

    def lists(self, shard_ids: NDArray[np.int64], rows: list[int] | None = None, keys: Sequence[str] = ()) -> None:
        """A step begins: samples of these shards, numbers that `shard_ids` made, are read, or, with rows, decoded.

        Which one is decoded is for who does it to say, in ``words[SLOT]``; and after a transform, in ``words[STAGE]``,
        that it is `DECODING` again.
        """
        words, count = self.words, len(shard_ids)
        words[STAGE], words[SLOT], words[_SHARD] = _READ if rows is None else DECODING, _NO_SLOT, 0
        if count > self._samples:
            count = self._samples
            shard_ids = shard_ids[:count]
        self._shards[:count] = shard_ids
        if rows is not None:
            self._rows[:count] = array("q", rows[:count])
            text = "\0".join(keys[:count]).encode(errors="replace")[: len(self._keys)]
            self._keys[: len(text)] = text
            words[_KEYS] = len(text)
            words[_SINCE] = time.monotonic_ns()
        words[_LISTED] = count

    def waits(self, shard_id: int) -> None:
        """Bytes of this shard are waited for."""
        self.words[_SHARD] = shard_id + 1
        self.words[STAGE], self.words[SLOT] = _READ, _NO_SLOT
        self.words[_SINCE] = time.monotonic_ns()

    def transforms(self) -> None:
        """The same sample is transformed."""
        self.words[STAGE] = _TRANSFORM
        self.words[_SINCE] = time.monotonic_ns()

    def at(self, stage: WorkerStage) -> None:
        """Another stage of the same begins."""
        self.words[STAGE] = _NUMBER_OF[stage]
        self.words[_SINCE] = time.monotonic_ns()

    def awaits(self, request: AwaitedRequest | None, count: int) -> None:
        """The worker waits for so many requests; this one is the oldest."""
        words = self.words
        words[_REQUESTS] = count
        if request is None:
            words[_URL] = words[_ASKED] = 0
            return
        url = request.url.encode(errors="replace")[: 8 * _URL_WORDS]
        self._url.view(np.uint8)[: len(url)] = memoryview(url)
        words[_ASKED], words[_ATTEMPTS], words[_URL] = request.since, request.attempts, len(url)


_SOURCE = 40


def shard_ids(sources: Any, shards: Any) -> Any:
    """Numbers, or arrays of numbers, that tell the shards of all sources apart; ``None`` for the only source."""
    return shards if sources is None else sources << _SOURCE | shards


def source_and_shard(shard_id: int) -> tuple[int, int]:
    """What `shard_ids` made one number of."""
    return shard_id >> _SOURCE, shard_id & (1 << _SOURCE) - 1
