"""Rows of JSON lines by Python's own reader: the first ones of a file, and why a line is not one."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

Row: TypeAlias = Mapping[str, Any]
MOST_DEPTH = 512
"""Brackets inside of one another, the object itself among them."""
NOT_UTF8 = "it is not UTF-8"
_SHOWN = 60
_DEEP = f"brackets are more than {MOST_DEPTH} deep"
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_MOST = 100


class FirstRows(NamedTuple):
    """Rows, and whether they are in a list."""

    rows: list[Row]
    listed: bool


def rows_of(start: bytes, *, whole: bool) -> FirstRows:
    """The first rows of some bytes; none where they are not rows.

    Args:
        start: The first bytes of an object.
        whole: Whether they are all of it.
    """
    text = start.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n")
    if text.startswith(b"["):
        return FirstRows(_of_list(text.decode("utf-8", "replace")), listed=True)
    lines = text.split(b"\n", _MOST)
    if len(lines) > _MOST or not whole:
        lines.pop()
    rows: list[Row] = []
    for line in filter(bytes.strip, lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    return FirstRows(rows, listed=False)


def _of_list(text: str) -> list[Row]:
    decoder, rows, at = json.JSONDecoder(), list[Row](), 1
    while len(rows) < _MOST:
        between = _BETWEEN.match(text, at)
        try:
            row, at = decoder.raw_decode(text, at if between is None else between.end())
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict):
            return []
        rows.append(row)
    return rows


class Complaint(NamedTuple):
    """Why a line is not a row.

    Attributes:
        what: The reason.
        at: The byte of the line where it is wrong.
        cut: Whether the line has no end, and is wrong only where it stops: the file is cut off, and may have had more.
    """

    what: str
    at: int
    cut: bool = False


class _Object(list[tuple[str, Any]]):
    """The members of a JSON object, with those of equal names."""


_decode = json.JSONDecoder(object_pairs_hook=_Object, strict=False).decode


def complaint_of(line: bytes) -> Complaint | None:
    """Why a line is not a row; ``None`` if Python reads an object whose names differ."""
    try:
        text = line.removesuffix(b"\n").decode()
        value = _decode(text)
    except UnicodeDecodeError as error:
        return Complaint(NOT_UTF8, error.start)
    except json.JSONDecodeError as error:
        what = f"{error.msg.removesuffix(' at')} at column {error.colno}"
        cut = not line.endswith(b"\n") and (error.pos >= len(text.rstrip()) or "Unterminated" in what)
        return Complaint(what, len(text[: error.pos].encode()), cut)
    except RecursionError:
        return Complaint(_DEEP, 0)
    except ValueError:  # an integer of more digits than Python reads, which stays JSON
        return None
    if not isinstance(value, _Object):
        return Complaint("it is not an object", 0)
    names = set[str]()
    for name, _ in value:
        if name in names:
            return Complaint(f"it has two values of {name[:_SHOWN]!r}", 0)
        names.add(name)
    deep = line.count(b"[") + line.count(b"{") > MOST_DEPTH and _is_deep(value)
    return Complaint(_DEEP, 0) if deep else None


def _is_deep(value: Any) -> bool:
    """Whether more brackets are inside of one another than a row may have."""
    level, depth = [value], 0
    while level:
        depth += 1
        members = (one if not isinstance(value, _Object) else one[1] for value in level for one in value)
        level = [one for one in members if isinstance(one, list)]
    return depth > MOST_DEPTH
