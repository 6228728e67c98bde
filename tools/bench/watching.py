#!/usr/bin/env python
"""What it costs that a run can be watched: the same loader with its counters and reports, and without, in turn.

    tools/bench/watching.py [--rounds 30] [--samples 20000]

Both read the same values of 1 KB in this process, an epoch at a time, in turn, so that a machine that drifts drifts for
both: mapped from the disk; fetched from a web server on this machine; and decoded value by value, as text; and crops of
photographs. Last, the crops while a trace is recorded and without one. What is left out of the second one is all that
nobody needs to get batches: times of stages, counters of `LoaderStats`, the watched wait, ``on_stats``, and what
workers say of the sample and the request that they are at.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

import shardstream as ss
from shardstream.load.stats import LoaderStats
from shardstream.testing import make_dataset

BATCH = 128
SIZE = 1024
PICTURES = 512
BAR, TRACE_BAR = 0.01, 0.05


class Silent(LoaderStats):
    """Counts nothing."""

    def add(self, counted: Any, asked: float = 0.0, sent: Any = ()) -> None:
        """Nothing."""

    def waited(self, seconds: float, *, first: bool = False) -> None:
        """Nothing."""

    def ended(self, seconds: float) -> None:
        """Nothing."""


@contextmanager
def unwatched(*_: Any) -> Iterator[Any]:
    """In place of a wait, or of a request that is told of."""
    yield SimpleNamespace(since=0.0, attempts=0, url="")


def unreported(dataset: ss.ShardDataset) -> ss.Loader:
    """A loader that says and counts nothing."""
    loader = ss.Loader(dataset, num_workers=0)
    loader.stats = Silent()
    loader.wait = unwatched  # type: ignore[assignment]
    shards: Any = loader._shards
    shards._assignment.status = lambda worker: None
    with silent():
        for _ in loader:
            break
    shards._held[1]._clock.lap = lambda stage: None
    return loader


@contextmanager
def silent() -> Iterator[None]:
    """Nobody keeps a list of requests."""
    with (
        patch("shardstream.storage.transfer.fetch.AwaitedRequest", unwatched),
        patch("shardstream.storage.transfer.retry.AwaitedRequest", unwatched),
    ):
        yield


def epoch(loader: ss.Loader) -> float:
    """Seconds of processor time per sample of an epoch, in this process and its threads."""
    gc.collect()
    begun, samples = time.process_time(), 0
    for batch in loader:
        samples += len(batch["__key__"])
    return (time.process_time() - begun) / samples


def compare(title: str, make: Callable[[], ss.ShardDataset], rounds: int) -> None:
    """What it costs to watch a loader: a line."""
    watched_loader = ss.Loader(make(), num_workers=0, on_stats=lambda values: None, stats_every=0.5)
    silent_loader = unreported(make())

    def unwatched_epoch() -> float:
        with silent():
            return epoch(silent_loader)

    measure(title, partial(epoch, watched_loader), unwatched_epoch, BAR, rounds)


def compare_trace(title: str, dataset: ss.ShardDataset, file: Path, rounds: int) -> None:
    """What it costs to record a trace: a line."""
    loader = ss.Loader(dataset, num_workers=0)

    def traced_epoch() -> float:
        with ss.trace(file):
            return epoch(loader)

    measure(title, traced_epoch, partial(epoch, loader), TRACE_BAR, rounds)


def measure(title: str, with_it: Callable[[], float], without: Callable[[], float], bar: float, rounds: int) -> None:
    """Measure both in turn, and print the median of the ratios less one."""
    pairs = []
    for number in range(rounds + 1):
        taken = {}
        for one in (with_it, without) if number % 2 else (without, with_it):
            taken[one] = one()
        pairs.append((taken[with_it], taken[without]))
    del pairs[0]  # opens the shards
    costs = sorted(on / off - 1 for on, off in pairs)
    cost, low, high = median(costs), costs[len(costs) // 4], costs[-1 - len(costs) // 4]
    on, off = (1e6 * median(values) for values in zip(*pairs, strict=True))
    verdict = "reached" if cost < bar else "missed"
    print(
        f"{title:28}{off:8.3f} us a sample, with {on:8.3f}: {100 * cost:+5.2f} % "
        f"(half of the rounds {100 * low:+.2f} to {100 * high:+.2f}); bar {100 * bar:g} %: {verdict}",
        flush=True,
    )


class _Files(SimpleHTTPRequestHandler):
    """Files of a folder, by ranges."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(whole=True)

    def do_HEAD(self) -> None:
        self.answer(whole=False)

    def answer(self, *, whole: bool) -> None:
        """A range of a file, or what is known of it."""
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            self.send_error(404)
            return
        size = file.stat().st_size
        begin, end = 0, size
        asked = self.headers.get("Range", "")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = (size - int(last), size) if not first else (int(first), min(size, int(last or size) + 1))
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{size}"')
        self.end_headers()
        if whole:
            with file.open("rb") as opened, suppress(ConnectionError):  # a read that nobody needs any more
                opened.seek(begin)
                self.wfile.write(opened.read(end - begin))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def _serve(folder: str, told: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=folder))
    told.send(server.server_address[1])
    server.serve_forever()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--samples", type=int, default=20_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        draw = np.random.default_rng(0)
        with ss.ShardWriter(folder, fields={"x": "bytes", "t": "str"}, format="record", shard_size="2MB") as writer:
            for number in range(args.samples):
                writer.write({"__key__": f"{number:08d}", "x": draw.bytes(SIZE), "t": f"a line of text {number} " * 4})

        def dataset(url: str, field: str) -> ss.ShardDataset:
            return ss.ShardDataset(url, fields=[field], batch_size=BATCH, shuffle=True, ranks=(0, 1))

        context = get_context("spawn")
        here, there = context.Pipe()
        server = context.Process(target=_serve, args=(folder, there), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{here.recv()}"
        compare("1 KB, mapped", partial(dataset, folder, "x"), args.rounds)
        compare("1 KB, fetched", partial(dataset, url, "x"), args.rounds)
        compare("text, value by value", partial(dataset, folder, "t"), args.rounds)
        server.terminate()
        pictures = Path(folder) / "pictures"
        make_dataset(pictures, samples=PICTURES, format="record", image_size=(375, 500))
        crops = {"jpg": ss.decode.RandomResizedCrop(224, flip=True), "cls": None}
        photographs = partial(
            ss.ShardDataset, pictures, fields=crops, batch_size=BATCH, shuffle=True, reads=ss.ReadOptions(threads=1)
        )
        compare("crops", photographs, args.rounds)
        compare_trace("crops, traced", photographs(), Path(folder) / "run.json", args.rounds)


if __name__ == "__main__":
    main()
