"""Every writer, ended at every point of its way; see ``tools/drills/crash_points``."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import pickle
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

import shardstream as ss
from drills.writing import Found, Verb, look, make_data, tree, verbs_on
from shardstream.testing import MemoryStore

PATIENCE_S = 60
EVENTS = frozenset(
    ("os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate", "os.utime")
)
WRITES = ("write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range")
OTHERS = ("fsync", "fdatasync", "ftruncate", "posix_fallocate")
# Once, here, and not in each child.
IMPORTED = (
    "numpy.ma",
    "pandas",  # which pyarrow imports where it is there
    "pyarrow.parquet",
    "torch.utils.data",
    *(f"shardstream.{name}" for name in ("diagnose.verify", "formats.sources", "stream", "storage.cache")),
    *(f"shardstream.pack.{name}" for name in ("run", "repack", "merge", "export", "sources.opening")),
    *(f"shardstream.pack.export.{name}" for name in ("files", "webdataset", "parquet", "mds")),
)
MOST = 20  # problems that are shown of a verb
CACHED = 100  # samples of the data set that is cached

T = TypeVar("T")
_write = os.write  # as it was before it is counted


Ending: TypeAlias = Callable[[Callable[[], object]], None]
"""What happens at a step; it may have half of what is written there be written first."""


def killed(_: Callable[[], object]) -> None:
    """SIGKILL before the step."""
    os.kill(os.getpid(), signal.SIGKILL)


def torn(half: Callable[[], object]) -> None:
    """SIGKILL in the middle of what is written."""
    half()
    os.kill(os.getpid(), signal.SIGKILL)


def failing(name: str) -> Ending:
    """The system refuses the step, and all that write after it, as a disk does that is full or broken."""
    code: int = getattr(errno, name)

    def fails(half: Callable[[], object]) -> None:
        raise OSError(code, os.strerror(code))

    return fails


class Points:
    """Counts what this process does to files, and has something happen at one of these steps.

    Args:
        last: Which one.
        ending: What happens.
        on: With all steps that follow as well.
    """

    def __init__(self, last: int, ending: Ending, *, on: bool = False) -> None:
        self._last, self._ending, self._on = last, ending, on
        self.passed = 0
        sys.addaudithook(self._heard)
        for name in (*WRITES, *OTHERS):
            setattr(os, name, self._counted(getattr(os, name), whole=name not in ("write", "pwrite")))

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if arguments and _is_elsewhere(arguments[0]):
            return
        if event in EVENTS or (event == "open" and _writes(arguments[2])):
            self._step(lambda: None, removes=event in ("os.remove", "os.rmdir"))

    def _counted(self, function: Callable[..., Any], *, whole: bool) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            def half() -> None:
                if not whole:
                    function(arguments[0], memoryview(arguments[1]).cast("B")[: len(arguments[1]) // 2], *arguments[2:])

            if not _is_elsewhere(arguments[0]):
                self._step(half)
            return function(*arguments, **named)

        return called

    def _step(self, half: Callable[[], object], *, removes: bool = False) -> None:
        number = self.passed
        self.passed += 1
        if number == self._last or (self._on and number > self._last and not removes):
            self._ending(half)


def _is_elsewhere(file: object) -> bool:
    """Whether this is no file on a disk, but a device or memory that processes share."""
    if isinstance(file, int):
        with suppress(OSError):
            return os.readlink(f"/proc/self/fd/{file}").startswith(("/memfd:", "/dev/", "socket:", "pipe:"))
    return isinstance(file, str) and file.startswith("/dev/")


def _writes(flags: object) -> bool:
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def in_child(function: Callable[[], T]) -> T | None:
    """What a function returns in a process of its own; ``None`` where that was killed.

    Raises:
        RuntimeError: It raised, or it hangs.
    """
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        try:
            answer: tuple[bool, Any] = True, function()
        except BaseException as error:
            answer = False, f"{type(error).__name__}: {error}"
        left = memoryview(pickle.dumps(answer))
        while left:
            left = left[_write(theirs, left) :]
        os._exit(0)
    os.close(theirs)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGABRT))
    signal.alarm(PATIENCE_S)
    with open(ours, "rb") as pipe:
        got = pipe.read()
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != signal.SIGKILL:
            raise RuntimeError(f"it hangs, or died of signal {os.WTERMSIG(status)}")
        return None
    done, value = pickle.loads(got)  # noqa: S301 - of our own child
    if not done:
        raise RuntimeError(value)
    found: T = value
    return found


@dataclass(frozen=True)
class How:
    """What happens at each point.

    Attributes:
        name: In words.
        ending: It.
        on: At all points after it as well.
    """

    name: str
    ending: Ending
    on: bool = False


HOWS = (
    How("killed before each step", killed),
    How("killed in the middle of each write", torn),
    How("refused by EIO once", failing("EIO")),
    *(How(f"refused by {name} from there on", failing(name), True) for name in ("ENOSPC", "EDQUOT", "EROFS", "EMFILE")),
)


@dataclass
class Tried:
    """What came of it.

    Attributes:
        points: How many there were.
        whole: After how many of them the new data set was there.
        problems: What must not be.
    """

    points: int = 0
    whole: int = 0
    problems: list[str] = field(default_factory=list)


def run_to(call: Callable[[], object], last: int, how: How) -> tuple[bool, str | None]:
    """Whether a run ends before that point; and what it raised that is not ours."""

    def run() -> tuple[bool, str | None]:
        points = Points(last, how.ending, on=how.on)
        try:
            call()
        except ss.errors.ShardStreamError as error:
            return False, None if error.hint else f"no hint: {error}"
        except Exception as error:
            return False, f"{type(error).__name__}: {error}"
        return points.passed <= last, None

    return in_child(run) or (False, None)


def at_each_point(
    prepare: Callable[[], object], call: Callable[[], object], how: How, after: Callable[[], tuple[bool, list[str]]]
) -> Tried:
    """Have it happen to a call at each of its points.

    Args:
        prepare: Makes everything as it is before.
        call: What is ended.
        how: What happens.
        after: Looks at what is left: whether what is new is whole, and what is wrong. What it raises is wrong, too.
    """
    tried = Tried()
    while True:
        prepare()
        over, raised = run_to(call, tried.points, how)
        if over:
            return tried
        told = [raised] if raised else []
        try:
            whole, problems = after()
            tried.whole += whole
            told += problems
        except RuntimeError as error:
            told.append(f"the next run: {error}")
        tried.problems += [f"step {tried.points}: {one}" for one in told]
        tried.points += 1


def drill(verb: Verb, out: Path, how: How) -> Tried:
    """Have it happen to one verb at each of its points, look, and do it again to its end."""
    quiet = in_child(lambda: verb.quiet(out))
    assert quiet is not None

    def seen() -> Found:
        found = in_child(lambda: look(verb, out, quiet))
        assert found is not None
        return found

    def after() -> tuple[bool, list[str]]:
        found = seen()
        in_child(lambda: verb.call(out))
        left = seen()
        return found.whole, [
            *found.problems,
            *left.problems,
            *([] if left.whole else ["the next run did not complete it"]),
            *(f"{name} is left over" for name in sorted(tree(out)) if name not in quiet),
        ]

    return at_each_point(lambda: in_child(lambda: verb.prepare(out)), lambda: verb.call(out), how, after)


def cache_drill(folder: Path, how: How) -> Tried:
    """The same of the cache: what is read while it happens is right or an error; the next readers read all of it."""
    store, draws = MemoryStore(), np.random.default_rng(0)
    values = [draws.bytes(int(draws.integers(1, 20_000))) for _ in range(CACHED)]
    with ss.ShardWriter(store, shard_size="1MB") as writer:  # children have it by their fork
        for number, raw in enumerate(values):
            writer.write({"__key__": str(number), "raw": raw})
    out = folder / "cache"

    def read() -> None:
        dataset = ss.ShardDataset(store, cache=str(out), tail="exact", batch_size=32)
        found = {
            key: np.asarray(raw).tobytes()
            for batch in dataset
            for key, raw in zip(batch["__key__"], batch["raw"], strict=True)
        }
        if found != {str(number): raw for number, raw in enumerate(values)}:
            raise ValueError("other samples")

    def after() -> tuple[bool, list[str]]:
        for _ in range(2):
            in_child(read)
        return False, []

    return at_each_point(lambda: shutil.rmtree(out, ignore_errors=True), read, how, after)


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--shard-size", default="12kB")
    parser.add_argument("--how", default="", help="a part of what happens; default: all of it")
    parser.add_argument("--only", help="verbs, separated by commas; default: all")
    given = parser.parse_args()
    logging.disable()
    shutil.rmtree(given.folder, ignore_errors=True)
    data, out = given.folder / "data", given.folder / "out"
    for name in IMPORTED:
        with suppress(ImportError):
            import_module(name)
    in_child(lambda: make_data(data, samples=given.samples, shard_size=given.shard_size))
    verbs = verbs_on(data, shard_size=given.shard_size)
    chosen = given.only.split(",") if given.only else [*(verb.name for verb in verbs), "cache"]
    failed, points = False, 0
    for name in chosen:
        for how in HOWS:
            if given.how not in how.name:
                continue
            started = time.monotonic()
            if name == "cache":
                tried = cache_drill(given.folder, how)
            else:
                tried = drill(next(one for one in verbs if one.name == name), out, how)
            points += tried.points
            failed |= bool(tried.problems)
            print(
                f"{name}, {how.name}: {tried.points} points, {tried.whole} times the new data set was there; "
                f"{len(tried.problems)} problems; {time.monotonic() - started:.0f} s",
                flush=True,
            )
            print("".join(f"  {one}\n" for one in tried.problems[:MOST]), end="", flush=True)
    print(f"{points:,} points in all")
    if not failed:
        shutil.rmtree(given.folder)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
