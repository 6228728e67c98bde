"""Packs ten million documents into bins, one of them of 30 MB; see ``tools/drills/pack_documents``."""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import shardstream as ss
from drills.pack_ten_million import MB, Bars, private, watch

BIN = 2048
MEDIAN, SIGMA = 60, 1.0  # bytes of a text, log-normal
PROCESS_MB = 400
SAMPLED = 2000
FULL = 0.999
LETTERS = "abcdefghijklmnopqrstuvwxyz    "
ROOM = 1 << 20
"""Letters, of which a text is some that stand in a row."""


def octets(text: str) -> Any:
    """A tokenizer: the bytes of a text."""
    return np.frombuffer(text.encode(), np.uint8)


class Documents:
    """Texts by number, none of which is held.

    Args:
        count: How many.
        longest: Bytes of the one in the middle.
    """

    def __init__(self, count: int, longest: int) -> None:
        draws = np.random.default_rng(0)
        self._letters = "".join(random.Random(0).choices(LETTERS, k=ROOM))
        self.lengths = np.clip(np.exp(draws.normal(np.log(MEDIAN), SIGMA, count)), 1, ROOM // 2).astype(np.int64)
        self.lengths[count // 2] = longest
        self._begins = draws.integers(0, ROOM // 2, count)

    def text(self, number: int) -> str:
        """One of them."""
        begin, length = int(self._begins[number]), int(self.lengths[number])
        whole = self._letters * (-(-(begin + length) // ROOM)) if begin + length > ROOM else self._letters
        return whole[begin : begin + length]

    def write(self, path: Path) -> None:
        """All of them as JSON lines."""
        with path.open("w") as out:
            for number in range(len(self.lengths)):
                out.write(f'{{"text": "{self.text(number)}"}}\n')


def command(source: Path, out: Path, workers: int) -> list[str]:
    """What packs them."""
    made = [sys.executable, "-m", "shardstream.cli", "pack", str(source), str(out), "--key", "line"]
    made += ["--tokenize", "drills.pack_documents:octets", "--tokenizer-id", "octets", "--token-dtype", "uint16"]
    return [*made, "--bins", str(BIN), "--format", "record", "--workers", str(workers), "--quiet"]


def digest(folder: Path) -> str:
    """Of all that a pack run leaves."""
    found = hashlib.blake2b()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(str(path.relative_to(folder)).encode())
            with path.open("rb") as file:
                while chunk := file.read(1 << 24):
                    found.update(chunk)
    return found.hexdigest()


def kill_once(made: list[str], out: Path, after: float) -> None:
    """Begin it, and kill all of its processes after so many seconds."""
    process = subprocess.Popen(made, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    print(f"    killed after {after:.0f} s, with {len(list(out.glob('shard-*')))} shards", flush=True)


def run(folder: Path, documents: Documents, workers: int, bars: Bars, *, killed: float | None) -> str:
    """Pack them once; what came of it, as a digest."""
    source, out = folder / "documents.jsonl", folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    made = command(source, out, workers)
    print(f"{workers} workers", flush=True)
    if killed is not None:
        kill_once(made, out, killed)
    seen = watch(made, out, folder / "log", private)  # the source is mapped, and no process has to hold it
    bars.true(seen.status == 0, f"it ends with status {seen.status}")
    if seen.status:
        print(seen.output)
        return ""
    print(f"    packed in {seen.seconds:,.0f} s, {len(documents.lengths) / seen.seconds:,.0f} documents/s", flush=True)
    bars.below("memory of the parent", seen.parent / MB, PROCESS_MB, "MiB")
    bars.below("memory of a worker", max(seen.workers.values(), default=0) / MB, PROCESS_MB, "MiB")
    return digest(out)


def check(out: Path, documents: Documents, bars: Bars) -> None:
    """Nothing is missing, nothing is cut that fits, and documents taken at random are what they were."""
    manifest = ss.Manifest.load(out)
    bins = manifest.bins
    assert bins is not None
    count, tokens = len(documents.lengths), int(documents.lengths.sum())
    bars.true((bins.documents, bins.tokens) == (count, tokens), f"{bins.documents:,} documents, {bins.tokens:,} tokens")
    cut = int((-(-documents.lengths // BIN)).sum())
    bars.true(bins.pieces == cut, f"{bins.pieces:,} pieces: none is cut that fits into a bin")
    full = tokens / (manifest.samples * BIN)
    bars.true(full >= FULL, f"{manifest.samples:,} bins in {manifest.shards} shards, {full:.4%} full, bar {FULL:.1%}")
    reader, wrong = ss.Reader(out), 0
    for number in [count // 2, *random.Random(0).sample(range(count), min(count, SAMPLED))]:
        found = reader.get(f"{number + 1:010}")
        wrong += not np.array_equal(found["ids"], octets(documents.text(number)))
    bars.true(not wrong, f"of {min(count, SAMPLED) + 1:,} documents, the longest among them, {wrong} differ")


def main() -> int:
    """Pack with several numbers of workers, killed once; 1 when a bar was missed."""
    parser = argparse.ArgumentParser(prog="tools/drills/pack_documents")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--longest", type=int, default=30_000_000)  # a line has at most 33.5 MB
    parser.add_argument("--workers", default="2,1,4")
    parser.add_argument("--killed-after", type=float, default=60)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    documents, bars = Documents(args.documents, args.longest), Bars()
    documents.write(args.folder / "documents.jsonl")
    size = (args.folder / "documents.jsonl").stat().st_size
    print(f"{args.documents:,} documents, {size / 1e6:,.0f} MB, one of {args.longest / 1e6:,.0f} MB", flush=True)
    digests = []
    for number, workers in enumerate(map(int, args.workers.split(","))):
        digests.append(run(args.folder, documents, workers, bars, killed=args.killed_after if number else None))
        if number == 0:
            check(args.folder / "out", documents, bars)
    bars.true(len(set(digests)) == 1, f"the same bytes with {args.workers} workers, all but the first killed once")
    if not bars.missed:
        shutil.rmtree(args.folder)
    print("a bar was missed" if bars.missed else "all bars reached")
    return int(bars.missed)


if __name__ == "__main__":
    sys.exit(main())
