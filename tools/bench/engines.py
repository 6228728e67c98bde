"""Packing on local clusters of Dask, Ray and Spark, against our own processes on the same plan."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from bench.data import HOME, ROOT, WORKERS, Corpus, list_of
from bench.harness import Benchmark, Contender

OUT = HOME / "packed-on"
SHARD_MB = 16
BAR = 0.8
PACKAGES = {"dask": "distributed", "ray": "ray", "spark": "pyspark"}
THERE, STARTED = "MB/s", "MB/s, cluster started first"

TEXT = f"""\
Photographs to shards of {SHARD_MB} MB, made crop-addressable, by {WORKERS} worker processes: our own, and those of a
local cluster of each engine, which runs already when the clock starts; the second figure counts its start, too. Our
own processes start and end inside the call. All write the same bytes, which is checked. MB are those of the
photographs, which are in the page cache.
"""


def benchmark(corpus: Corpus) -> Benchmark:
    """The benchmark; the environments of the engines are made where they are missing."""
    subprocess.run([ROOT / "tools" / "engines", "--install"], check=False)  # it says what it leaves out
    folder = {"folder": str(corpus.folder)}
    ours = Contender(
        f"`shardstream pack`, {WORKERS} workers", "bench.engines:with_engine", {**folder, "name": None}, ours=True
    )
    on = [
        Contender(
            f"`shardstream pack --on {name}`",
            "bench.engines:with_engine",
            {**folder, "name": name},
            needs=package,
            ours=True,
            bar=BAR,
            python=str(ROOT / ".engines" / name / "bin" / "python"),
        )
        for name, package in PACKAGES.items()
    ]
    return Benchmark("engines", "Packing on clusters", TEXT, [ours, *on])


def with_engine(folder: str, name: Literal["dask", "ray", "spark"] | None) -> dict[str, Any]:
    """Pack on a cluster, or with processes of our own."""
    import shardstream

    megabytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6
    where: dict[str, Any] = {"on": name} if name else {"workers": WORKERS}
    start = time.perf_counter()
    with _cluster(name):
        running = time.perf_counter()
        shardstream.pack(list_of(Path(folder)), OUT, shard_size=f"{SHARD_MB}MB", **where)
        end = time.perf_counter()
    written = sha256()
    for path in sorted(OUT.rglob("*")):
        if path.is_file():
            written.update(path.name.encode() + path.read_bytes())
    return {
        "figures": {THERE: megabytes / (end - running), STARTED: megabytes / (end - start)},
        "delivered": {"bytes": int(written.hexdigest()[:12], 16)},
    }


@contextmanager
def _cluster(name: str | None) -> Iterator[None]:
    """This process is connected to a local cluster of two workers, as users start one."""
    if name == "dask":
        import distributed

        with (
            distributed.LocalCluster(
                n_workers=WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            ) as cluster,
            distributed.Client(cluster),
        ):
            yield
    elif name == "ray":
        import ray

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        os.environ["RAY_AUTH_MODE"] = "disabled"
        with ray.init(address="local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False):
            yield
    elif name == "spark":
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {"spark.master": f"local[{WORKERS}]", "spark.ui.enabled": "false"}
        session = SparkSession.builder.config(map=settings).getOrCreate()
        yield
        session.stop()
    else:
        yield


def clean() -> None:
    """Remove what the contender before wrote."""
    shutil.rmtree(OUT, ignore_errors=True)
