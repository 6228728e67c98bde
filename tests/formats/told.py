"""What a library's own reader gave, as ``tools/foreign/telling.py`` wrote it down, against what we decode."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np


def expected(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "expected.json").read_text())


def check(ours: Any, told: Any, where: object = "") -> None:
    """Compare a decoded value with one that was told: to the bit, dtypes and shapes too."""
    if isinstance(told, dict) and "json" in told:
        assert ours == told["json"], where
    elif isinstance(told, dict):
        check_bytes(ours, told, where)
    elif isinstance(told, list):
        assert len(ours) == len(told), where
        for one, other in zip(ours, told, strict=True):
            check(one, other, where)
    else:
        assert type(ours) is type(told), where
        assert ours == told, where


def check_bytes(ours: Any, told: dict[str, Any], where: object) -> None:
    if "shape" in told:
        array = np.load(io.BytesIO(ours)) if isinstance(ours, bytes) else ours
        assert (array.dtype.name, list(array.shape)) == (told["dtype"], told["shape"]), where
        ours = array.tobytes()
    if "hex" in told:
        assert ours.hex() == told["hex"], where
    else:
        assert hashlib.sha256(ours).hexdigest() == told["sha256"], where
