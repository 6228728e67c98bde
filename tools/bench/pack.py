"""Packing speed: photographs to shards, against ``tar`` and ``webdataset.ShardWriter``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bench.data import HOME, Corpus, list_of, read_list, write_webdataset
from bench.harness import Benchmark, Contender

OUT = HOME / "packed"
SHARD_MB = 32
NOW, ON_DISK = "MB/s", "MB/s until on disk"

TEXT = f"""\
Photographs to shards of {SHARD_MB} MB (`tar`: one file). MB are those of the photographs. *Until on disk* adds an
`fsync` of every file written: shardstream does that anyway, shard by shard, so its two figures differ by little.
Photographs are in the page cache, earlier output is removed and written back before each run, and the time is that of
the call alone, without starting Python. `tar` stores no labels, no index and no checksums, and checks nothing.
"""


def benchmark(corpus: Corpus) -> Benchmark:
    """The benchmark."""
    folder = {"folder": str(corpus.folder)}
    ours = [
        Contender(
            f"`shardstream pack`, {framing}, {workers} worker{'s'[: workers - 1]}",
            "bench.pack:with_shardstream",
            {**folder, "framing": framing, "workers": workers},
            ours=True,
            bar=0.5 if (framing, workers) == ("tar", 2) else None,
        )
        for framing in ("tar", "record")
        for workers in (1, 2)
    ]
    theirs = [
        Contender("`tar cf`", "bench.pack:with_tar", folder),
        Contender("`webdataset.ShardWriter`", "bench.pack:with_webdataset", folder, needs="webdataset"),
    ]
    return Benchmark("pack", "Packing", TEXT, [*theirs, *ours])


def with_tar(folder: str) -> dict[str, Any]:
    """GNU tar, the same photographs in the order of the list."""
    OUT.mkdir()
    names = OUT / "names"
    names.write_text("".join(f"{path.relative_to(folder)}\n" for path, _ in read_list(Path(folder))))
    command = ["tar", "cf", str(OUT / "photos.tar"), "-C", folder, "--files-from", str(names)]
    return timed(Path(folder), lambda: subprocess.run(command, check=True))


def with_webdataset(folder: str) -> dict[str, Any]:
    """The loop that WebDataset's documentation shows."""
    entries = read_list(Path(folder))
    import webdataset  # noqa: F401  # before the clock starts

    return timed(
        Path(folder), lambda: write_webdataset(entries, Path(folder), OUT / "out", maxsize=SHARD_MB * 1_000_000)
    )


def with_shardstream(folder: str, framing: Literal["tar", "record"], workers: int) -> dict[str, Any]:
    """What ``shardstream pack`` calls."""
    import shardstream

    OUT.mkdir()
    result = timed(
        Path(folder),
        lambda: shardstream.pack(
            list_of(Path(folder)), OUT / "out", format=framing, shard_size=f"{SHARD_MB}MB", workers=workers
        ),
    )
    result["delivered"]["photographs"] = shardstream.Manifest.load(OUT / "out").samples
    return result


def timed(folder: Path, job: Callable[[], object]) -> dict[str, Any]:
    """Time the job, then the time until what it wrote is on disk."""
    start = time.perf_counter()
    job()
    written = time.perf_counter() - start
    outputs = [path for path in OUT.rglob("*") if path.is_file()]
    start = time.perf_counter()
    for path in outputs:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    synced = written + time.perf_counter() - start
    megabytes = sum(path.stat().st_size for path, _ in read_list(folder)) / 1e6
    photographs = 0
    for path in outputs:
        if path.suffix == ".tar":
            with tarfile.open(path) as archive:
                photographs += sum(name.endswith(".jpg") for name in archive.getnames())
    return {
        "figures": {NOW: megabytes / written, ON_DISK: megabytes / synced},
        "delivered": {"photographs": photographs},
    }


def clean() -> None:
    """Remove what the contender before wrote."""
    shutil.rmtree(OUT, ignore_errors=True)
