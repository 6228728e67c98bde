"""Training processes killed with SIGKILL: nothing is left that the next one could hang on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..processes import session
from ..stream.making import numbered, write_dataset

TRAINING = """
import sys
import shardstream as ss

dataset = ss.ShardDataset(sys.argv[1], shuffle=True, batch_size=16)
for batch in ss.Loader(dataset, num_workers=2):
    print(*batch["id"].tolist(), flush=True)
    if len(sys.argv) > 2:
        sys.stdin.read(1)
"""

STARTING = """
import os, sys, time
import shardstream as ss

def slowly(worker):
    os.write(1, b"started")
    while os.getppid() == trainer:  # it is killed before torch's worker looks who its parent is
        time.sleep(0.01)

trainer = os.getpid()
next(iter(ss.Loader(ss.ShardDataset(sys.argv[1], batch_size=16), num_workers=2, worker_init_fn=slowly)))
"""

ELSEWHERE = """
import sys, time
import shardstream as ss

if __name__ == "__main__":
    dataset = ss.ShardDataset(sys.argv[1], shuffle=True, batch_size=16)
    for batch in ss.Loader(dataset, num_workers=2, multiprocessing_context="forkserver"):
        print("started", flush=True)
        time.sleep(60)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Text travels inside the messages: they fill the pipe, so that workers wait when nobody reads it any more.
    shards = numbered([700, 500], raw=lambda n: bytes(2000), txt=lambda n: "x" * 5000)
    return write_dataset(tmp_path_factory.mktemp("ids"), shards)


def kill_in_the_middle(folder: Path, batches: int) -> None:
    command = [sys.executable, "-c", TRAINING, str(folder), "wait"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(batches):
            assert process.stdout.readline()
            process.stdin.write("x")
            process.stdin.flush()
        os.kill(process.pid, signal.SIGKILL)
    wait_until_all_are_gone(process.pid)


def wait_until_all_are_gone(leader: int) -> None:
    deadline = time.monotonic() + 30
    while left := session(leader):
        if time.monotonic() > deadline:
            for process in left:
                os.kill(process, signal.SIGKILL)
            pytest.fail("workers outlive the process that they work for")
        time.sleep(0.05)


def run_to_the_end(folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", TRAINING, str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rounds(folder: Path, count: int) -> None:
    whole = run_to_the_end(folder)
    assert len(whole.splitlines()) == 75
    draws = random.Random(0)
    for _ in range(count):
        kill_in_the_middle(folder, draws.randrange(1, 40))
        assert run_to_the_end(folder) == whole


@pytest.mark.full
def test_killed_in_mid_epoch_and_started_again_at_once(folder: Path) -> None:
    rounds(folder, 1)


@pytest.mark.full
def test_killed_many_times(folder: Path) -> None:
    rounds(folder, 2)


@pytest.mark.parametrize("script", [STARTING, pytest.param(ELSEWHERE, marks=pytest.mark.full)])
def test_workers_end_with_a_training_process_that_is_killed(folder: Path, tmp_path: Path, script: str) -> None:
    program = tmp_path / "training.py"
    program.write_text(script)
    command = [sys.executable, str(program), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.read(7) == b"started"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until_all_are_gone(process.pid)
