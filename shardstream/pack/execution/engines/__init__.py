"""Clusters that run the tasks of a plan: Dask, Ray and Spark.

============  =========================================================================
``contract``  what an engine has to do, and what runs on its workers
``dask``      Dask distributed
``ray``       Ray
``spark``     PySpark
============  =========================================================================

The plan does the work: its tasks are independent, picklable, and harmless when they run twice. So an engine only starts
tasks and says when they end; where they run, and what becomes of those whose worker dies, is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Literal, TypeAlias, cast

from shardstream.errors import UsageError, did_you_mean
from shardstream.pack.execution.engines.contract import Engine, Watch, pack_task, unpack_result
from shardstream.pack.execution.task import Task
from shardstream.pack.execution.workers import Tick, check_travels, run_ahead
from shardstream.pack.output.receipts import ShardResult
from shardstream.waits import watched

__all__ = ["ENGINES", "Engine", "EngineName", "OpenEngine", "find_engine", "run_on_engine"]

EngineName: TypeAlias = Literal["dask", "ray", "spark"]
OpenEngine: TypeAlias = Callable[[int | None], Engine]
"""Connects to the engine that is there; else starts one of so many processes, ``None`` for one a core."""

ENGINES = ("dask", "ray", "spark")


def find_engine(name: str) -> OpenEngine:
    """The engine of this name; nothing is started yet.

    Raises:
        UsageError: There is none.
        MissingExtraError: Its package is not installed.
    """
    if name not in ENGINES:
        raise UsageError(
            f"on must be one of {', '.join(ENGINES)}, got {name!r}", hint=f"{did_you_mean(name, ENGINES)}see ss.pack"
        )
    module = import_module(f"shardstream.pack.execution.engines.{name}")
    module.library()
    return cast("OpenEngine", module.open_engine)


def run_on_engine(
    open_engine: OpenEngine, tasks: Sequence[Task], tick: Tick, *, workers: int | None
) -> Iterator[ShardResult]:
    """Run tasks, in any order; totals count whole shards.

    Args:
        open_engine: What `find_engine` gave.
        tasks: The tasks of a plan.
        tick: Called with totals.
        workers: Processes of an engine that is started here; of one that is there, how many tasks it runs at once at
            most. ``None``: one a core; as many as it has room for.

    Raises:
        UsageError: Tasks cannot be sent there, or the engine cannot be used.
        WorkerError: The engine lost a task for good.
    """
    if tasks[0].dest.address.scheme == "memory":
        raise UsageError(
            "a destination in the memory of this process is out of reach of a cluster",
            url=tasks[0].dest.url,
            hint="write to a folder that all workers share, or to a store",
        )
    engine = open_engine(workers)
    try:
        check_travels(tasks[0], engine.dumps)
        yield from run_ahead(
            lambda task: engine.start(pack_task(engine, task)),
            unpack_result,
            tasks,
            tick,
            limit=engine.room,
            look=Watch(engine).look,
        )
    finally:
        with watched(f"the {engine.name} cluster to let go of its tasks"):
            engine.end()
