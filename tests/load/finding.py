"""What the tests of ``find_rows`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..stream.making import numbered, photograph, write_dataset

SIZES = (30, 1, 49, 20)
COUNT = sum(SIZES)


def text(number: int) -> str:
    """The text of a sample."""
    return f"text {number * 7919 % 100}"


def keep(sample: dict[str, Any]) -> bool:
    """Chooses `KEPT`."""
    return bool(sample["txt"] > "text 5")


KEPT = [n for n in range(COUNT) if text(n) > "text 5"]


def even(sample: dict[str, Any]) -> bool:
    """Chooses even ids."""
    return int(sample["id"]) % 2 == 0


def write(folder: Path) -> Path:
    """Samples of a number, a text and a picture, in shards of all kinds of sizes."""
    return write_dataset(folder, numbered(SIZES, txt=text, jpg=photograph))
