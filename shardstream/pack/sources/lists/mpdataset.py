"""Datasets of MPDataset: a list, and the names of its classes beside it."""

from __future__ import annotations

from shardstream.storage import Store

CLASSES_OF_MPDATASET = "cls.csv"
LIST_OF_MPDATASET = "data.csv"
_MOST_CLASSES = 1 << 20  # bytes of a list of classes


def listed_classes(store: Store, name: str) -> tuple[str, ...] | None:
    """The names of the classes of MPDataset's list, a line each; ``None`` where there are none."""
    if not store.exists(name) or store.size(name) > _MOST_CLASSES:
        return None
    lines = bytes(store.get(name)).decode("utf-8", "replace").splitlines()
    return tuple(line.strip() for line in lines if line.strip()) or None
