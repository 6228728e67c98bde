"""Images a second of each augmentation, on the device and on one thread of the CPU, beside kornia and torchvision."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from bench.augment.recipes import RECIPES

from gpu.setting import Row, Setting

PACKAGES = {"shardstream": "shardstream", "kornia": "kornia", "torchvision whole": "torchvision"}


def run(setting: Setting) -> Iterator[Row]:
    """Each library in a process of its own."""
    device = setting.device.type
    figures = {f"{kind}, {device}": _rates(kind, device) for kind, package in PACKAGES.items() if find_spec(package)}
    if device == "cuda":
        figures["shardstream, one thread of the CPU"] = _rates("shardstream", "cpu")
    for recipe in list(RECIPES)[:2] if setting.quick else RECIPES:
        yield Row(recipe, "; ".join(f"{name} {rates[recipe]:,.0f}" for name, rates in figures.items()) + " images/s")


def _rates(kind: str, device: str) -> dict[str, float]:
    arguments = json.dumps({"kind": kind, "device": device})
    child = [sys.executable, "-m", "bench.child", "bench.augment.contenders:rates", arguments]
    done = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])["figures"]
    return found
