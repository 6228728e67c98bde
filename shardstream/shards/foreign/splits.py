"""Training and held-out data in one place, told by names: they are never mixed without a word."""

from __future__ import annotations

from collections.abc import Iterable

_TRAIN = {"train", "training"}
_HELD_OUT = {"val", "valid", "validation", "dev", "test", "testing"}


def splits(names: Iterable[str]) -> list[str]:
    """Those of these names that are splits, in order, if they are of several; else none.

    >>> splits(["val", "train", "fonts"]), splits(["train", "fonts"])
    (['train', 'val'], [])
    """
    found = sorted(name for name in set(names) if name.lower() in _TRAIN | _HELD_OUT)
    several = len(found) > 1 and any(name.lower() in _HELD_OUT for name in found)
    return found if several else []
