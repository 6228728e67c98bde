"""The same augmentations in the words of each library. Every recipe ends with the normalisation, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

SIZE, CLASSES, PADDING = 224, 1000, 16
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BLUR, SIGMA = 23, (0.1, 2.0)

# Names of recipes, and what is in them.
RECIPES: dict[str, tuple[str, ...]] = {
    "normalise only": (),
    "flip": ("flip",),
    f"crop, padding {PADDING}": ("crop",),
    "colour jitter 0.4": ("jitter",),
    "colour jitter 0.4, hue 0.1": ("hue",),
    "grayscale 0.2": ("grayscale",),
    f"blur 0.5, {BLUR} taps": ("blur",),
    "erasing 0.25": ("erase",),
    "mixup 0.2 or cutmix 1": ("mix",),
    "flip, colour jitter, erasing, mixup or cutmix": ("flip", "jitter", "erase", "mix"),
    "SimCLR: flip, jitter 0.8 with hue 0.2, grayscale, blur": ("flip", "strong", "grayscale", "blur"),
}

WHOLE = tuple(name for name, parts in RECIPES.items() if len(parts) > 1)

Step = Callable[[torch.Tensor, torch.Tensor], Any]


def shardstream(parts: tuple[str, ...]) -> Step:
    """One module of ours."""
    from shardstream import augment

    words: dict[str, dict[str, Any]] = {
        "flip": {"flip": True},
        "crop": {"crop": augment.RandomCrop(SIZE, padding=PADDING)},
        "jitter": {"color_jitter": 0.4},
        "hue": {"color_jitter": (0.4, 0.4, 0.4, 0.1)},
        "strong": {"color_jitter": augment.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8)},
        "grayscale": {"grayscale": 0.2},
        "blur": {"blur": augment.GaussianBlur(0.5, kernel_size=BLUR, sigma=SIGMA)},
        "erase": {"erase": 0.25},
        "mix": {"mixup": 0.2, "cutmix": 1.0, "classes": CLASSES},
    }
    options = {name: value for part in parts for name, value in words[part].items()}
    module = augment.ImageBatch(MEAN, STD, **options)
    return lambda images, labels: module((images, labels))


def torchvision(parts: tuple[str, ...], *, whole: bool) -> Step:
    """Torchvision v2, on uint8 until the normalisation: the whole batch with one draw, or image by image."""
    from torchvision.transforms import v2

    words = {
        "flip": lambda: v2.RandomHorizontalFlip(),
        "crop": lambda: v2.RandomCrop(SIZE, padding=PADDING),
        "jitter": lambda: v2.ColorJitter(0.4, 0.4, 0.4),
        "hue": lambda: v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
        "strong": lambda: v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
        "grayscale": lambda: v2.RandomGrayscale(0.2),
        "blur": lambda: v2.RandomApply([v2.GaussianBlur(BLUR, SIGMA)], p=0.5),
    }
    before = [words[part]() for part in parts if part in words]
    after = [v2.RandomErasing(0.25)] if "erase" in parts else []
    pipeline = v2.Compose([*before, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), *after])
    mixed = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)])

    def step(images: torch.Tensor, labels: torch.Tensor) -> Any:
        # As a worker does: image by image, and then put together.
        done = pipeline(images) if whole else torch.stack([pipeline(image) for image in images])
        return mixed(done, labels) if "mix" in parts else (done, labels)

    return step


def kornia(parts: tuple[str, ...]) -> Step:
    """Kornia, on float32, with a draw for each sample."""
    import kornia.augmentation as k

    words = {
        "flip": lambda: k.RandomHorizontalFlip(p=0.5),
        "crop": lambda: k.RandomCrop((SIZE, SIZE), padding=PADDING),
        "jitter": lambda: k.ColorJitter(0.4, 0.4, 0.4, 0.0, p=1.0),
        "hue": lambda: k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0),
        "strong": lambda: k.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8),
        "grayscale": lambda: k.RandomGrayscale(p=0.2),
        "blur": lambda: k.RandomGaussianBlur((BLUR, BLUR), SIGMA, p=0.5),
    }
    normalize = k.Normalize(mean=torch.tensor(MEAN), std=torch.tensor(STD))
    after = [k.RandomErasing(p=0.25)] if "erase" in parts else []
    pipeline = k.AugmentationSequential(*(words[part]() for part in parts if part in words), normalize, *after)
    mixed = [k.RandomMixUpV2(data_keys=["input", "class"]), k.RandomCutMixV2(data_keys=["input", "class"])]

    def step(images: torch.Tensor, labels: torch.Tensor) -> Any:
        done = pipeline(images.float().div_(255))
        if "mix" not in parts:
            return done, labels
        return mixed[int(torch.randint(2, ()))](done, labels)

    return step
