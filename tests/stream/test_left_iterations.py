"""An iteration that was left ends when Python collects it, perhaps after the next one began."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.dataset.rows import RowReader
from shardstream.testing import make_dataset


def test_what_the_next_iteration_has_read_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dataset(str(tmp_path / "data"), samples=64, fields={"cls": "int64"})
    dataset = ss.ShardDataset(tmp_path / "data", batch_size=4, shuffle=True, seed=3)
    expected = [batch["cls"].tolist() for batch in dataset]
    reads = []

    def count_calls(name: str) -> None:
        read = getattr(RowReader, name)

        def counted(reader: RowReader, *arguments: Any, **options: Any) -> Any:
            reads.append(name)
            return read(reader, *arguments, **options)

        monkeypatch.setattr(RowReader, name, counted)

    count_calls("read")
    count_calls("gather")
    dataset.set_epoch(0)
    left = iter(dataset)
    next(left)
    dataset.set_epoch(0)
    new = iter(dataset)
    batches = [next(new)["cls"].tolist() for _ in range(2)]  # the second reads several small steps at once
    before = len(reads)
    del left
    gc.collect()
    batches.append(next(new)["cls"].tolist())
    assert batches == expected[:3]
    assert len(reads) == before
