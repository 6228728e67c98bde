"""Puts small faults into a copy of the package, one at a time, and sees whether the tests notice; ``tools/mutants``."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, TypeAlias

ROOT = Path(__file__).resolve().parent.parent.parent
LIST = Path(__file__).with_suffix(".toml")
COPIED = ("shardstream", "tests", "tools", "examples", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")

Verdict: TypeAlias = Literal["killed", "SURVIVED", "HANGS", "BROKEN"]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A fault; see ``mutants.toml``."""

    file: str
    old: str
    new: str
    tests: str
    nth: int = 0
    survived: bool = False
    equivalent: str = ""

    @property
    def name(self) -> str:
        """How it is called in what is printed."""
        lines = self.new.strip().splitlines() or ["(nothing)"]
        return f"{self.file}: {lines[0][:70]}"

    def applied(self, text: str) -> str:
        """The module with the fault in it.

        Raises:
            ValueError: What it replaces does not stand there any more.
        """
        parts = text.split(self.old)
        if self.nth + 1 >= len(parts):
            raise ValueError(f"{self.file} holds no {self.old!r}: mend mutants.toml")
        return self.old.join(parts[: self.nth + 1]) + self.new + self.old.join(parts[self.nth + 1 :])


def load() -> list[Mutant]:
    """All of the list."""
    return [Mutant(**entry) for entry in tomllib.loads(LIST.read_text())["mutant"]]


def copy_to(folder: Path) -> Path:
    """A copy of what the tests need, which may be broken."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    (folder / ".git").mkdir()  # tests that ask git about the tree find none, as in a source distribution
    return folder


def run(mutant: Mutant, folder: Path, seconds: float) -> tuple[Verdict, str]:
    """Whether the tests notice it in this copy, and their last line."""
    module = folder / "shardstream" / mutant.file
    text = module.read_text()
    module.write_text(mutant.applied(text))
    try:
        return _tested(mutant.tests.split(), folder, seconds)
    finally:
        module.write_text(text)


def _tested(tests: Iterable[str], folder: Path, seconds: float) -> tuple[Verdict, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no", *tests]
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "SHARDSTREAM_HYPOTHESIS": "ci",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return "HANGS", f"after {seconds:.0f} s"
        finally:
            _end(process)
        said.seek(0)
        lines = said.read().strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    last = (failed or lines or [""])[-1]
    # A process that a fault ends with a signal was noticed, too; a test module that cannot be collected is not a test.
    verdicts: dict[int, Verdict] = {0: "SURVIVED", 1: "killed"}
    return ("killed" if status < 0 else verdicts.get(status, "BROKEN")), last


def _end(process: subprocess.Popen[Any]) -> None:
    """The tests, and whatever they started and a fault left running."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    """Run the mutants that were asked for; 1 where any was not killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--survivors", action="store_true", help="only those that tests once let through")
    parser.add_argument("--file", default="", help="only those of files whose path begins so, as order/ or stream/view")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=300, help="until the tests of one are taken for hanging")
    arguments = parser.parse_args()
    asked = [one for one in load() if one.file.startswith(arguments.file) and (one.survived or not arguments.survivors)]
    chosen = [one for one in asked if not one.equivalent]
    with tempfile.TemporaryDirectory(prefix="shardstream-mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(arguments.jobs):
            copies.put(copy_to(Path(folder) / f"{number}"))

        whole = copies.get()
        verdict, said = _tested(sorted({test for one in chosen for test in one.tests.split()}), whole, 3600)
        copies.put(whole)
        if verdict != "SURVIVED":
            print(f"the tests do not pass without any fault: {said}")
            return 1

        def judged(mutant: Mutant) -> Verdict:
            copy = copies.get()
            try:
                verdict, said = run(mutant, copy, arguments.seconds)
            except ValueError as error:
                verdict, said = "BROKEN", str(error)
            finally:
                copies.put(copy)
            print(f"{verdict:8}  {mutant.name}\n          {said}", flush=True)
            return verdict

        with ThreadPoolExecutor(arguments.jobs) as pool:
            verdicts = list(pool.map(judged, chosen))
    killed = verdicts.count("killed")
    print(f"{killed} of {len(chosen)} killed, {len(asked) - len(chosen)} equivalent")
    return int(killed < len(chosen) or not chosen)


if __name__ == "__main__":
    sys.exit(main())
