"""The usual augmentation of training, sample by sample: Albumentations beside torchvision's transforms."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.classic import decoding, rounds
from bench.race.epochs import one_thread
from bench.race.processes import SIZE

JITTER = 0.4  # of brightness, contrast and saturation
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def measured(library: str, folder: str) -> dict[str, Any]:
    """Samples a second, from decoded pictures and from files.

    Args:
        library: "albumentations"; or what decodes for torchvision's transforms: "pillow", "pillow-simd" or
            "torchvision".
        folder: The photographs.
    """
    one_thread()
    files = rounds.files(folder)
    augment = _albumentations() if library == "albumentations" else _torchvision(tensors=library == "torchvision")
    whole = decoding.library_of("opencv" if library == "albumentations" else library).whole
    pictures = [whole(data) for data in files]
    made = [np.asarray(augment(picture)) for picture in pictures]
    works = {
        "augmented, samples/s": lambda i: augment(pictures[i]),
        "decoded and augmented, samples/s": lambda i: augment(whole(files[i])),
    }
    shapes = {f"{one.shape} {one.dtype}" for one in made}
    mean = float(np.mean([(one.mean((1, 2)) * STD + MEAN).mean() * 255 for one in made]))
    return {"figures": rounds.rates(works), "delivered": {"samples": sorted(shapes), "mean": mean}}


def _torchvision(*, tensors: bool) -> Callable[[Any], Any]:
    import torch
    from torchvision.transforms import v2

    torch.manual_seed(0)
    steps = [
        v2.RandomResizedCrop(SIZE, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(JITTER, JITTER, JITTER),
        *([] if tensors else [v2.PILToTensor()]),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN.tolist(), STD.tolist()),
    ]
    return v2.Compose(steps)  # type: ignore[no-any-return]


def _albumentations() -> Callable[[Any], Any]:
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it asks the network for newer versions
    import albumentations
    import cv2
    from albumentations.pytorch import ToTensorV2

    cv2.setNumThreads(1)
    steps = [
        albumentations.RandomResizedCrop((SIZE, SIZE)),
        albumentations.HorizontalFlip(p=0.5),
        albumentations.ColorJitter(JITTER, JITTER, JITTER, 0, p=1),
        albumentations.Normalize(MEAN.tolist(), STD.tolist()),
        ToTensorV2(),
    ]
    composed = albumentations.Compose(steps, seed=0)
    return lambda picture: composed(image=picture)["image"]
