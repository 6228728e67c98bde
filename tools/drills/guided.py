"""Damaged input that reaches lines which no input before it reached, by atheris; see ``tools/drills/fuzz``."""

from __future__ import annotations

import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from drills.processes.apart import LONGEST_S

LARGEST = 1 << 16  # bytes of a case
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_COVERED = re.compile(r"cov: (\d+)")


class Guided(NamedTuple):
    """What came of the cases of one parser.

    Attributes:
        cases: How many there were.
        edges: Steps from line to line that they reached, as atheris counts them; 0: it reported none.
        findings: Cases that must not do what they did.
        problems: What ended a process otherwise, each in a sentence.
    """

    cases: int
    edges: int
    findings: list[bytes]
    problems: list[str]


def available() -> bool:
    """Whether atheris is installed."""
    return find_spec("atheris") is not None


def guided(name: str, seeds: Mapping[str, bytes], folder: Path, *, seconds: float, seed: int, most: int) -> Guided:
    """Look for findings for some time, in processes of their own: a finding ends one, and another goes on.

    Args:
        name: Of a target of ``drills.fuzz``.
        seeds: Its sound input.
        folder: Empty; takes the cases that reached something new, and what processes print.
        seconds: How long.
        seed: Of the random numbers.
        most: Findings after which there are enough.
    """
    corpus, kept = folder / "corpus", folder / "kept"
    corpus.mkdir(parents=True)
    kept.mkdir()
    for number, data in enumerate(seeds.values()):
        (corpus / str(number)).write_bytes(data)
    until, cases, edges = time.monotonic() + seconds, 0, 0
    problems: list[str] = []
    while (left := until - time.monotonic()) > 1 and len(list(kept.iterdir())) + len(problems) < most:
        before = len(list(kept.iterdir()))
        options = (
            *(f"-max_total_time={int(left)}", f"-timeout={LONGEST_S}", "-rss_limit_mb=0", f"-max_len={LARGEST}"),
            *(f"-artifact_prefix={kept}/", f"-seed={seed + before + 1}", "-print_final_stats=1", str(corpus)),
        )
        command = [sys.executable, "-m", "drills.guided", str(folder), name, *options]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        (folder / "output.txt").write_text(done.stdout + done.stderr)
        cases += sum(map(int, _EXECUTED.findall(done.stderr)))
        edges = max([edges, *map(int, _COVERED.findall(done.stderr))])
        if done.returncode and len(list(kept.iterdir())) == before:
            problems.append(f"{name}: it ended with {done.returncode}\n{done.stderr[-1500:]}")
    return Guided(cases, edges, [path.read_bytes() for path in sorted(kept.iterdir())], problems)


def main() -> None:
    """Fuzz one target, with the options of libFuzzer; never comes back."""
    import atheris

    with atheris.instrument_imports(include=["shardstream"]):
        from drills.fuzz import MEMORY, targets
        from shardstream.errors import ShardStreamError
        from tests.formats.catalog.mutating import damaged
    folder, name, *options = sys.argv[1:]
    (target,) = (one for one in targets(Path(folder) / f"made-{time.time_ns()}") if one.name == name)
    kind = next(iter(target.seeds))

    def take(data: bytes) -> None:
        try:
            target.run(data)
        except ShardStreamError:
            return

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if draw.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return bytes(damaged(kind, {**target.seeds, kind: data}, draw)[:most])

    for data in target.seeds.values():
        take(data)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * MEMORY, resource.RLIM_INFINITY))  # its own cases are half
    atheris.Setup([sys.argv[0], *options], take, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
