"""Reads damaged data sets of other libraries, and watches what comes of it; see ``tools/drills/foreign_fuzz``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests/golden/foreign/corpus"
CPU_S = 3.0  # of one case
PATIENCE_S = 120.0  # for a process whose case does not end, whatever the alarm says
MEMORY = 192 << 20  # address space beyond what a process takes that has read every case once
WHOLE_EVERY = 20  # cases, of which one is read with a catalogue and by a reader, too
MOST_FINDINGS = 20
_PROGRESS = struct.Struct("<Qd")  # number of the case that is being read, and when the first one was begun


class TooLongError(BaseException):
    """The alarm: nothing that catches errors may take it for one."""


def _room(name: str) -> Any:
    """A module of the tests, in which the cases are made."""
    sys.path.insert(0, str(ROOT))
    return importlib.import_module(f"tests.formats.catalog.{name}")


def case_of(made: list[Any], seed: int, number: int) -> Any:
    """The case of a number."""
    draw = random.Random(f"{seed} {number}")
    return _room("mutating").mutated(made[number % len(made)], draw)


def child(format: str, seed: int, first: int, seconds: float, out: Path) -> int:
    """Read cases from a number on; what goes wrong is noted, and the number of each case before it is read."""
    read = _room("cases").read

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    with tempfile.TemporaryDirectory(dir=_shared()) as text:
        folder = Path(text)
        os.environ["XDG_CACHE_HOME"] = str(folder / "home")
        (folder / "made").mkdir()
        made = _room("mutating").whole(format, folder / "made")
        for one in made:
            read(one, folder / "case")
        signal.signal(signal.SIGPROF, too_long)
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY,) * 2)
        read_in_all, number, found, began = 0, first, 0, time.time()
        with open(out / "progress", "r+b", buffering=0) as progress, open(out / "findings", "a") as findings:
            while time.time() < began + seconds and found < 10 * MOST_FINDINGS:
                os.pwrite(progress.fileno(), _PROGRESS.pack(number, began), 0)
                try:
                    case = case_of(made, seed, number)
                except MemoryError:  # of this drill itself, after so many cases: another child goes on
                    break
                try:
                    signal.setitimer(signal.ITIMER_PROF, CPU_S)
                    read_in_all += read(case, folder / "case", whole=number % WHOLE_EVERY == 0) > 0
                    signal.setitimer(signal.ITIMER_PROF, 0)
                except (Exception, TooLongError) as error:
                    signal.setitimer(signal.ITIMER_PROF, 0)
                    found += 1
                    findings.write(json.dumps([number, *_told(error)]) + "\n")
                    findings.flush()
                number += 1
        print(f"    {number - first:,} cases, something could be read of {read_in_all:,}", flush=True)
    return 0


def _shared() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 a folder of its own below it


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _told(error: BaseException) -> tuple[str, str]:
    """Where an error was raised, as a name, and all of it."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "/shardstream/" in one.filename]
    place = f"{Path(frames[-1].filename).stem}.{frames[-1].name.strip('<>')}" if frames else "nowhere"
    return f"{place}-{type(error).__name__}", "".join(traceback.format_exception(error))[-3000:]


def drill(format: str, seconds: float, seed: int) -> int:
    """Fuzz one format; returns how many different things were found."""
    first, kept = 0, dict[str, str]()
    with tempfile.TemporaryDirectory(dir=_shared()) as text:
        out = Path(text)
        (out / "made").mkdir()
        os.environ["XDG_CACHE_HOME"] = str(out / "home")
        made = _room("mutating").whole(format, out / "made")
        while seconds > 1 and len(kept) < MOST_FINDINGS:
            (out / "findings").write_text("")
            (out / "progress").write_bytes(_PROGRESS.pack(first, time.time()))
            died = _run(format, seed, first, seconds, out)
            number, began = _PROGRESS.unpack((out / "progress").read_bytes())
            if died.startswith("status"):  # what a case raises is told; this is of the data as they were made
                sys.exit(f"{format}: the process that reads could not begin, see above")
            lines = [json.loads(line) for line in (out / "findings").read_text().splitlines()]
            if died:
                lines.append([number, f"died-{died}", f"the process ended by {died}"])
            for at, name, told in lines:
                if name not in kept and len(kept) < MOST_FINDINGS:
                    kept[name] = told
                    _keep(case_of(made, seed, at), name, told)
            first, seconds = number + 1, seconds - (time.time() - began)
    for name, told in kept.items():
        print(f"NOT {format}: {name}\n{told}", flush=True)
    return len(kept)


def _run(format: str, seed: int, first: int, seconds: float, out: Path) -> str:
    """Let a child read; why it ended, if it did not end by itself."""
    command = [sys.executable, __file__, "--child", format, str(seed), str(first), str(seconds), str(out)]
    process = subprocess.Popen(command, env=os.environ | {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"})
    before, since = b"", time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(5)
            return "" if code == 0 else signal.Signals(-code).name if code < 0 else f"status {code}"
        now = (out / "progress").read_bytes()
        if now != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > PATIENCE_S:
            process.kill()
            process.wait()
            return "hang"


def _keep(case: Any, name: str, told: str) -> None:
    folder = CORPUS / case.format
    folder.mkdir(parents=True, exist_ok=True)
    cases = _room("cases")
    note = told.strip().splitlines()[-1]
    (folder / f"{name}.case").write_bytes(cases.Case(case.format, case.files, case.options, note).pack())


def main() -> int:
    """Run the drill; 1 where something is found."""
    if sys.argv[1:2] == ["--child"]:
        format, *numbers, out = sys.argv[2:]
        return child(format, int(numbers[0]), int(numbers[1]), float(numbers[2]), Path(out))
    every, cases = _room("every"), _room("cases")
    names = [*every.SETS, cases.CATALOGUE]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each format")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"of {', '.join(names)}; default: all")
    arguments = parser.parse_args()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    found = 0
    for format in arguments.formats or names:
        print(f"{format}: {arguments.minutes:g} minutes, seed {seed}", flush=True)
        found += drill(format, 60 * arguments.minutes, seed)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
