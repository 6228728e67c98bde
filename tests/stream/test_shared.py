"""Small facts in shared memory: between processes, and while somebody writes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from shardstream.dataset.shared import (
    DECODING,
    SLOT,
    STAGE,
    SharedMemory,
    SharedRecord,
    WorkerStatuses,
    shard_ids,
    source_and_shard,
)
from shardstream.errors import UsageError


def answer(record: SharedRecord, desk: WorkerStatuses) -> None:
    value = record.read()
    status = desk.of(1)
    status.lists(np.array([value["shard"]] * 2), [2, 3], ["a", "b"])
    status.words[SLOT] = 1
    record.write([value, os.getpid()])


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_other_processes_see_the_same(method: str) -> None:
    record, desk = SharedRecord(), WorkerStatuses(2, 8)
    assert record.read() is None
    record.write({"shard": 7})
    process = multiprocessing.get_context(method).Process(target=answer, args=(record, desk))
    process.start()
    process.join()
    assert record.read() == [{"shard": 7}, process.pid]
    assert process.pid is not None
    assert desk.find(process.pid) == (1, 7, 3)
    assert desk.find(1) is None


@pytest.mark.full
def test_whoever_reads_while_it_is_written_gets_a_whole_value() -> None:
    record = SharedRecord()
    values: list[Any] = [["a"] * 3, ["b"] * 900]
    record.write(values[0])
    done = threading.Event()

    def write() -> None:
        for turn in range(20_000):
            record.write(values[turn % 2])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert record.read() in values
    writer.join()


def test_what_is_far_too_large_is_refused() -> None:
    with pytest.raises(UsageError, match="too large"):
        SharedRecord().write("x" * 10_000)


def test_a_pickle_holds_the_value() -> None:
    record = SharedRecord()
    record.write([1, "two"])
    assert pickle.loads(pickle.dumps(record)).read() == [1, "two"]


@pytest.mark.parametrize(("source", "shard"), [(0, 0), (3, 999_999), (1000, (1 << 40) - 1)])
def test_places_tell_sources_and_shards_apart(source: int, shard: int) -> None:
    assert source_and_shard(shard_ids(source, shard)) == (source, shard)


def test_a_worker_is_told_by_the_sample_it_is_at() -> None:
    desk = WorkerStatuses(1, 4)
    status = desk.of(0)

    def now() -> tuple[int, int, str, str]:
        (state,) = desk.states()
        return state.shard_id, state.row, state.key, state.stage

    assert now() == (-1, -1, "", "idle")
    status.lists(np.array([3, 3]))
    assert now() == (3, -1, "", "read")
    status.lists(np.array([3, 4]))
    assert now() == (-1, -1, "", "read")  # of several, none can be named
    status.waits(4)
    assert now() == (4, -1, "", "read")
    keys = ["k" * 300, "ö", "c", "d", "e"]  # a step with more samples, and longer keys, than there is room for
    status.lists(np.arange(5), [10, 11, 12, 13, 14], keys)
    status.words[SLOT] = 0
    assert now() == (0, 10, "k" * 256, "decode")
    status.transforms()
    assert now() == (0, 10, "k" * 256, "transform")
    status.words[STAGE], status.words[SLOT] = DECODING, 3
    assert now() == (3, 13, "", "decode")
    status.words[SLOT] = 4
    assert now()[1:] == (-1, "", "decode")
    status.lists(np.arange(2), [5, 6], ["a", "b"])
    status.words[SLOT] = 1
    status.at("assemble")
    assert now() == (1, 6, "b", "assemble")


def test_memory_is_closed_also_when_the_interpreter_is_torn_down() -> None:
    """Globals and builtins are gone then; an error would be printed behind the one that ended the program."""
    memory = SharedMemory(8)
    file = memory._file
    known = SharedMemory.__del__
    FunctionType(known.__code__, {"__builtins__": {}}, "torn down", known.__defaults__)(memory)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
