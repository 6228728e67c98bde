"""Compares the operations of ``ss.augment`` with torchvision v2's own; see ``tools/drills/augment``."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from shardstream import augment
from shardstream.augment.draws import Draws
from shardstream.augment.mixing import Mix
from shardstream.augment.operation import Operation

BATCH, SIZE, CLASSES = 32, (96, 112), 10
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DRAWS = 3000
KEY = 2024

Image = torch.Tensor
Numbers = list[float]


def pictures(count: int) -> Iterator[Image]:
    """Batches of smooth colour with edges and noise, uint8 (BATCH, 3, height, width)."""
    generator = torch.Generator().manual_seed(KEY)
    for _ in range(count // BATCH):
        small = torch.rand(BATCH, 3, 6, 7, generator=generator)
        smooth = torch.nn.functional.interpolate(small, SIZE, mode="bicubic", align_corners=False)
        noise = torch.randn(BATCH, 3, *SIZE, generator=generator) * 0.05
        yield (smooth + noise).clamp(0, 1).mul(255).byte().to(memory_format=torch.channels_last)


def colors(image: Image, numbers: Numbers) -> Image:
    """Torchvision's steps in the order that was drawn."""
    steps = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    for kind in map(int, numbers[4:]):
        image = steps[kind](image, numbers[kind])
    return image


def rectangle(image: Image, numbers: Numbers) -> Image:
    """Torchvision's erasing."""
    top, left, bottom, right = map(int, numbers)
    erased: Image = F.erase(image, top, left, bottom - top, right - left, torch.zeros(3, 1, 1))
    return erased


OPERATIONS: list[tuple[Operation, Callable[[Image, Numbers], Image], float]] = [
    (augment.RandomHorizontalFlip(), lambda image, _: F.horizontal_flip(image), 0),
    (augment.RandomCrop((90, 100), padding=4), lambda image, n: F.crop(F.pad(image, 4), *map(int, n), 90, 100), 0),
    (augment.ColorJitter(0.4, 0.4, 0.4, 0), colors, 1e-6),
    (augment.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8), colors, 1e-5),
    (augment.RandomGrayscale(0.5), lambda image, _: F.rgb_to_grayscale(image, 3), 1e-6),
    (augment.GaussianBlur(0.5), lambda image, n: F.gaussian_blur(image, [23, 23], [n[0], n[0]]), 2e-6),
    (augment.RandomErasing(0.5), rectangle, 0),
]


def operations(count: int) -> Iterator[tuple[str, float, float]]:
    """What was compared, the largest difference, and the one allowed; pixels are in 0..1."""
    for operation, theirs, allowed in OPERATIONS:
        worst = 0.0
        for number, images in enumerate(pictures(count)):
            drawn = operation.draw(Draws(KEY + number, BATCH), SIZE)
            mine = operation(images, key=KEY + number)
            given = images if operation.moves_only else images / 255
            for i in range(BATCH):
                expected = theirs(given[i], drawn.numbers[:, i].tolist()) if drawn.touched[i] else given[i]
                worst = max(worst, (mine[i].double() - expected.double()).abs().max().item())
        yield str(operation), worst, allowed


def mixtures(count: int) -> Iterator[tuple[str, float, float]]:
    """Mixup and cutmix with torchvision's own arithmetic, one sample's numbers at a time."""
    for name, mix, theirs in (
        ("mixup=0.4", Mix(0.4, 0), v2.MixUp(num_classes=CLASSES)),
        ("cutmix=1", Mix(0, 1), v2.CutMix(num_classes=CLASSES)),
    ):
        worst = 0.0
        for number, images in enumerate(pictures(count)):
            labels = torch.randint(CLASSES, (BATCH,), generator=torch.Generator().manual_seed(number))
            whole = augment.ImageBatch(MEAN, STD, mixup=mix.mixup, cutmix=mix.cutmix, classes=CLASSES)
            mine, soft = whole((images, labels), key=number)
            plain = augment.ImageBatch(MEAN, STD)(images)
            numbers = mix.draw(Draws(number, BATCH), SIZE)
            for i in range(BATCH):
                kept, top, left, bottom, right, share = numbers[:, i].tolist()
                params: dict[str, Any] = {"labels": labels, "batch_size": BATCH, "lam": kept, "lam_adjusted": share}
                params["box"] = (int(left), int(top), int(right), int(bottom))
                expected = theirs.transform(plain, params)[i], theirs.transform(labels, params)[i]
                for own, their in zip((mine[i], soft[i]), expected, strict=True):
                    worst = max(worst, (own - their).abs().max().item())
        yield name, worst, 2e-6


def normalisation(count: int) -> Iterator[tuple[str, float, float]]:
    """``ToTensor`` and ``Normalize`` on what a worker has, to the bit."""
    pipeline = v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)])
    worst = 0.0
    for images in pictures(count):
        mine = augment.ImageBatch(MEAN, STD)(images)
        for i in range(BATCH):
            worst = max(worst, (mine[i] - pipeline(images[i].permute(1, 2, 0).numpy())).abs().max().item())
    yield "normalisation", worst, 0


def distance(first: torch.Tensor, second: torch.Tensor) -> float:
    """The statistic of Kolmogorov and Smirnov, as a ratio to what one in a thousand exceeds."""
    values = torch.cat([first, second]).sort().values
    shares = [torch.searchsorted(part.sort().values, values, right=True) / len(part) for part in (first, second)]
    return (shares[0] - shares[1]).abs().max().item() / (1.95 * math.sqrt(1 / len(first) + 1 / len(second)))


def distributions() -> Iterator[tuple[str, float, float]]:
    """What our operations draw beside what torchvision's ``make_params`` draws."""
    torch.manual_seed(KEY)
    image = [torch.zeros(3, *SIZE)]

    def theirs(operation: Any, *names: str) -> list[torch.Tensor]:
        drawn = [operation.make_params(image) for _ in range(DRAWS)]
        return [torch.tensor([float(one[name]) for one in drawn]) for name in names]

    def ours(operation: Operation) -> torch.Tensor:
        return torch.from_numpy(operation.draw(Draws(KEY, DRAWS), SIZE).numbers)

    jitter = ours(augment.ColorJitter(0.4, 0.3, 0.2, 0.1))
    names = ("brightness", "contrast", "saturation", "hue")
    for name, own, their in zip(
        names,
        jitter,
        theirs(v2.ColorJitter(0.4, 0.3, 0.2, 0.1), *(f"{name}_factor" for name in names)),
        strict=False,
    ):
        yield f"draws of ColorJitter: {name}", distance(own, their), 1
    orders = torch.stack([v2.ColorJitter(0.1).make_params(image)["fn_idx"] for _ in range(DRAWS)]).T
    for place, (own, their) in enumerate(zip(jitter[4:], orders, strict=True)):
        yield f"draws of ColorJitter: step {place}", distance(own, their.float()), 1
    own = ours(augment.RandomErasing(1))
    boxes = torch.stack([own[0], own[1], own[2] - own[0], own[3] - own[1]])
    for name, mine, their in zip("ijhw", boxes, theirs(v2.RandomErasing(1), *"ijhw"), strict=True):
        yield f"draws of RandomErasing: {name}", distance(mine, their), 1
    crop = augment.RandomCrop((90, 100), padding=4)
    for name, mine, their in zip(
        ("top", "left"), ours(crop), theirs(v2.RandomCrop((90, 100), padding=4), "top", "left"), strict=True
    ):
        yield f"draws of RandomCrop: {name}", distance(mine, their), 1
    (sigma,) = ours(augment.GaussianBlur(1))
    blur = v2.GaussianBlur(23, (0.1, 2.0))
    their = torch.tensor([blur.make_params(image)["sigma"][0] for _ in range(DRAWS)])
    yield "draws of GaussianBlur: sigma", distance(sigma, their), 1
    for alpha in (0.2, 1.0):
        kept = torch.from_numpy(Mix(alpha, 0).draw(Draws(KEY, DRAWS), SIZE)[0])
        yield f"draws of mixup={alpha:g}", distance(kept, theirs(v2.MixUp(alpha=alpha, num_classes=2), "lam")[0]), 1
        share = torch.from_numpy(Mix(0, alpha).draw(Draws(KEY, DRAWS), SIZE)[5])
        (their,) = theirs(v2.CutMix(alpha=alpha, num_classes=2), "lam_adjusted")
        yield f"draws of cutmix={alpha:g}", distance(share, their), 1


def main(count: int) -> int:
    """Compare everything on ``count`` pictures."""
    bad = 0
    print(
        f"{count // BATCH * BATCH} pictures; largest difference of values in 0..1 (normalised: in standard deviations)"
    )
    for source in (normalisation(count), operations(count), mixtures(count), distributions()):
        for what, found, allowed in source:
            bad += found > allowed
            print(f"{'ok ' if found <= allowed else 'BAD'} {found:9.2g}  (allowed {allowed:g})  {what}", flush=True)
    print("all alike" if not bad else f"{bad} differ")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
