"""Values of different lengths as one batch."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.errors import UsageError
from shardstream.stream.batching.collate import collate_rows, collate_values
from shardstream.stream.tensors.numbers import Numbers

from ..load.lending import is_lent
from .making import numbered, write_dataset


def test_rows_are_views_of_one_slab() -> None:
    rows = collate_rows("x", [np.arange(n, dtype=np.int32) for n in (3, 0, 2)], numbers=Numbers({}))
    assert isinstance(rows, ss.Ragged)
    assert [row.tolist() for row in rows] == [[0, 1, 2], [], [0, 1]]
    assert rows.lengths.tolist() == [3, 0, 2]
    assert len(rows) == 3
    assert rows[-1].tolist() == [0, 1]
    rows[0][0] = 9
    assert int(rows.values[0]) == 9
    with pytest.raises(IndexError):
        rows[3]
    copied = pickle.loads(pickle.dumps(rows))
    assert copied[0].tolist() == [9, 1, 2]
    assert rows.to(torch.float64)[0].dtype == torch.float64
    assert rows.to(torch.float64).offsets.dtype == torch.int64
    assert repr(rows) == "Ragged(3 rows of 0 to 3, 5 x int32, cpu)"


def test_rows_keep_their_shapes() -> None:
    rows = collate_rows("x", [np.full((n, 2), n, np.float32) for n in (2, 0, 1)], numbers=Numbers({}))
    assert [tuple(row.shape) for row in rows] == [(2, 2), (0, 2), (1, 2)]


def test_tensors_are_rows_where_they_differ() -> None:
    same = collate_rows("x", [torch.ones(2), torch.zeros(2)], numbers=Numbers({}))
    assert same.tolist() == [[1, 1], [0, 0]]
    rows = collate_rows("x", [torch.ones(n, dtype=torch.bfloat16) for n in (1, 3)], numbers=Numbers({}))
    assert [len(row) for row in rows] == [1, 3]


def test_rows_of_different_kinds_are_refused() -> None:
    with pytest.raises(ss.errors.BatchError, match="float32"):
        collate_rows("x", [np.ones(2, np.float32), np.ones(2, np.float64)], numbers=Numbers({}))
    with pytest.raises(ss.errors.BatchError, match="dimensions"):
        collate_rows("x", [torch.ones(2), torch.ones(2, 2)], numbers=Numbers({}))


def test_bytes_come_back_as_they_were() -> None:
    rows = collate_values("x", [b"abc", b"", bytearray(b"de"), memoryview(b"f")], numbers=Numbers({}))
    assert [rows.tobytes(i) for i in range(4)] == [b"abc", b"", b"de", b"f"]


def flat(*lengths: int) -> ss.Ragged:
    return ss.Ragged.of([torch.arange(n) + 10 * n for n in lengths])


def test_rows_of_anything_that_has_a_dtype() -> None:
    big = np.arange(4, dtype=">i4")
    for some in (
        [big[:3], big[::-2], big[:0]],
        [torch.tensor([0, 1, 2], dtype=torch.int32), np.array([3, 1], np.int32), torch.zeros(0, dtype=torch.int32)],
    ):
        rows = ss.Ragged.of(some)
        assert rows.values.dtype == torch.int32
        assert [row.tolist() for row in rows] == [[0, 1, 2], [3, 1], []]
    same = ss.Ragged.of(torch.arange(6).reshape(2, 3))
    assert [row.tolist() for row in same] == [[0, 1, 2], [3, 4, 5]]
    assert ss.Ragged.of(same) is same
    for wrong, message in (
        ([], "got none"),
        ([[1, 2]], "got list"),
        ([torch.zeros(1), torch.zeros(1, 1)], "float32 with 1 dimensions, float32 with 2 dimensions"),
        ([torch.zeros(1), torch.zeros(1).double()], "float32 .*, float64"),
    ):
        with pytest.raises(UsageError, match=message):
            ss.Ragged.of(wrong)


def test_slices_are_rows_on_the_same_memory() -> None:
    rows = flat(3, 0, 2, 1)
    part = rows[1:3]
    assert isinstance(part, ss.Ragged)
    assert [row.tolist() for row in part] == [[], [20, 21]]
    assert part.offsets.tolist() == [0, 0, 2]
    part[1][0] = 7
    assert rows[2].tolist() == [7, 21]
    assert [row.tolist() for row in rows[::-2]] == [[10], []]
    assert [len(rows[cut]) for cut in (slice(2, 2), slice(3, 1), slice(9, None), slice(None))] == [0, 0, 0, 4]
    assert [len(row) for row in rows[2:][:1]] == [2]
    shaped = ss.Ragged.of([torch.full((n, 2), n) for n in (1, 3, 0, 2)])
    assert [tuple(row.shape) for row in shaped[1:]] == [(3, 2), (0, 2), (2, 2)]
    assert [row.tolist() for row in shaped[::3]] == [[[1, 1]], [[2, 2], [2, 2]]]


def test_numbers_and_masks_choose_rows() -> None:
    rows = ss.Ragged.of([torch.arange(length) for length in (2, 0, 3, 1)])
    for chosen in ([2, 0], [3, 3, -1], [], [1]):
        found = rows[torch.tensor(chosen, dtype=torch.int64)]
        assert [row.tolist() for row in found] == [rows[i].tolist() for i in chosen]
    assert [row.tolist() for row in rows[rows.lengths > 1]] == [[0, 1], [0, 1, 2]]
    with pytest.raises(IndexError):
        rows[torch.tensor([4])]
    shaped = ss.Ragged.of([torch.ones(2, 2), torch.zeros(1, 2)])
    assert shaped[torch.tensor([1])].padded().tolist() == [[[0, 0]]]


def test_padded_rows_are_one_tensor() -> None:
    rows = flat(3, 0, 2)
    assert rows.padded().tolist() == [[30, 31, 32], [0, 0, 0], [20, 21, 0]]
    assert rows.padded(-100, to=4).tolist() == [[30, 31, 32, -100], [-100] * 4, [20, 21, -100, -100]]
    assert rows.padded(to=1).tolist() == [[30], [0], [20]]
    assert rows.to(torch.float32).padded(0.5).tolist()[1] == [0.5] * 3
    assert rows[:0].padded().shape == (0, 0)
    assert rows[:0].padded(to=5).shape == (0, 5)
    assert rows.padded().data_ptr() != rows.values.data_ptr()
    spectra = ss.Ragged.of([torch.full((4, n), n) for n in (2, 1)])
    assert spectra.padded().tolist() == [[[2, 2]] * 4, [[1, 0]] * 4]
    assert spectra.padded(to=(None, 3)).shape == (2, 4, 3)
    assert spectra.padded(to=1).tolist() == [[[2, 2]], [[1, 0]]]
    weights = torch.ones(3, requires_grad=True)
    ss.Ragged(weights, torch.tensor([0, 1, 3])).padded().sum().backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("value", "to", "message"),
    [
        (-100, None, "uint8 cannot hold -100"),
        (0.5, None, "uint8 cannot hold 0.5"),
        (float("nan"), None, "uint8 cannot hold nan"),
        (0, -1, "to=-1 is not a length"),
        (0, (2, 2), "not a length of rows of 1 dimensions"),
    ],
)
def test_padding_that_cannot_be(value: float, to: Any, message: str) -> None:
    rows = ss.Ragged.of([np.arange(n, dtype=np.uint8) for n in (1, 2)])
    with pytest.raises(UsageError, match=message) as caught:
        rows.padded(value, to=to)
    assert caught.value.hint


@pytest.mark.full
def test_nested_tensors_lie_on_the_same_memory() -> None:
    rows = flat(3, 0, 2)
    nested = rows.nested()
    assert nested.layout is torch.jagged
    assert [row.tolist() for row in nested.unbind()] == [row.tolist() for row in rows]
    assert nested.values().data_ptr() == rows.values.data_ptr()
    assert torch.equal(torch.nested.to_padded_tensor(nested, -1), rows.padded(-1))
    boxes = ss.Ragged.of([torch.rand(n, 4) for n in (2, 0, 1)])
    assert [tuple(row.shape) for row in boxes.nested().unbind()] == [(2, 4), (0, 4), (1, 4)]
    assert all(torch.equal(one, other) for one, other in zip(boxes.nested().unbind(), boxes, strict=True))
    assert [len(row) for row in rows[1:].nested().unbind()] == [0, 2]
    with pytest.raises(UsageError, match=r"first dimension only, got Ragged\(2 rows of \(4, 1 to 2\), 12 x float32"):
        ss.Ragged.of([torch.zeros(4, n) for n in (2, 1)]).nested()


def test_what_rows_say_of_themselves() -> None:
    assert repr(flat(2)) == "Ragged(1 row of 2, 2 x int64, cpu)"
    assert repr(flat(2, 2)[:0]) == "Ragged(0 rows, 0 x int64, cpu)"
    assert repr(ss.Ragged.of([torch.zeros(n, 4) for n in (1, 3)])) == (
        "Ragged(2 rows of (1 to 3, 4), 16 x float32, cpu)"
    )


def test_rows_arrive_from_workers_in_shared_memory(tmp_path: Path) -> None:
    write_dataset(tmp_path, numbered([9], wide=lambda n: np.full(1000 * n, n, np.int64)))
    (batch,) = ss.Loader(ss.ShardDataset(tmp_path), batch_size=9, num_workers=1)
    assert [row.tolist() for row in batch["wide"]] == [[n] * 1000 * n for n in range(9)]
    assert is_lent(batch["wide"].values)


@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_that_some_samples_lack_travel(tmp_path: Path, workers: int) -> None:
    with ss.ShardWriter(tmp_path / "set") as writer:
        for i in range(8):
            writer.write({"__key__": f"{i}", "raw": b"12" if i % 3 else None})
    loader = ss.Loader(ss.ShardDataset(tmp_path / "set", batch_size=4), num_workers=workers)
    assert [value for batch in loader for value in batch["raw"]] == [b"12" if i % 3 else None for i in range(8)]
    assert type(next(iter(loader))["raw"][1]) is bytes


@given(st.lists(st.integers(0, 12), max_size=9), st.integers(1, 5))
def test_groups_are_filled_up_least(lengths: list[int], groups: int) -> None:
    rows = (
        ss.Ragged.of([torch.arange(one) + 1 for one in lengths])
        if lengths
        else ss.Ragged(torch.empty(0), torch.zeros(1, dtype=torch.int64))
    )
    found = rows.padded_groups(groups, -1)
    assert sorted(one for which, _ in found for one in which.tolist()) == list(range(len(lengths)))
    assert len(found) <= groups
    for which, tensor in found:
        assert tensor.shape == (len(which), max(lengths[one] for one in which.tolist()))
        for one, row in zip(which.tolist(), tensor, strict=True):
            assert row.tolist() == [*range(1, lengths[one] + 1), *[-1] * (len(row) - lengths[one])]
    taken = sum(tensor.numel() for _, tensor in found)
    rising, least = sorted(lengths), 10**9
    for cuts in itertools.combinations(range(1, len(lengths)), min(groups, max(len(lengths), 1)) - 1):
        bounds = [0, *cuts, len(lengths)]
        least = min(least, sum(max(rising[a:b], default=0) * (b - a) for a, b in itertools.pairwise(bounds)))
    assert taken == (least if lengths else 0)


def test_groups_of_rows_of_two_dimensions() -> None:
    rows = ss.Ragged.of([torch.ones(length, width) for length, width in ((2, 3), (9, 3), (3, 3))])
    (short, first), (long, second) = rows.padded_groups(2)
    assert (short.tolist(), list(first.shape), long.tolist(), list(second.shape)) == ([0, 2], [2, 3, 3], [1], [1, 9, 3])
    with pytest.raises(UsageError, match="groups must be a positive integer, got 0"):
        rows.padded_groups(0)
