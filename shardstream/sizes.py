"""Sizes and counts as people write them, and read them: ``"256MB"``, ``1 shard``."""

from __future__ import annotations

import re

from shardstream.errors import UsageError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(value: int | str, *, name: str) -> int:
    """A number of bytes.

    Args:
        value: Bytes as an integer, or a number with a unit: ``"256MB"`` is 256 · 10⁶ bytes, ``"256MiB"`` is 256 · 2²⁰;
            K, M, G and T are known, in either case, with or without the B.
        name: The argument it was given for, for the message.

    Raises:
        UsageError: Anything else, or nothing at all (0).

        >>> parse_size("256MB", name="shard_size"), parse_size("1.5KiB", name="shard_size")
        (256000000, 1536)
    """
    count = 0
    if isinstance(value, int) and not isinstance(value, bool):
        count = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        count = int(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[(match[2] or "").lower()])
    if count < 1:
        raise UsageError(
            f"{name} must be a size of at least one byte, got {value!r}",
            hint="write '256MB' (10**6 bytes each), '256MiB' (2**20 bytes each), or a number of bytes",
        )
    return count


def size(count: float) -> str:
    """Bytes with a decimal unit.

    >>> size(350_300_000)
    '350.3 MB'
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.95 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def plural(count: int, noun: str, many: str = "") -> str:
    """A count and its noun; ``many`` for nouns that are odd.

    >>> plural(1, "shard"), plural(6000, "sample")
    ('1 shard', '6,000 samples')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {many or noun + 's'}"


def duration(seconds: float) -> str:
    """Time for people: ``0.7 s``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
