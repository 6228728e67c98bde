"""Peers that need help to be imported."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


@cache
def bare_streaming() -> None:
    """Make parts of MosaicML Streaming importable without its own imports of every cloud's client and more.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    spec = importlib.util.find_spec("streaming")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("mosaicml-streaming is not installed")
    root = Path(spec.submodule_search_locations[0])
    for name, folder in (("streaming", root), ("streaming.base", root / "base")):
        package = ModuleType(name)
        package.__spec__ = ModuleSpec(name, None, is_package=True)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
