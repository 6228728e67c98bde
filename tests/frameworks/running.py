"""The scripts of the frameworks on one and two ranks, and what is true of whatever they saw."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..distributed.launching import Run
from ..stream.making import numbered, write_dataset

COUNT = 227

Epoch = list[list[int]]
"""The ids of each batch of one rank."""


def missing(*packages: str) -> pytest.MarkDecorator:
    """Skips where one of them is not installed."""
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    reason = f"{' and '.join(absent)} not installed: tools/frameworks runs these tests"
    return pytest.mark.skipif(bool(absent), reason=reason)


def ran(script: str, folder: Path, ranks: int) -> list[dict[str, Any]]:
    """What each rank of a script reported."""
    data = write_dataset(folder / "data", numbered([100, 1, 0, 90, COUNT - 191]))
    out = folder / "out"
    with Run(out, Path(__file__).with_name(script), [str(data), str(out)], ranks=ranks, patience=600) as run:
        run.wait()
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(ranks)]


def each_once(epochs: Sequence[Epoch], count: int) -> None:
    """Of one epoch, what the ranks saw: ``count`` samples, none of them twice, as many on each rank."""
    seen = [[number for batch in epoch for number in batch] for epoch in epochs]
    assert [len(ids) for ids in seen] == [count // len(epochs)] * len(epochs)
    everything = [number for ids in seen for number in ids]
    assert len(set(everything)) == count
    assert set(everything) <= set(range(COUNT))


def all_differ(epochs: Sequence[Epoch]) -> None:
    """No two epochs are alike."""
    assert len({json.dumps(epoch) for epoch in epochs}) == len(epochs)


def in_batches(batch_size: int, ranks: int) -> int:
    """Samples of an epoch in whole batches on every rank."""
    return COUNT - COUNT % (batch_size * ranks)


def few(numbers: Sequence[int]) -> list[int]:
    """Those that the transform of the same name keeps."""
    return [number for number in numbers if number % 3 != 1]


Reports = Callable[[str], list[Any]]
"""What each rank reported under a name."""
