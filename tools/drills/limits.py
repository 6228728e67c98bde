"""Machines that are short of something, or odd; see ``tools/drills/limits``."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import shardstream as ss
from drills.named import asked, problems_of
from drills.writing import Verb, make_data, tree, verbs_on
from shardstream.testing import make_dataset

LONGEST_S = 180
SAMPLES, SHARD_SIZE = 600, "40kB"
LARGE, BATCH = 64, 16
"""Samples of the data set that is read, of 100 kB each, and of a batch: more than a small memory for all has."""
METHODS = ("fork", "forkserver", "spawn")
SHM = Path("/dev/shm")  # noqa: S108 - it is mounted anew, for this process and its children alone
LONG = "é" * 127 + "x"
"""A name of 255 bytes."""
FEW = 40
"""Files that a process may have open: some thirty of them are the interpreter's, torch's and those of its workers."""
_CLOCK = """
import random, time
_time, _draws = time.time, random.Random(0)
time.time = lambda: _time() + _draws.choice((-86_400, -3_600, -1, 0, 0, 1, 3_600, 86_400))
time.time_ns = lambda: int(time.time() * 1e9)
"""

Problems = Iterator[str]


def run(
    *arguments: str, more: Mapping[str, str] | None = None, files: int | None = None
) -> subprocess.CompletedProcess[str]:
    """A Python process.

    Args:
        arguments: Of the interpreter.
        more: Variables of its environment.
        files: That it may have open.
    """

    def limited() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | (more or {}),
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
        preexec_fn=limited,
    )


def shardstream(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command; see `run` for options."""
    return run("-m", "shardstream.cli", *map(str, arguments), "-q", **options)


def call(verb: Verb, out: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that writes, with two workers where it has any."""
    workers = ["--workers", "2"] if verb.has_workers else []
    return shardstream(*verb.flags, out, *workers, **options)


def read(url: str, cache: str | None, memory: str | None, method: str) -> None:
    """Two epochs with two workers; every sample comes once."""
    kept = ss.Cache(cache, memory=memory) if cache else None
    dataset = ss.ShardDataset(url, shuffle=True, tail="exact", batch_size=BATCH, cache=kept, ranks=(0, 1))
    loader = ss.Loader(dataset, num_workers=2, multiprocessing_context=method)
    for _ in range(2):
        found = sorted(one for batch in loader for one in batch["id"].tolist())
        if found != list(range(LARGE)):
            raise ValueError(f"{len(found)} samples came")


def reading(
    folder: Path, *, cache: Path | None = None, memory: Path | None = None, method: str = "fork", **options: Any
) -> subprocess.CompletedProcess[str]:
    """`read`, in a process."""
    arguments = str(folder / "large"), cache and str(cache), memory and str(memory), method
    return run("-c", f"from drills.limits import read; read{arguments!r}", **options)


def went_well(name: str, done: subprocess.CompletedProcess[str]) -> Problems:
    """What is wrong with a process that should have done its work."""
    if done.returncode:
        yield f"{name} ended with {done.returncode}\n{done.stderr[-1500:]}"


def was_refused(name: str, done: subprocess.CompletedProcess[str], words: str) -> Problems:
    """What is wrong with a command that should have ended in one error, with a hint."""
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    hints = [line for line in done.stderr.splitlines() if line.startswith("  hint: ")]
    if not done.returncode or len(errors) != 1 or not hints or words not in done.stderr or "Traceback" in done.stderr:
        yield f"{name} ended with {done.returncode}, where {words!r} was to be said once\n{done.stderr[-1500:]}"


def same(name: str, out: Path, wanted: Mapping[str, bytes]) -> Problems:
    """What is wrong with what a command left."""
    left = tree(out)
    if left != wanted:
        wrong = sorted(one for one in left.keys() | wanted.keys() if left.get(one) != wanted.get(one))
        yield f"{name} left something else: {', '.join(wrong[:6])}"


@contextmanager
def shown(source: Path, at: Path, *, folds: bool = False, slow: float = 0.0) -> Iterator[Path]:
    """Show a folder at another place while the block lasts.

    Args:
        source: The folder.
        at: Where; an empty folder.
        folds: See `drills.processes.odd_disk`.
        slow: See there.
    """
    command = [sys.executable, "-m", "drills.processes.odd_disk", str(source), str(at), "--slow", str(slow)]
    if folds:
        command.append("--folds")
    with tempfile.TemporaryFile("w+") as told, subprocess.Popen(command, stdout=told, stderr=told) as process:
        try:
            deadline = time.monotonic() + LONGEST_S
            while not os.path.ismount(at):
                if process.poll() is not None or time.monotonic() > deadline:
                    told.seek(0)
                    raise RuntimeError(f"{at} could not be mounted: {told.read()[-500:]}")
                time.sleep(0.02)
            yield at
        finally:
            process.terminate()  # which unmounts it
            process.wait(LONGEST_S)


@contextmanager
def memory_disk(at: Path, size: int) -> Iterator[Path]:
    """A file system in memory, of so many bytes; ``/dev/shm`` is one for this process and its children alone."""
    at.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


class Limits:
    """What is tried; each method but the first is a limit, and gives problems.

    Args:
        folder: Empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_data(folder / "data", samples=SAMPLES, shard_size=SHARD_SIZE)
        self.verbs = verbs_on(folder / "data", shard_size=SHARD_SIZE)
        self.wanted = {verb.name: verb.quiet(folder / "quiet" / str(i)) for i, verb in enumerate(self.verbs)}
        make_dataset(folder / "large", fields={"id": "int64", "x": "array:float32:25000"}, samples=LARGE, shards=8)

    def all(self, place: Path, **options: Any) -> Problems:
        """Every command, in a place where each of them has to do its work."""
        for number, verb in enumerate(self.verbs):
            out = place / f"out-{number}"
            verb.prepare(out)
            yield from went_well(verb.name, call(verb, out, **options))
            yield from same(verb.name, out, self.wanted[verb.name])

    def no_case(self) -> Problems:
        """Names that differ in case alone are one."""
        real, seen = self.folder / "real", self.folder / "seen"
        real.mkdir()
        seen.mkdir()
        with ss.ShardWriter(self.folder / "clash") as writer:
            for key in ("photo/A", "photo/b", "photo/a"):
                writer.write({"__key__": key, "txt": key})
        with shown(real, seen, folds=True):
            yield from self.all(seen)
            yield from went_well("reading", reading(self.folder, cache=seen / "cache"))
            done = run(
                "-m", "shardstream.cli", "export", str(self.folder / "clash"), str(seen / "c"), "--to", "files", "-q"
            )
            yield from was_refused("export of 'A' and 'a'", done, "'photo/A' and 'photo/a'")

    def slow_disk(self) -> Problems:
        """Whatever is made, written, renamed or flushed takes a fifth of a second."""
        real, seen = self.folder / "slow-real", self.folder / "slow"
        real.mkdir()
        seen.mkdir()
        verb = self.verbs[0]
        with shown(real, seen, slow=0.2):
            yield from went_well(verb.name, call(verb, seen / "out"))
            yield from same(verb.name, seen / "out", self.wanted[verb.name])
            yield from went_well("reading", reading(self.folder, cache=seen / "cache"))

    def full_disk(self) -> Problems:
        """There is no room; then there is."""
        for number, verb in enumerate(self.verbs):
            with memory_disk(self.folder / f"full-{number}", 8 << 20) as place:
                verb.prepare(place / "out")
                room = os.statvfs(place)
                (place / "filling").write_bytes(bytes(room.f_bavail * room.f_frsize - (32 << 10)))
                yield from was_refused(verb.name, call(verb, place / "out"), "make room")
                (place / "filling").unlink()
                subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
                yield from went_well(f"{verb.name}, with room", call(verb, place / "out"))
                yield from same(verb.name, place / "out", self.wanted[verb.name])
        with memory_disk(self.folder / "full-cache", 1 << 20) as place:
            yield from went_well("reading through a cache on it", reading(self.folder, cache=place / "cache"))

    def small_shm(self) -> Problems:
        """``/dev/shm`` has 64 kB, as a batch has 1.6 MB; then nothing at all."""
        with memory_disk(SHM, 64 << 10):
            for method in METHODS:
                yield from went_well(f"reading, {method}", reading(self.folder, method=method))
            cache = self.folder / "shm-cache"
            yield from went_well("reading with a cache there", reading(self.folder, cache=cache, memory=SHM))
            left = [path.name for path in SHM.iterdir()]
            yield from (f"{name} is left in /dev/shm" for name in left if not name.startswith("shardstream"))
            yield from self.all(self.folder / "shm")

    def full_shm(self) -> Problems:
        """``/dev/shm`` is full: what works without it works, and the rest says so."""
        with memory_disk(SHM, 64 << 10):
            (SHM / "filling").write_bytes(bytes(os.statvfs(SHM).f_bavail * os.statvfs(SHM).f_frsize))
            for method in METHODS:
                done = reading(self.folder, method=method)
                if done.returncode and str(SHM) not in done.stderr:
                    yield f"reading, {method}: {done.stderr[-1500:]}"
            yield from self.all(self.folder / "shm-full")

    def few_files(self) -> Problems:
        """Some forty open files a process."""
        yield from self.all(self.folder / "few", files=FEW)
        for method in METHODS:
            done = reading(self.folder, cache=self.folder / f"few-{method}", method=method, files=FEW)
            yield from went_well(f"reading, {method}", done)

    def clock(self) -> Problems:
        """The time of day jumps by up to a day, back and forth, each time that somebody looks."""
        hook = self.folder / "clock"
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(_CLOCK)
        more = {"PYTHONPATH": f"{hook}:{os.environ['PYTHONPATH']}"}
        yield from self.all(self.folder / "jumps", more=more)
        for _ in range(2):
            yield from went_well("reading", reading(self.folder, cache=self.folder / "jumps/cache", more=more))

    def long_names(self) -> Problems:
        """Names of 255 bytes."""
        yield from self.all(self.folder / LONG)
        yield from went_well("reading", reading(self.folder, cache=self.folder / LONG / LONG))
        photos, out = self.folder / "photos", self.folder / "long"
        (photos / LONG).mkdir(parents=True)
        (photos / LONG / f"{'a' * 251}.txt").write_text("a")
        yield from went_well("pack", run("-m", "shardstream.cli", "pack", str(photos), str(out), "-q"))
        back = self.folder / "back"
        yield from went_well(
            "export", run("-m", "shardstream.cli", "export", str(out), str(back), "--to", "files", "-q")
        )
        with ss.ShardWriter(self.folder / "too-long") as writer:
            writer.write({"__key__": "k" * 252, "txt": "x"})
        for kind in ("webdataset", "parquet", "mds", "files"):
            place = self.folder / f"too-long-{kind}"
            done = shardstream("export", self.folder / "too-long", place, "--to", kind)
            yield from was_refused(kind, done, "too long") if kind == "files" else went_well(kind, done)


LIMITS = ("no_case", "slow_disk", "full_disk", "small_shm", "full_shm", "few_files", "clock", "long_names")


def main() -> int:
    """Exit status."""
    folder, names = asked(LIMITS)
    count = problems_of(Limits(folder), names)
    if not count:
        shutil.rmtree(folder)
    return bool(count)


if __name__ == "__main__":
    raise SystemExit(main())
