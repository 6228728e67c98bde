"""`DevicePrefetcher` on a CUDA device. Skipped where there is none; ``docs/gpu-checks.md`` says when they were run."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import shardstream as ss
from shardstream.load.device.device_copy import Cuda

from ..stream.making import numbered, photograph, write_dataset

pytestmark = pytest.mark.gpu

MB = 1 << 20
STEPS = 60


@pytest.fixture(scope="module", autouse=True)
def _calibrated() -> None:
    if torch.cuda.is_available():
        cycles_a_second()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("photos"), numbered([100, 60], jpg=photograph))


def loader(folder: Path, workers: int = 2, **settings: Any) -> ss.Loader:
    fields = {"jpg": ss.decode.RandomResizedCrop(48, flip=True), "id": None}
    dataset = ss.ShardDataset(folder, fields=fields, batch_size=16, shuffle=True, **settings)
    return ss.Loader(dataset.to_tuple("jpg", "id"), num_workers=workers)


def numbers(count: int = STEPS, size: int = 8 * MB) -> list[torch.Tensor]:
    return [torch.full((size,), n % 251, dtype=torch.uint8) for n in range(count)]


@cache
def cycles_a_second() -> float:
    """Of the counter that a sleeping kernel looks at: it is the clock of the processor, or one of its own."""
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(2):  # the first wakes the device up
        begun.record()
        torch.cuda._sleep(50_000_000)
        ended.record()
        torch.cuda.synchronize()
    return 50_000_000 / (begun.elapsed_time(ended) / 1e3)


def work(seconds: float = 0.002) -> None:
    """A kernel that takes a while, on the stream that is current."""
    torch.cuda._sleep(int(seconds * cycles_a_second()))


def test_batches_are_those_of_the_cpu(folder: Path) -> None:
    here = list(ss.DevicePrefetcher(loader(folder), "cpu"))
    there = list(ss.DevicePrefetcher(loader(folder), "cuda"))
    assert len(here) == len(there) == 10
    for (images, ids), (moved, moved_ids) in zip(here, there, strict=True):
        assert moved.is_cuda
        assert moved.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(images, moved.cpu())
        assert torch.equal(ids, moved_ids.cpu())


def seen_by_a_slow_loop(batches: Any) -> list[int]:
    """What kernels find that run long after they were launched, of batches that nobody refers to any more."""
    sums = []
    for batch in batches:
        work()
        sums.append(batch.to(torch.int64).sum())
        del batch
    torch.cuda.synchronize()
    return [int(total) for total in sums]


def expected(batches: list[torch.Tensor], factor: int = 1) -> list[int]:
    return [int(batch[0]) * len(batch) * factor for batch in batches]


@pytest.mark.parametrize("transformed", [False, True])
def test_slow_kernels_find_their_batch(*, transformed: bool) -> None:
    batches = numbers()
    transform = (lambda batch: batch.to(torch.int16) * 2) if transformed else None
    ahead = ss.DevicePrefetcher(batches, "cuda", transform=transform, depth=4)
    assert seen_by_a_slow_loop(ahead) == expected(batches, 2 if transformed else 1)


def test_without_protection_slow_kernels_find_later_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the test above proves nothing: make its kernels slower."""
    monkeypatch.setattr(Cuda, "protect", lambda self, tensor, stream: None)
    batches = numbers()
    assert seen_by_a_slow_loop(ss.DevicePrefetcher(batches, "cuda", depth=4)) != expected(batches)


def test_without_waiting_kernels_find_what_lay_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "wait", lambda self, stream, event: None)
    batches = numbers()

    def slowly(batch: torch.Tensor) -> torch.Tensor:
        work()
        return batch + 1

    sums = [batch.to(torch.int64).sum() for batch in ss.DevicePrefetcher(batches, "cuda", transform=slowly)]
    torch.cuda.synchronize()
    assert [int(total) for total in sums] != [total + 8 * MB for total in expected(batches)]


def test_the_stream_of_the_loop_is_the_one_that_is_current_then() -> None:
    batches, own = numbers(), torch.cuda.Stream()
    ahead = ss.DevicePrefetcher(batches, "cuda")
    with torch.cuda.stream(own):
        assert seen_by_a_slow_loop(ahead) == expected(batches)


def test_kept_batches_stay_as_they_are() -> None:
    batches = numbers(20)
    kept = list(ss.DevicePrefetcher(batches, "cuda", depth=3))
    assert [int(batch.max()) for batch in kept] == [int(batch.min()) for batch in kept] == list(range(20))


def test_copies_leave_from_page_locked_memory_of_two_batches(folder: Path) -> None:
    ahead = ss.DevicePrefetcher(loader(folder), "cuda")
    list(ahead)
    batch = 16 * 48 * 48 * 3 + 16 * 8
    assert 2 * batch < ahead.pinned_bytes < 5 * batch
    assert ahead.stats.pinned_bytes == ahead.pinned_bytes
    assert all(slot.memory.is_pinned() for slot in ahead._copy._slots)  # type: ignore[attr-defined]
    assert ahead.stats.device_copy_seconds > 0


def test_copies_overlap_with_kernels() -> None:
    """Copies of 20 batches beside kernels of 20 x 5 ms take hardly longer than the kernels alone."""
    import torch.profiler as profiling

    batches = numbers(20, 64 * MB)
    with profiling.profile(activities=[profiling.ProfilerActivity.CUDA]) as profile:
        for batch in ss.DevicePrefetcher(batches, "cuda"):
            work(0.005)
            batch.add_(1)
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type.name == "CUDA"]
    copies = [event.time_range for event in events if "HtoD" in event.name]
    kernels = [event.time_range for event in events if "HtoD" not in event.name and "DtoD" not in event.name]
    assert len(copies) == 20
    overlapping = [copy for copy in copies if any(one.start < copy.end and copy.start < one.end for one in kernels)]
    assert len(overlapping) > 10


def test_copies_overlap_with_the_transform_of_the_batch_before() -> None:
    import torch.profiler as profiling

    def transform(batch: torch.Tensor) -> torch.Tensor:
        work(0.02)
        return batch.add_(1)

    with profiling.profile(activities=[profiling.ProfilerActivity.CUDA]) as profile:
        kept = list(ss.DevicePrefetcher(numbers(20, 64 * MB), "cuda", transform=transform))
        torch.cuda.synchronize()
    assert [int(batch[0]) for batch in kept] == list(range(1, 21))
    events = [event for event in profile.events() if event.device_type.name == "CUDA"]
    copies = [event.time_range for event in events if "HtoD" in event.name]
    kernels = [event.time_range for event in events if "HtoD" not in event.name]
    overlapping = [copy for copy in copies if any(one.start < copy.end and copy.start < one.end for one in kernels)]
    assert len(overlapping) > 10


def test_device_memory_is_bounded_where_the_loop_is_far_ahead_of_its_kernels() -> None:
    batches = numbers(60, 64 * MB)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    for batch in ss.DevicePrefetcher(batches, "cuda", depth=2):
        work(0.02)
        batch.add_(1)
        del batch
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_reserved() - before <= 5 * 64 * MB


def test_tensors_of_any_kind_arrive() -> None:
    from torch.nn.utils.rnn import pack_sequence

    batches = [
        {
            "sparse": torch.eye(4).to_sparse() * n,
            "csr": (torch.eye(4) * (n + 1)).to_sparse_csr(),
            "jagged": torch.nested.nested_tensor([torch.full((2,), n), torch.full((3,), n)], layout=torch.jagged),
            "rows": pack_sequence([torch.full((3,), n), torch.full((2,), n)]),
        }
        for n in range(1, 20)
    ]
    ahead = ss.DevicePrefetcher(batches, "cuda")
    for batch, there in zip(batches, ahead, strict=True):
        assert torch.equal(there["sparse"].to_dense().cpu(), batch["sparse"].to_dense())
        assert torch.equal(there["csr"].to_dense().cpu(), batch["csr"].to_dense())
        assert torch.equal(there["jagged"].values().cpu(), batch["jagged"].values())
        assert torch.equal(there["rows"].data.cpu(), batch["rows"].data)
        assert there["rows"].batch_sizes.device.type == "cpu"
    assert ahead.stats.alone > 0


def test_random_numbers_are_those_of_the_key(folder: Path) -> None:
    def noise(batch: Any, generator: torch.Generator) -> Any:
        assert generator.device.type == "cuda"
        return torch.rand(4, device="cuda", generator=generator)

    whole = ss.DevicePrefetcher(loader(folder), "cuda", transform=noise)
    first = torch.stack(list(whole)).cpu()
    part = ss.DevicePrefetcher(loader(folder), "cuda", transform=noise)
    iterator = iter(part)
    for _ in range(4):
        next(iterator)
    rest = ss.DevicePrefetcher(loader(folder), "cuda", transform=noise)
    rest.load_state_dict(part.state_dict())
    assert torch.equal(torch.stack(list(rest)).cpu(), first[4:])
    del iterator


def test_a_cuda_graph_reads_its_static_input(folder: Path) -> None:
    expected = [int(images.long().sum()) for images, _ in ss.DevicePrefetcher(loader(folder), "cpu")]
    graph, total, found = torch.cuda.CUDAGraph(), torch.zeros((), dtype=torch.int64, device="cuda"), []
    captured = False
    for images, _ in ss.DevicePrefetcher(loader(folder), "cuda", reuse=True):
        if not captured:
            images.long().sum()  # warm up
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # our thread copies meanwhile
                total.copy_(images.long().sum())
            captured = True
        graph.replay()
        found.append(total.clone())
    assert [int(one) for one in found] == expected


def test_a_compiled_model_trains(folder: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 46 * 46, 1)).cuda()
    compiled = torch.compile(model)
    ahead = ss.DevicePrefetcher(loader(folder), "cuda", transform=lambda batch: batch[0].float() / 255)
    for images in ahead:
        compiled(images).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_no_context_is_made_on_another_device() -> None:
    batches = numbers(4)
    with torch.cuda.device(1):
        ahead = ss.DevicePrefetcher(batches, "cuda")
        assert ahead.device == torch.device("cuda", 1)
    before = torch.cuda.memory_reserved(0)
    assert all(batch.device.index == 1 for batch in ahead)
    assert torch.cuda.memory_reserved(0) == before


_LEAVES = """
import sys, torch
import shardstream as ss

if __name__ == "__main__":
    ahead = iter(ss.DevicePrefetcher([torch.ones(1 << 22) for _ in range(1000)], "cuda", depth=3))
    next(ahead)
    {how}
"""


@pytest.mark.parametrize("how", ["sys.exit(0)", "del ahead", "raise KeyboardInterrupt"])
def test_a_process_that_leaves_in_the_middle_ends_without_a_word_of_cuda(tmp_path: Path, how: str) -> None:
    script = tmp_path / "leaves.py"
    script.write_text(_LEAVES.format(how=how))
    done = subprocess.run(
        [sys.executable, script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90
    )
    assert "CUDA" not in done.stderr
    assert "Fatal" not in done.stderr
    assert (done.returncode == 0) == (how != "raise KeyboardInterrupt")
