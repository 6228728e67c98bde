"""Train under DDP, be killed at any moment, and go on with other ranks and workers on exactly the samples left.

    shardstream pack photos/ out/
    torchrun --nproc-per-node=4 examples/train_ddp.py --data out/ --checkpoints run/
    torchrun --nproc-per-node=2 examples/train_ddp.py --data out/ --checkpoints run/ --workers 1    # goes on

On CPUs (gloo) or GPUs (nccl), on one node or many; several nodes need a folder of checkpoints that all of them see.

- ``--checkpoints`` holds one file, replaced as a whole every ``--save-every`` steps: model, optimizer, and the state
  of the loader, which is the same on every rank. After SIGKILL the truth is that file: model and data go back to it
  together, so that the model sees each sample of an epoch once.
- SIGTERM (pre-emption): all ranks finish the same step, save, and exit. The next start goes on after that step.
- ``--batch-size`` is that of all ranks together, so that a step means the same with any number of ranks.
- ``--tensor-parallel 2``: two ranks make up one model replica and read the same batches.
- ``--log-keys FOLDER``: each rank writes down the keys it consumed, to see for yourself that none is missing or twice.

Needs the extras `images` and `pack`.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import shardstream as ss

# ImageNet's mean and deviation for each channel, on the 0–255 scale of the batches.
MEAN = torch.tensor([123.7, 116.3, 103.5]).view(1, 3, 1, 1)
DEVIATION = torch.tensor([58.4, 57.1, 57.4]).view(1, 3, 1, 1)

SHARES = {"train": 0.9, "val": 0.1}


class DataRanks(NamedTuple):
    """This process among those that read different data.

    Attributes:
        rank: Number of this process's model replica.
        size: How many replicas there are.
        group: The processes that hold the same part of each replica: among them gradients are averaged.
        arguments: ``rank=`` and ``world_size=`` for a `ShardDataset`, where it cannot find them by itself.
    """

    rank: int
    size: int
    group: dist.ProcessGroup | None
    arguments: dict[str, int]


def data_ranks(device: torch.device, tensor_parallel: int) -> DataRanks:
    """Which data this process reads, where ``tensor_parallel`` ranks in a row make up one replica of the model.

    The ranks of one replica must get the same batches. So data sets are told rank and size of the mesh's ``"data"``
    dimension, not those of the job. The same goes for pipeline stages: any further dimensions of the mesh do not
    matter, as long as the data sets are told those of ``"data"``.
    """
    world = dist.get_world_size()
    if tensor_parallel == 1:
        return DataRanks(dist.get_rank(), world, None, {})  # a data set finds the ranks of torch.distributed by itself
    mesh = init_device_mesh(device.type, (world // tensor_parallel, tensor_parallel), mesh_dim_names=("data", "tensor"))
    rank, size = mesh.get_local_rank("data"), mesh["data"].size()
    return DataRanks(rank, size, mesh.get_group("data"), {"rank": rank, "world_size": size})


class Preemption:
    """SIGTERM, as a fact that all ranks learn in the same step.

    The signal reaches the ranks at different moments, some perhaps never. If each acted for itself, one would leave
    while others wait for it in a collective. So the signal is only noted, and after every step the ranks agree: an
    all-reduce of one integer, on the CPU, so that no GPU has to be waited for.

    It is blocked, in workers too from their first moment on; the handler is for threads that were there before.
    """

    def __init__(self) -> None:
        self._noticed = False
        signal.signal(signal.SIGTERM, self._notice)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _notice(self, signum: int, frame: object) -> None:
        self._noticed = True

    def agreed(self) -> bool:
        """Whether any rank was told to stop. A collective: every rank calls it after every step."""
        noticed = torch.tensor(int(self._noticed or signal.SIGTERM in signal.sigpending()))
        dist.all_reduce(noticed, dist.ReduceOp.MAX)
        return bool(noticed)


def outlive_sigterm(worker: int) -> None:
    """Leave the process group of the rank: torchrun sends SIGTERM to all of it, which would end DataLoader workers.

    They end when their rank does, however that ends. What was sent to them before they had left is forgotten.
    """
    os.setpgrp()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """Write a checkpoint under another name, then rename it: at every moment there is one whole checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        torch.save(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def network(classes: int) -> nn.Module:
    """Five convolutions that halve the image, then one linear layer.

    Normalised within each sample, and not within the batch, so that it does not matter over how many ranks a batch is
    spread.
    """
    layers: list[nn.Module] = []
    width = 3
    for wider in (24, 48, 96, 128, 192):
        convolution = nn.Conv2d(width, wider, kernel_size=3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.GroupNorm(8, wider), nn.ReLU(inplace=True)]
        width = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def normalised(images: Tensor, device: torch.device) -> Tensor:
    """uint8 images as floats around 0, on the device."""
    return images.to(device, non_blocking=True).float().sub_(MEAN.to(device)).div_(DEVIATION.to(device))


def validate(model: nn.Module, loader: ss.Loader, device: torch.device, group: dist.ProcessGroup | None) -> float:
    """Accuracy over all ranks, exact.

    ``tail="pad"`` gives each rank the same number of batches, filled up with repeated samples that ``__valid__`` marks.
    Each rank counts what is valid, and the sums are added up: every sample counts once, with any number of ranks.
    """
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    model.eval()
    with torch.inference_mode():
        for batch in loader:
            valid, labels = batch["__valid__"].to(device), batch["cls"].to(device)
            correct = model(normalised(batch["jpg"], device)).argmax(1) == labels
            counts += torch.stack([(correct & valid).sum(), valid.sum()])
    model.train()
    dist.all_reduce(counts, group=group)
    return float(counts[0] / counts[1])


def loaders(args: argparse.Namespace, ranks: DataRanks, device: torch.device) -> tuple[ss.Loader, ss.Loader]:
    """The loader for training and the one for validation: disjoint parts of one data set."""
    if args.batch_size % ranks.size:
        raise SystemExit(f"--batch-size {args.batch_size} cannot be spread evenly over {ranks.size} replicas")
    common = {"batch_size": args.batch_size // ranks.size, "seed": args.seed, **ranks.arguments}
    train = ss.ShardDataset(
        args.data,
        split=("train", SHARES),
        fields={"jpg": ss.decode.RandomResizedCrop(args.size, flip=True, source="jpg;png;webp"), "cls": None},
        shuffle=True,
        **common,
    )
    val = ss.ShardDataset(
        args.data,
        split=("val", SHARES),
        fields={
            "jpg": ss.decode.CenterCrop(args.size, resize=args.size * 8 // 7, exact=True, source="jpg;png;webp"),
            "cls": None,
        },
        tail="pad",
        **common,
    )
    options: dict[str, Any] = {"num_workers": args.workers, "pin_memory": device.type == "cuda"}
    if args.workers:
        options["worker_init_fn"] = outlive_sigterm
    return ss.Loader(train, **options), ss.Loader(val, **options)


def train(args: argparse.Namespace, device: torch.device, preemption: Preemption) -> None:
    """Train from the last checkpoint, if there is one, to the last epoch or to SIGTERM."""
    ranks = data_ranks(device, args.tensor_parallel)
    loader, val_loader = loaders(args, ranks, device)
    classes = ss.Manifest.load(args.data).classes
    if classes is None:
        raise SystemExit("the data set names no classes; pack class folders, or a list with --labels name")

    torch.manual_seed(args.seed)
    model = network(len(classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(loader))
    step = 0
    path: Path = args.checkpoints / "checkpoint.pt"
    if path.exists():  # every rank loads the one that rank 0 saved, the loader's state included
        checkpoint = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        schedule.load_state_dict(checkpoint["schedule"])
        loader.load_state_dict(checkpoint["loader"])
        step = checkpoint["step"]
    replica = DistributedDataParallel(
        model, device_ids=[device.index] if device.type == "cuda" else None, process_group=ranks.group
    )
    speaks = dist.get_rank() == 0
    if speaks:
        print(f"{ranks.size} replicas, epoch {loader.epoch}, after step {step}", flush=True)

    def checkpoint_now() -> None:
        # Between two steps, so rank 0's state is that of all ranks: each has consumed the same number of batches.
        if speaks:
            parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule, "loader": loader}
            save(path, {"step": step, **{name: part.state_dict() for name, part in parts.items()}})

    with key_log(args.log_keys) as keys:
        while loader.epoch < args.epochs:
            epoch = loader.epoch
            for batch in loader:
                logits = replica(normalised(batch["jpg"], device))
                loss = nn.functional.cross_entropy(logits, batch["cls"].to(device, non_blocking=True))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                step += 1
                if keys is not None:
                    print(epoch, step, " ".join(batch["__key__"]), sep="\t", file=keys, flush=True)

                stop = preemption.agreed()
                if stop or step % args.save_every == 0:
                    checkpoint_now()
                    if speaks:
                        print(f"epoch {epoch}  step {step}  loss {loss.item():.3f}  saved", flush=True)
                if stop:
                    return
            checkpoint_now()  # the state is now the beginning of the next epoch
            accuracy = validate(model, val_loader, device, ranks.group)
            if speaks:
                print(f"epoch {epoch}  accuracy {accuracy:.1%} of the validation set", flush=True)


@contextmanager
def key_log(folder: Path | None) -> Iterator[TextIO | None]:
    """This rank's file of lines ``epoch<TAB>step<TAB>key key ...``."""
    if folder is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"rank-{dist.get_rank()}.tsv").open("a") as file:
        yield file


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a packed data set with the fields jpg and cls")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="folder; a run in it goes on")
    parser.add_argument("--save-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=96, help="of all ranks together")
    parser.add_argument("--size", type=int, default=128, help="width and height of the crops, in pixels")
    parser.add_argument("--workers", type=int, default=2, help="of each rank")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tensor-parallel", type=int, default=1, metavar="N", help="ranks that make up one replica")
    parser.add_argument("--log-keys", type=Path, metavar="FOLDER", help="a new folder for each start")
    args = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start this with torchrun: torchrun --nproc-per-node=4 examples/train_ddp.py --data out/")
    return args


def main() -> None:
    """Join the other ranks, train, leave."""
    args = arguments()
    preemption = Preemption()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"  # gloo beside nccl for the note of SIGTERM, which lives on the CPU
    else:
        device, backend = torch.device("cpu"), "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=10))
    train(args, device, preemption)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
