"""The exit code of every way that a command can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shardstream.cli.app import app
from shardstream.cli.report import Exit
from shardstream.testing import make_dataset

PROGRAM = [sys.executable, "-m", "shardstream"]
NO_SPACE = "the output cannot be written: No space left"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("places")
    made = {"sound": folder / "sound", "damaged": folder / "damaged", "none": folder / "none", "new": folder / "new"}
    for name in ("sound", "damaged"):
        make_dataset(made[name], samples=50, fields={"raw": "bytes", "txt": "str"})
    shard = made["damaged"] / "shard-000000.tar"
    data = bytearray(shard.read_bytes())
    data[520] ^= 1
    shard.write_bytes(data)
    (folder / "list.tsv").write_text("gone.jpg\t0\n")
    return made | {"list": folder / "list.tsv"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--version", Exit.DONE),
        ("--help", Exit.DONE),
        ("info {sound}", Exit.DONE),
        ("verify {sound}", Exit.DONE),
        ("verify {damaged}", Exit.PROBLEMS),
        ("", Exit.USAGE),
        ("nonsense", Exit.USAGE),
        ("info", Exit.USAGE),
        ("info {sound} --nonsense", Exit.USAGE),
        ("info {sound} --version 9", Exit.USAGE),
        ("pack {list} {sound} --seed -1", Exit.USAGE),
        ("export {sound} {new} --to parquet --storage-option oops", Exit.USAGE),
        ("errors nonsense", Exit.USAGE),
        ("info {none}", Exit.DATA),
        ("pack {list} {new}", Exit.DATA),
        ("pack {none} {new}", Exit.DATA),
        ("view {damaged} 0", Exit.DATA),
    ],
)
def test_a_command_ends_with_its_code(line: str, code: Exit, places: dict[str, Path]) -> None:
    found = CliRunner().invoke(app, line.format(**places).split())
    assert (found.exit_code, "Traceback" in found.stderr) == (code, False), found.output


def test_nobody_reads(places: dict[str, Path]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*PROGRAM, "view", places["sound"]], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (Exit.UNREAD, b"")


@pytest.mark.full
def test_interrupted(places: dict[str, Path]) -> None:
    running = subprocess.Popen([*PROGRAM, "view", places["sound"], "--serve"], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline().startswith("http://")
    time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == Exit.INTERRUPTED
    running.stdout.close()


def test_short_of_memory(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("shardstream.diagnose.info", greedy)
    found = CliRunner().invoke(app, ["info", str(places["sound"])])
    assert (found.exit_code, "Traceback" in found.stderr) == (Exit.DATA, False)
    assert found.stderr.startswith("error: memory is short\n  hint: ")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("info {sound} > /dev/full", Exit.DATA, NO_SPACE),
        ("info {sound} >&-", Exit.USAGE, "standard output is closed"),
        ("info {none} 2>&-", Exit.DATA, ""),
        pytest.param("info {sound} --json > /dev/full", Exit.DATA, NO_SPACE, marks=pytest.mark.full),
        pytest.param("--help > /dev/full", Exit.DATA, NO_SPACE, marks=pytest.mark.full),
        pytest.param("info {none} 2> /dev/full", Exit.DATA, "", marks=pytest.mark.full),
    ],
)
def test_streams_that_cannot_be_written_to_are_one_error(
    line: str, code: Exit, said: str, places: dict[str, Path]
) -> None:
    program = " ".join(PROGRAM)
    command = f"{program} {line.format(**places)}"
    found = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, timeout=60)
    assert found.returncode == code, found.stderr
    assert found.stderr.count("error: ") == (said != "")
    assert said in found.stderr
    assert "Traceback" not in found.stderr
    assert "Exception ignored" not in found.stderr


@pytest.mark.parametrize("line", ["info shards", "pack photos out", "info {sound} --cache cache"])
def test_a_working_directory_that_is_gone_is_one_error(
    line: str, places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    found = CliRunner().invoke(app, line.format(**places).split())
    assert found.exit_code == Exit.DATA
    assert found.stderr.count("error: ") == 1
    assert "the working directory is gone" in found.stderr
    assert "Traceback" not in found.stderr
