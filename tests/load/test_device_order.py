"""The order of copies, waits and freed memory, on a simulated device; each rule is shown to be needed."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import shardstream as ss
from shardstream.load import LoaderStats
from shardstream.load.device.device_copy import Cuda, CudaCopy, Device
from shardstream.load.device.packing import Packing, memory_of
from shardstream.load.iteration import PlainIteration
from shardstream.load.prefetch_thread import PrefetchThread

from .simulated import Simulated

STEPS = 12
SIZE = 1 << 20


def batches() -> list[torch.Tensor]:
    return [torch.full((SIZE,), n + 1, dtype=torch.uint8) for n in range(STEPS)]


def train(device: Simulated, road: CudaCopy, *, transformed: bool = False, alone: bool = False) -> list[int]:
    """What the kernels of a training loop saw: batches arrive two ahead, are used, and let go at once."""
    seen: list[int] = []
    sent: list[Any] = []

    def transform(batch: torch.Tensor) -> torch.Tensor:
        if not transformed:
            return batch
        result = device.empty(batch.nbytes)
        start = batch.untyped_storage().data_ptr()
        source = device.blocks[start].memory
        device.kernel(
            device.transforms, result, lambda memory: memory.__setitem__(slice(None), source[: len(memory)] * 2)
        )
        return result

    def use(tensor: torch.Tensor, ticket: Any) -> None:
        road.receive(tensor, ticket)
        device.kernel(device.consumer, tensor, lambda memory: seen.extend({int(memory.min()), int(memory.max())}))

    for batch in batches():
        with road.working():
            arrived = transform(road.send(torch.nn.Parameter(batch, requires_grad=False) if alone else batch))
            sent.append((arrived, road.sent()))
        del arrived
        if len(sent) > 2:
            use(*sent.pop(0))
    while sent:
        use(*sent.pop(0))
    device.consumer.run_to(device.consumer.put)
    return seen


def expected(*, transformed: bool) -> list[int]:
    return [(2 if transformed else 1) * (n + 1) for n in range(STEPS)]


EITHER = [False, True]
ANY = list(itertools.product(EITHER, repeat=3))


@pytest.mark.parametrize("device", [Cuda, Simulated])
def test_a_device_fulfils_the_whole_contract(device: type[Device]) -> None:
    calls = {name for name, value in vars(Device).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert calls == {"copy", "empty", "event", "loop", "move", "on", "pinned", "protect", "wait"}
    for name in calls:
        assert name in vars(device)
        assert [*inspect.signature(getattr(device, name)).parameters] == [
            *inspect.signature(getattr(Device, name)).parameters
        ]


@pytest.mark.parametrize("alone", EITHER)
@pytest.mark.parametrize("transformed", EITHER)
@pytest.mark.parametrize("streams", ANY)
def test_kernels_see_their_batch_whatever_runs_first(streams: tuple[bool, ...], *, transformed: bool, alone: bool):
    device = simulated(streams)
    seen = train(device, CudaCopy(device), transformed=transformed, alone=alone)
    assert seen == expected(transformed=transformed)
    if all(streams):
        assert device.reused > 0  # memory does come back: protection is not hoarding


def simulated(streams: tuple[bool, ...]) -> Simulated:
    copies, transforms, consumer = streams
    return Simulated(copies_eager=copies, transforms_eager=transforms, consumer_eager=consumer)


RULES = {
    "the transform waits for the copy": ("wait", "transforms"),
    "the loop waits for the transform": ("wait", "consumer"),
    "memory is kept until the transform has read it": ("protect", "transforms"),
    "memory is kept until the loop's kernels have read it": ("protect", "consumer"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("alone", EITHER)
@pytest.mark.parametrize("rule", RULES)
def test_without_any_one_rule_kernels_would_see_something_else(rule: str, *, alone: bool):
    call, stream = RULES[rule]
    wrong = []
    for streams in ANY:
        device = simulated(streams)
        rest = getattr(device, call)
        left_out = getattr(device, stream)
        which = {"wait": 0, "protect": 1}[call]  # the argument that is the stream

        def but_one(*arguments: Any, rest: Any = rest, left_out: Any = left_out, which: int = which) -> None:
            if arguments[which] is not left_out:
                rest(*arguments)

        setattr(device, call, but_one)
        if train(device, CudaCopy(device), transformed=True, alone=alone) != expected(transformed=True):
            wrong.append(streams)
    assert wrong


def test_without_waiting_for_a_slot_copies_would_take_later_batches():
    device = simulated((False, False, False))
    road = CudaCopy(device)
    sent = []
    for batch in batches():
        with road.working():
            tensor = road.send(batch)
            for slot in road._slots:
                slot.copied = None  # as if the copy were over
            sent.append((tensor, road.sent()))
    for tensor, ticket in sent:
        road.receive(tensor, ticket)
    device.consumer.run_to(device.consumer.put)
    assert [int(tensor[0]) for tensor, _ in sent] != [n + 1 for n in range(STEPS)]


def test_a_batch_is_copied_while_the_one_before_is_transformed():
    device = simulated((False, False, False))
    road = CudaCopy(device)
    done: list[int] = []
    with road.working():
        for n, batch in enumerate(batches()[:2]):
            moved = road.send(batch)
            device.kernel(device.transforms, moved, lambda memory, n=n: done.append(n))
            ticket = road.sent()
        ticket.copied.synchronize()
        assert int(moved.max()) == 2  # the second batch has arrived
        assert done == []
        ticket.ready.synchronize()
        assert done == [0, 1]


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize(("steps", "transformed"), [(10, False), (100, False), (50, True)])
def test_device_memory_is_bounded_by_depth_however_far_the_host_runs_ahead(
    steps: int, depth: int, *, transformed: bool
):
    device = simulated((True, True, False))
    seen: list[int] = []

    def transform(batch: torch.Tensor, _: Any) -> torch.Tensor:
        if not transformed:
            return batch
        result = device.empty(batch.nbytes)
        device.kernel(device.transforms, result, lambda memory: memory.fill(1))
        return result

    flow = PrefetchThread(PlainIteration([batches()[0]] * steps, 0), CudaCopy(device), transform, depth)
    while sent := flow.receive():  # the loop's kernels run when somebody waits for them, and not before
        device.kernel(device.consumer, sent.batch, lambda memory: seen.append(int(memory.min())))
        del sent
    for stream in (device.copies, device.transforms):  # what came, and what the transform made of it
        assert sum(block.stream is stream for block in device.made) <= depth + 2
    assert flow.stop(30)
    device.consumer.run_to(device.consumer.put)
    assert seen == [1] * steps


def test_kept_batches_are_never_written_to():
    device = simulated((True, True, True))
    road = CudaCopy(device)
    kept = []
    with road.working():
        for batch in batches():
            tensor = road.send(batch)
            road.receive(tensor, road.sent())
            kept.append(tensor)
    assert [int(tensor.min()) for tensor in kept] == [int(tensor.max()) for tensor in kept] == list(range(1, STEPS + 1))


def test_page_locked_memory_is_two_batches_however_many_there_are():
    device = simulated((True, True, True))
    road = CudaCopy(device)
    assert road.pinned_bytes == 0
    with road.working():
        for size in (1000, 5000, 3000, 900, 4097):
            road.receive(road.send(torch.zeros(size, dtype=torch.uint8)), road.sent())
    assert road.pinned_bytes == 2 * 8192


def test_whoever_keeps_labels_keeps_labels_alone():
    device = simulated((True, True, True))
    road = CudaCopy(device)
    labels = []
    with road.working():
        for n in range(8):
            images, label = road.send((torch.zeros(4, SIZE, dtype=torch.uint8), torch.full((4,), n)))
            road.receive((images, label), road.sent())
            labels.append(label)
            del images
    assert [label.tolist() for label in labels] == [[n] * 4 for n in range(8)]
    assert sum(label.untyped_storage().nbytes() for label in labels) == 8 * 4 * 8


class Own:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.parts = {"deep": [tensor]}
        self.me = self


class Slots:
    __slots__ = ("_empty", "me", "parts")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.parts = (deque([tensor]),)
        self.me = self


class MoreSlots(Slots):
    __slots__ = ("__more",)


@pytest.mark.parametrize("own", [Own, Slots, MoreSlots])
def test_tensors_inside_of_unknown_objects_are_protected_too(own: Any):
    device = simulated((True, True, True))
    protected = []
    road = CudaCopy(device)
    with road.working():
        tensor = road.send(torch.zeros(SIZE, dtype=torch.uint8))
        ticket = road.sent()
    device.protect = lambda one, stream: protected.append((one, stream))  # type: ignore[method-assign]
    road.receive({"own": own(tensor)}, ticket)
    assert [(one.data_ptr(), stream) for one, stream in protected] == [(tensor.data_ptr(), device.consumer)]


def test_times_are_known_when_the_device_is_done():
    device = simulated((False, False, False))
    road = CudaCopy(device)
    with road.working():
        road.send(torch.zeros(8))
        ticket = road.sent()
    assert road.times() == []
    assert road.receive(None, ticket).late
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


# ------------------------------------------------------------------------------------------------- tensors of any kind


def quantised_by_channel() -> torch.Tensor:
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 0])
    return torch.quantize_per_channel(torch.rand(2, 2), scales, zeros, 0, torch.qint8)


# Made in the tests: the first jagged tensor imports torch's compiler, which takes seconds.
KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "coo": lambda: torch.eye(4).to_sparse(),
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "csc": lambda: torch.eye(4).to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "bsc": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    "quantised": lambda: torch.quantize_per_tensor(torch.rand(8), 0.1, 0, torch.quint8),
    "channels": quantised_by_channel,
    "nested": lambda: torch.nested.nested_tensor([torch.rand(2), torch.rand(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.rand(2), torch.rand(3)], layout=torch.jagged),
    "parameter": lambda: torch.nn.Parameter(torch.rand(4)),
}


def of_kind(kind: str) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: that some of these are young, others old
        return KINDS[kind]()


@pytest.mark.parametrize("kind", KINDS)
def test_all_memory_of_a_tensor_of_any_kind_is_protected(kind: str):
    tensor = of_kind(kind)
    found = memory_of(tensor)
    for one in found:
        assert type(one) in (torch.Tensor, torch.nn.Parameter)
        assert (one.layout, one.is_quantized, one.is_nested) == (torch.strided, False, False)
    counts = {"coo": 2, "csr": 3, "csc": 3, "bsr": 3, "bsc": 3, "channels": 3}
    if kind == "jagged":  # its offsets, and what torch remembers of them
        assert {tensor.values().data_ptr(), tensor.offsets().data_ptr()} < {one.data_ptr() for one in found}  # type: ignore[no-untyped-call]
    else:
        values = tensor.values() if kind.startswith(("cs", "bs")) else tensor._values() if kind == "coo" else tensor
        assert values.data_ptr() in {one.data_ptr() for one in found}
        assert len({one.data_ptr() for one in found}) == len(found) == counts.get(kind, 1)


def test_tensors_that_cannot_lie_in_the_slab_travel_alone_and_are_counted():
    device = simulated((True, True, True))
    all_kinds = {kind: of_kind(kind) for kind in KINDS}
    batch = {"x": torch.zeros(4), **all_kinds, "rows": pack_sequence([torch.ones(3), torch.ones(2)])}
    flow = PrefetchThread(PlainIteration([batch], 0), CudaCopy(device), lambda batch, _: batch, 1)
    sent = flow.receive()
    assert sent is not None
    # A packed sequence is two of these: its data, and the sizes of its steps.
    assert sent.ticket.alone == len(all_kinds) + 2
    assert sent.batch["rows"].batch_sizes.tolist() == [2, 2, 1]
    assert sent.batch["coo"] is batch["coo"]  # the simulated device leaves it
    assert flow.receive() is None
    stats = LoaderStats()
    stats.sent(sent, [], 0.0)
    assert stats.alone == sent.ticket.alone


def test_objects_with_a_way_of_their_own_are_moved_by_it_and_not_taken_apart():
    rows = pack_sequence([torch.ones(3), torch.ones(2)])
    packing = Packing({"rows": rows})
    assert packing.size == 0
    moved = packing.unpacked(torch.empty(0, dtype=torch.uint8), lambda value: value.to("meta"))["rows"]
    assert moved.data.device.type == "meta"
    assert moved.batch_sizes.device.type == "cpu"  # where torch wants it


def test_a_tensor_that_hides_its_memory_is_refused():
    device = simulated((True, True, True))
    with pytest.raises(ss.errors.UsageError, match=r"layout torch\._mkldnn cannot be moved"):
        CudaCopy(device).send({"x": [torch.zeros(2, 2).to_mkldnn()]})
