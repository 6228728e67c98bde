"""JSON as its standard has it: Python's writer and reader also take NaN, and lose keys that become equal as text."""

from __future__ import annotations

import json
from typing import Any, Never

_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def strict_json(value: Any) -> str:
    """The compact JSON of a value.

    Raises:
        TypeError, RecursionError: JSON cannot hold it.
        ValueError: It holds NaN or infinity, or two keys of an object are equal as text.
    """
    text = _write(value)  # which refuses circles, so that the loop below ends
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if not all(type(key) is str for key in one):
                _check_keys(one)
            left += [member for member in one.values() if isinstance(member, dict | list | tuple)]
        elif isinstance(one, list | tuple):
            left += [member for member in one if isinstance(member, dict | list | tuple)]
    return text


def _check_keys(value: dict[Any, Any]) -> None:
    names = dict[str, Any]()
    for key in value:
        (name,) = json.loads(_write({key: None}))
        if name in names:
            raise ValueError(f"its keys {names[name]!r} and {key!r} are both {name!r} in JSON; rename one of them")
        names[name] = key


def _refuse(word: str) -> Never:
    raise ValueError(f"it holds {word}, which JSON does not have; write null, or a column of numbers")


read_strict_json = json.JSONDecoder(parse_constant=_refuse).decode
"""The value of a JSON text; ValueError for what is none, RecursionError for one too deep."""
