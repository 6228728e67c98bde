"""The order of copies, waits and freed memory, on a simulated device; each rule is shown to be needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardstream.load.device import CudaRoad
from shardstream.load.packing import Packing

from .simulated import Simulated

STEPS = 12
SIZE = 1 << 20


def batches() -> list[torch.Tensor]:
    return [torch.full((SIZE,), n + 1, dtype=torch.uint8) for n in range(STEPS)]


def train(device: Simulated, road: CudaRoad, *, transformed: bool = False) -> list[int]:
    """What the kernels of a training loop saw: batches arrive two ahead, are used, and let go at once."""
    seen: list[int] = []
    sent: list[Any] = []

    def transform(batch: torch.Tensor) -> torch.Tensor:
        if not transformed:
            return batch
        result = device.empty(batch.nbytes)
        start = batch.untyped_storage().data_ptr()
        source = device.blocks[start].memory
        device.kernel(device.stream, result, lambda memory: memory.__setitem__(slice(None), source[: len(memory)] * 2))
        return result

    def use(tensor: torch.Tensor) -> None:
        device.kernel(device.consumer, tensor, lambda memory: seen.extend({int(memory.min()), int(memory.max())}))

    with road.working():
        for batch in batches():
            moved = transform(road.send(batch))
            sent.append((moved, road.sent()))
            del moved
            if len(sent) > 2:
                tensor, ticket = sent.pop(0)
                road.receive(tensor, ticket)
                use(tensor)
                del tensor
        for tensor, ticket in sent:
            road.receive(tensor, ticket)
            use(tensor)
    device.consumer.run_to(device.consumer.put)
    return seen


def expected(*, transformed: bool) -> list[int]:
    return [(2 if transformed else 1) * (n + 1) for n in range(STEPS)]


@pytest.mark.parametrize("transformed", [False, True])
@pytest.mark.parametrize("consumer_eager", [False, True])
@pytest.mark.parametrize("side_eager", [False, True])
def test_kernels_see_their_batch_whatever_runs_first(*, side_eager: bool, consumer_eager: bool, transformed: bool):
    device = Simulated(side_eager=side_eager, consumer_eager=consumer_eager)
    assert train(device, CudaRoad(device), transformed=transformed) == expected(transformed=transformed)
    if consumer_eager:
        assert device.reused > 0  # memory does come back: protection is not hoarding


def without(device: Simulated, name: str) -> Simulated:
    """The same device with one of its calls doing nothing."""
    setattr(device, name, lambda *_: None)
    return device


@pytest.mark.parametrize("transformed", [False, True])
def test_without_protection_of_memory_kernels_would_see_later_batches(*, transformed: bool):
    device = without(Simulated(side_eager=True, consumer_eager=False), "protect")
    assert train(device, CudaRoad(device), transformed=transformed) != expected(transformed=transformed)


def test_without_waiting_for_the_copy_kernels_would_see_nothing_yet():
    device = without(Simulated(side_eager=False, consumer_eager=True), "await_event")
    assert train(device, CudaRoad(device)) != expected(transformed=False)


def test_without_waiting_for_a_slot_copies_would_take_later_batches():
    device = Simulated(side_eager=False, consumer_eager=False)
    road = CudaRoad(device)
    sent = []
    with road.working():
        for batch in batches():
            tensor = road.send(batch)
            for slot in road._slots:
                slot.copied = None  # as if the copy were over
            sent.append((tensor, road.sent()))
        for tensor, ticket in sent:
            road.receive(tensor, ticket)
    device.consumer.run_to(device.consumer.put)
    assert [int(tensor[0]) for tensor, _ in sent] != [n + 1 for n in range(STEPS)]


def test_kept_batches_are_never_written_to():
    device = Simulated(side_eager=True, consumer_eager=True)
    road = CudaRoad(device)
    kept = []
    with road.working():
        for batch in batches():
            tensor = road.send(batch)
            road.receive(tensor, road.sent())
            kept.append(tensor)
    assert [int(tensor.min()) for tensor in kept] == [int(tensor.max()) for tensor in kept] == list(range(1, STEPS + 1))


def test_page_locked_memory_is_two_batches_however_many_there_are():
    device = Simulated(side_eager=True, consumer_eager=True)
    road = CudaRoad(device)
    assert road.pinned_bytes == 0
    with road.working():
        for size in (1000, 5000, 3000, 900, 4097):
            road.receive(road.send(torch.zeros(size, dtype=torch.uint8)), road.sent())
    assert road.pinned_bytes == 2 * 8192


def test_whoever_keeps_labels_keeps_labels_alone():
    device = Simulated(side_eager=True, consumer_eager=True)
    road = CudaRoad(device)
    labels = []
    with road.working():
        for n in range(8):
            images, label = road.send((torch.zeros(4, SIZE, dtype=torch.uint8), torch.full((4,), n)))
            road.receive((images, label), road.sent())
            labels.append(label)
            del images
    assert [label.tolist() for label in labels] == [[n] * 4 for n in range(8)]
    assert sum(label.untyped_storage().nbytes() for label in labels) == 8 * 4 * 8


def test_tensors_inside_of_unknown_objects_are_protected_too():
    class Own:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.parts = {"deep": [tensor]}
            self.me = self

    device = Simulated(side_eager=True, consumer_eager=True)
    protected = []
    device.protect = protected.append  # type: ignore[method-assign]
    road = CudaRoad(device)
    with road.working():
        tensor = road.send(torch.zeros(SIZE, dtype=torch.uint8))
        road.receive({"own": Own(tensor)}, road.sent())
    assert [one.data_ptr() for one in protected] == [tensor.data_ptr()]


def test_times_are_known_when_the_device_is_done():
    device = Simulated(side_eager=False, consumer_eager=False)
    road = CudaRoad(device)
    with road.working():
        road.send(torch.zeros(8))
        ticket = road.sent()
    assert road.times() == []
    assert not road.receive(None, ticket)
    ticket.ready.synchronize()
    assert [one.copy for one in road.times()] == [1e-3]
    assert road.times() == []


def test_a_batch_keeps_its_dtypes_shapes_and_order_of_dimensions():
    images = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).reshape(2, 4, 5, 3).permute(0, 3, 1, 2)
    batch = {
        "images": images,
        "labels": torch.tensor([1, 2]),
        "part": torch.arange(12).reshape(3, 4)[:, 1:3],
        "none": torch.empty(0, 5),
        "one": torch.tensor(1.5, dtype=torch.bfloat16),
        "names": ["a", "b"],
        "sparse": torch.eye(3).to_sparse(),
    }
    packing = Packing(batch)
    slab = torch.zeros(packing.size, dtype=torch.uint8)
    packing.fill(slab)
    moved: list[Any] = []
    found = packing.unpacked(slab, lambda value: moved.append(value) or value)
    assert moved == [batch["sparse"]]
    assert found["names"] == ["a", "b"]
    assert found["images"].is_contiguous(memory_format=torch.channels_last)
    for name in ("images", "labels", "part", "none", "one"):
        assert torch.equal(found[name], batch[name])
        assert found[name].dtype == batch[name].dtype
        assert found[name].data_ptr() != batch[name].data_ptr() or not found[name].numel()
