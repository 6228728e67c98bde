"""Views ten million pictures, and watches time, memory and size; see ``tools/drills/view_ten_million``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from bench.stream.servers import BUCKET, environment, s3, slowed

import shardstream as ss
from shardstream.diagnose.overview import spread_numbers
from shardstream.shards.manifest import Manifest
from shardstream.shards.table import NamedShards, ShardTable
from shardstream.storage import open_store

SAMPLES = 1000  # of a shard
SHOWN = 200
LOCAL_S, FAR_S, MB_PAGE, MB_MEMORY = 60, 90, 10, 500
LATENCY_S = 0.05
PATTERN = "shard-{:05d}.rec"


def make(folder: Path, shards: int) -> Manifest:
    """A data set of one shard under so many names."""
    alone = folder.with_name(f"{folder.name}-alone")
    ss.testing.make_dataset(
        alone,
        samples=SAMPLES,
        shards=1,
        fields={"jpg": "jpg", "cls": "int64", "txt": "str"},
        format="record",
        image_size=(32, 32),
    )
    one = Manifest.load(alone)
    folder.mkdir(parents=True)
    for number in range(shards):
        os.link(alone / one.shard_name(0), folder / PATTERN.format(number))
    table = ShardTable(*(np.repeat(column, shards) for column in one.table.columns))
    made = Manifest(
        framing=one.framing,
        fields=dict(sorted(one.fields.items())),
        naming=(NamedShards(PATTERN, shards),),
        table=table,
    )
    made.save(open_store(folder))
    return Manifest.load(folder)


def upload(folder: Path, url: str, manifest: Manifest) -> None:
    """What is read of it: the manifest, and the shards of the samples that the page shows."""
    store, read = open_store(url), spread_numbers(manifest.samples, SHOWN, 0) // SAMPLES
    names = [path.name for path in folder.iterdir() if not path.name.startswith("shard-")]
    for name in (*names, *(PATTERN.format(number) for number in np.unique(read).tolist())):
        store.put(name, (folder / name).read_bytes())


def view(url: str, page: Path, most: float) -> bool:
    """Make the page in a process of its own; False when it is too slow, too large, or takes too much."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "shardstream", "view", url, "--html", str(page), "--quiet"]
    process = subprocess.Popen(command)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = status
    seconds, memory = time.perf_counter() - start, used.ru_maxrss / 1024
    size = page.stat().st_size / 1e6 if status == 0 else float("inf")
    good = status == 0 and seconds < most and size < MB_PAGE and memory < MB_MEMORY
    print(
        f"{'   ' if good else 'NOT'} {url}: {seconds:.1f} s (bar {most}), {size:.1f} MB (bar {MB_PAGE}), "
        f"at most {memory:.0f} MiB held (bar {MB_MEMORY})",
        flush=True,
    )
    return good


def main() -> int:
    """View both; 1 when a bar was missed."""
    parser = argparse.ArgumentParser(prog="tools/drills/view_ten_million")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shards", type=int, default=10_000)
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    data = args.folder / "set"
    manifest = make(data, args.shards)
    print(f"    {manifest.samples:,} samples in {manifest.shards:,} shards, {manifest.bytes / 1e9:,.1f} GB", flush=True)
    good = view(str(data), args.folder / "page.html", LOCAL_S)
    with s3() as server:
        url = f"s3://{BUCKET}/set"
        os.environ |= environment(server)
        upload(data, url, manifest)
        with slowed(server, LATENCY_S) as proxy:
            os.environ |= environment(proxy.url)
            good &= view(url, args.folder / "page.html", FAR_S)
    if good:
        shutil.rmtree(args.folder)
    print("all bars reached" if good else "a bar was missed")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
