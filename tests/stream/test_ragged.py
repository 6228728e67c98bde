"""Values of different lengths as one batch."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.stream.batching.batches import collate_rows, collate_values
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
    assert repr(rows) == "Ragged(3 rows, 5 x int32, cpu)"


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
