"""PySpark."""

from __future__ import annotations

import os
import signal
import sys
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType
from typing import Any

from shardstream.errors import UsageError
from shardstream.extras import require
from shardstream.pack.execution.engines.contract import Engine, PackedTask, run_task
from shardstream.threads import cores

_PYTHON = "PYSPARK_PYTHON"
_TRIES = 4  # of a task whose worker died, as on clusters
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_MOST_JOBS = 1024  # each a thread here, which waits


def library() -> ModuleType:
    """The package."""
    return require("pyspark", extra="spark", purpose="for on='spark'")


def open_engine(workers: int | None) -> Engine:
    """The engine: the session of this process; else one as Spark is configured; else a local one.

    ``spark-submit`` or Spark's own files configure it.

    Raises:
        UsageError: It is a session of Spark Connect.
    """
    pyspark = library()
    sql = require("pyspark.sql", extra="spark", purpose="for on='spark'")
    session = sql.SparkSession.getActiveSession()
    if session is not None:
        return _Spark(session, at_most=workers)
    if os.environ.get("SPARK_REMOTE"):
        raise _no_connect()
    pyspark.SparkContext.setSystemProperty("spark.app.name", "shardstream")  # now there is a Java, and it has settings
    master = pyspark.SparkConf().get("spark.master")
    interrupt = signal.getsignal(signal.SIGINT)
    if master not in (None, "local[*]"):  # the latter is what Spark falls back to
        return _Spark(sql.SparkSession.builder.getOrCreate(), at_most=workers, opened=True, interrupt=interrupt)
    count = workers or cores()
    local = {
        "spark.master": f"local[{count},{_TRIES}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    asked = os.environ.get(_PYTHON)
    os.environ[_PYTHON] = asked or sys.executable  # else the first python3 on the path
    try:
        session = sql.SparkSession.builder.config(map=local).getOrCreate()
    finally:
        if asked is None:
            del os.environ[_PYTHON]
    session.sparkContext.setLogLevel("OFF")  # what matters comes back as an error
    return _Spark(session, local=True, opened=True, interrupt=interrupt)


def _no_connect() -> UsageError:
    return UsageError(
        "a session of Spark Connect runs no tasks of Python",
        hint="pack from a program that spark-submit starts, or with on='ray' or 'dask'; plan.tasks run anywhere",
    )


class _Spark(Engine):
    """A job a task, each waited for by a thread, as Spark's jobs are; they run side by side."""

    name = "spark"

    def __init__(
        self,
        session: Any,
        *,
        local: bool = False,
        at_most: int | None = None,
        opened: bool = False,
        interrupt: Any = None,
    ) -> None:
        if not hasattr(session, "_jsparkSession"):
            raise _no_connect()
        pickler = require("pyspark.cloudpickle", extra="spark", purpose="for on='spark'")
        self.dumps = pickler.dumps
        self.local = local
        self.at_most = at_most
        self._session = session
        self._context = session.sparkContext
        self._group = f"shardstream-{uuid.uuid4()}"
        self._threads = ThreadPoolExecutor(_MOST_JOBS, "shardstream-spark")
        self._opened = opened
        self._interrupt = interrupt

    def start(self, task: PackedTask) -> Future[bytes]:
        return self._threads.submit(self._job, task)

    def _job(self, task: PackedTask) -> bytes:
        context = self._context
        context.setJobGroup(self._group, f"shardstream {task.name}", interruptOnCancel=True)
        (result,) = context.parallelize([task], 1).map(run_task).collect()
        return bytes(result)

    def slots(self) -> int:
        return int(self._context.defaultParallelism)

    def end(self) -> None:
        self._context.cancelJobGroup(self._group)
        self._threads.shutdown(cancel_futures=True)
        if self._opened:
            self._session.stop()
            if self._interrupt is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, self._interrupt)  # a context takes Ctrl-C for itself, and keeps it
