"""Single lines that are not rows, and the reason for each, by Python's own reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from shardstream.formats.jsonl.structure import MOST_DEPTH
from shardstream.formats.scans.protobuf import Bytes

_SHOWN = 60
_DEEP = f"brackets are more than {MOST_DEPTH} deep"
_BLANKS = b" \t\r"
_NEWLINE, _SPACE = b"\n "
NOT_UTF8 = "it is not UTF-8"


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


class BrokenLine(NamedTuple):
    """A line that is not a row: its number among some lines, from 0, where it is, and the reason."""

    number: int
    begin: int
    end: int
    complaint: Complaint


def broken_lines(raw: Bytes) -> Iterator[BrokenLine]:
    """The lines of some bytes that Python refuses."""
    text, begin = raw.tobytes(), 0
    for number, end in enumerate([*(np.flatnonzero(raw == _NEWLINE) + 1).tolist(), len(text)]):
        line = text[begin:end]
        complaint = complaint_of(line) if line.strip(_BLANKS + b"\n") else None
        if complaint is not None:
            yield BrokenLine(number, begin, end, complaint)
        begin = end


def line_at(raw: Bytes, at: int, what: str) -> BrokenLine:
    """The line with a byte, which is refused for another reason."""
    text = raw.tobytes()
    begin = text.rfind(b"\n", 0, at) + 1
    end = text.find(b"\n", at) + 1 or len(text)
    return BrokenLine(text.count(b"\n", 0, begin), begin, end, Complaint(what, max(at - begin, 0)))


def without(raw: Bytes, broken: list[BrokenLine]) -> Bytes:
    """The same bytes with spaces in place of these lines, so that what is behind them stays where it is."""
    kept = raw.copy()
    for one in broken:
        kept[one.begin : one.end][raw[one.begin : one.end] != _NEWLINE] = _SPACE
    return kept
