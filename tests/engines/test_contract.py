"""What all engines share, on one made of threads: it needs no package."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, overload

import pytest

from shardstream.errors import MissingExtraError, ShardStreamError, UsageError, WorkerError
from shardstream.extras import install_command
from shardstream.pack.execution import workers as workers_module
from shardstream.pack.execution.engines import ENGINES, Engine, contract, find_engine, run_on_engine
from shardstream.pack.execution.engines.contract import PackedTask, pack_task, run_task, unpack_result
from shardstream.pack.execution.task import ShardTask
from shardstream.pack.execution.workers import run_ahead
from shardstream.pack.plan.pack_plan import PackPlan, pack_plan
from shardstream.pack.run import pack

from ..pack.making import tree
from .contract import SMALL, texts_into_bins


class Threads(Engine):
    name = "threads"
    local = True
    dumps = staticmethod(pickle.dumps)

    def __init__(self, workers: int | None) -> None:
        self.at_most = workers
        self.pool = ThreadPoolExecutor(2)
        self.ended = False

    def start(self, task: PackedTask) -> Future[bytes]:
        return self.pool.submit(run_task, task)

    def slots(self) -> int:
        return 2

    def end(self) -> None:
        self.pool.shutdown()
        self.ended = True


class Counted(Sequence[ShardTask]):
    """Tasks that know how many of them were made."""

    def __init__(self, plan: PackPlan) -> None:
        self.tasks = plan.tasks
        self.made = 0

    def __len__(self) -> int:
        return len(self.tasks)

    @overload
    def __getitem__(self, index: int) -> ShardTask: ...
    @overload
    def __getitem__(self, index: slice) -> list[ShardTask]: ...
    def __getitem__(self, index: Any) -> Any:
        task = self.tasks[index]
        self.made += 1
        return task


def ignore(*_: object) -> None: ...


@pytest.fixture
def engine() -> Iterator[Threads]:
    engine = Threads(None)
    yield engine
    engine.end()


def test_the_same_bytes(source: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    plan = pack_plan(source, tmp_path / "out", shard_size=SMALL)
    results = list(run_on_engine(Threads, plan.tasks, ignore, workers=None))
    plan.commit(results)
    assert tree(tmp_path / "out") == whole


@pytest.mark.full
def test_texts_become_the_same_bins(tmp_path: Path) -> None:
    made = texts_into_bins(tmp_path / "in.jsonl")
    assert pack(tmp_path / "in.jsonl", tmp_path / "whole", workers=0, **made).shards > 3
    plan = pack_plan(tmp_path / "in.jsonl", tmp_path / "out", **made)
    plan.commit(list(run_on_engine(Threads, plan.tasks, ignore, workers=None)))
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


@pytest.mark.full
def test_many_rejects_stay_in_the_receipts(source: Path, tmp_path: Path, engine: Threads) -> None:
    lines = source.read_text().splitlines()
    source.write_text("".join(f"{'gone/' * 20}{i}.jpg\t1\n" if i % 4 else lines[i // 4] + "\n" for i in range(240)))
    pack(source, tmp_path / "whole", shard_size="20kB", workers=2)
    plan = pack_plan(source, tmp_path / "out", shard_size="20kB")
    told = [run_task(pack_task(engine, task)) for task in plan.tasks]
    assert max(map(len, told)) < 1000
    results = [pickle.loads(one) for one in told]
    assert sum(one.tally.rejects for one in results) == 181  # one file is not an image
    manifest = plan.commit(results)
    assert manifest.samples == 59
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert (tmp_path / "out" / "rejects.jsonl").read_bytes().count(b"\n") == 181


@pytest.mark.parametrize(("workers", "most"), [(None, 4), (3, 3)])
def test_few_tasks_are_made_ahead(source: Path, tmp_path: Path, workers: int | None, most: int) -> None:
    plan = pack_plan(source, tmp_path / "out", shard_size=1000)
    assert plan.shards > 20
    tasks, engine = Counted(plan), Threads(workers)
    assert engine.room() == most
    done = 0
    for _ in run_ahead(
        lambda task: engine.start(pack_task(engine, task)), unpack_result, tasks, ignore, limit=engine.room
    ):
        assert tasks.made - done <= most
        done += 1
    engine.end()
    assert done == plan.shards


class Deserted(Threads):
    """Loses its workers before they do anything; ``back`` brings them back."""

    def __init__(self, workers: int | None) -> None:
        super().__init__(workers)
        self.waiting: list[tuple[Future[bytes], PackedTask]] = []
        self.there = False

    def start(self, task: PackedTask) -> Future[bytes]:
        future: Future[bytes] = Future()
        self.waiting.append((future, task))
        if self.there:
            self.back()
        return future

    def slots(self) -> int:
        return 2 if self.there else 0

    def back(self) -> None:
        self.there = True
        while self.waiting:
            future, task = self.waiting.pop()
            self.pool.submit(run_task, task).add_done_callback(lambda done, to=future: to.set_result(done.result()))  # type: ignore[misc]


def test_a_local_cluster_without_workers_is_an_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "_ALONE_S", 0.2)
    monkeypatch.setattr(workers_module, "_LOOK_S", 0.05)
    plan = pack_plan(source, tmp_path / "out", shard_size=SMALL)
    with pytest.raises(WorkerError, match="all workers of the local cluster are gone"):
        list(run_on_engine(Deserted, plan.tasks, ignore, workers=None))


def test_workers_of_a_cluster_are_waited_for(
    source: Path,
    whole: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(contract, "_ALONE_S", 0.2)
    monkeypatch.setattr(workers_module, "_LOOK_S", 0.05)
    engines: list[Deserted] = []

    def attach(workers: int | None) -> Deserted:
        engines.append(Deserted(workers))
        engines[0].local = False
        threading.Timer(1.0, engines[0].back).start()
        return engines[0]

    plan = pack_plan(source, tmp_path / "out", shard_size=SMALL)
    plan.commit(list(run_on_engine(attach, plan.tasks, ignore, workers=None)))
    assert tree(tmp_path / "out") == whole
    assert [record.getMessage() for record in caplog.records] == [
        "the threads cluster has no workers: waiting for some"
    ]


def test_keys_are_not_shown() -> None:
    shown = repr(PackedTask("shard-1.tar", "1", (), b"hush"))
    assert "hush" not in shown
    assert "shard-1.tar" in shown


def test_errors_come_back_as_results(source: Path, tmp_path: Path, engine: Threads) -> None:
    packed = pack_task(engine, pack_plan(source, tmp_path / "out").tasks[0])
    other: Future[bytes] = Future()
    other.set_result(run_task(replace(packed, version="0.0.1")))
    with pytest.raises(UsageError, match=r"a worker has shardstream .*, but this run is of 0\.0\.1"):
        unpack_result(other, packed.name)
    lost: Future[bytes] = Future()
    lost.set_exception(RuntimeError("a wall\n of text\n" * 100 + "a.b.OSError: it went\n"))
    said = r"the cluster could not run a task: RuntimeError: a\.b\.OSError: it went"
    with pytest.raises(WorkerError, match=said) as caught:
        unpack_result(lost, packed.name)
    assert caught.value.place == {"shard": packed.name}


def test_a_task_that_a_worker_cannot_load(source: Path, tmp_path: Path, engine: Threads) -> None:
    packed = pack_task(engine, pack_plan(source, tmp_path / "out").tasks[0])
    strange: Future[bytes] = Future()
    strange.set_result(run_task(replace(packed, data=b"cnowhere_to_be_found\nx\n.")))
    with pytest.raises(UsageError, match="a worker cannot load its task: No module named 'nowhere_to_be_found'"):
        unpack_result(strange, packed.name)


def test_arguments(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on must be one of dask, ray, spark, got 'sparc'") as caught:
        find_engine("sparc")
    assert "did you mean 'spark'" in str(caught.value)
    with pytest.raises(UsageError, match="on must be an engine or an executor, got 7"):
        pack(source, tmp_path / "out", on=7)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="workers=0 packs in this process"):
        pack(source, tmp_path / "out", on="dask", workers=0)
    plan = pack_plan(source, "memory://engines")
    with pytest.raises(ShardStreamError, match="out of reach of a cluster"):
        list(run_on_engine(Threads, plan.tasks, ignore, workers=None))


@pytest.mark.parametrize("name", ENGINES)
def test_engines_that_are_not_installed(name: str, source: Path, tmp_path: Path) -> None:
    if find_spec({"dask": "distributed", "spark": "pyspark"}.get(name, name)) is not None:
        pytest.skip(f"{name} is installed here")
    with pytest.raises(MissingExtraError) as caught:
        pack(source, tmp_path / "out", on=name)  # type: ignore[arg-type]
    assert install_command(name) in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_no_engine_is_imported_before_it_is_asked_for() -> None:
    program = "import sys, json, shardstream; print(json.dumps([*sys.modules]))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"ray", "distributed", "pyspark"} & set(json.loads(found))
