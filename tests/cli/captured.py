"""Screens that were looked at, and are the same since: the files of ``captures/``."""

from __future__ import annotations

import os
from pathlib import Path


def captured(name: str, found: str) -> str:
    """The screen of this name; with ``SHARDSTREAM_CAPTURE=1`` it becomes ``found``, to be looked at and committed."""
    golden = Path(__file__).parent / "captures" / f"{name}.txt"
    if "SHARDSTREAM_CAPTURE" in os.environ:
        golden.write_text(found, encoding="utf-8")
    return golden.read_text(encoding="utf-8")
