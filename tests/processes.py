"""Processes of a run, told from all others by an environment variable, by their session or by their parent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "SHARDSTREAM_TEST_RUN"
_WORKER = b"shardstream.pack.execution.worker"


class Process(NamedTuple):
    """One that lives: a zombie does not."""

    pid: int
    parent: int
    session: int


def living() -> Iterator[Process]:
    """All processes of this machine."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            state, parent, _group, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
            if state != "Z":
                yield Process(int(pid), int(parent), int(session))


def marked(mark: str) -> list[int]:
    """Those of the run with this mark, orphans too."""
    found = []
    for one in living():
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in Path(f"/proc/{one.pid}/environ").read_bytes():
                found.append(one.pid)
    return found


def session(leader: int) -> list[int]:
    """Those of the session that this process began."""
    return [one.pid for one in living() if one.session == leader]


def pack_workers() -> list[int]:
    """Workers that this process packs with."""
    found = []
    for one in living():
        with suppress(OSError):
            if one.parent == os.getpid() and _WORKER in Path(f"/proc/{one.pid}/cmdline").read_bytes():
                found.append(one.pid)
    return found
