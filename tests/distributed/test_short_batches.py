"""Ranks with batches of different sizes: the gradient of the sum over all kept samples is that of one process."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import shardstream as ss

from ..stream.making import numbered, write_dataset
from .launching import on_ranks

RANKS = 2


def few(sample: dict[str, Any]) -> dict[str, Any] | None:
    return sample if sample["id"] % 5 < 2 else None


def network() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(3, 1, dtype=torch.float64)


def losses(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """One a sample."""
    powers = (ids.double()[:, None] / 200) ** torch.arange(1, 4)
    return (model(powers)[:, 0] - torch.sin(ids.double())) ** 2


def gradient(model: torch.nn.Module) -> torch.Tensor:
    found = torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])
    model.zero_grad()
    return found


def train(rank: int, folder: Path) -> list[Any]:
    """Of each step: the ids of this rank, the gradient of the sum over all ranks, and that of the mean of each."""
    model = DistributedDataParallel(network())
    loader = ss.Loader(ss.ShardDataset(folder, shuffle=True, batch_size=12, transform=few), num_workers=0)
    found = []
    for batch in loader:
        kept = torch.tensor(float(len(batch["id"])))
        dist.all_reduce(kept)
        (losses(model, batch["id"]).sum() * dist.get_world_size() / kept).backward()  # type: ignore[no-untyped-call]
        summed = gradient(model)
        losses(model, batch["id"]).mean().backward()  # type: ignore[no-untyped-call]
        found.append((batch["id"], summed, gradient(model)))
    return found


def test_the_gradient_is_that_of_one_process_on_the_union(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "ids", numbered([120, 80]))
    import_module("torch._dynamo")  # once, and not by each rank for itself when it wraps its model
    ranks = on_ranks(tmp_path, RANKS, train, folder)
    assert len(ranks[0]) == len(ranks[1]) == 200 // (12 * RANKS)
    assert any(len(one[0]) != len(other[0]) for one, other in zip(*ranks, strict=True))
    means_agree = []
    for one, other in zip(*ranks, strict=True):
        model = network()
        losses(model, torch.cat([one[0], other[0]])).mean().backward()  # type: ignore[no-untyped-call]
        expected = gradient(model)
        torch.testing.assert_close(one[1], expected)
        torch.testing.assert_close(other[1], expected)
        means_agree.append(torch.allclose(one[2], expected))
    assert not all(means_agree)  # a mean of each rank weights small batches more
