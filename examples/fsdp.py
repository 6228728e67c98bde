"""Train under FSDP, be killed at any moment, and go on with another number of ranks, for which parameters are cut anew.

    torchrun --nproc-per-node=4 examples/fsdp.py run/

Data and checkpoints lie in run/, which all nodes see. Start it again with other ranks and --workers: it goes on.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard

import shardstream as ss

EPOCHS, BATCH, LENGTH, WIDTH, STEPS = 3, 16, 32, 32, np.arange(32)  # BATCH: samples a step, of all ranks together


def make(shards: Path) -> None:
    """Pack sequences that count in steps of 0 to 7, which is to be told of them."""
    with ss.ShardWriter(shards, fields={"tokens": f"array:int64:{LENGTH}", "cls": "int64"}, format="record") as writer:
        for number in range(512):
            writer.write({"__key__": f"{number}", "tokens": (number + number % 8 * STEPS) % 50, "cls": number % 8})


def network() -> nn.Module:
    """Each layer, and the rest, is a unit of which every rank keeps a part, gathered when it is used."""
    layers = [nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(50, WIDTH), *layers, nn.Flatten(), nn.Linear(LENGTH * WIDTH, 8))
    for unit in (*layers, model):
        fully_shard(unit)
    return model


def main() -> None:
    """Join the other ranks, train, go on where a run before this one was stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data set and the checkpoint; a run in it goes on")
    parser.add_argument("--workers", type=int, default=2, help="of each rank")
    args = parser.parse_args()
    shards, unfinished = args.folder / "shards", args.folder / "unfinished"
    dist.init_process_group()
    if torch.cuda.is_available():
        torch.cuda.set_device(dist.get_node_local_rank())
    if dist.get_rank() == 0 and not (shards / "dataset.json").exists():
        make(shards)
    dist.barrier()
    ds = ss.ShardDataset(shards, shuffle=True)
    loader = ss.Loader(ds, batch_size=BATCH // dist.get_world_size(), num_workers=args.workers)
    torch.manual_seed(0)
    model = network()
    optimizer, step = torch.optim.AdamW(model.parameters(), lr=1e-2), 0
    for checkpoint in sorted(args.folder.glob("step-*"))[-1:]:  # the last one
        weights, moments = get_state_dict(model, optimizer)
        load({"model": weights, "optimizer": moments, "loader": loader}, checkpoint_id=checkpoint)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        step = int(checkpoint.name.removeprefix("step-"))
    while loader.epoch < EPOCHS:
        for batch in ss.DevicePrefetcher(loader):
            loss = nn.functional.cross_entropy(model(batch["tokens"]), batch["cls"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step := step + 1) % 10 == 0:
                weights, moments = get_state_dict(model, optimizer)  # each rank writes its part of them
                save({"model": weights, "optimizer": moments, "loader": loader}, checkpoint_id=unfinished)
                if dist.get_rank() == 0:
                    unfinished.rename(args.folder / f"step-{step:06}")  # a whole one
                    print(f"epoch {loader.epoch}  step {step}  loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
