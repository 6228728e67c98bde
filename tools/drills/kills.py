"""Processes of running commands and of training that are struck at random moments; see ``tools/drills/kills``."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from drills.processes.blows import (
    BLOWS,
    LONGEST_S,
    Blow,
    Tally,
    end,
    gone,
    killed,
    starved,
    strike,
    terminated,
)
from drills.training import train
from drills.writing import Tree, Verb, look, make_data, tree, verbs_on
from tests.processes import MARK, marked

SAMPLES, SHARD_SIZE = 6_000, "20kB"
# Where there is no memory to import something, or for the system's own part of a thread.
_NO_MEMORY = (
    *("MemoryError", "failed to map segment", "cannot allocate memory", "ImportError", "Cannot allocate memory"),
    *("can't allocate lock", "SystemError: error return without exception set"),
)


def run_verb(verb: Verb, out: Path, *, mark: str, log: Path) -> subprocess.Popen[bytes]:
    """The command, with two workers where it has any, in a group of its own."""
    command = [sys.executable, "-m", "shardstream.cli", *verb.flags, str(out), "-q"]
    if verb.has_workers:
        command += ["--workers", "2"]
    with log.open("wb") as told:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            env=os.environ | {MARK: mark, "PYTHONFAULTHANDLER": "1"},
            process_group=0,
        )


def how_it_ended(
    process: subprocess.Popen[bytes], log: Path, *, mark: str, struck: bool, in_need: bool, name: str
) -> tuple[str, list[str]]:
    """In a word or two; and what is wrong with that.

    Args:
        process: The command's.
        log: What it printed.
        mark: Of its processes.
        struck: Whether it was itself sent SIGKILL or SIGTERM.
        in_need: Whether there was no more memory for one of its processes.
        name: Of the round, for problems.
    """
    try:
        code = process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        end(marked(mark), signal.SIGABRT)  # they say where they are
        gone(mark)
        return "hanging", [f"{name}: it hangs\n{log.read_text(errors='replace')[-6000:]}"]
    text = log.read_text(errors="replace")
    errors = sum(line.startswith("error") for line in text.splitlines())
    if in_need and any(words in text for words in _NO_MEMORY):
        return "without memory for Python itself", []
    if "Traceback" in text:
        return "in a traceback", [f"{name}: a traceback\n{text[-1500:]}"]
    if code == 0:
        return "well", [] if not errors else [f"{name}: an error, and exit code 0\n{text}"]
    if struck:
        return f"with {code}", []
    return f"in one error, with {code}", [] if errors == 1 else [f"{name}: {errors} errors, exit code {code}\n{text}"]


def strike_writers(folder: Path, rounds: int, blows: Sequence[Blow], draws: random.Random, tally: Tally) -> None:
    """Every verb that writes, as a command with two workers."""
    make_data(folder / "data", samples=SAMPLES, shard_size=SHARD_SIZE)
    verbs = verbs_on(folder / "data", shard_size=SHARD_SIZE)
    out, log = folder / "out", folder / "output.txt"
    quiet: dict[str, tuple[Tree, float]] = {}
    for number in range(rounds):
        verb = verbs[number % len(verbs)]
        if verb.name not in quiet:
            verb.prepare(out)
            started = time.monotonic()
            process = run_verb(verb, out, mark=uuid.uuid4().hex, log=log)
            if process.wait(LONGEST_S):
                raise RuntimeError(f"{verb.name} does not run\n{log.read_text()}")
            quiet[verb.name] = tree(out), time.monotonic() - started
        _writer_round(verb, out, log, quiet[verb.name], number, blows, draws, tally)


def _writer_round(
    verb: Verb,
    out: Path,
    log: Path,
    quiet: tuple[Tree, float],
    number: int,
    blows: Sequence[Blow],
    draws: random.Random,
    tally: Tally,
) -> None:
    """Strike a run, once or on the way to its end again and again, until one gets through."""
    whole, seconds = quiet
    verb.prepare(out)
    for attempt in range(draws.randrange(1, 4)):
        mark, blow = uuid.uuid4().hex, draws.choice(blows)
        process = run_verb(verb, out, mark=mark, log=log)
        time.sleep(draws.uniform(0.1, seconds))
        workers = [pid for pid in marked(mark) if pid != process.pid]
        victim = draws.choice(workers) if workers and draws.random() < 0.6 else process.pid
        who = "the command" if victim == process.pid else "a worker"
        name = f"round {number}, attempt {attempt}, {verb.name}, {who} {blow.__name__}"
        if process.poll() is not None or not strike(victim, blow, draws):
            tally.rounds["too late"] += 1
        else:
            tally.rounds[f"{verb.name.split()[0]}: {who} {blow.__name__}"] += 1
        struck = victim == process.pid and blow in (killed, terminated)
        how, problems = how_it_ended(process, log, mark=mark, struck=struck, in_need=blow is starved, name=name)
        tally.ends[how] += 1
        if not gone(mark):
            problems.append(f"{name}: processes outlive it")
        found = look(verb, out, whole)
        tally.problems += problems + [f"{name}: {one}" for one in found.problems]
        if found.whole:
            break
    mark = uuid.uuid4().hex
    process = run_verb(verb, out, mark=mark, log=log)
    how, problems = how_it_ended(process, log, mark=mark, struck=False, in_need=False, name=f"after {name}")
    if how != "well":
        tally.problems += problems or [f"after {name}: {how}\n{log.read_text()}"]
    left = tree(out)
    if left != whole:
        wrong = sorted(one for one in left.keys() | whole.keys() if left.get(one) != whole.get(one))
        tally.problems.append(f"after {name}: not what a quiet run leaves: {', '.join(wrong[:6])}")


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--writers", type=int, default=120, help="rounds of commands that write")
    parser.add_argument("--trainings", type=int, default=80, help="rounds of training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blows", default="", help="which, separated by commas; default: all")
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    blows = [blow for blow in BLOWS if not given.blows or blow.__name__ in given.blows.split(",")]
    draws, writers, trainings = random.Random(given.seed), Tally(), Tally()
    started = time.monotonic()
    if given.writers:
        strike_writers(folder / "writers", given.writers, blows, draws, writers)
        print(f"commands that write: {writers.told()}", flush=True)
    if given.trainings:
        train(folder / "training", given.trainings, blows, draws, trainings)
        print(f"training: {trainings.told()}", flush=True)
    print(f"{(time.monotonic() - started) / 60:.0f} minutes")
    if writers.problems or trainings.problems:
        return 1
    shutil.rmtree(given.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
