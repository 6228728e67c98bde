"""``datasets.Dataset``: images as they are stored, class names from its features. That package is not imported here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def undecoded(samples: Any) -> Any:
    """The same data set with its images as ``{"bytes", "path"}``; anything else as it is."""
    for name, feature in _features(samples).items():
        if type(feature).__name__ == "Image" and getattr(feature, "decode", False):
            samples = samples.cast_column(name, type(feature)(decode=False))
    return samples


def labels_of(samples: Any) -> tuple[str, tuple[str, ...]] | None:
    """The one column of class labels, and their names; ``None`` if there is none, or more than one."""
    found = [
        (name, tuple(feature.names))
        for name, feature in _features(samples).items()
        if type(feature).__name__ == "ClassLabel"
    ]
    return found[0] if len(found) == 1 else None


def _features(samples: Any) -> Mapping[str, Any]:
    if not type(samples).__module__.startswith("datasets."):
        return {}
    features = getattr(samples, "features", None)
    return features if isinstance(features, Mapping) else {}
