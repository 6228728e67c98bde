"""shardstream, and its transcoder in a plain loop. Each function runs in a process of its own."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any, Literal

from bench.data import list_of, read_list
from bench.pack.timing import IMAGES, OUT, SHARD_MB, result, timed

_EVERY = 3  # the bare transcoder takes each third photograph
_WARM = 32  # photographs before the clock starts: the compiled kernel is loaded meanwhile


def raw(folder: str, octets: int, framing: Literal["tar", "record"], workers: int) -> dict[str, Any]:
    """What ``shardstream pack --jpeg keep`` calls."""
    return _packed(list_of(Path(folder)), octets, framing, workers)


def fetched(urls: str, octets: int, workers: int) -> dict[str, Any]:
    """The same of a list of URLs."""
    return _packed(Path(urls), octets, "tar", workers)


def _packed(source: Path, octets: int, framing: Literal["tar", "record"], workers: int) -> dict[str, Any]:
    import shardstream

    def job() -> None:
        shardstream.pack(
            source,
            OUT,
            images=shardstream.ImageOptions(jpeg="keep"),
            format=framing,
            shard_size=f"{SHARD_MB}MB",
            workers=workers,
        )

    figures = timed(octets, job)
    return result(figures, shardstream.Manifest.load(OUT).samples)


def transcoded(folder: str, workers: int) -> dict[str, Any]:
    """What ``shardstream pack`` calls: every photograph becomes addressable."""
    import shardstream

    source = list_of(Path(folder))
    start = time.perf_counter()
    manifest = shardstream.pack(source, OUT, shard_size=f"{SHARD_MB}MB", workers=workers)
    seconds = time.perf_counter() - start
    return result({IMAGES: manifest.samples / seconds}, manifest.samples)


def kernel(folder: str, processes: int) -> dict[str, Any]:
    """The transcoder alone, on photographs that are in memory, by so many processes at once; the slowest counts."""
    names = [str(path) for path, _ in read_list(Path(folder))][::_EVERY]
    shares = [names[number::processes] for number in range(processes)]
    if processes == 1:
        seconds = _loop(names, None)
    else:
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(processes)
        seconds = 0.0
        queue: Any = context.Queue()
        crew = [context.Process(target=_share, args=(share, ready, queue)) for share in shares]
        for one in crew:
            one.start()
        seconds = max(queue.get() for _ in crew)
        for one in crew:
            one.join()
    return {"figures": {IMAGES: len(names) / seconds}, "delivered": {}}


def _share(names: list[str], ready: Any, queue: Any) -> None:
    queue.put(_loop(names, ready))


def _loop(names: list[str], ready: Any) -> float:
    from shardstream.images.jpeg.transcode import DEFAULT_WIDTH, make_addressable

    files = [Path(name).read_bytes() for name in names]
    for data in files[:_WARM]:
        make_addressable(data, width=DEFAULT_WIDTH)
    if ready is not None:
        ready.wait()
    start = time.perf_counter()
    for data in files:
        make_addressable(data, width=DEFAULT_WIDTH)
    return time.perf_counter() - start
