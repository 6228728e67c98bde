"""Hashes that an ``index.json`` has of objects."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import xxhash

from shardstream.errors import FormatError
from shardstream.formats.scans.object_bytes import ObjectBytes

_XXHASH: dict[str, Callable[[Any], str]] = {
    "xxh32": xxhash.xxh32_hexdigest,
    "xxh64": xxhash.xxh64_hexdigest,
    "xxh128": xxhash.xxh128_hexdigest,
    "xxh3_64": xxhash.xxh3_64_hexdigest,
    "xxh3_128": xxhash.xxh3_128_hexdigest,
}


def compare(data: ObjectBytes, hashes: Mapping[str, str], found: memoryview) -> None:
    """Refuse bytes that have other hashes than those; algorithms that are not known here are left out.

    Args:
        data: The object, for messages.
        hashes: In hexadecimal, by the names of their algorithms.
        found: Its bytes, or what they inflate to.

    Raises:
        FormatError: One differs; names it.
    """
    for name, expected in hashes.items():
        digest = _digest(name, found)
        if digest is not None and digest != expected.lower():
            raise FormatError(
                f"its {name} is {digest}, and index.json says {expected:.200}",
                url=data.url,
                hint="fetch or write the object again",
            )


def known(hashes: Mapping[str, str]) -> list[str]:
    """The algorithms of these that are known here."""
    return [name for name in hashes if _digest(name, memoryview(b"")) is not None]


def _digest(name: str, found: memoryview) -> str | None:
    if name in _XXHASH:
        return _XXHASH[name](found)
    if name not in hashlib.algorithms_guaranteed or name.startswith("shake"):  # these have no length of their own
        return None
    return hashlib.new(name, found, usedforsecurity=False).hexdigest()
