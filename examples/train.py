"""Train a small convolutional network on packed photographs, on whatever device is there.

    shardstream pack photos/ shards/
    python examples/train.py shards/ --steps 300

Prints loss and accuracy (each batch is scored before the network has learned from it), and at the end what training
waited for. Needs the extras `images` and `pack`.
"""

import argparse
import os
from collections import deque
from itertools import chain, islice, repeat

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

import shardstream as ss


def network(classes: int) -> nn.Module:
    """Five convolutions that halve the image, then one linear layer."""
    layers: list[nn.Module] = []
    for width, wider in ((3, 24), (24, 48), (48, 96), (96, 128), (128, 192)):
        layers += [nn.Conv2d(width, wider, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, classes))


def main() -> None:
    """Train for a number of steps and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="a packed data set of images and labels")
    for name, number in (("steps", 300), ("batch-size", 64), ("size", 128), ("workers", 2), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=number, help="default %(default)s")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        # Cores for the workers too: threads of torch that wait for a core that is busy elsewhere hold up all others.
        torch.set_num_threads(max(1, (os.cpu_count() or 1) - args.workers))
    crop = ss.decode.RandomResizedCrop(args.size)
    ds = ss.ShardDataset(args.url, fields={"image": crop, "cls": None}, shuffle=True, seed=args.seed)
    size = min(args.batch_size, ds.manifest.samples)
    loader = ss.Loader(ds.to_tuple("image", "cls"), batch_size=size, num_workers=args.workers)
    augment = ss.augment.ImageBatch((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), flip=True)
    batches = ss.DevicePrefetcher(loader, device, transform=augment)
    if ds.classes is None:
        parser.error("the data set names no classes; pack class folders, or a list with --labels name")
    model = network(len(ds.classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=args.steps)
    recent: deque[tuple[float, float]] = deque(maxlen=25)

    console = Console()
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[now]}"))
    hidden = not console.is_terminal
    with Progress(TextColumn("training"), *columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("training", total=args.steps, now="")
        endless = chain.from_iterable(repeat(batches))  # each completed iteration goes on with the next epoch's order
        for step, (images, labels) in enumerate(islice(endless, args.steps), 1):
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
    stats = batches.stats  # print(stats.report()) shows how long each part of a step took
    console.print(f"{stats.samples_per_second:,.0f} images/s; {stats.diagnosis().advice}", soft_wrap=True)


if __name__ == "__main__":
    main()
