"""SIGTERM is noted, whichever rank it reaches, and the workers of a loader go on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.errors import UsageError
from shardstream.testing import make_dataset

from ..distributed.launching import on_ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("data") / "out", samples=240, fields={"cls": "int64"})


def until_agreed(preemption: ss.Preemption) -> bool:
    deadline = time.monotonic() + 30
    while not preemption.agreed() and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread that does not block the signal may take it, once it gets a processor
    return preemption.agreed()


def noticed(rank: int, folder: Path) -> list[bool]:
    loader = ss.Loader(ss.ShardDataset(folder, fields=["cls"], batch_size=8), num_workers=2)
    # Each worker is told at the first moment of its life, before anything of ours runs in it.
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
    with ss.Preemption() as preemption:
        for step, _ in enumerate(loader):
            if step == 1:  # both have begun
                groups = {os.getpgid(process) for process in loader._iterator.pids}
        before = preemption.agreed()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return [os.getpgrp() in groups, before, until_agreed(preemption)]


def test_all_ranks_learn_of_it_and_workers_that_are_told_as_they_begin_go_on(folder: Path, tmp_path: Path) -> None:
    assert on_ranks(tmp_path, 2, noticed, folder) == [[False, False, True]] * 2


def test_afterwards_everything_is_as_before(folder: Path) -> None:
    handler, mask = signal.getsignal(signal.SIGTERM), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    loader = ss.Loader(ss.ShardDataset(folder, fields=["cls"]), num_workers=0, worker_init_fn=print)
    with ss.Preemption() as preemption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert until_agreed(preemption)
        assert loader.worker_init_fn is print
    assert signal.getsignal(signal.SIGTERM) is handler
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    with ss.Preemption() as preemption:
        assert not preemption.agreed()


def test_what_was_noted_once_stays_noted_though_another_thread_took_the_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unheard: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unheard.append)  # Python's word for a handler that came too late
    ended = threading.Event()
    idle = threading.Thread(target=ended.wait)  # does not block the signal: started before
    idle.start()
    try:
        for _ in range(5000):
            with ss.Preemption() as preemption:
                os.kill(os.getpid(), signal.SIGTERM)
                assert until_agreed(preemption)
    finally:
        ended.set()
        idle.join()
    assert not unheard


def test_it_needs_the_main_thread() -> None:
    raised = []

    def enter() -> None:
        try:
            ss.Preemption().__enter__()
        except UsageError as error:
            raised.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert "in the main thread only" in raised[0]
