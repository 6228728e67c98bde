"""Programs that `migrate` prints, run as they are, with what they have read."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import torch


def batches(code: str) -> list[tuple[Any, ...]]:
    """What the loop of a program gets, one entry a batch."""
    (loop,) = [line.strip() for line in code.splitlines() if line.strip().startswith("for ") and " in loader:" in line]
    names = loop.removeprefix("for ").partition(" in ")[0]
    line = "        pass"
    if names == "batch":  # taken apart below
        (line,) = [line for line in code.splitlines() if " = batch[" in line]
        names = line.partition(" = ")[0].strip()
    assert code.count(f"\n{line}\n") == 1
    code = code.replace(f"\n{line}\n", f"\n{line}\n        found.append([{names}])\n")
    found: list[tuple[Any, ...]] = []
    exec(compile(code, "program.py", "exec"), {"__name__": "__main__", "found": found})
    return found


def seen(code: str) -> list[tuple[int, ...]]:
    """Label and colour of every sample that a program has read; pictures are of one colour."""
    rows = []
    for images, labels in batches(code):
        colours = torch.as_tensor(np.asarray(images)).float().mean(dim=(2, 3))
        for label, colour in zip(np.asarray(labels).tolist(), colours.tolist(), strict=True):
            rows.append((int(label), *(round(one / 4) for one in colour)))
    return sorted(rows)


def same_samples(one: list[tuple[int, ...]], other: list[tuple[int, ...]]) -> bool:
    """Whether they are the same, as far as two decoders agree about a colour."""
    if len(one) != len(other):
        return False
    left = list(other)
    for row in one:
        near = [that for that in left if that[0] == row[0] and np.abs(np.subtract(row, that)).max() <= 1]
        if not near:
            return False
        left.remove(near[0])
    return True


@contextmanager
def theirs() -> Iterator[None]:
    """For programs of others, some of which leave files open; with torchvision's transforms, or a stand-in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with nullcontext() if find_spec("torchvision") else _stand_in():
            yield
        gc.collect()


@contextmanager
def _stand_in() -> Iterator[None]:
    """Transforms that crop nothing."""
    root, transforms, v2 = (ModuleType(f"torchvision{name}") for name in ("", ".transforms", ".transforms.v2"))

    class Compose:
        def __init__(self, steps: list[Any]) -> None:
            self.steps = steps

        def __call__(self, value: Any) -> Any:
            for step in self.steps:
                value = step(value)
            return value

    def to_image() -> Any:
        return lambda picture: torch.from_numpy(np.array(picture)).permute(2, 0, 1)

    def resized(size: int) -> Any:
        return lambda image: torch.nn.functional.interpolate(image[None].float(), (size, size))[0].to(torch.uint8)

    found = {"Compose": Compose, "ToImage": to_image, "RandomResizedCrop": resized}
    vars(v2).update(found | {"RandomHorizontalFlip": lambda: lambda image: image.flip(2)})
    vars(transforms)["v2"], vars(root)["transforms"] = v2, transforms
    modules = {one.__name__: one for one in (root, transforms, v2)}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
