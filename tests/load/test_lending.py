"""Slabs that go back and forth between workers and the training process."""

from __future__ import annotations

import collections
import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.stream.ipc import handover
from shardstream.stream.tensors.slabs import SharedSlabPool, is_dense

from ..stream.making import numbered, write_dataset
from .lending import is_lent, lent_ranges

WIDTH = SharedSlabPool.smallest  # of a sample's value, in elements of int32


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 samples, each with its number written over 256 KiB."""
    shards = numbered([120, 80], wide=lambda n: np.full(WIDTH, n, np.int32))
    return write_dataset(tmp_path_factory.mktemp("wide"), shards, types={"wide": f"array:int32:{WIDTH}"})


def loader(wide: Path, *, batch_transform: Callable[..., Any] | None = None, **arguments: Any) -> ss.Loader:
    dataset = ss.ShardDataset(wide, fields=["wide", "id"], batch_size=2, batch_transform=batch_transform)
    return ss.Loader(dataset, **{"num_workers": 2} | arguments)


def holds(batch: dict[str, Any]) -> bool:
    return bool((batch["wide"] == batch["id"][:, None]).all())


@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(one, marks=pytest.mark.full) for one in ("forkserver", "spawn"))]
)
def test_what_is_kept_stays_as_it_was(wide: Path, method: str) -> None:
    batches = loader(wide, multiprocessing_context=method)
    kept = [batch for _ in range(2) for batch in batches]
    assert [batch["id"].tolist() for batch in kept] == 2 * [[n, n + 1] for n in range(0, 200, 2)]
    assert all(map(holds, kept))
    assert sum(is_lent(batch["wide"]) for batch in kept) >= 100


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.full) for one in range(1, 4))])
def test_whatever_part_of_a_batch_is_kept(wide: Path, seed: int) -> None:
    draw = random.Random(seed)
    parts: list[Callable[[torch.Tensor], Any]] = [
        lambda wide: wide,
        lambda wide: wide[1],
        lambda wide: wide.view(torch.uint8)[:, 8:].view(torch.int32),
        lambda wide: wide.numpy(),
        lambda wide: memoryview(wide.numpy()),
        lambda wide: wide.untyped_storage(),
        lambda wide: wide.detach().t(),
    ]
    kept: list[tuple[Any, bytes]] = []
    batches = loader(wide)
    for _ in range(3):
        for batch in batches:
            assert holds(batch)
            if draw.random() < 0.4:
                part = draw.choice(parts)(batch.pop("wide"))
                kept.append((part, octets(part)))
            while kept and draw.random() < 0.3:
                part, before = kept.pop(draw.randrange(len(kept)))
                assert octets(part) == before
                del part
    assert all(octets(part) == before for part, before in kept)


def octets(part: Any) -> bytes:
    if isinstance(part, torch.UntypedStorage):
        return bytes(torch.empty(0, dtype=torch.uint8).set_(part)[: 8 * WIDTH].numpy())  # type: ignore[call-overload]
    return np.asarray(part).tobytes()


def test_slabs_are_used_again(wide: Path) -> None:
    batches = loader(wide)
    addresses = {batch["wide"].data_ptr() for _ in range(3) for batch in batches}
    assert len(addresses) <= 12  # 300 batches


@pytest.mark.full
def test_slabs_that_nobody_needs_any_more_are_given_up(wide: Path) -> None:
    batches = loader(wide)
    kept = list(batches)
    most = len(lent_ranges())
    assert most >= 100
    del kept
    for _ in range(2):
        collections.deque(batches, maxlen=0)
    assert len(lent_ranges()) <= most - 80
    del batches
    gc.collect()
    handover.forget_the_dead()
    assert not lent_ranges()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("persistent", [False, True])
def test_what_is_kept_outlives_the_workers(wide: Path, persistent: bool) -> None:
    batches = loader(wide, persistent_workers=persistent)
    kept = [next(iter(batches)), next(iter(batches))]
    del batches
    gc.collect()
    deadline = time.monotonic() + 20
    while lent_ranges() and time.monotonic() < deadline:
        handover.forget_the_dead()
        if len(lent_ranges()) == len({batch["wide"].data_ptr() for batch in kept}):
            break
        time.sleep(0.05)
    assert len(lent_ranges()) == 2
    assert all(map(holds, kept))


def test_a_forked_child_sees_what_was_there_when_it_was_made(wide: Path) -> None:
    batches = loader(wide)
    stream = iter(batches)
    batch = next(stream)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)  # or the end, if the parent fails
        # By numpy: torch's threads do not survive a fork.
        os._exit(0 if (batch["wide"].numpy() == batch["id"].numpy()[:, None]).all() else 1)
    os.close(reading)
    try:
        del batch
        collections.deque(stream, maxlen=0)
    finally:
        os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Both(NamedTuple):
    first: Any
    second: Any


class Own:
    """A class that the library does not know."""

    def __init__(self, wide: torch.Tensor, id: torch.Tensor) -> None:
        self.wide = wide
        self.id = id


kept_by_worker: list[torch.Tensor] = []


def in_many_ways(batch: dict[str, Any]) -> dict[str, Any]:
    wide = batch["wide"]
    if not kept_by_worker:
        kept_by_worker.append(wide)  # it is sent, and sent again with every other batch
    return {
        "twice": [wide, wide],
        "pair": Both(wide.t(), batch["id"][0]),
        "strided": wide[:, ::2],
        "half": wide.to(torch.bfloat16),
        "kept": kept_by_worker[0],
        "id": batch["id"],
        "own": Own(wide, batch["id"]),
    }


@pytest.mark.full
def test_tensors_wherever_they_are(wide: Path) -> None:
    received = list(loader(wide, batch_transform=in_many_ways))
    firsts = {0, 2}  # the two workers' first samples
    for batch in received:
        number = batch["id"].to(torch.int32)[:, None].expand(2, WIDTH)
        assert torch.equal(batch["own"].wide, number)
        assert all(torch.equal(one, number) for one in batch["twice"])
        assert torch.equal(batch["pair"].first, number.t())
        assert batch["pair"].first.stride() == (1, WIDTH)
        assert type(batch["pair"]) is Both
        assert batch["pair"].second == batch["id"][0]
        assert batch["pair"].second.shape == ()
        assert torch.equal(batch["strided"], number[:, ::2])
        assert torch.equal(batch["half"], number.to(torch.bfloat16))
        assert int(batch["kept"][0, 0]) in firsts
        first = batch["kept"][0, 0]
        assert torch.equal(batch["kept"], torch.stack([first, first + 1])[:, None].expand(2, WIDTH))


def collated(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {
        "wide": torch.from_numpy(np.stack([sample["wide"] for sample in samples])),
        "id": torch.tensor([sample["id"] for sample in samples]),
    }


def test_batches_of_somebody_elses_making_travel_on_slabs_too(wide: Path) -> None:
    for batch in loader(wide, collate_fn=collated):
        assert holds(batch)
        assert is_lent(batch["wide"])


def test_pinned_batches(wide: Path) -> None:
    batches = loader(wide, pin_memory=torch.cuda.is_available())
    assert all(map(holds, list(batches)))


@pytest.mark.full
def test_without_room_in_dev_shm(wide: Path) -> None:
    """Containers have 64 MB of it; batches do not need any."""
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    program = (
        "import collections, os, shardstream as ss\n"
        f"dataset = ss.ShardDataset({str(wide)!r}, fields=['wide', 'id'], batch_size=20)\n"
        "room = os.statvfs('/dev/shm')\n"
        "assert room.f_blocks * room.f_frsize < 2 << 20, room\n"
        "kept = list(ss.Loader(dataset, num_workers=2))\n"
        "assert all((batch['wide'] == batch['id'][:, None]).all() for batch in kept)\n"
    )
    small = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" -c "$1"'
    command = ["unshare", "--mount", "sh", "-c", small, sys.executable, program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "unshare" in ended.stderr or "mount:" in ended.stderr:
        pytest.skip(ended.stderr.strip())
    assert ended.returncode == 0, ended.stderr


def test_a_killed_worker_leaves_nothing(wide: Path) -> None:
    batches = loader(wide, persistent_workers=True)
    stream = iter(batches)
    batch = next(stream)
    for worker in batches._iterator._workers:  # type: ignore[union-attr]
        os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(ss.errors.WorkerError, match="killed"):
        collections.deque(stream, maxlen=0)
    assert holds(batch)


DTYPES = [torch.uint8, torch.bool, torch.bfloat16, torch.float16, torch.int64, torch.complex64, torch.float64]


@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 15), max_size=4),
    st.sampled_from([1, 100]),
    st.randoms(use_true_random=False),
)
def test_any_tensor_arrives_as_it_was(dtype: torch.dtype, shape: list[int], times: int, draw: random.Random) -> None:
    tensor = (
        torch.arange(int(np.prod(shape)) * times).remainder(251).to(dtype).reshape(*shape[:-1], shape[-1] * times)
        if shape
        else (torch.ones((), dtype=dtype))
    )
    tensor = tensor.permute(draw.sample(range(tensor.ndim), tensor.ndim))
    if tensor.ndim and draw.random() < 0.3:
        tensor = tensor[draw.randrange(2) :: 2]
    pool = SharedSlabPool()
    arrived = received(tensor, pool)
    assert arrived.dtype == tensor.dtype
    assert torch.equal(arrived, tensor)
    if tensor.numel() and is_dense(tensor):
        assert arrived.stride() == tensor.stride()


def received(tensor: torch.Tensor, pool: SharedSlabPool) -> torch.Tensor:
    """A tensor as the other side gets it; that is this process, too."""
    travelling = handover.packed(tensor, pool)
    function, arguments = travelling.__reduce__()
    return function(*arguments)


@pytest.mark.full
def test_more_batches_are_kept_than_files_may_be_open(wide: Path) -> None:
    program = (
        "import resource, shardstream as ss\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (220, 220))\n"
        f"dataset = ss.ShardDataset({str(wide)!r}, fields=['wide', 'id'], batch_size=1)\n"
        "loader = ss.Loader(dataset, num_workers=2)\n"
        "kept = list(loader) + list(loader)\n"
        "assert all((batch['wide'] == batch['id'][:, None]).all() for batch in kept)\n"
        "assert len(kept) == 400\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
