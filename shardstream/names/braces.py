"""Lists in braces, as shells write them: ``part-{000..011}.tar``, ``{train,val}``. Pure text."""

from __future__ import annotations

import re

from shardstream.errors import UsageError

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")
_MOST = 100_000


def without_braces(text: str) -> list[str]:
    """``text`` once for each combination of what its braces list; the first brace varies slowest.

    Raises:
        UsageError: Braces that are neither a list nor a range, or that name too many.

        >>> without_braces("data/part-{08..10}")
        ['data/part-08', 'data/part-09', 'data/part-10']
    """
    whole = [""]
    end = 0
    for match in _BRACES.finditer(text):
        choices = _choices(match[1], text)
        if len(whole) * len(choices) > _MOST:  # before they are made
            raise UsageError(
                f"braces name more than {_MOST} places",
                url=text,
                hint=f"write braces that name {_MOST} places at most, as {{0..{_MOST - 1}}} does",
            )
        whole = [head + text[end : match.start()] + choice for head in whole for choice in choices]
        end = match.end()
    return [head + text[end:] for head in whole]


def _choices(inside: str, text: str) -> list[str]:
    span = _RANGE.fullmatch(inside)
    if span is None:
        if ".." in inside or "," not in inside:
            raise UsageError(f"{{{inside}}} is neither a list nor a range", url=text, hint="use {a,b} or {000..011}")
        return inside.split(",")
    first, last = int(span[1]), int(span[2])
    if not first <= last < first + _MOST:
        raise UsageError(
            f"{{{inside}}} must be a range of at most {_MOST} numbers", url=text, hint="write the smaller number first"
        )
    width = len(span[1]) if span[1].startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(first, last + 1)]
