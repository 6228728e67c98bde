"""Memory that processes share: what happens where the system refuses it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.errors import StorageError
from shardstream.memory_files import has_memory_files, memory_file


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a filter of system calls does it; forked workers inherit it."""

    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    has_memory_files.cache_clear()
    yield
    has_memory_files.cache_clear()


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, limit[1]))
    spare: list[int] = []
    try:
        while True:
            spare.append(os.dup(0))
    except OSError:
        pass
    yield
    for one in spare:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.usefixtures("refused")
def test_files_in_memory_that_are_refused_are_done_without(tmp_path: Path, num_workers: int) -> None:
    samples = [{"__key__": f"{n}", "raw": bytes(5000)} for n in range(40)]
    ss.pack(samples, tmp_path / "out", workers=num_workers, shard_size=50_000)
    dataset = ss.ShardDataset(tmp_path / "out", batch_size=20)
    loader = ss.Loader(dataset, num_workers=num_workers, multiprocessing_context="fork" if num_workers else None)
    assert sum(len(batch["raw"]) for batch in loader) == 40


@pytest.mark.usefixtures("few_descriptors")
def test_too_few_descriptors_are_an_error_of_ours() -> None:
    with pytest.raises(StorageError, match="Too many open files") as caught:
        memory_file("x")
    assert "ulimit -n" in str(caught.value.hint)
