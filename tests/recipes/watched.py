"""Runs a recipe as a user would, notes what its loop gets, and may end it as a cluster does.

    SHARDSTREAM_WATCH=FOLDER SHARDSTREAM_KILL_AFTER=25 python watched.py script.py arguments of the script ...

Each rank appends lines of JSON, ``[epoch, keys]``, to a file of its own in FOLDER: of the first loader that is iterated
over, the one that trains. When the loop asks for the batch after number SHARDSTREAM_KILL_AFTER, the process ends by
SIGKILL; 0: never. Ranks that are started elsewhere (by Ray) call `watch_all` first.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shardstream as ss

FOLDER, KILL_AFTER = Path(os.environ["SHARDSTREAM_WATCH"]), int(os.environ["SHARDSTREAM_KILL_AFTER"])

trains: list[ss.Loader] = []


def keys(batch: Any) -> list[str]:
    """Of a batch; of a table the numbers of rows; where a model takes no keys, the tokens that stand for a sample."""
    if "row" in batch:
        return [str(row) for row in batch["row"].tolist()]
    if "__key__" in batch:
        return list(batch["__key__"])
    return [" ".join(map(str, tokens)) for tokens in batch["input_ids"].tolist()]


def noted(loader: ss.Loader, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches, each of them written down as the loop gets it."""
    epoch = loader.epoch
    with (FOLDER / f"rank-{os.environ.get('RANK', '0')}.jsonl").open("a") as file:
        for number, batch in enumerate(batches):
            if KILL_AFTER and number == KILL_AFTER:
                os.kill(os.getpid(), signal.SIGKILL)
            print(json.dumps([epoch, keys(batch)]), file=file, flush=True)
            yield batch


def watch(kind: type[Any]) -> None:
    """Note what this kind of loader hands out, if it is the first."""
    begin = kind.__iter__

    def iterate(self: Any) -> Iterator[Any]:
        loader = getattr(self, "loader", self)  # that of a prefetcher
        if not trains and isinstance(loader, ss.Loader):
            trains.append(loader)
        return noted(loader, begin(self)) if loader in trains else begin(self)

    kind.__iter__ = iterate


def watch_all() -> None:
    """Note what a loop gets, whatever it iterates over."""
    watch(ss.Loader)
    watch(ss.DevicePrefetcher)


def on_ray() -> None:
    """Start Ray here, with processes that note what loops get."""
    import ray

    folder = str(Path(__file__).parent)
    environment = {"PYTHONPATH": os.pathsep.join((folder, os.environ.get("PYTHONPATH", "")))}
    hook = {"worker_process_setup_hook": "watched.watch_all", "env_vars": environment}
    ray.init(address="local", runtime_env=hook, include_dashboard=False)


if __name__ == "__main__":
    watch_all()
    if "ray_train" in sys.argv[1]:
        on_ray()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
