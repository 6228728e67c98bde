"""What a library's own reader gives, as JSON that tests compare with what we read: used by the generators beside it."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np


def _bytes(data: bytes) -> dict[str, Any]:
    return {"hex": data.hex()} if len(data) <= 64 else {"sha256": hashlib.sha256(data).hexdigest()}


def told(value: Any) -> Any:
    """A value as JSON: arrays with dtype, shape and bytes, pictures as what they are stored as, of much a hash."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value))
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [told(one) for one in value]
    if isinstance(value, dict):
        return {"json": value}
    file = getattr(value, "fp", None)
    if file is not None:  # a picture that PIL has opened, and not decoded yet
        return _bytes(file.getvalue())
    if hasattr(value, "tobytes") or hasattr(value, "numpy"):  # pixels, arrays and tensors
        array = np.ascontiguousarray(np.asarray(value))
        if array.dtype == np.bool_:
            array = array.view(np.uint8) != 0  # PIL's are 0 and 255
        return {"dtype": array.dtype.name, "shape": list(np.shape(value)), **_bytes(array.tobytes())}
    return value


def write_expected(folder: Path, samples: list[dict[str, Any]]) -> None:
    """Leave the values of all samples beside the files: ``expected.json``."""
    rows = [{name: told(value) for name, value in sample.items()} for sample in samples]
    (folder / "expected.json").write_text(json.dumps(rows, indent=None, separators=(",", ":")) + "\n")
