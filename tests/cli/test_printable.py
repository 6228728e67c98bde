"""Every verb is shown names that a terminal would obey; none of it reaches the output."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import shardstream as ss
from shardstream.cli import report
from shardstream.cli.app import app
from shardstream.cli.report import print_traceback
from shardstream.images.encode import encode
from shardstream.storage.cache import Cache
from shardstream.storage.cache.manifests import keep_manifest

from ..test_text import obeyed

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;cm0=\x07\x9b31m\x85\u202e\u2066\u2028\x7f\r\x08"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: object) -> Result:
    """A verb, all of whose output is harmless."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert not obeyed(result.stdout + result.stderr), (arguments, result.stdout, result.stderr)
    return result


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A data set with such keys, classes, text and meta, in a folder of such a name."""
    folder = tmp_path / f"set{EVIL}"
    with ss.ShardWriter(folder, format="record", classes=[f"a{EVIL}", "b"], meta={f"m{EVIL}": f"v{EVIL}"}) as writer:
        for i in range(3):
            writer.write({"__key__": f"k{EVIL}{i}", "txt": f"t{EVIL}", "js": {"x": EVIL}, "cls": i % 2})
    return folder


def damage(folder: Path) -> None:
    path = folder / "shard-000000.rec"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)


def test_what_is_there_is_shown_escaped(evil: Path) -> None:
    shown = run("info", evil).stdout
    assert r"a\x1b]0;owned\x07\x1b[2J" in shown
    assert r"\x9b31m\x85\u202e\u2066\u2028\x7f" in shown
    shown = run("view", evil).stdout
    assert r"k\x1b]0;owned\x07" in shown
    assert run("verify", evil).exit_code == 0
    assert run("bench", evil, "--batches", 1, "--workers", 0, "--batch-size", 2).exit_code == 0


def test_json_keeps_the_value(evil: Path) -> None:
    found = json.loads(run("info", evil, "--json").stdout)
    assert found["classes"] == [f"a{EVIL}", "b"]
    assert found["meta"] == {f"m{EVIL}": f"v{EVIL}"}
    assert json.loads(run("view", evil, "--json").stdout)["samples"][0]["key"] == f"k{EVIL}0"
    assert json.loads(run("verify", evil, "--json").stdout)["url"] == str(evil)


def test_errors_and_problems(evil: Path, tmp_path: Path) -> None:
    run("view", evil, "--key", f"none{EVIL}")
    run("view", evil, 99)
    damage(evil)
    assert run("verify", evil).exit_code == 1
    assert run("verify", evil, "--json").exit_code == 1
    assert run("view", evil).exit_code == 3
    for verb in ("info", "verify", "view", "bench"):
        assert run(verb, f"{tmp_path}/no{EVIL}").exit_code == 3
        assert run("--debug", verb, f"{tmp_path}/no{EVIL}").exit_code == 3
    (evil / "dataset.json").write_text(f'{{"format": "{EVIL}')
    for verb in ("info", "verify", "view", "bench"):
        assert run(verb, evil).exit_code == 3


@pytest.mark.parametrize(
    "arguments",
    [
        (f"verb{EVIL}",),
        (f"--flag{EVIL}",),
        ("view", "set", f"number{EVIL}"),
        ("view", "set", f"--no{EVIL}"),
        ("verify", "set", f"more{EVIL}"),
        ("verify", "set", "--max-value", f"{EVIL}GB"),
        ("pack", "list", "out", "--format", EVIL),
        ("pack", "list", "out", "--meta", EVIL),
        ("pack", "list", "out", "--field", EVIL),
        ("pack", "list", "out", "--transform", f"{EVIL}:{EVIL}"),
        ("export", "set", "out", "--to", EVIL),
        ("cache", f"verb{EVIL}"),
        ("cache", "warm", "set", "cache", "--node", EVIL),
        ("info", "set", "--storage-option", EVIL),
        ("info", f"s3://{EVIL}/x"),
        ("bench", f"verb{EVIL}", f"more{EVIL}"),
        ("bench", "decode", f"none{EVIL}.jpg"),
    ],
    ids=lambda one: " ".join(one).replace(EVIL, "!"),
)
def test_wrong_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments).exit_code in (2, 3)


def test_pack_and_what_it_could_not_read(tmp_path: Path) -> None:
    source = tmp_path / f"in{EVIL.replace('/', '')}"
    source.mkdir()
    for i in range(3):
        (source / f"{i}.jpg").write_bytes(encode(np.full((8, 8, 3), i, np.uint8), "jpg"))
    evil = EVIL.replace("\r", "").replace("\x85", "").replace("\u2028", "")  # which end lines in some lists
    (source / "list.csv").write_text(f"path,label{evil},label\n0.jpg,x,0\nno{evil}.jpg,x,1\n1.jpg{evil},x,y{evil}\n")
    out = tmp_path / f"out{evil}"
    result = run("pack", source / "list.csv", out, "--workers", 0)
    assert result.exit_code == 0, result.stderr
    rejects = (out / "rejects.jsonl").read_text()
    assert not obeyed(rejects)
    assert json.loads(rejects.splitlines()[0])["path"] == f"no{evil}.jpg"
    assert not obeyed((out / "report.json").read_text())
    assert run("pack", source / "list.csv", out, "--workers", 0).exit_code == 0
    assert json.loads(run("pack", source / "list.csv", out, "--workers", 0, "--json").stdout)["url"] == str(out)
    assert run("pack", source / "list.csv", out, "--workers", 0, "--seed", 1).exit_code == 2
    assert run("pack", source / f"none{evil}.csv", tmp_path / "x").exit_code == 3
    assert run("pack", source / "list.csv", tmp_path / "y", "--classes", source / evil).exit_code == 2
    for folder in (f"a{evil}", "b"):
        (tmp_path / "classes" / folder).mkdir(parents=True)
        (tmp_path / "classes" / folder / f"{evil}.jpg").write_bytes((source / "0.jpg").read_bytes())
    bad = os.fsencode(tmp_path) + b"/classes/b/caf\xe9.jpg"
    with open(bad, "wb") as file:
        file.write(b"no image")
    assert run("pack", tmp_path / "classes", tmp_path / "z", "--workers", 0, "--labels", "name").exit_code == 0


def test_verbs_that_write_and_the_cache(evil: Path, tmp_path: Path) -> None:
    for name in ("repack", "merge"):
        assert run(name, evil, tmp_path / f"{name}{EVIL}").exit_code == 0
        assert run(name, evil, tmp_path / f"{name}{EVIL}", *(["--seed", 9] if name == "repack" else [])).exit_code in (
            0,
            2,
        )
    assert run("merge", evil, evil, tmp_path / "twice").exit_code in (2, 3)
    for form in ("files", "webdataset"):
        run("export", evil, tmp_path / f"{form}{EVIL}", "--to", form, "--workers", 0)
        run("export", evil, tmp_path / f"{form}{EVIL}", "--to", form, "--workers", 0, "--json")
    cache = tmp_path / f"cache{EVIL}"
    head, table = (evil / "dataset.json").read_bytes(), next(evil.glob("*.table")).read_bytes()
    keep_manifest(Cache(cache), f"s3://bucket/{EVIL}", None, head, table)
    for verb in ("status", "verify", "clear"):
        assert run("cache", verb, cache).exit_code == 0
        run("cache", verb, cache, "--json")
        run("cache", verb, tmp_path / f"none{EVIL}")
    run("cache", "clear", cache, "--only", EVIL)
    run("cache", "warm", evil, cache)


def test_warnings_and_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / f"set{EVIL}"
    with ss.ShardWriter(folder, format="record") as writer:
        for i in range(8):
            writer.write({"__key__": f"k{EVIL}{i}", "json": {"i": i}, "cls": i})
    damage(folder)
    missing = str(tmp_path / f"none{EVIL.replace('[', '')}")
    dataset = ss.ShardDataset(folder, on_error="skip", replicas=[missing])
    assert len(list(dataset)) == 7
    assert "skipped" in caplog.text
    assert "replica" in caplog.text
    assert not obeyed(caplog.text)


def test_tables_bars_and_tracebacks_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.table import Table

    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    table = Table("field")
    table.add_row(f"x{EVIL}")
    report.stdout().print(table)
    report.stdout().print(f":cat: [bold]{EVIL}[/bold]")
    assert not obeyed(out.getvalue())
    assert ":cat: [bold]" in out.getvalue()
    monkeypatch.setattr(sys, "stderr", err := io.StringIO())
    try:
        raise ValueError(f"wrong {EVIL} \ud800") from KeyError(EVIL)
    except ValueError as error:
        print_traceback(type(error), error, error.__traceback__)
    assert not obeyed(err.getvalue())
    assert "ValueError: wrong" in err.getvalue()


def on_a_terminal(*arguments: str, interrupt: bytes = b"") -> tuple[int, bytes]:
    """Exit code and all that is shown at 80 columns; interrupted when this is."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "shardstream.cli", *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        found = bytearray()
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # the terminal is closed
                break
            if not part:
                break
            found += part
            if interrupt and interrupt in found:
                process.send_signal(signal.SIGINT)
                interrupt = b""
    os.close(ours)
    return process.returncode, bytes(found)


def test_the_command_on_a_terminal(evil: Path) -> None:
    code, found = on_a_terminal("view", str(evil))
    assert code == 0
    assert b"\\x1b]52;c;cm0=" in found
    for wrong in (b"\x1b]", b"\x1b[2J", "\x9b".encode(), "\u202e".encode(), b"\x07"):
        assert wrong not in found


@pytest.mark.full
def test_an_interrupted_bar_is_cleared_before_anything_is_said(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(20_000):
        (tmp_path / f"in/{number}.txt").write_bytes(b"x")
    code, found = on_a_terminal(
        "pack", f"{tmp_path}/in/*.txt", str(tmp_path / "out"), "--workers", "1", interrupt=b"packing"
    )
    assert code == 130
    said = found.index(b"finished shards are kept: the same command goes on from there\r\ninterrupted")
    assert found[:said].endswith(b"\x1b[2K")


@pytest.mark.full
@pytest.mark.parametrize("verb", [["view"], ["info"], ["info", "--json"]], ids=" ".join)
def test_nobody_reads_any_more(evil: Path, verb: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "shardstream.cli", verb[0], str(evil), *verb[1:]]
    try:
        found = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(theirs)
    assert (found.returncode, found.stderr) == (141, b"")
