"""Quotes as csv writes them (RFC 4180): which lines are one record, and whether lines with tabs have such quotes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.dataset.lists.compressed import LONGEST

COMMA, TAB = b",", b"\t"
BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN, _QUOTE, _TAB = b'\n\r"\t'
_FIRST_CELLS = re.compile(rb'("(?:[^"]|"")*+(?:"|\Z)|[^\t"]*)(?:\t|\Z)')  # the last one may end in a later line
_UNQUOTED = frozenset((b"", b"true", b"false"))  # beside numbers, where all text is quoted


def grouped(lines: Iterable[bytes], delimiter: bytes) -> Iterator[list[bytes]]:
    """The lines of each record, where line ends between quotes belong to it.

    If the quotes of a record are wrong, its first line is the record, so that no line after it is lost.

    Args:
        lines: Without their ends.
        delimiter: What is between two cells.
    """
    coming, again = iter(lines), deque[bytes]()
    while (line := again.popleft() if again else next(coming, None)) is not None:
        group, size = [line], len(line)
        still_open = _is_open(line, delimiter, inside=False) if b'"' in line else False
        while still_open:
            line = again.popleft() if again else next(coming, None)
            if line is None or size + len(line) > LONGEST:
                again.extendleft(() if line is None else (line,))
                still_open = None
                break
            group.append(line)
            size += len(line) + 1
            still_open = _is_open(line, delimiter, inside=True)
        if still_open is None:
            again.extendleft(reversed(group[1:]))
            del group[1:]
        yield group


def _is_open(line: bytes, delimiter: bytes, *, inside: bool) -> bool | None:
    """Whether a quoted cell goes on in the next line; ``None`` if a quote is where csv has none."""
    at = 0
    while True:
        if not inside:
            if line[at : at + 1] != b'"':
                at = line.find(delimiter, at) + 1
                if not at:
                    return False
                continue
            at += 1
        close = line.find(b'"', at)
        while close >= 0 and line[close + 1 : close + 2] == b'"':
            close = line.find(b'"', close + 2)
        if close < 0:
            return True
        after = line[close + 1 : close + 2]
        if after != delimiter:
            return False if after in (b"", b"\r") else None
        at, inside = close + 2, False


class TabQuotes(NamedTuple):
    """What the quotes in tab-separated lines mean.

    Attributes:
        csv: Whether they are read as csv does; otherwise they are part of the values.
        note: What a user should know: cells that look like csv in a list that is none.
    """

    csv: bool = False
    note: str = ""


def tab_quotes(pieces: Iterable[bytes]) -> TabQuotes:
    """Find out what the quotes in tab-separated lines mean.

    They are csv's if every quote is where csv writes one, and at least one of these is true: two quotes follow one
    another; a quoted cell has a carriage return; a quoted cell has a tab or a line end, and lines differ in their
    columns; or all cells in the first line are quoted but for numbers.

    Args:
        pieces: The text, from its beginning.
    """
    found = _Quotes()
    for chunk in _whole_lines(pieces):
        found.look(chunk)
    if not found.any:
        return TabQuotes()
    if found.inside and not found.wrong:
        found.wrong = found.lines
    if not found.wrong:
        spanning = found.spanning and len(found.widths) > 1
        return TabQuotes(found.doubled or found.returned or spanning or found.all_first is True)
    if not found.doubled:
        return TabQuotes()
    return TabQuotes(
        note="Quotes are kept as they are: some cells look as csv writes them, but a quote in line "
        f"{found.wrong:,} is where csv has none."
    )


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same text in chunks that end where a line does, without byte order mark."""
    rest, first = b"", True
    for piece in pieces:
        rest += piece
        if first and len(rest) < len(BOM):
            continue
        rest, first = rest.removeprefix(BOM) if first else rest, False
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > LONGEST:  # which is refused elsewhere
            return
    if rest:
        yield rest


@dataclass
class _Quotes:
    """What is known of the quotes in the lines so far.

    Attributes:
        any: Whether there are any.
        inside: Whether the last line ends between quotes.
        lines: How many lines there are.
        wrong: The first line with a quote where csv has none; 0: there is none.
        doubled: Whether two follow one another.
        returned: Whether a carriage return inside of a line is between two.
        spanning: Whether tabs or line ends are between quotes.
        widths: Numbers of tabs in lines, the least and the most of each chunk.
        all_first: Whether all cells in the first line are quoted but for numbers; ``None``: there was no line.
    """

    any: bool = False
    inside: bool = False
    lines: int = 0
    wrong: int = 0
    doubled: bool = False
    returned: bool = False
    spanning: bool = False
    widths: frozenset[int] = frozenset()
    all_first: bool | None = None

    def look(self, chunk: bytes) -> None:
        """Take whole lines into account."""
        if self.all_first is None:
            self.all_first = _is_quoted(chunk)
        data = np.frombuffer(chunk, np.uint8)
        quotes, ends = np.flatnonzero(data == _QUOTE), np.flatnonzero(data == _NEWLINE)
        if len(quotes):
            self.any = True
            self.doubled |= b'""' in chunk
        tabs = np.flatnonzero(data == _TAB)
        if len(self.widths) < 2:
            self.widths |= _widths(data, tabs, ends)
        if not self.wrong:
            places = _misplaced(data, quotes, self.inside)
            if len(places):
                self.wrong = self.lines + int(np.searchsorted(ends, places[0])) + 1
            self.spanning |= self._is_any_inside(quotes, np.concatenate((tabs, ends)))
            returns = np.flatnonzero(data[:-1] == _RETURN)
            self.returned |= self._is_any_inside(quotes, returns[data[returns + 1] != _NEWLINE])
        self.inside = bool(len(quotes) + self.inside & 1)
        self.lines += len(ends)

    def _is_any_inside(self, quotes: NDArray[np.int64], places: NDArray[np.int64]) -> bool:
        return bool((np.searchsorted(quotes, places) + self.inside & 1).any())


def _misplaced(data: NDArray[np.uint8], quotes: NDArray[np.int64], inside: bool) -> NDArray[np.int64]:
    """Quotes that neither open a cell where it begins, nor close it where it ends, nor are doubled."""
    opening, closing = quotes[inside::2], quotes[1 - inside :: 2]
    before = np.where(opening > 0, data[opening - 1], _NEWLINE)
    after = np.where(closing < len(data) - 1, data[np.minimum(closing + 1, len(data) - 1)], _NEWLINE)
    wrong = (
        opening[~np.isin(before, (_NEWLINE, _TAB, _QUOTE))],
        closing[~np.isin(after, (_NEWLINE, _RETURN, _TAB, _QUOTE))],
    )
    return np.sort(np.concatenate(wrong))


def _widths(data: NDArray[np.uint8], tabs: NDArray[np.int64], ends: NDArray[np.int64]) -> frozenset[int]:
    """The least and the most tabs that lines have, but for blank ones."""
    ends = ends if len(data) and data[-1] == _NEWLINE else np.append(ends, len(data))
    counts = np.diff(np.searchsorted(tabs, ends), prepend=0)
    begins = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - begins
    blank = (lengths == 0) | ((lengths == 1) & (data[np.minimum(begins, len(data) - 1)] == _RETURN))
    counts = counts[~blank]
    return frozenset((int(counts.min()), int(counts.max()))) if len(counts) else frozenset()


def _is_quoted(chunk: bytes) -> bool | None:
    """Whether all cells in the first line are quoted, but for numbers; ``None`` if all lines are blank."""
    first = chunk.lstrip(b"\r\n").partition(b"\n")[0].removesuffix(b"\r")
    if not first:
        return None
    cells = _FIRST_CELLS.findall(first)
    others = [cell for cell in cells if not cell.startswith(b'"')]
    return len(others) < len(cells) and all(cell.strip().lower() in _UNQUOTED or _is_number(cell) for cell in others)


def _is_number(cell: bytes) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
