"""What is copied by the kernel is what lies there, and what has gone is an answer, not the end of the process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.storage.base import held
from shardstream.storage.base.held import HeldObject, can_copy
from shardstream.storage.base.memory import HeldObjects, MemoryBytes, ObjectParts, WholeObjects
from shardstream.storage.local.mapped_files import map_descriptor

SIZE = 300_000
DATA = [np.random.default_rng(number).integers(0, 256, SIZE, np.uint8) for number in range(4)]
HELD = (0, 2)  # the others are in memory

needs_call = pytest.mark.skipif(not can_copy(), reason="this system does not copy from a process's own memory")


def both() -> tuple[MemoryBytes, MemoryBytes]:
    whole = WholeObjects(4)
    for number, data in enumerate(DATA):
        whole.put(number, memoryview(data.tobytes()))
    addresses = np.zeros(4, np.int64)
    for number in HELD:
        addresses[number] = DATA[number].ctypes.data
    rest = [number for number in range(4) if number not in HELD]
    parts = ObjectParts(np.array(rest), [0] * len(rest), [memoryview(DATA[number]) for number in rest])
    return whole, HeldObjects(addresses, parts)


@st.composite
def ranges(draw: Callable[..., int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count, longest = draw(st.sampled_from([0, 1, 3, 40, 3000])), draw(st.sampled_from([0, 1, 500, SIZE]))
    begins = rng.integers(0, SIZE - longest + 1, count)
    lengths = rng.integers(0, (longest if count < 3000 else min(longest, 900)) + 1, count)
    chosen = HELD if draw(st.booleans()) else range(4)
    return rng.choice(np.array(chosen), count), begins, begins + lengths


@needs_call
@given(ranges())
def test_copies_are_what_lies_there(wanted: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    objects, begins, ends = wanted
    whole, some = both()
    views = some.views(objects, begins, ends)
    assert views == whole.views(objects, begins, ends)
    lengths = ends - begins
    out = np.zeros(int(lengths.sum()) + 8, np.uint8)
    starts = np.cumsum(lengths) - lengths
    assert sorted(row for rows in some.copy(objects, begins, ends, out, starts) for row in rows) == [
        *range(len(objects))
    ]
    assert out.tobytes() == b"".join(map(bytes, views or [])) + bytes(8)
    width = int(lengths.min()) if len(lengths) else 4
    gathered = some.gather(objects, begins, width)
    assert gathered is not None
    assert gathered.tobytes() == whole.gather(objects, begins, width).tobytes()


@needs_call
def test_what_was_cut_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA[0].tobytes())
    descriptor = os.open(path, os.O_RDWR)
    try:
        here = HeldObject(map_descriptor(descriptor, SIZE), 0, SIZE, lambda: True)
        objects = HeldObjects(np.array([here.address]), WholeObjects(1))
        begins = np.array([0, 100_000, 200_000])
        zeros = np.zeros(3, np.int64)
        assert objects.views(zeros, begins, begins + 100_000) == [
            memoryview(DATA[0].tobytes())[begin : begin + 100_000] for begin in begins.tolist()
        ]
        os.ftruncate(descriptor, 150_000)
        assert objects.views(zeros[:1], begins[:1], begins[:1] + 100_000) is not None
        assert objects.views(zeros, begins, begins + 100_000) is None
        assert objects.gather(zeros, begins, 10) is None
        out = np.zeros(300_000, np.uint8)
        copied = [row for rows in objects.copy(zeros, begins, begins + 100_000, out, begins) for row in rows]
        assert 2 not in copied
    finally:
        os.close(descriptor)


def test_where_it_is_not_allowed_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "_call", lambda: None)
    assert not can_copy()
    assert HeldObjects(np.array([DATA[0].ctypes.data]), WholeObjects(1)).gather(np.array([0]), np.array([0]), 4) is None
