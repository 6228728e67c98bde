"""How an iteration of `DevicePrefetcher` ends: its thread goes, memory too, and a process does not wait for it."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import shardstream as ss
from shardstream.load.device.device_copy import DeviceCopy
from shardstream.load.iteration import PlainIteration
from shardstream.load.prefetch_thread import PrefetchThread

from .prefetching import folder, no_thread_is_left, stream, threads, wait_until

__all__ = ["folder", "no_thread_is_left"]  # fixtures


def test_threads_end_with_their_iterator(folder: Path) -> None:
    ahead = ss.DevicePrefetcher(ss.Loader(stream(folder), num_workers=0), "cpu", depth=2)
    iter(ahead)  # never begun
    gc.collect()
    wait_until(lambda: not threads())
    iterator = iter(ahead)
    next(iterator)
    assert len(threads()) == 1
    del iterator
    wait_until(lambda: not threads())


def test_nobody_holds_a_batch_but_the_loop_and_what_is_ahead() -> None:
    def batches() -> Iterator[torch.Tensor]:
        for n in range(20):
            tensor = torch.full((3,), n)
            alive.add(tensor)
            yield tensor

    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    for n, tensor in enumerate(ss.DevicePrefetcher(batches(), "cpu", depth=2)):
        wait_until(lambda n=n: len(alive) >= min(3, 20 - n))  # type: ignore[misc]
        assert len(alive) <= 4  # the loop's, two ahead, and the one that the generator above has in its hands
        del tensor


_LEAVES = """
import sys, torch
import shardstream as ss

if __name__ == "__main__":
    ds = ss.ShardDataset(sys.argv[1], fields=["id"], batch_size=4, shuffle=True)
    ahead = iter(ss.DevicePrefetcher(ss.Loader(ds, num_workers=2), "cpu", depth=3))
    next(ahead)
    print("leaving", flush=True)
    {how}
"""


@pytest.mark.full
@pytest.mark.parametrize("how", ["sys.exit(0)", "raise KeyboardInterrupt"])
def test_a_process_that_leaves_in_the_middle_ends_at_once(folder: Path, tmp_path: Path, how: str) -> None:
    script = tmp_path / "leaves.py"
    script.write_text(_LEAVES.format(how=how))
    done = subprocess.run(
        [sys.executable, script, folder], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "leaving\n"
    assert "Fatal" not in done.stderr
    assert (done.returncode == 0) == (how == "sys.exit(0)")


def test_a_flow_that_has_ended_says_so_again() -> None:
    flow = PrefetchThread(PlainIteration(iter([1]), 0), DeviceCopy(), lambda batch, _: batch, 2)
    assert flow.receive() is not None
    assert [flow.receive(), flow.receive()] == [None, None]
    flow.stop(30)
    with pytest.raises(ss.errors.UsageError, match="ended when a newer one"):
        flow.receive()
