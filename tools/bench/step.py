#!/usr/bin/env python
"""What a training step waits for: the same loop on synthetic data, prefetched data, and as people write it.

    tools/bench/step.py [SHARDS] [--device cuda] [--workers 8] [--steps 100] [--rounds 3]

Prints a table, and what the loader's report says. Without SHARDS it makes 2,000 pictures (Pillow's noise, scaled up).
On CUDA the network is a ResNet-50 in bf16, elsewhere a small one. Needs shardstream[images,pillow]; timm's prefetcher
takes part where timm is installed.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import nn

import shardstream as ss
from shardstream.threads import cores

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WARM_UP = 10


class Setting(NamedTuple):
    """What all contenders share."""

    shards: str
    device: torch.device
    workers: int
    batch: int
    size: int
    steps: int
    resize: Literal["worker", "device"] = "worker"

    @property
    def dtype(self) -> torch.dtype:
        """Of images and arithmetic."""
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    def loader(self, **arguments: Any) -> ss.Loader:
        """A fresh loader; of more epochs than are needed."""
        fields = {"jpg": ss.decode.RandomResizedCrop(self.size, flip=True, resize=self.resize), "cls": None}
        dataset = ss.ShardDataset(self.shards, fields=fields, shuffle=True, batch_size=self.batch)
        needed = (WARM_UP + self.steps) * self.batch
        repeated = dataset.repeat(-(-needed // max(len(dataset) * self.batch, 1)))
        return ss.Loader(
            repeated.to_tuple("jpg", "cls"), num_workers=self.workers, worker_init_fn=_one_thread, **arguments
        )

    def transform(self) -> ss.augment.ImageBatch:
        """What is done to a batch on the device."""
        return ss.augment.ImageBatch(MEAN, STD, dtype=self.dtype)


def _one_thread(_: int) -> None:
    torch.set_num_threads(1)


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut (He et al., 2015)."""

    def __init__(self, width: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = 4 * inner
        self.body = nn.Sequential(
            *_convolution(width, inner, 1),
            nn.ReLU(inplace=True),
            *_convolution(inner, inner, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(inner, outer, 1),
        )
        same = stride == 1 and width == outer
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(width, outer, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return torch.relu(self.body(x) + self.shortcut(x))


def _convolution(width: int, wider: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(width, wider, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(wider)]


def resnet50() -> nn.Module:
    """A ResNet-50 of 1,000 classes."""
    layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for number in range(depth):
            layers.append(Bottleneck(width, 64 << stage, 2 if stage and not number else 1))
            width = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def small() -> nn.Module:
    """A network that a core can train."""
    layers: list[nn.Module] = []
    width = 3
    for wider in (16, 32, 64, 128):
        layers += [*_convolution(width, wider, 3, 2), nn.ReLU(inplace=True)]
        width = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


class Trainer:
    """A network and one step of its training."""

    def __init__(self, setting: Setting) -> None:
        self.device = setting.device
        network = resnet50() if setting.device.type == "cuda" else small()
        self.network: nn.Module = network.to(setting.device)
        for parameter in self.network.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        self.autocast = torch.autocast(setting.device.type, setting.dtype, enabled=setting.device.type == "cuda")
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Forward, backward, update."""
        with self.autocast:
            loss = nn.functional.cross_entropy(self.network(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def synchronize(self) -> None:
        """Wait until the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Measured(NamedTuple):
    """Of one run."""

    step: float
    waits: list[float]
    report: str


def run(setting: Setting, trainer: Trainer, batches: Iterable[Any], report: Callable[[], str]) -> Measured:
    """Train for some steps."""
    step, waits = timed(batches, lambda batch: trainer.step(*batch), setting.steps, trainer.synchronize)
    return Measured(step, waits, report())


def timed(
    batches: Iterable[Any], train: Callable[[Any], None], steps: int, synchronize: Callable[[], None]
) -> tuple[float, list[float]]:
    """Seconds of a step, and what each waited for ``next``, after `WARM_UP` that are not counted."""
    iterator = iter(batches)
    waits: list[float] = []
    begun = 0.0
    for number in range(WARM_UP + steps):
        if number == WARM_UP:
            synchronize()
            begun = time.perf_counter()
        asked = time.perf_counter()
        batch = next(iterator)
        waits.append(time.perf_counter() - asked)
        train(batch)
    synchronize()
    return (time.perf_counter() - begun) / steps, waits[WARM_UP:]


def synthetic(setting: Setting, trainer: Trainer) -> Measured:
    """No loader, but copies and transform."""
    endless = ss.Synthetic(setting.loader(), batches=WARM_UP + setting.steps)
    ahead = ss.DevicePrefetcher(endless, setting.device, transform=setting.transform())
    return run(setting, trainer, ahead, lambda: "")


def prefetched(setting: Setting, trainer: Trainer) -> Measured:
    """`DevicePrefetcher`."""
    ahead = ss.DevicePrefetcher(setting.loader(), setting.device, transform=setting.transform())
    return run(setting, trainer, ahead, ahead.stats.report)


def plain(setting: Setting, trainer: Trainer) -> Measured:
    """A loop that copies and transforms by itself, from a loader that pins."""
    loader = setting.loader(pin_memory=setting.device.type == "cuda")
    transform = setting.transform()

    def batches() -> Iterator[Any]:
        for batch in loader:
            yield transform(tuple(part.to(setting.device, non_blocking=True) for part in batch))

    return run(setting, trainer, batches(), loader.stats.report)


def side_stream(setting: Setting, trainer: Trainer) -> Measured:
    """The pattern of apex: the next batch is fetched and copied on a side stream before a step is launched."""
    loader, transform = setting.loader(pin_memory=True), setting.transform()
    side = torch.cuda.Stream(setting.device)

    def batches() -> Iterator[Any]:
        ready: Any = None
        for batch in loader:
            with torch.cuda.stream(side):
                coming = transform(tuple(part.to(setting.device, non_blocking=True) for part in batch))
            if ready is not None:
                yield ready
            torch.cuda.current_stream().wait_stream(side)
            for part in coming:
                part.record_stream(torch.cuda.current_stream())
            ready = coming
        yield ready

    return run(setting, trainer, batches(), loader.stats.report)


def timm(setting: Setting, trainer: Trainer) -> Measured:
    """``PrefetchLoader`` of timm."""
    from timm.data.loader import PrefetchLoader

    loader = setting.loader(pin_memory=True)
    ahead = PrefetchLoader(loader, MEAN, STD, device=setting.device, img_dtype=setting.dtype)
    return run(setting, trainer, ahead, loader.stats.report)


Contender: TypeAlias = Callable[[Setting, Trainer], Measured]


def contenders(device: torch.device) -> dict[str, Contender]:
    """Who takes part on this device."""
    found: dict[str, Contender] = {"synthetic data": synthetic, "DevicePrefetcher": prefetched, "plain loop": plain}
    if device.type == "cuda":
        found["side stream, as apex has it"] = side_stream
        if find_spec("timm") is not None:
            found["timm's PrefetchLoader"] = timm
    return found


def pictures(folder: Path, count: int = 2000) -> Path:
    """Shards of pictures that decode like photographs of 500 × 375."""
    from PIL import Image

    with ss.ShardWriter(folder, format="tar") as writer:
        for number in range(count):
            noise = torch.randint(0, 256, (24, 32, 3), generator=torch.Generator().manual_seed(number))
            image = Image.fromarray(noise.to(torch.uint8).numpy()).resize((500, 375), Image.Resampling.BICUBIC)
            grain = Image.effect_noise((500, 375), 40).convert("RGB")
            encoded = io.BytesIO()
            Image.blend(image, grain, 0.3).save(encoded, "JPEG", quality=90)
            writer.write({"__key__": f"{number:06d}", "jpg": encoded.getvalue(), "cls": number % 1000})
    return folder


class Summary(NamedTuple):
    """Medians of the rounds of a contender.

    Attributes:
        step: Seconds.
        ratio: To synthetic data of the same round.
        waited: Share of the time that a step waits.
        worst: Seconds that one waited at most.
    """

    step: float
    ratio: float
    waited: float
    worst: float


def measured(setting: Setting, rounds: int) -> dict[str, list[Measured]]:
    """Everybody in turns, there and back."""
    trainer, who = Trainer(setting), contenders(setting.device)
    found: dict[str, list[Measured]] = {name: [] for name in who}
    for number in range(rounds):
        for name in list(who)[:: 1 if number % 2 == 0 else -1]:
            found[name].append(who[name](setting, trainer))
    return found


def summaries(found: dict[str, list[Measured]]) -> dict[str, Summary]:
    """Of each contender."""
    base = [one.step for one in found["synthetic data"]]
    return {
        name: Summary(
            step=median(one.step for one in runs),
            ratio=median(one.step / other for one, other in zip(runs, base, strict=True)),
            waited=median(sum(one.waits) / (one.step * len(one.waits)) for one in runs),
            worst=median(max(one.waits) for one in runs),
        )
        for name, runs in found.items()
    }


def table(found: dict[str, list[Measured]], batch: int) -> str:
    """A line for each contender."""
    lines = [f"{'':30}{'images/s':>10}{'ms a step':>11}{'x synthetic':>13}{'waited':>9}{'worst wait, ms':>16}"]
    for name, (step, ratio, waited, worst) in summaries(found).items():
        lines.append(f"{name:30}{batch / step:10,.0f}{1e3 * step:11.1f}{ratio:13.2f}{waited:8.1%} {1e3 * worst:15.1f}")
    return "\n".join(lines)


def main() -> int:
    """Run everybody in turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", nargs="?", help="a data set with the fields jpg and cls")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    device = torch.device(args.device)
    with tempfile.TemporaryDirectory() as folder:
        shards = args.shards or str(pictures(Path(folder) / "pictures"))
        setting = Setting(shards, device, args.workers, args.batch, args.size, args.steps)
        found = measured(setting, args.rounds)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{cores()} cores"
    print(f"torch {torch.__version__}, {where}, {args.workers} workers, batches of {args.batch}, {args.rounds} rounds")
    print(table(found, args.batch))
    print(f"\nDevicePrefetcher, last round:\n{found['DevicePrefetcher'][-1].report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
