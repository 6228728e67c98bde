"""Contenders, each in a fresh process, round after round."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT = 900  # seconds that one contender may take
PAUSE = 0.25  # seconds between two looks at memory: each costs some milliseconds of one core


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the job of a benchmark.

    Attributes:
        name: As in the table.
        call: ``module:function`` to call in the fresh process. It returns ``{"figures": {title: number}, "delivered":
            {...}}``; figures are speeds (more is better), and what is delivered must be equal for all contenders.
        options: Arguments of the function.
        needs: Package without which the contender is left out.
        ours: Whether it is shardstream.
        bar: The ratio to the baseline that it has to reach, in the first figure.
        python: Interpreter of the environment that it runs in; ``None``: this one.
    """

    name: str
    call: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str | None = None
    ours: bool = False
    bar: float | None = None
    python: str | None = None

    @property
    def absent(self) -> bool:
        """Whether the package that it needs is not installed where it runs."""
        if self.needs is None:
            return False
        if self.python is None:
            return importlib.util.find_spec(self.needs) is None
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({self.needs!r}) is None)"
        return not Path(self.python).exists() or subprocess.run([self.python, "-c", look], check=False).returncode != 0


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is compared.

    Attributes:
        name: As in the command line.
        title: Of its section.
        text: What exactly is measured, in Markdown.
        contenders: The baseline first.
    """

    name: str
    title: str
    text: str
    contenders: Sequence[Contender]


@dataclass(slots=True)
class Row:
    """What a contender reached.

    Attributes:
        contender: The contender.
        rounds: Each round's figures.
        delivered: What it delivered.
        memory: Each round's peak in bytes.
        private: Each round's private memory of a worker in bytes, where that is measured.
        busy: Share of the machine that others used just before each round.
        problem: Why there are no figures, if there are none.
    """

    contender: Contender
    rounds: list[dict[str, float]] = field(default_factory=list)
    delivered: dict[str, Any] = field(default_factory=dict)
    memory: list[int] = field(default_factory=list)
    private: list[int] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    problem: str = ""

    def median(self, figure: str) -> float:
        """The median of a figure over the rounds."""
        return statistics.median(figures[figure] for figures in self.rounds)

    def ratios(self, figure: str, baseline: Row) -> list[float]:
        """The ratio to the baseline in each round."""
        return [mine[figure] / other[figure] for mine, other in zip(self.rounds, baseline.rounds, strict=False)]

    @property
    def peak(self) -> float:
        """The median of the peaks of memory, in bytes."""
        return statistics.median(self.memory)


class ContenderError(Exception):
    """A contender did not do its job."""


def measure(benchmark: Benchmark, rounds: int, prepare: Callable[[], None]) -> list[Row]:
    """Run all contenders ``rounds`` times.

    Args:
        benchmark: What to run.
        rounds: How often each runs.
        prepare: Called before each contender, to bring machine and page cache into the same state.

    Returns:
        A row for each contender, in their order.
    """
    rows = [Row(contender) for contender in benchmark.contenders]
    for row in rows:
        if row.contender.absent:
            row.problem = f"{row.contender.needs} is not installed"
            print(f"  {row.contender.name}: left out, {row.problem}")
    present = [row for row in rows if not row.problem]
    prepare()
    with suppress(ContenderError):
        run_fresh(present[0].contender)  # not counted: nobody shall pay for a cold machine
    for number in range(rounds):
        # Shuffled, since what ran before can matter; a rotation would leave everybody the same predecessor.
        for row in random.Random(number).sample(present, len(present)):
            if row.problem:
                continue
            prepare()
            row.busy.append(busy_share())
            try:
                result, peak = run_fresh(row.contender)
            except ContenderError as error:
                row.problem = str(error)
                print(f"  {row.contender.name}: {error}")
                continue
            row.rounds.append(result["figures"])
            row.memory.append(peak)
            row.private.append(result.get("private", 0))
            row.delivered = result["delivered"]
            figures = "  ".join(f"{value:,.0f} {title}" for title, value in result["figures"].items())
            print(f"  round {number + 1}  {row.contender.name}: {figures}  {peak / 1e6:,.0f} MB", flush=True)
    check_delivered([row for row in rows if not row.problem])
    return rows


def measure_alone(contenders: Sequence[Contender], rounds: int) -> tuple[dict[str, list[dict[str, float]]], float]:
    """Run processes that have no competitors, each once a round in an order shuffled anew.

    Args:
        contenders: What to run; the first run of each is not counted.
        rounds: How often each runs after that.

    Returns:
        Each round's figures by contender, and the mean share of the machine that others used just before the runs.

    Raises:
        ContenderError: One failed.
    """
    figures: dict[str, list[dict[str, float]]] = {one.name: [] for one in contenders}
    busy = []
    for number in range(rounds + 1):
        for one in random.Random(number).sample(contenders, len(contenders)):
            busy.append(busy_share())
            result, _ = run_fresh(one)
            if number:
                figures[one.name].append(result["figures"])
                told = "  ".join(f"{value:,.3f} {title}" for title, value in result["figures"].items())
                print(f"  round {number}  {one.name}: {told}", flush=True)
    return figures, statistics.mean(busy)


def check_delivered(rows: Sequence[Row]) -> None:
    """All contenders have to deliver the same as the first; whoever does not has no figures.

    ``mean`` may differ by 3 (of 255), since crops are random.
    """
    for row in rows[1:]:
        for name, value in row.delivered.items():
            expected = rows[0].delivered[name]
            if not (abs(value - expected) < 3 if name == "mean" else value == expected):
                row.problem = f"delivers {name} {value}, but {rows[0].contender.name} {expected}"
                print(f"  {row.contender.name}: {row.problem}")


def busy_share(seconds: float = 0.3) -> float:
    """The share of the machine's processor time that is used, by others: called while no contender runs."""

    def ticks() -> tuple[int, int]:
        numbers = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]  # idle, and waiting for disks

    total, idle = ticks()
    time.sleep(seconds)
    total_now, idle_now = ticks()
    return 1 - (idle_now - idle) / max(1, total_now - total)


def run_fresh(contender: Contender) -> tuple[dict[str, Any], int]:
    """Run a contender in a process of its own.

    Returns:
        What it returned, and the peak of the memory of its process and all below it, in bytes.

    Raises:
        ContenderError: It failed, or took longer than `LIMIT`.
    """
    python = contender.python or sys.executable
    command = [python, "-m", "bench.child", contender.call, json.dumps(dict(contender.options))]
    peak = 0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        # A session of its own, so that its worker processes end with it.
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
        deadline = time.monotonic() + LIMIT
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise ContenderError(f"took longer than {LIMIT} s")
                peak = max(peak, memory_of_tree(process.pid))
                try:
                    process.wait(PAUSE)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        err.seek(0)
        if process.returncode:
            trace = err.read()
            print(trace, file=sys.stderr)
            sentences = [line for line in trace.splitlines() if line[:1].strip()]  # hints below them are indented
            raise ContenderError(f"failed: {sentences[-1] if sentences else f'exit status {process.returncode}'}")
        result: dict[str, Any] = json.loads(out.read().strip().splitlines()[-1])
        return result, peak


def memory_of_tree(pid: int) -> int:
    """Bytes that a process and all below it hold: anonymous and shared memory, shared pages by share (PSS).

    Mapped files are left out: their pages are the page cache's, which gives them up when memory is short.
    """
    total = 0
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended meanwhile
    for line in rollup.splitlines():
        if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
            total += int(line.split()[1]) * 1024
    return total + sum(memory_of_tree(child) for child in children)


def cpu_of_tree(pid: int | None = None) -> float:
    """Seconds of processor time of a process, this one by default, and all below it, also those that ended."""
    try:
        words = Path(f"/proc/{pid or 'self'}/stat").read_text().rpartition(")")[2].split()
        children = [
            int(child)
            for task in Path(f"/proc/{pid or 'self'}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it ended meanwhile
    used = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    return used + sum(cpu_of_tree(child) for child in children)


def private_dirty(pid: int | None = None) -> int:
    """Bytes of memory that a process alone holds and has written to; of this one by default. 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid or 'self'}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:")) * 1024
