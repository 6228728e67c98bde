"""Dask: what is started here, and a scheduler that runs already."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardstream.errors import UsageError, WorkerError
from shardstream.pack.execution.engines import contract
from shardstream.pack.run import pack
from shardstream.progress import ProgressEvent

from ..pack.making import tree
from ..pack.test_kill import until
from .contract import ROOT, SMALL, EngineTests

psutil = pytest.importorskip("psutil")
distributed = pytest.importorskip("distributed", reason="Dask is not installed: tools/engines runs these tests")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler with two workers, as users start them."""
    folder = tmp_path_factory.mktemp("dask")
    file, environment = folder / "scheduler.json", {**os.environ, "PYTHONPATH": str(ROOT)}
    common = ["--scheduler-file", str(file), "--no-dashboard", "--host", "127.0.0.1"]
    commands = [["scheduler", "--port", "0", *common], *[["worker", "--nthreads", "1", *common]] * 2]
    with (folder / "log").open("w") as log:
        processes = [
            subprocess.Popen([sys.executable, "-m", "dask", *command], cwd=folder, env=environment, stderr=log)
            for command in commands
        ]
        try:
            until(lambda: file.exists() and file.stat().st_size)
            yield json.loads(file.read_text())["address"]
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


class TestDask(EngineTests):
    on = "dask"

    @pytest.fixture(autouse=True)
    def _found(self, scheduler: str) -> None:
        self.scheduler = scheduler

    @contextmanager
    def attached(self) -> Iterator[Any]:
        with distributed.Client(self.scheduler) as client:
            client.wait_for_workers(2, timeout=30)
            yield client

    def is_attached(self) -> bool:
        try:
            return bool(distributed.get_client())
        except ValueError:
            return False

    def test_all_workers_of_a_local_cluster_are_killed(
        self, source: Path, helpers: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With those that would have started them again."""
        monkeypatch.setattr(contract, "_ALONE_S", 2.0)
        monkeypatch.syspath_prepend(helpers)
        slow = importlib.import_module("helpers").slow

        others = set(psutil.Process().children(recursive=True))  # the scheduler of the other tests, and its workers

        def kill(progress: ProgressEvent) -> None:
            if progress.tally.done:
                for child in set(psutil.Process().children(recursive=True)) - others:
                    child.kill()

        with pytest.raises(WorkerError, match="all workers of the local cluster are gone"):
            pack(source, helpers / "out", shard_size=SMALL, on="dask", workers=2, transform=slow, progress=kill)
        assert not self.is_attached()

    def test_the_scheduler_of_the_environment(self, source: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
        from dask import config

        with config.set({"scheduler-address": self.scheduler}):
            pack(source, tmp_path / "out", shard_size=SMALL, on="dask")
        assert tree(tmp_path / "out") == whole
        assert not self.is_attached()
        with (
            config.set({"scheduler-address": "tcp://127.0.0.1:9", "distributed.comm.timeouts.connect": "1s"}),
            pytest.raises(UsageError, match="no Dask scheduler answers at tcp://"),
        ):
            pack(source, tmp_path / "other", shard_size=SMALL, on="dask")
