"""Ranges that were read, whatever way they came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import StorageError
from shardstream.storage import FetchedBuffers, MappedBuffers, Request
from shardstream.storage.local.store import LocalStore

DATA = bytes(range(200))
RANGES = st.tuples(st.integers(0, 200), st.integers(0, 60)).map(lambda r: (r[0], min(r[1], 200 - r[0])))


def fetched(ranges: list[tuple[int, int | None]]) -> FetchedBuffers:
    parts = []
    for offset, length in ranges:
        end = None if length is None else offset + length
        parts.append((Request("x", offset, length), memoryview(DATA)[offset:end]))
    return FetchedBuffers(parts)


@given(planned=st.lists(RANGES, max_size=12), wanted=RANGES)
def test_a_range_is_served_exactly_if_the_requests_together_hold_it(planned, wanted) -> None:
    buffers, (offset, length) = fetched(planned), wanted
    held = {byte for o, n in planned for byte in range(o, o + n)} >= set(range(offset, offset + length))
    if held:
        assert bytes(buffers.view("x", offset, length)) == DATA[offset : offset + length]
    else:
        with pytest.raises(StorageError, match="not been planned") as caught:
            buffers.view("x", offset, length)
        assert caught.value.place["offset"] == offset


def test_the_rest_of_an_object_needs_a_request_for_the_rest() -> None:
    buffers = fetched([(0, 200), (50, 10)])
    with pytest.raises(StorageError, match="the rest"):
        buffers.view("x", 50, None)
    for ranges in ([(50, None)], [(20, None), (60, None)], [(50, 150), (60, None)]):
        assert bytes(fetched(ranges).view("x", 60, None)) == DATA[60:]
    assert bytes(FetchedBuffers([(Request("e", 0, None), memoryview(b""))]).view("e", 0, None)) == b""


def test_the_rest_comes_in_pieces_too() -> None:
    buffers = fetched([(50, 30), (80, 40), (120, None)])
    assert bytes(buffers.view("x", 60, None)) == DATA[60:]
    assert bytes(buffers.view("x", 130, None)) == DATA[130:]
    with pytest.raises(StorageError, match="the rest"):
        fetched([(50, 30), (90, None)]).view("x", 60, None)


def test_other_objects_were_not_fetched() -> None:
    with pytest.raises(StorageError) as caught:
        fetched([(0, 200)]).view("y", 0, 1)
    assert caught.value.place["url"] == "y"


@given(offsets=st.lists(st.integers(0, 190), max_size=20), width=st.integers(0, 10))
def test_gather_copies_elements_from_anywhere(offsets, width, tmp_path_factory) -> None:
    root = tmp_path_factory.getbasetemp()
    (root / "x").write_bytes(DATA)
    at = np.array(offsets, np.int64)
    expected = np.array([list(DATA[o : o + width]) for o in offsets], np.uint8).reshape(len(offsets), width)
    for buffers in (MappedBuffers(LocalStore(root)), fetched([(0, 200)])):
        found = buffers.gather("x", at, width)
        assert found.shape == (len(offsets), width)
        assert found.flags.writeable
        np.testing.assert_array_equal(found, expected)
        lengths = np.full(len(offsets), width, np.int64)
        assert [bytes(one) for one in buffers.views("x", at, lengths)] == [bytes(row) for row in expected]


def test_ranges_past_the_end_of_a_mapped_object_name_the_offset(tmp_path) -> None:
    (tmp_path / "x").write_bytes(DATA)
    buffers = MappedBuffers(LocalStore(tmp_path))
    with pytest.raises(StorageError) as caught:
        buffers.views("x", np.array([0, 199]), np.array([10, 2]))
    assert caught.value.place["offset"] == 199
    with pytest.raises(StorageError):
        buffers.gather("x", np.array([0, 199]), 2)
