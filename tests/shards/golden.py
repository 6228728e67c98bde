"""The golden data sets of format version 1, and what has to be found in them. Never written, only read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SETS = ("tar", "record", "record-zstd")
FOLDER = Path(__file__).resolve().parents[1] / "golden" / "v1"


@dataclass(frozen=True)
class GoldenSample:
    """A sample: its key, the stored bytes of its payloads and fixed arrays, and its values as JSON says them."""

    key: str
    stored: dict[str, bytes]
    values: dict[str, Any]


def expectations(name: str) -> dict[str, Any]:
    """``expected.json`` of a set."""
    found: dict[str, Any] = json.loads((FOLDER / name / "expected.json").read_text(encoding="utf-8"))
    return found


def shards(name: str) -> list[tuple[str, list[GoldenSample]]]:
    """Object name and samples of each shard of a set."""
    return [
        (
            shard["name"],
            [
                GoldenSample(
                    one["key"], {field: bytes.fromhex(text) for field, text in one["stored"].items()}, one["values"]
                )
                for one in shard["samples"]
            ],
        )
        for shard in expectations(name)["shards"]
    ]


def same(found: Any, expected: Any) -> bool:
    """Whether a value is the one that ``expected.json`` describes, to the last bit."""
    if isinstance(expected, dict) and set(expected) == {"dtype", "shape", "values"}:
        array = np.asarray(found)
        wanted = np.array(expected["values"], expected["dtype"]).reshape(expected["shape"])
        return array.dtype == wanted.dtype and array.shape == wanted.shape and array.tobytes() == wanted.tobytes()
    if isinstance(expected, float):
        # Of a column of its own width: both are rounded alike.
        kind = found.dtype if isinstance(found, np.generic) else np.dtype(float)
        return kind.type(expected).tobytes() == kind.type(found).tobytes()
    return bool(found == expected)
