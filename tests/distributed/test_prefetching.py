"""Training in parallel from a `DevicePrefetcher`: DDP and FSDP learn what they learn from a plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import shardstream as ss

from ..stream.making import numbered, write_dataset
from .launching import on_ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("numbers"), numbered([120, 80]))


def features(batch: Any, generator: torch.Generator | None = None) -> Any:
    ids = batch["id"].float()
    inputs = torch.stack([ids, ids.square() / 100, torch.ones_like(ids)], 1) / 200
    return inputs, batch["id"], generator and generator.initial_seed()


def train(rank: int, folder: Path, how: str, ahead: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    dataset = ss.ShardDataset(folder, fields=["id"], batch_size=16, shuffle=True)
    loader = ss.Loader(dataset, num_workers=1)
    network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    if how == "fsdp":
        from torch.distributed.fsdp import fully_shard  # seconds, which collecting this test need not take

        fully_shard(network, mesh=dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)))
    model = network if how == "fsdp" else DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, seen, noise = [], [], []
    batches: Any = ss.DevicePrefetcher(loader, "cpu", transform=features) if ahead else map(features, loader)
    for inputs, ids, seed in batches:
        loss = (model(inputs) - inputs[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seen += ids.tolist()
        noise.append(seed)
    return {"losses": losses, "seen": seen, "noise": noise}


@pytest.mark.full
@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_it_learns_what_a_plain_loop_learns(folder: Path, tmp_path: Path, how: str) -> None:
    plain, ahead = (on_ranks(tmp_path / str(ahead), 2, train, folder, how, ahead) for ahead in (False, True))
    for rank in range(2):
        assert ahead[rank]["seen"] == plain[rank]["seen"]
        assert ahead[rank]["losses"] == plain[rank]["losses"]
    assert len(ahead[0]["seen"]) == len(ahead[1]["seen"]) == 96
    seeds = ahead[0]["noise"] + ahead[1]["noise"]
    assert len(set(seeds)) == 12  # on each rank random numbers of its own
