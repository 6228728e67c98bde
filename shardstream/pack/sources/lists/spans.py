"""Where paths and other columns stand in a block of records: numpy for records like all others, no strings.

A record that is unlike others in any way is *odd*, and is for its reader to take apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardstream.pack.sources.lists.quotes import TAB
from shardstream.pack.sources.lists.records import DELIMITERS, CellKind
from shardstream.pack.sources.paths import scheme_of

Integers = NDArray[np.int64]
_NEWLINE, _RETURN, _QUOTE, _SLASH, _DOT, _TAB = b'\n\r"/.\t'
_BLANKS = (ord(" "), _TAB, 11, 12)


@dataclass(frozen=True, slots=True)
class Span:
    """Where a column begins and ends in each record of a block."""

    starts: Integers
    ends: Integers


class Block:
    """Records that follow one another in a file.

    Args:
        data: Their bytes.
        starts: Where each begins in ``data``.
        kind: How they are written.
        count: How many columns each must have; ``None`` if that may differ.

    Attributes:
        odd: Which records are unlike others; bool (n,). Spans of these mean nothing.
        urls: Which paths are URLs; bool (n,), known once `paths` was called.
    """

    def __init__(self, data: bytes, starts: Integers, *, kind: CellKind, count: int | None) -> None:
        self.data, self.starts = data, starts
        self.bytes = np.frombuffer(data, np.uint8)
        self.odd = np.zeros(len(starts), bool)
        self.urls = np.zeros(len(starts), bool)
        newlines = self._positions(_NEWLINE)
        ends = np.append(newlines, len(data))[np.searchsorted(newlines, starts)]
        self.ends = ends - ((ends > starts) & (self.bytes[np.maximum(ends - 1, 0)] == _RETURN))
        self._quoted = kind in DELIMITERS and b'"' in data
        if not data.isascii() and not _is_utf8(data):
            self._mark(np.flatnonzero(self.bytes > 0x7F))
        if kind == "blank":
            self._split_blanks()
        else:
            self._split(ord(DELIMITERS.get(kind, TAB)), count)

    def _positions(self, *values: int) -> Integers:
        found = self.bytes == values[0]
        for value in values[1:]:
            found |= self.bytes == value
        return np.flatnonzero(found)

    def _mark(self, positions: Integers) -> None:
        """The records at these places are odd."""
        self.odd[np.searchsorted(self.starts, positions, side="right") - 1] = True

    def _split(self, separator: int, count: int | None) -> None:
        found = self._positions(separator)
        if self._quoted:
            self._check_quotes(found, separator)
        self._first = np.searchsorted(found, self.starts)
        self._width = np.searchsorted(found, self.ends) - self._first + 1
        if count is not None:
            self.odd |= self._width != count
        self._separators = np.append(found, 0)  # so that odd records point somewhere

    def _check_quotes(self, separators: Integers, separator: int) -> None:
        """Odd are records with doubled quotes, or with separators or line ends between quotes."""
        quotes = self._positions(_QUOTE)
        last = len(self.bytes) - 1
        before = np.where(quotes > 0, self.bytes[quotes - 1], _NEWLINE)
        after = np.where(quotes < last, self.bytes[np.minimum(quotes + 1, last)], _NEWLINE)
        bounds = np.isin(before, (separator, _NEWLINE)) | np.isin(after, (separator, _RETURN, _NEWLINE))
        self._mark(quotes[~bounds])
        first = np.searchsorted(quotes, self.starts)
        self.odd |= np.searchsorted(quotes, self.ends) - first & 1 == 1
        record = np.searchsorted(self.starts, separators, side="right") - 1
        self._mark(separators[np.searchsorted(quotes, separators) - first[record] & 1 == 1])

    def _split_blanks(self) -> None:
        found = self._positions(*_BLANKS)
        last = np.searchsorted(found, self.ends) - 1
        place = np.append(found, 0)[last]
        self.odd |= (last < 0) | (place <= self.starts) | (place == self.ends - 1)
        place = np.where(self.odd, 0, place)
        self.odd |= np.isin(self.bytes[np.maximum(place - 1, 0)], _BLANKS)
        self._first, self._width = np.arange(len(self.starts)), np.full(len(self.starts), 2)
        self._separators = np.append(place, 0)

    def column(self, number: int) -> Span:
        """Where a column stands; a negative number counts from the last one."""
        at = np.broadcast_to(number if number >= 0 else self._width + number, self.starts.shape)
        last = len(self._separators) - 1
        starts = np.where(at > 0, self._separators[np.minimum(self._first + at - 1, last)] + 1, self.starts)
        ends = np.where(at < self._width - 1, self._separators[np.minimum(self._first + at, last)], self.ends)
        if self._quoted:
            bare = (ends - starts < 2) | (self.bytes[np.minimum(starts, len(self.bytes) - 1)] != _QUOTE)
            starts, ends = starts + ~bare, ends - ~bare
        return Span(np.where(self.odd, 0, starts), np.where(self.odd, 0, ends))

    def paths(self, span: Span) -> Span:
        """The paths of a column, without the scheme of URLs; odd are those that are not in their normal form."""
        starts, ends = span.starts, span.ends
        usable = np.flatnonzero(~self.odd)
        scheme = scheme_of(self.data[starts[usable[0]] : ends[usable[0]]].decode()) if len(usable) else None
        if scheme is not None:
            starts = self._without_scheme(starts, ends, scheme)
        self.urls = starts != span.starts
        starts = self._without_dot(starts, ends)
        slashes = self._positions(_SLASH)
        following = self.bytes[np.minimum(slashes + 1, len(self.bytes) - 1)]
        found = slashes[(following == _SLASH) | (following == _DOT)]
        if len(found):  # inside of the paths: what stands in other columns does not matter
            record = np.searchsorted(self.starts, found, side="right") - 1
            inside = (found >= starts[record]) & (found < ends[record])
            self.odd[record[inside]] = True
        filled = ends > starts
        self.odd |= filled & (self.bytes[np.minimum(starts, len(self.bytes) - 1)] == _DOT)
        self.odd |= filled & (self.bytes[np.maximum(ends - 1, 0)] == _SLASH)
        return Span(starts, ends)

    def _without_dot(self, starts: Integers, ends: Integers) -> Integers:
        """Many lists begin every path with ``./``."""
        last = len(self.bytes) - 1
        dotted = ~self.urls & (ends - starts > 1) & (self.bytes[np.minimum(starts, last)] == _DOT)
        dotted &= self.bytes[np.minimum(starts + 1, last)] == _SLASH
        starts = starts + 2 * dotted
        self.odd |= dotted & ((starts == ends) | (self.bytes[np.minimum(starts, last)] == _SLASH))
        return starts

    def keys(self, span: Span) -> Span:
        """The keys of a column; odd are those that may be none."""
        slashes = self._positions(_SLASH)
        self._mark(slashes[:-1][np.diff(slashes) == 1])
        last = len(self.bytes) - 1
        self.odd |= span.ends <= span.starts
        self.odd |= self.bytes[np.minimum(span.starts, last)] == _SLASH
        self.odd |= self.bytes[np.maximum(span.ends - 1, 0)] == _SLASH
        return span

    def _without_scheme(self, starts: Integers, ends: Integers, scheme: str) -> Integers:
        prefix = f"{scheme}://".encode()
        same = ends - starts > len(prefix)
        for i, letter in enumerate(prefix):
            same &= self.bytes[np.minimum(starts + i, len(self.bytes) - 1)] == letter
        self.odd |= ~same
        self._mark(self._positions(*(b"?#@" if scheme in ("http", "https") else b"@")))  # a query, a user
        return np.where(same, starts + len(prefix), starts)

    def stems(self, span: Span, *, whole: bool) -> Span:
        """Paths (``whole``) or file names, without extension and without a slash at the beginning."""
        slashes = np.append(-1, self._positions(_SLASH))
        dots = np.append(-1, self._positions(_DOT))
        slash = slashes[np.searchsorted(slashes, span.ends) - 1]
        dot = dots[np.searchsorted(dots, span.ends) - 1]
        names = np.maximum(span.starts, slash + 1)
        ends = np.where(dot > names, dot, span.ends)
        if not whole:
            return Span(names, ends)
        absolute = self.bytes[np.minimum(span.starts, len(self.bytes) - 1)] == _SLASH
        return Span(span.starts + absolute, ends)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
