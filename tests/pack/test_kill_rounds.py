"""Kills at random moments, many times over: `tools/test --full`."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from shardstream.diagnose import verify
from shardstream.errors import NotFoundError
from shardstream.pack.run import pack
from shardstream.shards.manifest import Manifest

from ..processes import session
from .making import photo_list, tree
from .test_kill import WRITER, check_end, check_shards, until

ROUNDS = 20


@pytest.mark.full
@pytest.mark.parametrize(("format", "suffix"), [("tar", ".tar"), ("record", ".rec")])
def test_writers_killed_at_random_moments(tmp_path: Path, format: str, suffix: str) -> None:
    delays = random.Random(0)
    for number in range(ROUNDS):
        out = tmp_path / str(number % 3)  # some find what an earlier one left
        with subprocess.Popen([sys.executable, "-c", WRITER, out, format]) as process:
            time.sleep(delays.uniform(0.1, 1.0))
            process.kill()
        with pytest.raises(NotFoundError):
            Manifest.load(out)
        check_shards(out, suffix, format)


@pytest.mark.full
def test_runs_killed_at_random_moments(tmp_path: Path) -> None:
    """Killed until it gets through; each time nothing looks whole that is not, and the end is that of a quiet run."""
    source = photo_list(tmp_path, 3000)
    pack(source, tmp_path / "whole", shard_size="20kB", workers=0, format="record")  # test_hardship has tar
    whole, out = tree(tmp_path / "whole"), tmp_path / "out"
    again = partial(pack, source, out, shard_size="20kB", workers=2, format="record")
    options = ["--workers", "2", "--shard-size", "20kB", "--format", "record", "-q"]
    command = [sys.executable, "-m", "shardstream.cli", "pack", str(source), str(out), *options]
    delays = random.Random(1)
    killed = 0
    for _ in range(ROUNDS):
        with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL) as process:
            try:
                process.wait(delays.uniform(0.2, 2.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed += 1
            until(lambda leader=process.pid: not session(leader))  # type: ignore[misc]
        check_end(out, whole, again)
    assert killed >= ROUNDS // 4
    again()
    assert tree(out) == whole
    assert verify(out).ok
