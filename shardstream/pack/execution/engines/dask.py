"""Dask distributed."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from shardstream.errors import UsageError
from shardstream.extras import require
from shardstream.pack.execution.engines.contract import Engine, PackedTask, run_task
from shardstream.threads import cores

_NO_WARNING = {"distributed.admin.large-graph-warning-threshold": "1TB"}  # a task of many small samples is large


def library() -> ModuleType:
    """The package."""
    return require("distributed", extra="dask", purpose="for on='dask'")


def open_engine(workers: int | None) -> Engine:
    """The engine: the client of this process; else a scheduler by configuration; else processes of our own.

    Dask's configuration names a scheduler, or ``DASK_SCHEDULER_ADDRESS`` does.

    Raises:
        UsageError: The scheduler does not answer, or the client cannot be used.
    """
    distributed = library()
    try:
        return _Dask(distributed.get_client(), at_most=workers)
    except ValueError:
        pass  # there is none
    address = require("dask", extra="dask", purpose="for on='dask'").config.get("scheduler-address", None)
    if address:
        try:
            client = distributed.Client(address, set_as_default=False)
        except OSError as error:
            raise UsageError(
                f"no Dask scheduler answers at {address}",
                hint="DASK_SCHEDULER_ADDRESS or Dask's configuration says so",
            ) from error
        return _Dask(client, at_most=workers, opened=(client,))
    cluster = _local_cluster(workers or cores())
    client = distributed.Client(cluster, set_as_default=False)
    return _Dask(client, local=True, opened=(client, cluster))


def _local_cluster(workers: int) -> Any:
    # Not LocalCluster, whose processes run the caller's script again, which has to be written for it. The scheduler is
    # a part of this process: when it dies, the workers lose it, and end.
    distributed = library()
    subprocess = require("distributed.deploy.subprocess", extra="dask", purpose="for on='dask'")
    quiet: dict[str, Any] = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    settings = {**quiet, "nthreads": 1, "memory_limit": 0, "death_timeout": 10, "silence_logs": logging.CRITICAL}
    worker = {"cls": subprocess.SubprocessWorker, "options": {"worker_kwargs": settings}}
    return distributed.SpecCluster(
        workers=dict.fromkeys(range(workers), worker),
        scheduler={"cls": distributed.Scheduler, "options": {**quiet, "port": 0}},
        worker=worker,
        silence_logs=logging.CRITICAL,
    )


class _Dask(Engine):
    name = "dask"

    def __init__(
        self, client: Any, *, local: bool = False, at_most: int | None = None, opened: tuple[Any, ...] = ()
    ) -> None:
        if client.asynchronous:
            raise UsageError(
                "the Dask client of this process is asynchronous", hint="make one with asynchronous=False for packing"
            )
        self.dumps = require("distributed.protocol.pickle", extra="dask", purpose="for on='dask'").dumps
        self.local = local
        self.at_most = at_most
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._opened = opened

    def start(self, task: PackedTask) -> Future[bytes]:
        config = require("dask", extra="dask", purpose="for on='dask'").config
        with config.set(_NO_WARNING):
            future: Future[bytes] = self._executor.submit(run_task, task)
        return future

    def slots(self) -> int:
        return sum(self._client.nthreads().values())

    def end(self) -> None:
        self._executor.shutdown(wait=False)
        for one in self._opened:
            one.close()
