"""Packing to the store, and packing to a disk followed by an upload."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.data import HOME, WORKERS
from bench.stream.records import RECORD, bucket, record
from bench.stream.servers import BUCKET, options

FILES = 8_192
SHARD_MB = 32
AT_ONCE = 4  # parts of a shard that are sent at the same time, as `ss.pack` does; shards at a time: its workers
SOURCE = HOME / "stream-files"
SCRATCH = HOME / "stream-scratch"


def files() -> Path:
    """The list of the files to pack, made if it is not there."""
    source = SOURCE / "list.tsv"
    if not source.exists():
        shutil.rmtree(SOURCE, ignore_errors=True)
        (SOURCE / "x").mkdir(parents=True)
        for number in range(FILES):
            (SOURCE / f"x/{number:06d}.bin").write_bytes(record(number))
        source.write_text("".join(f"x/{number:06d}.bin\t{number % 1000}\n" for number in range(FILES)))
    return source


def straight(endpoint: str) -> dict[str, Any]:
    """``ss.pack(list, "s3://...")``."""
    from shardstream import StorageOptions, pack

    def job() -> None:
        pack(
            SOURCE / "list.tsv",
            f"s3://{BUCKET}/packed",
            storage=StorageOptions(options=options(endpoint)),
            shard_size=f"{SHARD_MB}MB",
            workers=WORKERS,
        )

    return _timed(endpoint, job)


def by_way_of_disk(endpoint: str) -> dict[str, Any]:
    """``ss.pack`` to a folder, then an upload by obstore."""
    import obstore

    from shardstream import pack

    def job() -> None:
        folder = SCRATCH / "packed"
        pack(SOURCE / "list.tsv", folder, shard_size=f"{SHARD_MB}MB", workers=WORKERS)
        store = bucket(endpoint)
        waiting = sorted(folder.iterdir(), reverse=True)

        def send() -> None:
            while waiting:
                path = waiting.pop()
                obstore.put(store, f"packed/{path.name}", path, chunk_size=8 << 20, max_concurrency=AT_ONCE)

        senders = [threading.Thread(target=send) for _ in range(WORKERS)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()

    return _timed(endpoint, job)


def _timed(endpoint: str, job: Callable[[], None]) -> dict[str, Any]:
    """MB/s, and the most bytes on the disk, on this side and on the store's."""
    import obstore

    from shardstream import Manifest

    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    os.environ["TMPDIR"] = str(SCRATCH)
    done = threading.Event()
    here = [0]

    def look() -> None:
        while not done.wait(0.02):
            here.append(_size(SCRATCH))

    looking = threading.Thread(target=look)
    looking.start()
    start = time.perf_counter()
    job()
    seconds = time.perf_counter() - start
    done.set()
    looking.join()
    here.append(_size(SCRATCH))
    shutil.rmtree(SCRATCH)
    store = bucket(endpoint)
    kept = [one for batch in obstore.list(store, "packed/") for one in batch]
    samples = Manifest.load(f"s3://{BUCKET}/packed", storage_options=options(endpoint)).samples
    if samples != FILES:
        raise ValueError(f"{FILES} files were to be packed, but it was {samples}")
    obstore.delete(store, [one["path"] for one in kept])
    there = sum(one["size"] for one in kept)
    figures = {"MB/s": FILES * RECORD / 1e6 / seconds, "disk MB": (max(here) + there) / 1e6}
    return {"figures": figures, "delivered": {}}


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
