"""What people see in a terminal of 80 and of 120 columns: help, reports, progress, Ctrl-C; read back from tmux."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.testing import make_dataset
from tests.cli.captured import captured
from tests.cli.shown_reports import SHOWN

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.full
# What differs from run to run.
VARYING = [
    (re.compile(r"\d+(\.\d+)? (min \d+ s|ms|s)\b"), "0 s"),
    (re.compile(r"[\d,.]+ (samples|[kMG]?B)/s"), "0 /s"),
    (re.compile(r"[\d,.]+ [kMGT]?B free"), "0 B free"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "0" * 32),
    (re.compile(r"\[[0-9a-f]{12}\]"), "[" + "0" * 12 + "]"),
    (re.compile(r"[⠀-⣿]"), "⠋"),
    (re.compile(r"most of it is \w+"), "most of it is reading"),
]


def environment() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PS1": "$ ", "NO_COLOR": "1"}


class Terminal:
    """A window of tmux on a server of its own, in which one command after another runs."""

    def __init__(self, folder: Path, columns: int) -> None:
        self._tmux = ["tmux", "-L", f"shardstream-{os.getpid()}-{columns}", "-f", "/dev/null"]
        self.folder = folder
        self._number = 0
        size = ["-x", str(columns), "-y", "300"]
        given = [part for name, value in environment().items() for part in ("-e", f"{name}={value}")]
        shell = ["bash", "--norc", "--noprofile"]
        subprocess.run([*self._tmux, "new-session", "-d", *size, *given, "-c", folder, *shell], check=True)
        self.send(f'shardstream() {{ {shlex.quote(sys.executable)} -m shardstream "$@"; }}; clear')

    def send(self, line: str, key: str = "Enter") -> None:
        subprocess.run([*self._tmux, "send-keys", *([line] if line else []), key], check=True)

    def screen(self, *options: str) -> str:
        done = subprocess.run([*self._tmux, "capture-pane", "-p", *options], capture_output=True, text=True, check=True)
        return done.stdout

    def wait(self, until: Callable[[str], object], what: str) -> str:
        ends = time.monotonic() + 60
        while not until(text := self.screen()):
            assert time.monotonic() < ends, f"{what} did not come:\n{text}"
            time.sleep(0.05)
        return text

    def run(self, line: str) -> str:
        """What a command leaves on the screen, and its exit code."""
        self._number += 1
        self.send(f'clear; {line}; echo "exit code $?, $(({self._number} + 0))."')
        self.wait(lambda text: f", {self._number}.\n" in text, line)
        text = self.screen("-J")  # what the terminal broke is one line again: where it breaks, names of folders decide
        return text[: text.index(f", {self._number}.")].rstrip()

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False)


@pytest.fixture(scope="module", params=[80, 120])
def terminal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Terminal, int]]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    folder = tmp_path_factory.mktemp("terminal")
    fields = {"cls": "int64", "txt": "str", "raw": "bytes"}
    make_dataset(folder / "shards", samples=200, fields=fields, classes=["cat", "dog"])
    ss.export(str(folder / "shards"), folder / "tars", to="webdataset")
    with ss.ShardWriter(folder / "more", classes=["cat", "dog"]) as writer:
        for i in range(20):
            writer.write({"__key__": f"more/{i}", "cls": i % 2, "txt": f"text {i}", "raw": bytes(i)})
    with gzip.open(folder / "cold.tar.gz", "wb") as file:
        file.write(next((folder / "tars").glob("*.tar")).read_bytes())
    cached = "import shardstream as ss\nassert list(ss.ShardDataset('cold.tar.gz', cache='cached'))"
    subprocess.run([sys.executable, "-c", cached], cwd=folder, env=os.environ | environment(), check=True)
    (folder / "list.csv").write_text("file,label\n" + "".join(f"{i}.txt,{i % 2}\n" for i in range(20)))
    for i in range(19):  # one is missing
        (folder / f"{i}.txt").write_text(f"text {i}")
    made = Terminal(folder, request.param)
    yield made, request.param
    made.close()


def steady(text: str) -> str:
    for pattern, told in VARYING:
        text = pattern.sub(told, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


REPORTS = {  # pages of help are compared in `test_help`, without a terminal
    "help": "shardstream --help",
    "pack-help": "shardstream pack --help",
    "info": "shardstream info shards/",
    "verify": "shardstream verify shards/",
    "view": "shardstream view shards/ 3",
    "errors": "shardstream errors",
    "error-page": "shardstream errors checksum",
    "pack": "shardstream pack list.csv packed/ --workers 1 --overwrite",
    "dry-run": "shardstream pack list.csv planned/ --workers 1 --dry-run",
    "repack": "shardstream repack shards/ again/ --workers 1 --overwrite",
    "merge": "shardstream merge shards/ more/ merged/ --overwrite",
    "export": "shardstream export shards/ loose/ --to files",
    "index": "shardstream index tars/ --cache cache/",
    "migrate": "shardstream migrate tars/ --no-bench",
    "cache-status": "shardstream cache status cached/",
    **{f"{name}-report": f"{sys.executable} {Path(__file__).parent / 'shown_reports.py'} {name}" for name in SHOWN},
    "wrong-option": "shardstream pack a b --shrad-size 3",
    "no-data-set": "shardstream info shardz/",
}


@pytest.mark.parametrize("name", REPORTS)
def test_what_a_command_leaves_on_the_screen(name: str, terminal: tuple[Terminal, int]) -> None:
    window, columns = terminal
    found = steady(window.run(REPORTS[name]).replace(str(window.folder), "HERE"))
    assert found == captured(f"{name}-{columns}", found)


def test_progress_is_one_line_and_ctrl_c_leaves_none_of_it(terminal: tuple[Terminal, int]) -> None:
    window, columns = terminal
    (window.folder / "slow.py").write_text("import time\ndef slow(sample):\n    time.sleep(0.02)\n    return sample\n")
    photos = window.folder / "files"
    photos.mkdir(exist_ok=True)
    for number in range(2000):
        (photos / f"{number}.txt").write_text(f"{number}")
    window.send('clear; shardstream pack files/ out/ --transform slow:slow --workers 1; echo "exit code $?".')
    text = window.wait(lambda text: re.search(r"[1-9]\d%.*left", text), "a bar with the time that is left")
    (bar,) = [line for line in text.splitlines() if "%" in line]
    assert len(bar) <= columns
    assert re.search(r"packing ━+.* \d+% +[\d,]+ samples/s .*left", bar), bar
    window.send("", "C-c")
    text = window.wait(lambda text: "exit code 130" in text.partition("\n")[2], "the end")
    lines = [line for line in text.splitlines() if line and not line.startswith("$")]
    after = [line for line in lines if "%" in line or "━" in line]
    assert not after, text
    assert "finished shards are kept: the same command goes on from there" in lines
    assert "interrupted" in lines
