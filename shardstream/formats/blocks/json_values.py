"""Values as JSON, where that has them."""

from __future__ import annotations

import json
from typing import Any

from shardstream.errors import UnsupportedError


def json_bytes(value: Any) -> bytes:
    """A value as compact JSON.

    Raises:
        UnsupportedError: A number in it is infinite.
        ValueError, TypeError, RecursionError: It is none that JSON has.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        if "Out of range float" not in str(error):
            raise
        raise UnsupportedError(
            "an infinite number is within lists, structs, or maps, and JSON has none",
            hint="leave the column out: --field NAME=COLUMN (fields=) chooses others; or write null in its place",
        ) from error
    return text.encode()
