"""Packs ten million lines, and watches memory while it does; see ``tools/drills/pack_ten_million``."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shardstream as ss
from shardstream.shards.fields import FieldType
from shardstream.shards.framings import framing_of
from shardstream.shards.manifest import Manifest
from shardstream.shards.table import NamedShards, ShardTable
from shardstream.storage import open_store

FILES, FILE_BYTES, CLASSES = 1000, 1024, 1000
SAMPLED = 20_000
LOOK_S = 0.05
MB = 1 << 20
PLANNED_S, PLANNED_MB = 60, 300
PARENT_MB, WORKER_MB = 400, 300
APPENDED_S, APPENDED = 2, 3000


@dataclass
class Watched:
    """What was seen of a run.

    Attributes:
        seconds: How long it took.
        first_shard: Seconds until the first shard was finished.
        planning: Peak of the parent's resident memory until then, in bytes.
        parent: The same until the end.
        workers: The same of each worker, by its process id.
        output: What it printed.
        status: Its exit status.
    """

    seconds: float = 0.0
    first_shard: float = float("inf")
    planning: int = 0
    parent: int = 0
    workers: dict[int, int] = field(default_factory=dict)
    output: str = ""
    status: int = 0


class Bars:
    """Prints what was found, and remembers whether all of it was as it has to be."""

    missed = False

    def below(self, what: str, value: float, bar: float, unit: str) -> None:
        """A figure that has to stay below a bar."""
        self.true(value < bar, f"{what}: {value:,.1f} {unit}, bar {bar:,} {unit}")

    def true(self, good: bool, what: str) -> None:
        """A statement that has to be true."""
        self.missed |= not good
        print(f"{'   ' if good else 'NOT'} {what}", flush=True)


def write_source(folder: Path, lines: int, missing: float) -> Path:
    """A thousand files of random bytes, and a list of so many lines: path, label, id. A share of them is not there."""
    files = folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        (files / f"{number:03}.bin").write_bytes(random.Random(number).randbytes(FILE_BYTES))
    path = folder / f"list-{lines}-{missing}.tsv"
    with path.open("w") as out:
        out.write("path\tlabel\tid\n")
        for start in range(0, lines, 100_000):
            end = min(lines, start + 100_000)
            out.writelines(
                f"{'gone' if is_missing(i, missing) else 'files'}/{i % FILES:03}.bin\t{label_of(i)}\t"
                f"n{label_of(i):08}/{i:08}\n"
                for i in range(start, end)
            )
    return path


def is_missing(number: int, share: float) -> bool:
    """Whether the file of a line, from 0, is not there: such a share of them, all over the list."""
    return number * 2_654_435_761 % (1 << 32) < share * (1 << 32)


def label_of(number: int) -> int:
    """The label of a line, from 0."""
    return number * 7 % CLASSES


def peak(pid: int) -> int:
    """The most memory that a process has had resident, mapped files included, in bytes; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def private(pid: int) -> int:
    """The memory that a process has to itself at this moment, without what it maps of files, in bytes; 0: it ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def children(pid: int) -> Iterator[int]:
    """Processes that a process has started."""
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            yield from map(int, (task / "children").read_text().split())
    except OSError:
        return


def watch(command: list[str], out: Path, log: Path, memory: Callable[[int], int] = peak) -> Watched:
    """Run a command that writes shards into ``out``, and look at the memory of its processes all the time."""
    seen = Watched()
    start = time.perf_counter()
    with log.open("w+") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                seen.parent = max(seen.parent, memory(process.pid))
                for pid in children(process.pid):
                    seen.workers[pid] = max(seen.workers.get(pid, 0), memory(pid))
                if seen.first_shard == float("inf"):
                    seen.planning = seen.parent
                    if any(out.glob("shard-*")):
                        seen.first_shard = time.perf_counter() - start
                time.sleep(LOOK_S)
        finally:
            process.kill()
            seen.status = process.wait()
        seen.seconds = time.perf_counter() - start
        file.seek(0)
        seen.output = file.read()
    return seen


def convert(folder: Path, lines: int, missing: float, workers: int, bars: Bars) -> None:
    """Pack the list, look at the result, pack it again."""
    what = f"a list of {lines:,} lines over {FILES:,} files of {FILE_BYTES:,} bytes, {missing:.0%} of them missing"
    print(f"{what}, {workers} workers", flush=True)
    source, out = write_source(folder, lines, missing), folder / f"out-{lines}"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "shardstream.cli", "pack", str(source), str(out), "--key", "id"]
    command += ["--format", "record", "--workers", str(workers)]
    seen = watch(command, out, folder / "log")
    bars.true(seen.status == 0, f"it ends with status {seen.status}")
    if seen.status:
        print(seen.output)
        return
    rate = f"{lines / seen.seconds:,.0f} samples/s"
    print(f"    packed in {seen.seconds:,.0f} s, {rate}", flush=True)
    bars.below("planning, up to the first finished shard", seen.first_shard, PLANNED_S, "s")
    bars.below("memory of the parent while planning", seen.planning / MB, PLANNED_MB, "MiB")
    bars.below("memory of the parent", seen.parent / MB, PARENT_MB, "MiB")
    if workers > 1:  # else the parent does it
        bars.below("memory of a worker", max(seen.workers.values(), default=0) / MB, WORKER_MB, "MiB")
    check(out, lines, missing, bars)
    again = watch(command, out, folder / "log")
    told = again.status == 0 and "already" in again.output.lower()
    bars.true(told, f"the same command again: {again.seconds:.1f} s, {again.parent / MB:,.0f} MiB, it says:")
    print("".join(f"        {line}\n" for line in again.output.splitlines()[:4]), end="", flush=True)


def check(out: Path, lines: int, missing: float, bars: Bars) -> None:
    """Every line is there once, by its key or as a reject; of some samples all bytes are compared."""
    store, manifest = open_store(out), ss.Manifest.load(out)
    times = np.zeros(lines, np.uint8)
    framing = framing_of(manifest.framing)
    for i in range(manifest.shards):
        keys = framing.scan(store, manifest.shard_name(i)).keys
        np.add.at(times, np.array([int(key.rpartition("/")[2]) for key in keys]), 1)
    gone = np.fromiter((is_missing(i, missing) for i in range(lines)), bool, lines)
    there = lines - int(gone.sum())
    bars.true(manifest.samples == there, f"{manifest.samples:,} samples in {manifest.shards:,} shards")
    bars.true(bool((times == ~gone).all()), f"{int((times == 1).sum()):,} keys are there once, and no others")
    rejected = rejects(out)
    in_order = np.array_equal(rejected, np.flatnonzero(gone) + 2)
    bars.true(in_order, f"{len(rejected):,} lines are rejects, in their order")
    contents = [random.Random(number).randbytes(FILE_BYTES) for number in range(FILES)]
    reader = ss.Reader(out)
    wrong = 0
    sampled = random.Random(0).sample(range(there), min(there, SAMPLED))
    for number in sorted(sampled):
        sample = reader[number]
        line = int(sample["__key__"].rpartition("/")[2])
        expected = f"n{label_of(line):08}/{line:08}", contents[line % FILES], label_of(line)
        wrong += (sample["__key__"], sample["bin"], sample["cls"]) != expected
    bars.true(not wrong, f"of {len(sampled):,} samples at random {wrong} differ")


def rejects(out: Path) -> NDArray[np.int64]:
    """The lines in ``rejects.jsonl``; the first line of the list is its header."""
    if not (out / "rejects.jsonl").exists():
        return np.empty(0, np.int64)
    with (out / "rejects.jsonl").open() as file:
        return np.fromiter((json.loads(line)["line"] for line in file), np.int64)


def append(folder: Path, shards: int, bars: Bars) -> None:
    """Append to a data set of so many shards. The old ones are empty files: none of them is looked into."""
    folder = folder / "grown"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pattern = "shard-{:07d}.tar"
    for number in range(shards):
        (folder / pattern.format(number)).touch()
    table = ShardTable(np.full(shards, 1000, "<u4"), np.full(shards, 1 << 28, "<u8"), np.zeros(shards, "<u8"))
    fields = {"cls": FieldType.parse("int64"), "txt": FieldType.parse("str")}
    Manifest(framing="tar", fields=fields, naming=(NamedShards(pattern, shards),), table=table).save(open_store(folder))
    new = folder.with_name("alone")
    alone, seconds = _written(new, append=False), _written(folder, append=True)
    grown, added = ss.Manifest.load(folder), ss.Manifest.load(new).shards
    good = (grown.version, grown.shards) == (2, shards + added)
    bars.true(good, f"version {grown.version} of {shards:,} + {added} shards")
    print(f"    appending took {seconds:.1f} s, writing the same into an empty folder {alone:.1f} s", flush=True)
    bars.below(f"appending to {shards:,} shards, beyond writing the new ones", seconds - alone, APPENDED_S, "s")


def _written(folder: Path, *, append: bool) -> float:
    if not append:
        shutil.rmtree(folder, ignore_errors=True)
    start = time.perf_counter()
    with ss.ShardWriter(folder, append=append, shard_size="1MB") as writer:
        for number in range(APPENDED):
            writer.write({"__key__": f"new/{number}", "cls": number, "txt": "x" * 512})
    return time.perf_counter() - start


def main() -> int:
    """Convert and append; 1 when a bar was missed."""
    parser = argparse.ArgumentParser(prog="tools/drills/pack_ten_million")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--missing", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=1_000_000)
    args = parser.parse_args()
    bars = Bars()
    if args.lines:
        convert(args.folder, args.lines, args.missing, args.workers, bars)
    if args.shards:
        append(args.folder, args.shards, bars)
    if not bars.missed:
        shutil.rmtree(args.folder)
    print("a bar was missed" if bars.missed else "all bars reached")
    return int(bars.missed)


if __name__ == "__main__":
    sys.exit(main())
