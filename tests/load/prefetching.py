"""What the tests of `DevicePrefetcher` share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import shardstream as ss
from tests.grouped import grouped

from ..stream.making import numbered, write_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shards = numbered([50, 1, 40, 29], x=lambda n: torch.full((4,), n).numpy())
    types = {"x": "array:int64:4"}
    return write_dataset(tmp_path_factory.mktemp("numbers"), shards, format="record", types=types)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not threads())


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "shardstream-prefetch"]


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stream(folder: Path, **settings: Any) -> ss.ShardDataset:
    return ss.ShardDataset(
        folder, **grouped({"batch_size": 8, "shuffle": True, "seed": 5, "fields": ["id", "x"]} | settings)
    )


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]
