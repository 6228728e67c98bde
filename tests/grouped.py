"""Settings that tests vary one by one, as the objects that datasets take."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import shardstream as ss


def grouped(settings: Mapping[str, Any], of: Callable[..., Any] = ss.ShardDataset.__init__) -> dict[str, Any]:
    """Arguments of a dataset, or of another verb, of settings such as ``lanes``, ``rank``, or ``source_format``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return replace(of.flat, passes=True).grouped(settings)  # type: ignore[attr-defined, no-any-return]
