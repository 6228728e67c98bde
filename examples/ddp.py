"""Train under DDP, be killed at any moment, and go on with other ranks and workers on exactly the samples left.

    shardstream pack photos/ out/
    torchrun --nproc-per-node=4 examples/ddp.py out/ --checkpoint run.pt
    torchrun --nproc-per-node=2 examples/ddp.py out/ --checkpoint run.pt --workers 1    # goes on

On SIGTERM (pre-emption) all ranks finish the same step, save, and exit. Several nodes need a checkpoint that all see.
"""

import argparse
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import shardstream as ss

EPOCHS, BATCH, SIZE = 3, 24, 64  # BATCH samples a step, of all ranks together: so a step is the same with any number
AUGMENT = ss.augment.ImageBatch((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def loader_of(args: argparse.Namespace, part: str, crop: Any, **options: Any) -> ss.Loader:
    """Batches of one part of the data set; each rank gets its own."""
    split = (part, {"train": 0.9, "val": 0.1})
    ds = ss.ShardDataset(args.data, fields={"image": crop, "cls": None}, split=split, **options)
    return ss.Loader(ds, batch_size=BATCH // dist.get_world_size(), num_workers=args.workers)


def main() -> None:
    """Join the other ranks, train, leave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a packed data set of images and labels")
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--workers", type=int, default=2, help="of each rank")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    loader = loader_of(args, "train", ss.decode.RandomResizedCrop(SIZE, flip=True), shuffle=True)
    val_loader = loader_of(args, "val", ss.decode.CenterCrop(SIZE, resize=SIZE * 8 // 7), tail="pad")
    torch.manual_seed(0)
    body = (nn.Conv2d(3, 32, 5, stride=4), nn.GroupNorm(8, 32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU())
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, loader.classes or 1)).to(device)
    optimizer, step = torch.optim.AdamW(model.parameters(), lr=2e-3), 0
    if os.path.exists(args.checkpoint):  # every rank loads what rank 0 saved, the loader's state too
        saved = torch.load(args.checkpoint, map_location=device)
        step = saved["step"]
        for part, name in ((model, "model"), (optimizer, "optimizer"), (loader, "loader")):
            part.load_state_dict(saved[name])
    replica = nn.parallel.DistributedDataParallel(model)
    with ss.Preemption() as preemption:
        while loader.epoch < EPOCHS:
            for batch in ss.DevicePrefetcher(loader, device, transform=AUGMENT):
                loss = nn.functional.cross_entropy(replica(batch["image"]), batch["cls"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step, stop = step + 1, preemption.agreed()
                if (stop or step % 10 == 0) and dist.get_rank() == 0:
                    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(saved | {"loader": loader.state_dict()}, args.checkpoint + ".part")
                    os.replace(args.checkpoint + ".part", args.checkpoint)  # there is a whole one at any moment
                    print(f"step {step}  loss {loss.item():.3f}", flush=True)
                if stop:
                    return
            right = torch.zeros(2, device=device)  # of how many: padding of the last batch does not count
            with torch.inference_mode():
                for batch in ss.DevicePrefetcher(val_loader, device, transform=AUGMENT):
                    hits, valid = model(batch["image"]).argmax(1) == batch["cls"], batch["__valid__"]
                    right += torch.stack([(hits & valid).sum(), valid.sum()])
            dist.all_reduce(right)
            if dist.get_rank() == 0:
                print(f"epoch {loader.epoch - 1}  accuracy {right[0] / right[1]:.1%} of {right[1]:.0f}", flush=True)


if __name__ == "__main__":
    main()
