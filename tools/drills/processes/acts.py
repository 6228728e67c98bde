"""What the two accounts of ``tools/drills/accounts`` do, each in a process of its own: ``acts.py NAME ARGUMENT...``."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import shardstream as ss

PLANTS = ("link", "dangling link", "FIFO", "directory", "hard link")
DAMAGE = ("link", "FIFO", "cut", "grow", "random", "directory", "no rights", "deep JSON")
GROWN = 1 << 40  # sparse: it takes no room


def train(data: str, stats: str, trace: str) -> None:
    """An epoch that writes its statistics and its trace."""
    loader = ss.Loader(ss.ShardDataset(data, batch_size=8), num_workers=0, stats_file=stats, stats_every=0.01)
    with ss.trace(trace):
        for _ in loader:
            time.sleep(0.02)


def plant(path: str, kind: str, target: str) -> None:
    """Something at a path where another account wants to write or read."""
    Path(path).unlink(missing_ok=True)
    if kind == "link":
        os.symlink(target, path)
    elif kind == "dangling link":
        os.symlink(f"{target}.new", path)
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        os.mkdir(path)
    else:
        os.link(target, path)  # the kernel refuses it where fs.protected_hardlinks is 1


def guess(path: str, kind: str, target: str) -> None:
    """The same under temporary names that a program might make of the path and its process, soon to be started."""
    folder, name = os.path.split(path)
    for process in range(os.getpid(), os.getpid() + 300):
        plant(f"{folder}/.{name}.{process}", kind, target)


def pack(source: str, out: str) -> None:
    """A directory of images, packed by one process."""
    ss.pack(source, out)


def read(url: str, cache: str, samples: str) -> None:
    """An epoch through a cache that is shared: every sample, once."""
    dataset = ss.ShardDataset(url, batch_size=10, cache=ss.Cache(cache, shared=True))
    found = sorted(int(one) for batch in ss.Loader(dataset, num_workers=0) for one in batch["n"])
    if found != list(range(int(samples))):
        raise ValueError(f"{len(found)} samples came")


def damage(folder: str, kind: str, target: str, seed: str) -> None:
    """Every file of a cache, or some of them, made into something else."""
    draws = random.Random(f"{kind} {seed}")
    for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
        if draws.random() < 0.3:
            continue
        data = path.read_bytes()
        if kind == "cut":
            os.truncate(path, draws.randrange(len(data) + 1))
        elif kind == "grow":
            os.truncate(path, GROWN)
        elif kind == "random":
            path.write_bytes(draws.randbytes(len(data)))
        elif kind == "deep JSON":
            path.write_bytes(b"[" * 200_000)
        elif kind == "no rights":
            path.chmod(0)
        else:
            plant(str(path), kind, target)


def forge(data: str, seed: str) -> None:
    """Train, with the memory that says how far workers are overwritten at random; prints when it is, and waits."""
    draws = random.Random(seed)
    loader = ss.Loader(ss.ShardDataset(data, batch_size=8), num_workers=0)
    batches = iter(loader)
    next(batches)
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    shared = [name for name in names if os.path.islink(name) and "memfd:shardstream" in os.readlink(name)]
    if not shared:
        raise ValueError("a run shares no memory with those that look at it")
    odd = (b"\xff" * 8, b"\0" * 8, b"{:2000000000}", b"{0.__class__}", b"\x1b]0;x\x07", b"[" * 99)
    for name in shared:
        with open(name, "r+b", buffering=0) as memory:
            size = memory.seek(0, os.SEEK_END)
            if not size:
                continue
            for _ in range(draws.randrange(1, 6)):
                memory.seek(draws.randrange(0, size, draws.choice((1, 8))))
                memory.write(
                    draws.choice((*odd, draws.randbytes(8), draws.randrange(1 << 20).to_bytes(8, "little")))[:size]
                )
            if draws.random() < 0.2:
                memory.truncate(draws.choice((0, 7, size // 2, 200 << 30)))
    print("ready", flush=True)
    time.sleep(60)


def main() -> None:
    """The act of this name."""
    acts = {act.__name__: act for act in (train, plant, guess, pack, read, damage, forge)}
    acts[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
