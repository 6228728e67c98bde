"""Train a small convolutional network on packed photographs, on whatever device is there.

    shardstream pack photos/ shards/
    python examples/train.py shards/ --steps 300

Prints loss and accuracy as they go (each batch is scored before the network has learned from it), and at the end where
the time of a step went. Needs the extras `images` and `pack`.
"""

from __future__ import annotations

import argparse
import os
from collections import deque
from collections.abc import Iterator

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

import shardstream as ss

# ImageNet's mean and deviation for each channel.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def network(classes: int) -> nn.Module:
    """Five convolutions that halve the image, then one linear layer."""
    layers: list[nn.Module] = []
    width = 3
    for wider in (24, 48, 96, 128, 192):
        convolution = nn.Conv2d(width, wider, kernel_size=3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(wider), nn.ReLU(inplace=True)]
        width = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def endless(loader: ss.DevicePrefetcher) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches, epoch after epoch: each completed iteration goes on with the next epoch's order."""
    while True:
        yield from loader


def main() -> None:
    """Train for a number of steps and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="a packed data set with the fields jpg and cls")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=128, help="width and height of the crops, in pixels")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        # Cores for the workers too: threads of torch that wait for a core that is busy elsewhere hold up all others.
        torch.set_num_threads(max(1, (os.cpu_count() or 1) - args.workers))
    manifest = ss.Manifest.load(args.url)
    dataset = ss.ShardDataset(
        args.url,
        fields={"jpg": ss.decode.RandomResizedCrop(args.size, source="jpg;png;webp"), "cls": None},
        shuffle=True,
        seed=args.seed,
        batch_size=min(args.batch_size, manifest.samples),
    )
    loader = ss.Loader(dataset.to_tuple("jpg", "cls"), num_workers=args.workers)
    augment = ss.augment.ImageBatch(MEAN, DEVIATION, flip=True)
    batches = ss.DevicePrefetcher(loader, device, transform=augment)

    if manifest.classes is None:
        parser.error("the data set names no classes; pack class folders, or a list with --labels name")
    model = network(len(manifest.classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=args.steps)
    recent: deque[tuple[float, float]] = deque(maxlen=25)

    console = Console()
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[now]}"))
    with Progress(TextColumn("training"), *columns, console=console) as progress:
        task = progress.add_task("training", total=args.steps, now="")
        for step, (images, labels) in zip(range(1, args.steps + 1), endless(batches), strict=False):
            logits = model(images)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()

            recent.append((loss.item(), (logits.argmax(1) == labels).float().mean().item()))
            mean_loss, accuracy = (sum(values) / len(recent) for values in zip(*recent, strict=True))
            now = f"loss {mean_loss:.3f}  accuracy {accuracy:.0%}"
            progress.update(task, advance=1, now=now)
            if step % 50 == 0 or step == args.steps:
                console.print(f"step {step:5d}  {now}")

    console.print(batches.stats.report(), soft_wrap=True)


if __name__ == "__main__":
    main()
