"""Waits say what they wait for, in every thread and process."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from shardstream import waits
from shardstream.waits import watched

from .pack.test_kill import until

FORKED = """
import os, time
from shardstream import waits
with waits.watched("the parent's own"):
    if os.fork() == 0:
        with waits.watched("a child"):
            time.sleep(1)
        os._exit(0)
    os.wait()
"""


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "NOTICE_S", 0.1)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "shardstream.waits"]


def test_a_wait_says_what_for_again_and_again(soon: None, caplog: pytest.LogCaptureFixture) -> None:
    with watched("a train"):
        until(lambda: len(told(caplog)) == 3)
    assert all(text.startswith("waiting for a train, for ") for text in told(caplog))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3


def test_any_thread_any_number_and_only_while_it_lasts(soon: None, caplog: pytest.LogCaptureFixture) -> None:
    leave = threading.Event()

    def wait(number: int) -> None:
        with watched(lambda: f"thread {number}"):
            leave.wait()

    threads = [threading.Thread(target=wait, args=[i]) for i in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: {text.partition(",")[0] for text in told(caplog)} == {f"waiting for thread {i}" for i in range(3)})
    leave.set()
    for thread in threads:
        thread.join()
    assert not waits._open


def test_news_begin_it_anew(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    wait = watched("a letter")
    for now, expected in [(59, 0), (60, 1), (119, 1), (120, 2), (239, 2), (240, 3)]:
        clock[0] = now
        wait.look()
        assert len(told(caplog)) == expected
    wait.news()
    clock[0] += 59
    wait.look()
    assert len(told(caplog)) == 3
    assert told(caplog)[0] == "waiting for a letter, for 60 s so far"


def test_a_loop_may_wait_again_and_again(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    wait = watched("a bus")
    for begins, now, expected in [(0, 60, 1), (math.inf, 500, 1), (500, 559, 1), (500, 560, 2), (500, 619, 2)]:
        wait.since, clock[0] = begins, now
        wait.look()
        assert len(told(caplog)) == expected


def test_what_cannot_be_told_leaves_the_others_watched(soon: None, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise KeyError("gone")

    with watched(broken), watched("a train"):
        until(lambda: told(caplog))


def test_a_forked_process_watches_its_own(soon: None) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKED],
        env={**os.environ, "SHARDSTREAM_NOTICE_S": "0.1"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = ended.stderr.splitlines()
    assert any(line.startswith("waiting for a child") for line in lines)
    assert any(line.startswith("waiting for the parent's own") for line in lines)


@pytest.mark.parametrize("ending", ["", "; raise SystemExit(3)"])
def test_a_wait_that_is_left_open_ends_quietly_with_the_program(ending: str) -> None:
    """A generator that is waiting, or was, is closed when the names of modules are gone."""
    code = (
        "from shardstream.waits import watched\n"
        "def waiting():\n"
        "    with watched('nothing'):\n"
        "        yield\n"
        f"held = waiting(); next(held){ending}\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (found.stderr, found.returncode) == ("", 3 if ending else 0)
