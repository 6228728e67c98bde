"""`DevicePrefetcher` on the CPU: what it delivers, when, and how it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardstream as ss
from shardstream.load import prefetcher

from .prefetching import folder, ids, no_thread_is_left, stream, threads, wait_until

__all__ = ["folder", "no_thread_is_left"]  # fixtures


def noisy(batch: dict[str, Any], generator: torch.Generator, key: int) -> dict[str, Any]:
    noise = torch.rand(len(batch["id"]), generator=generator)
    return batch | {"noise": noise.tolist(), "key": key, "grad": torch.is_grad_enabled()}


def described(batches: Any) -> list[tuple[Any, ...]]:
    return [(one["id"].tolist(), one["x"].tolist(), one["noise"], one["key"]) for one in batches]


# ------------------------------------------------------------------------------------------------------ what comes


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(depth=st.integers(1, 20), size=st.integers(1, 60), tail=st.sampled_from(["drop", "pad", "exact"]))
def test_batches_are_those_of_the_loader_at_any_depth(folder: Path, depth: int, size: int, tail: Any) -> None:
    plain = ss.Loader(stream(folder, batch_size=size, tail=tail), num_workers=0)
    loader = ss.Loader(stream(folder, batch_size=size, tail=tail), num_workers=0)
    ahead = ss.DevicePrefetcher(loader, "cpu", depth=depth)
    assert len(ahead) == len(plain)
    for epoch in range(2):
        assert loader.epoch == epoch
        assert ids(ahead) == ids(plain)


def test_with_workers_epoch_after_epoch(folder: Path) -> None:
    plain = ss.Loader(stream(folder), num_workers=0)
    ahead = ss.DevicePrefetcher(ss.Loader(stream(folder), num_workers=2), "cpu", transform=noisy, depth=3)
    seen = [list(ahead) for _ in range(3)]
    assert [ids(epoch) for epoch in seen] == [ids(plain) for _ in range(3)]
    keys = [one["key"] for epoch in seen for one in epoch]
    assert len(set(keys)) == len(keys) == 3 * 15
    assert not any(one["grad"] for epoch in seen for one in epoch)


def test_batches_are_not_copied_on_the_cpu() -> None:
    batches = [{"x": torch.ones(2)}, (torch.ones(1), "text")]
    assert all(got is batch for got, batch in zip(ss.DevicePrefetcher(batches, "cpu"), batches, strict=True))


Pair = namedtuple("Pair", "x y")  # the plain kind, as people write it


@dataclasses.dataclass(frozen=True)
class Own:
    x: torch.Tensor
    name: str


def test_reused_tensors_stay_where_they_are_and_hold_each_batch_in_turn() -> None:
    def batch(n: int) -> Any:
        x = torch.full((2, 3), n)
        return {"t": (x, [x + 1]), "p": Pair(x + 2, "y"), "o": Own(x + 3, f"n{n}"), "n": n}

    addresses = set()
    for n, got in enumerate(ss.DevicePrefetcher([batch(n) for n in range(6)], "cpu", reuse=True)):
        tensors = [got["t"][0], got["t"][1][0], got["p"].x, got["o"].x]
        assert [tensor.unique().tolist() for tensor in tensors] == [[n], [n + 1], [n + 2], [n + 3]]
        assert (got["n"], got["p"].y, got["o"].name) == (n, "y", f"n{n}")
        addresses.add(tuple(tensor.data_ptr() for tensor in tensors))
    assert len(addresses) == 1


def test_reuse_refuses_batches_of_other_shapes(folder: Path) -> None:
    loader = ss.Loader(stream(folder, batch_size=50, tail="exact"), num_workers=0)
    with pytest.raises(ss.errors.UsageError, match="all batches must be of one shape"):
        list(ss.DevicePrefetcher(loader, "cpu", reuse=True))


def test_reuse_refuses_tensors_without_memory_of_their_own() -> None:
    with pytest.raises(ss.errors.UsageError, match=r"needs ordinary tensors, got one of torch\.sparse_coo"):
        list(ss.DevicePrefetcher([torch.eye(3).to_sparse()], "cpu", reuse=True))


def test_single_samples_and_what_a_collate_fn_made(folder: Path) -> None:
    single = ss.Loader(stream(folder, batch_size=None), num_workers=0)
    assert len([sample["id"] for sample in ss.DevicePrefetcher(single, "cpu")]) == len(single) == 120
    loader = ss.Loader(stream(folder), num_workers=0, collate_fn=lambda samples: [one["id"] for one in samples])
    assert list(ss.DevicePrefetcher(loader, "cpu")) == ids(ss.Loader(stream(folder), num_workers=0))


def test_classes_are_told_to_who_wants_to_know(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "out", classes=["a", "b", "c"]) as writer:
        for n in range(12):
            writer.write({"__key__": f"{n}", "cls": n % 3})

    class Soft:
        told: list[int] = []  # noqa: RUF012

        def for_classes(self, count: int) -> None:
            self.told.append(count)

        def __call__(self, batch: Any) -> Any:
            assert self.told == [3]
            return batch

    loader = ss.Loader(ss.ShardDataset(tmp_path / "out", batch_size=4), num_workers=0)
    ahead = ss.DevicePrefetcher(loader, "cpu", transform=Soft())
    assert len(list(ahead)) == len(list(ahead)) == 3


# ------------------------------------------------------------------------------------------------------------ when


def test_a_step_never_waits_for_the_batch_after_it() -> None:
    used = threading.Event()

    def batches() -> Iterator[int]:
        yield 0
        assert used.wait(30)
        yield 1

    for n in ss.DevicePrefetcher(batches(), "cpu", depth=2):
        if n == 0:
            used.set()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_it_is_depth_batches_ahead_and_no_more(depth: int) -> None:
    asked: list[int] = []

    def batches() -> Iterator[int]:
        for n in range(30):
            asked.append(n)
            yield n

    iterator = iter(ss.DevicePrefetcher(batches(), "cpu", depth=depth))
    for n in range(10):
        assert next(iterator) == n
        wait_until(lambda n=n: len(asked) == n + 1 + depth)  # type: ignore[misc]
        time.sleep(0.005)
        assert len(asked) == n + 1 + depth
    del iterator
    wait_until(lambda: not threads())
    assert len(asked) == 10 + depth


# ----------------------------------------------------------------------------------------------------------- where


@pytest.mark.full
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(received=st.integers(0, 15), depth=st.integers(1, 16))
def test_a_resumed_run_sees_the_rest_with_the_same_random_numbers(folder: Path, received: int, depth: int) -> None:
    whole = ss.DevicePrefetcher(ss.Loader(stream(folder), num_workers=0), "cpu", transform=noisy)
    uninterrupted = [described(whole) for _ in range(2)]

    first = ss.DevicePrefetcher(ss.Loader(stream(folder), num_workers=0), "cpu", transform=noisy, depth=depth)
    iterator = iter(first)
    seen = described([next(iterator) for _ in range(received)])
    state = first.state_dict()
    assert state == first.loader.state_dict()  # type: ignore[attr-defined]
    again = ss.DevicePrefetcher(ss.Loader(stream(folder), num_workers=0), "cpu", transform=noisy)
    again.load_state_dict(state)
    assert seen + (described(again) if received < 15 else []) == uninterrupted[0]
    assert described(again) == uninterrupted[1]
    del iterator


@pytest.mark.parametrize("received", [1, 3])
def test_one_of_several_ranks_resumes_with_the_same_random_numbers(folder: Path, received: int) -> None:
    def ahead() -> ss.DevicePrefetcher[Any]:
        loader = ss.Loader(stream(folder, rank=1, world_size=2), num_workers=0)
        return ss.DevicePrefetcher(loader, "cpu", transform=noisy)

    first, again = ahead(), ahead()
    iterator = iter(first)
    seen = described([next(iterator) for _ in range(received)])
    again.load_state_dict(first.state_dict())
    assert seen + described(again) == described(ahead())


def test_ranks_draw_different_numbers_for_the_same_step(folder: Path) -> None:
    keys = []
    for rank in range(2):
        loader = ss.Loader(stream(folder, rank=rank, world_size=2), num_workers=0)
        keys.append([one["key"] for one in ss.DevicePrefetcher(loader, "cpu", transform=noisy)])
    assert len(keys[0]) == len(keys[1]) > 1
    assert len({*keys[0], *keys[1]}) == len(keys[0]) + len(keys[1])


def test_a_loop_that_breaks_begins_the_same_epoch_again_even_where_all_was_fetched(folder: Path) -> None:
    loader = ss.Loader(stream(folder), num_workers=2)
    ahead = ss.DevicePrefetcher(loader, "cpu", depth=50)
    first: list[list[int]] = []
    for batch in ahead:
        first.append(batch["id"].tolist())
        wait_until(lambda: not threads())  # all 15 are there
        break
    assert loader.epoch == 0
    assert ahead.state_dict()["position"] == 8
    whole = ids(ahead)
    assert whole[0] == first[0]
    assert len(whole) == 15
    assert loader.epoch == 1
    assert ids(loader) != whole  # the loader by itself goes on with the next epoch
    assert loader.epoch == 2


def test_after_a_break_the_loader_itself_can_be_used_at_once(folder: Path) -> None:
    loader = ss.Loader(stream(folder), num_workers=2)
    expected = ids(ss.Loader(stream(folder), num_workers=0))
    for _ in range(3):
        for _ in ss.DevicePrefetcher(loader, "cpu"):
            break
        for batch in loader:
            assert batch["id"].tolist() == expected[0]
            break


def test_a_state_can_be_loaded_while_batches_are_on_their_way(folder: Path) -> None:
    ahead = ss.DevicePrefetcher(ss.Loader(stream(folder), num_workers=2), "cpu", depth=4)
    iterator = iter(ahead)
    batches = [next(iterator) for _ in range(3)]
    state = ahead.state_dict()
    batches += [next(iterator) for _ in range(3)]
    ahead.load_state_dict(state)
    assert ids(ahead)[:3] == ids(batches)[3:]
    with pytest.raises(ss.errors.UsageError, match="ended when a newer one"):
        next(iterator)
    assert list(iterator) == []


def test_two_prefetchers_side_by_side(folder: Path) -> None:
    train = ss.DevicePrefetcher(ss.Loader(stream(folder), num_workers=1), "cpu")
    evaluate = ss.DevicePrefetcher(ss.Loader(stream(folder, shuffle=False), num_workers=1), "cpu")
    expected = ids(ss.Loader(stream(folder), num_workers=0))
    for n, batch in enumerate(train):
        assert batch["id"].tolist() == expected[n]
        if n in (3, 9):
            assert list(itertools.chain(*ids(evaluate))) == list(range(120))


# ------------------------------------------------------------------------------------------------------- what fails


def test_an_error_in_the_transform_comes_in_its_turn_and_says_where(folder: Path) -> None:
    def broken(batch: Any) -> Any:
        raise_at.append(1)
        if len(raise_at) == 4:
            raise RuntimeError("no more")
        return batch

    raise_at: list[int] = []
    ahead = ss.DevicePrefetcher(ss.Loader(stream(folder), num_workers=0), "cpu", transform=broken, depth=8)
    seen: list[list[int]] = []
    with pytest.raises(RuntimeError, match="no more") as raised:
        seen.extend(batch["id"].tolist() for batch in ahead)
    assert raised.value.__notes__ == ["(in the transform of a DevicePrefetcher)"]
    assert seen == ids(ss.Loader(stream(folder), num_workers=0))[:3]
    assert ahead.state_dict()["position"] == 24
    assert len(list(ahead)) == 15  # and the epoch begins anew


def test_an_error_of_a_worker_comes_whole(folder: Path) -> None:
    def picky(sample: Any) -> Any:
        if sample["id"] == 77:
            raise ValueError("not this one")
        return sample

    ahead = ss.DevicePrefetcher(ss.Loader(stream(folder, transform=picky), num_workers=2), "cpu")
    with pytest.raises(ss.errors.TransformError, match="not this one") as raised:
        list(ahead)
    assert raised.value.place["key"] == "k000077"


@pytest.mark.full  # torch looks every 5 seconds whether workers live
def test_the_death_of_a_worker_is_told_with_its_place(folder: Path) -> None:
    def deadly(sample: Any) -> Any:
        if sample["id"] == 77:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGKILL)
        return sample

    ahead = ss.DevicePrefetcher(ss.Loader(stream(folder, transform=deadly), num_workers=1), "cpu")
    with pytest.raises(ss.errors.WorkerError, match="killed by signal"):
        list(ahead)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "depth must be a positive integer, got 0"),
        ({"depth": 1.5}, r"depth must be a positive integer, got 1\.5"),
        ({"device": "meta"}, "device must be cuda or cpu, got meta"),
        ({"transform": 3}, "transform must be callable, got 3"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ss.errors.UsageError, match=message):
        ss.DevicePrefetcher([], **arguments)


def test_two_who_pin_are_one_too_many(folder: Path) -> None:
    loader = torch.utils.data.DataLoader(stream(folder), batch_size=None, pin_memory=True)
    with pytest.raises(ss.errors.UsageError, match="pin_memory"):
        ss.DevicePrefetcher(loader, "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(ss.errors.UsageError, match="there is no cuda here"):
        ss.DevicePrefetcher([], "cuda")


def test_only_a_loader_of_ours_has_a_state() -> None:
    ahead = ss.DevicePrefetcher([torch.ones(1)], "cpu")
    with pytest.raises(ss.errors.UsageError, match="a list has no state"):
        ahead.state_dict()


@pytest.mark.parametrize(
    ("rank", "devices", "current", "told"),
    [("1", 2, 0, True), ("0", 2, 0, False), ("1", 1, 0, False), ("1", 2, 1, False), (None, 2, 0, False)],
)
def test_a_rank_that_uses_the_device_of_another_is_warned(
    monkeypatch: pytest.MonkeyPatch, rank: str | None, devices: int, current: int, told: bool
) -> None:
    for name, value in (("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", rank and "2")):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(prefetcher, "Cuda", lambda device: device)
    expected = pytest.warns(UserWarning, match=r"set_device\(1\)") if told else contextlib.nullcontext()
    with expected:
        assert ss.DevicePrefetcher([]).device == torch.device("cuda", current)
    assert ss.DevicePrefetcher([], "cuda:1").device == torch.device("cuda", 1)
