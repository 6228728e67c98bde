"""Finds keys in millions of samples, and watches time and memory; see ``tools/drills/keys``."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import shardstream as ss
from shardstream.dataset.keys.tables import put_key_tables
from shardstream.dataset.opening import open_dataset
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column
from shardstream.shards.key_table import key_table_name
from shardstream.shards.layout import checksum, pack_index
from shardstream.shards.manifest import Manifest
from shardstream.shards.writing import ShardSummary
from shardstream.storage import open_store

FIRST_S, LATER_S, PRIVATE_MB, MADE_MB = 0.5, 0.05, 50, 100
LATER = 200
SHARD, HEAD, VALUE = 50_000, 16, 16

LOOK = """
import json, resource, sys, time
import shardstream as ss
def private():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty")) / 1024
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
folder, keys = sys.argv[1], json.loads(sys.argv[2])
ss.Reader(sys.argv[3])[0]  # what a process takes that reads any data set
before, at_first = private(), peak()
reader = ss.Reader(folder)
times = []
for key in keys:
    started = time.perf_counter()
    assert reader.get(key)["__key__"] == key
    times.append(time.perf_counter() - started)
memory = {"private": private() - before, "peak": peak() - at_first}
print(json.dumps({"first": times[0], "later": max(times[1:], default=0.0)} | memory))
"""


def key_of(number: int) -> str:
    """The key of a sample."""
    return f"class{number % 1000:03}/image{number:08}"


def write(folder: Path, samples: int) -> None:
    """So many samples of 16 bytes, without a key table; whole shards at a time, or it would take an hour."""
    store = open_store(folder)
    summaries: list[ShardSummary] = []
    types = {"n": FieldType.parse("int64"), "raw": FieldType.parse("bytes")}
    for first in range(0, samples, SHARD):
        numbers = np.arange(first, min(first + SHARD, samples))
        keys = [key_of(number).encode() for number in numbers.tolist()]
        lengths = np.full(len(numbers), VALUE, np.uint64)
        begins = HEAD + VALUE * np.arange(len(numbers), dtype=np.uint64)
        data = b"SSRECORD" + (1).to_bytes(8, "little") + np.repeat(numbers, VALUE // 8).tobytes()
        data += bytes(-len(data) % 64)
        columns = [
            Column("n", types["n"], values=numbers),
            Column("raw", types["raw"], offsets=begins, lengths=lengths),
        ]
        ends = np.cumsum([len(key) for key in keys], dtype=np.uint64)
        index = pack_index("record", (ends, b"".join(keys)), columns, end=len(data))
        store.put(f"shard-{len(summaries):06d}.rec", data + index)
        summaries.append(ShardSummary(len(keys), len(data + index), checksum(data + index), len(index), types))
    Manifest.of(summaries, "shard-{:06d}.rec", framing="record").save(store)


def look(folder: Path, keys: list[str], home: Path) -> dict[str, float]:
    """What a process of its own sees of looking these keys up."""
    command = [sys.executable, "-c", LOOK, str(folder), json.dumps(keys), str(home.parent / "tiny")]
    run = subprocess.run(
        command, env=os.environ | {"XDG_CACHE_HOME": str(home)}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(run.stdout)
    return found


def main() -> int:
    """Run the drill; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where to write; a data set that is there is taken")
    parser.add_argument("--samples", type=int, default=10_000_000)
    arguments = parser.parse_args()
    folder, home = arguments.folder / f"set-{arguments.samples}", arguments.folder / "home"
    if not (folder / "dataset.json").exists():
        started = time.monotonic()
        write(folder, arguments.samples)
        print(f"    {arguments.samples:,} samples written in {time.monotonic() - started:,.0f} s", flush=True)
    for left in (home, arguments.folder / "tiny"):
        shutil.rmtree(left, ignore_errors=True)
    write(arguments.folder / "tiny", 10)
    draw = random.Random(0)
    missed = False

    def below(what: str, value: float, bar: float, unit: str) -> None:
        nonlocal missed
        missed |= value >= bar
        print(f"{'   ' if value < bar else 'NOT'} {what}: {value:,.3f} {unit}, bar {bar} {unit}", flush=True)

    for place in ("kept on this machine", "in the data set"):
        if place == "in the data set":
            started, manifest, store = time.monotonic(), ss.Manifest.load(folder), open_store(folder)
            put_key_tables(open_dataset(folder))
            size = store.size(key_table_name(manifest.fingerprint))
            print(f"    written in {time.monotonic() - started:,.1f} s, {size:,} bytes", flush=True)
        else:
            found = look(folder, [key_of(7)], home)
            print(f"    made in {found['first']:,.1f} s", flush=True)
            below("memory of making it", found["peak"], MADE_MB, "MB")
        keys = [key_of(draw.randrange(arguments.samples)) for _ in range(LATER)]
        found = look(folder, keys, home)
        below(f"{place}: first get", found["first"], FIRST_S, "s")
        below(f"{place}: slowest of {LATER - 1} later ones", found["later"], LATER_S, "s")
        below(f"{place}: private memory", found["private"], PRIVATE_MB, "MB")
        if place == "in the data set":
            store.delete(key_table_name(manifest.fingerprint))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
