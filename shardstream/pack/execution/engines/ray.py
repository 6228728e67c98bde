"""Ray."""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from shardstream.errors import UsageError
from shardstream.extras import require
from shardstream.pack.execution.engines.contract import Engine, PackedTask, run_task
from shardstream.threads import cores

_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
_NO_REPORTS = "RAY_USAGE_STATS_ENABLED"


def library() -> ModuleType:
    """The package."""
    return require("ray", extra="ray", purpose="for on='ray'")


def open_engine(workers: int | None) -> Engine:
    """The engine: the cluster of this process; else of ``RAY_ADDRESS``; else processes of our own.

    Raises:
        UsageError: No cluster answers at ``RAY_ADDRESS``.
    """
    ray = library()
    if ray.is_initialized():
        return _Ray(ray, at_most=workers)
    # Not by ray.init() without address: it tries the last cluster of this machine for minutes, should that have died.
    if address := os.environ.get("RAY_ADDRESS"):
        try:
            ray.init(address=address, **_QUIET)
        except ConnectionError as error:
            hint = "RAY_ADDRESS says so; RAY_AUTH_MODE and the token have to be the cluster's too"
            raise UsageError(f"no Ray cluster can be reached at {address}", hint=hint) from error
        return _Ray(ray, at_most=workers, opened=True)
    asked = os.environ.get(_NO_REPORTS)
    os.environ[_NO_REPORTS] = asked or "0"  # nobody asked Ray to report that we use it
    try:
        ray.init(address="local", num_cpus=workers or cores(), include_dashboard=False, **_QUIET)
    finally:
        if asked is None:
            del os.environ[_NO_REPORTS]
    return _Ray(ray, local=True, opened=True)


class _Ray(Engine):
    name = "ray"

    def __init__(self, ray: Any, *, local: bool = False, at_most: int | None = None, opened: bool = False) -> None:
        self.dumps = ray.cloudpickle.dumps
        self.local = local
        self.at_most = at_most
        self._ray = ray
        self._run = ray.remote(num_cpus=1)(run_task)
        self._opened = opened

    def start(self, task: PackedTask) -> Future[bytes]:
        reference = self._run.options(name=f"shardstream {task.name}").remote(task)
        future: Future[bytes] = reference.future()

        def cancel(ended: Future[bytes]) -> None:
            if ended.cancelled():
                self._ray.cancel(reference)

        future.add_done_callback(cancel)
        return future

    def slots(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def end(self) -> None:
        if self._opened:
            self._ray.shutdown()
