"""Progress lines: what they say, and the time left."""

from __future__ import annotations

import io
import re
import sys

import pytest

from shardstream.cli.progress import Update, drawing, progress
from shardstream.progress import ProgressEvent


def test_progress_on_a_terminal_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("packing") as update:
        update(0, 0, "reading the source")
        update(5_000_000, 10_000_000, "12,345 samples/s  1,234 MB/s  123 rejected")
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "rejected" in frames
    assert " 50%" in frames
    assert all(len(line) <= 80 for line in re.split(r"[\r\n]", frames))


def test_progress_elsewhere_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("shardstream.cli.progress.time.monotonic", lambda: now[0])
    with progress("packing") as update:
        for second in range(26):
            now[0] = float(second)
            update(second, 100, f"{second} samples/s")
    assert capsys.readouterr().err.splitlines() == [
        "packing: 10%, 10 samples/s, 1 min 30 s left",
        "packing: 20%, 20 samples/s, 1 min 20 s left",
    ]


def test_no_time_is_told_before_there_is_a_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("shardstream.cli.progress.time.monotonic", lambda: now[0])
    with drawing("packing") as draw:
        for second, event in (
            (0, ProgressEvent("plan")),
            (30, ProgressEvent("pack", 0, 1000)),  # the source took a while; nothing is packed yet
            (40, ProgressEvent("pack", 500, 1000, detail={"kept": 500})),  # all of it by an earlier run
            (50, ProgressEvent("pack", 600, 1000, detail={"kept": 500, "rejects": 2, "bytes": 4_000_000})),
            (70, ProgressEvent("pack", 700, 1000, detail={"kept": 500})),  # 20 s after the first of them were packed
            (80, ProgressEvent("pack", 700, 10**12, detail={"kept": 500})),  # thousands of years
        ):
            now[0] = float(second)
            draw(event)
    assert capsys.readouterr().err.splitlines() == [
        "packing: 0%, starting workers (the first run compiles loops)",
        "packing: 50%, starting workers (the first run compiles loops)",
        "packing: 60%, 5 samples/s  200.0 kB/s  2 rejected",
        "packing: 70%, 5 samples/s, 1 min 0 s left",
        "packing: 0%, 4 samples/s",
    ]


def test_no_time_is_told_in_the_second_after_the_first_news(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("shardstream.cli.progress.time.monotonic", lambda: now[0])
    told = []

    class Told(Update):
        def say(self, text: str) -> None: ...

        def _show(self, done: float, total: float, beside: str, left: str) -> None:
            told.append(left)

    update = Told()
    for seconds, done in ((0, 0), (60, 1), (60.4, 2), (61, 2), (62, 8)):  # a minute of start-up
        now[0] = 100 + seconds
        update(done, 10, "")
    assert told == ["", "", "", "8.0 s left", "0.6 s left"]
