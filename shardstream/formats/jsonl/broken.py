"""Single lines that are not rows, and the reason for each, by Python's own reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shardstream.formats.scans.protobuf import Bytes
from shardstream.pack.sources.lists.json_rows import Complaint, complaint_of

_BLANKS = b" \t\r"
_NEWLINE, _SPACE = b"\n "


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
