"""Reads through a cache whose files somebody damages meanwhile; see ``tools/drills/cache_damage``."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from multiprocessing.managers import DictProxy
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

import shardstream as ss
from shardstream.testing import MemoryStore

SAMPLES = 4000
LONGEST = 60_000
PAUSE_S = 0.05  # between two blows, at most
BATCH = 64


def content(number: int) -> bytes:
    """The value of a sample."""
    rng = np.random.default_rng(number)
    return rng.bytes(int(rng.integers(0, LONGEST)))


def cut(path: Path, rng: random.Random) -> None:
    """A blow: the file ends sooner."""
    os.truncate(path, rng.randrange(path.stat().st_size + 1))


def cut_and_stretched(path: Path, rng: random.Random) -> None:
    """A blow: zeros to its end."""
    size = path.stat().st_size
    cut(path, rng)
    os.truncate(path, size)


def overwritten(path: Path, rng: random.Random) -> None:
    """A blow: other bytes, in the head, the map or the data."""
    with path.open("r+b") as file:
        file.seek(rng.randrange(path.stat().st_size + 1))
        file.write(rng.randbytes(rng.choice((1, 4096, 1 << 20))))


def emptied(path: Path, rng: random.Random) -> None:
    """A blow: nothing is left in it."""
    os.truncate(path, 0)


def removed(path: Path, rng: random.Random) -> None:
    """A blow: no file."""
    path.unlink()


BLOWS = (cut, cut_and_stretched, overwritten, emptied, removed)


def damage(cache: Path, seed: int, done: DictProxy[str, int]) -> None:
    """Strike some file of the cache, again and again."""
    rng = random.Random(seed)
    while True:
        time.sleep(rng.uniform(0, PAUSE_S))
        files = sorted(cache.rglob("*.blocks"))
        if files:
            blow = rng.choice(BLOWS)
            with suppress(FileNotFoundError):
                blow(rng.choice(files), rng)
                done[blow.__name__] = done.get(blow.__name__, 0) + 1


def epoch(batches: Iterable[dict[str, Any]], expected: Mapping[str, int]) -> None:
    """One epoch; ValueError where it is not what was written."""
    seen: Counter[str] = Counter()
    for batch in batches:
        for key, raw in zip(batch["__key__"], batch["raw"], strict=True):
            seen[key] += 1
            if xxhash.xxh3_64_intdigest(np.asarray(raw).tobytes()) != expected[key]:
                raise ValueError(f"sample {key} is not what was written")
    if seen != Counter(expected.keys()):
        raise ValueError(f"{len(seen):,} of {len(expected):,} samples came, {max(seen.values())} times at most")


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    store, expected = MemoryStore(), {}
    with ss.ShardWriter(store, shard_size="4MB") as writer:
        for number in range(SAMPLES):
            raw = content(number)
            writer.write({"__key__": f"{number}", "raw": raw})
            expected[f"{number}"] = xxhash.xxh3_64_intdigest(raw)
    cache, ends, epochs, errors = given.folder / "cache", time.monotonic() + 60 * given.minutes, 0, 0
    with multiprocessing.get_context("spawn").Manager() as manager:
        done = manager.dict()
        blows = multiprocessing.get_context("fork").Process(target=damage, args=(cache, given.seed, done), daemon=True)
        blows.start()
        dataset = ss.ShardDataset(store, cache=str(cache), shuffle=True, tail="exact", batch_size=BATCH)
        loader = ss.Loader(dataset, num_workers=given.workers, persistent_workers=given.workers > 0)
        while time.monotonic() < ends:
            try:
                epoch(loader, expected)
                epochs += 1
            except ss.errors.ChecksumError:  # struck again between the first look and the second, which is the last
                errors += 1
        blows.kill()
        told = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(done.items()))
    hits = loader.stats.transfers.get("cache_hit_bytes", 0)
    print(f"{epochs} epochs of {SAMPLES:,} samples, each once and as written; {hits / 1e9:.1f} GB from the cache")
    print(f"meanwhile files were {told}; epochs that ended in an error: {errors}")
    shutil.rmtree(given.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
