"""Where the members of many JSON objects lie in some bytes, found by numpy: the work a row is some array elements.

Quotes that no backslash precedes begin and end strings in turn. What is left without the insides of strings is short,
since most bytes of rows are text: from its brackets comes a depth for each byte, and from the colons and commas at the
first depth the members. Nothing here recurses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.formats.scans.protobuf import Bytes, Malformed, Places
from shardstream.pack.sources.lists.json_rows import MOST_DEPTH

DIGIT, POINT, LETTER, MARK, QUOTE, SPACE = 1, 2, 4, 8, 16, 32
"""What a byte outside of strings may be: of a whole number, of other numbers, of a word, punctuation, a string."""
_NEWLINE, _QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN, _CLOSE, _LIST, _END = b'\n"\\,:{}[]'
CUT_OFF = "an object is cut off"
_NOT_JSON = "this is not JSON"


def _table(of: dict[bytes, int]) -> NDArray[np.int8]:
    found = np.zeros(256, np.int8)
    for letters, value in of.items():
        found[list(letters)] = value
    return found


_LETTERS = bytes(set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") - set(b"eE"))
_KINDS = _table({
    b"0123456789+-": DIGIT, b".eE": POINT, _LETTERS: LETTER, b"{}[],:\n": MARK, b'"': QUOTE, b" \t\r": SPACE
}).astype(np.uint8)  # fmt: skip
_STEPS = _table({b"{[": 1, b"}]": -1})

# Events at the first depth, and which may follow which: how many bytes outside of strings later, at least and at most.
_BEGIN, _NAMED, _NEXT, _DONE, _BETWEEN, _WRONG = range(6)
_ANY = 1 << 40
_FOLLOWS = {
    (_BEGIN, _NAMED): (2, 2),
    (_BEGIN, _DONE): (1, 1),
    (_NAMED, _NEXT): (2, _ANY),
    (_NAMED, _DONE): (2, _ANY),
    (_NEXT, _NAMED): (2, 2),
    (_DONE, _BETWEEN): (1, 1),
    (_BETWEEN, _BEGIN): (1, 1),
}
_LEAST, _MOST = np.full(36, _ANY), np.full(36, -1)
for (_one, _two), (_least, _most) in _FOLLOWS.items():
    _LEAST[6 * _one + _two], _MOST[6 * _one + _two] = _least, _most


class Members(NamedTuple):
    """The members of some objects, in order. Places are indices into the bytes.

    Attributes:
        objects: Where each object begins.
        owner: The number of the object that each member is of.
        name_begin: Where its name begins, without quotes.
        name_end: Where that ends.
        begin: Where its value begins; a string with its quotes.
        end: Where that ends.
        kinds: What there is in the value outside of strings, as flags.
        deep: Whether there are brackets inside of its brackets.
        consumed: Where the last object ends.
        closed: Whether the list ends there that the objects are of.
    """

    objects: Places
    owner: Places
    name_begin: Places
    name_end: Places
    begin: Places
    end: Places
    kinds: Bytes
    deep: NDArray[np.bool_]
    consumed: int
    closed: bool


PARALLEL = ("owner", "name_begin", "name_end", "begin", "end", "kinds", "deep")
"""The attributes of `Members` that have an element for each."""


class _Outside(NamedTuple):
    """The bytes outside of strings, without blanks; of a string, its first quote.

    Attributes:
        bytes: They.
        kinds: What each is.
        at: Where it lies.
        until: Where it ends, for the quote of a string where that ends.
    """

    bytes: Bytes
    kinds: Bytes
    at: NDArray[np.int32]
    until: NDArray[np.int32]


def members(raw: Bytes, *, listed: bool, first: bool, last: bool) -> Members:
    """The members of all objects that end in some bytes.

    Args:
        raw: Where an object begins, or ended just before.
        listed: Whether commas separate the objects, as in a list, and not line ends.
        first: Whether no object is before these bytes.
        last: Whether nothing is behind them.

    Raises:
        Malformed: They are no such objects; tells where, at most one object too late.
    """
    outside = _outside(raw, listed=listed)
    marks = np.flatnonzero(outside.kinds & MARK)
    if listed:  # line ends mean nothing there
        marks = marks[outside.bytes[marks] != _NEWLINE]
    letters = outside.bytes[marks]
    depth = np.cumsum(_STEPS[letters], dtype=np.int32)
    closed = False
    if (depth < 0).any():
        stop = int(np.argmax(depth < 0))
        closed = listed and int(letters[stop]) == _END
        if not closed:
            raise Malformed("a bracket closes what was not opened", int(outside.at[marks[stop]]))
        rest = int(marks[stop]) + 1
        if rest < len(outside.at):
            raise Malformed("something follows the end of the list", int(outside.at[rest]))
        marks, letters, depth = marks[:stop], letters[:stop], depth[:stop]
    if not listed and (inside := (letters == _NEWLINE) & (depth > 0)).any():
        raise Malformed("a line ends inside of an object", int(outside.at[marks[int(np.argmax(inside))]]))
    if len(depth) and int(depth.max()) > MOST_DEPTH:
        raise Malformed(
            f"brackets are more than {MOST_DEPTH} deep", int(outside.at[marks[int(np.argmax(depth > MOST_DEPTH))]])
        )
    whole = np.flatnonzero((depth == 0) & (letters == _CLOSE))
    ended = int(whole[-1]) + 1 if len(whole) else 0
    rest = int(marks[ended - 1]) + 1 if ended else 0
    _check_rest(outside, rest, last=last or closed, closed=closed)
    kept = _Marks(marks[:ended], letters[:ended], depth[:ended])
    return _found(outside, kept, listed=listed, first=first, closed=closed)


def _outside(raw: Bytes, *, listed: bool) -> _Outside:
    quotes = _quotes(raw).astype(np.int32)  # of many numbers there is one place for each byte
    end = len(raw)
    if len(quotes) % 2:  # the last string ends behind these bytes
        end = int(quotes[-1])
        quotes = quotes[:-1]
    opens, closes = quotes[0::2], quotes[1::2]
    begins = np.concatenate([[0], closes + 1], dtype=np.int32)
    lengths = np.concatenate([opens + 1, [end]], dtype=np.int32) - begins
    ends = np.cumsum(lengths, dtype=np.int32)
    at = np.repeat(begins - (ends - lengths), lengths)
    at += np.arange(len(at), dtype=np.int32)
    letters = raw[at]
    kinds = _KINDS[letters]
    until = at + 1
    until[ends[:-1] - 1] = closes + 1
    newlines = int(np.count_nonzero(letters == _NEWLINE))
    if newlines != np.count_nonzero(raw == _NEWLINE):
        _refuse_newline(raw, np.concatenate([at[letters == _NEWLINE], [len(raw)]]))
    if not kinds.all():
        raise Malformed(_NOT_JSON, int(at[int(np.argmin(kinds))]))
    blank = kinds == SPACE
    if listed:
        blank |= letters == _NEWLINE
    if blank.any():
        kept = np.flatnonzero(~blank)
        letters, kinds, at, until = letters[kept], kinds[kept], at[kept], until[kept]
    return _Outside(letters, kinds, at, until)


def _quotes(raw: Bytes) -> Places:
    """The quotes that no backslash makes a letter."""
    found = np.flatnonzero((raw == _QUOTE) | (raw == _BACKSLASH))
    slash = raw[found] == _BACKSLASH
    if not slash.any():
        return found
    numbers = np.arange(len(found))
    escaped = np.zeros(len(found), np.bool_)
    escaped[1:] = slash[:-1] & (found[1:] == found[:-1] + 1)
    before = numbers - np.maximum.accumulate(np.where(escaped, 0, numbers))  # backslashes directly before it
    quotes: Places = found[~slash & (before % 2 == 0)]
    return quotes


def _refuse_newline(raw: Bytes, outside: Places) -> None:
    """Raise for the first line end that is not among these, of which the last is none."""
    found = np.flatnonzero(raw == _NEWLINE)[: len(outside)]
    raise Malformed("a line ends inside of a string", int(found[int(np.argmax(found != outside))]))


def _check_rest(outside: _Outside, rest: int, *, last: bool, closed: bool) -> None:
    """Refuse what follows the last object of all, unless it is empty lines."""
    if not last:
        return
    behind = outside.bytes[rest : len(outside.bytes) - closed]
    wrong = np.flatnonzero(behind != _NEWLINE)
    if len(wrong):
        at = int(outside.at[rest + int(wrong[0])])
        raise Malformed("no object begins here" if int(behind[wrong[0]]) != _OPEN else CUT_OFF, at)


class _Marks(NamedTuple):
    """Punctuation outside of strings: which bytes of those outside, and how deep after each."""

    at: Places
    letters: Bytes
    depth: NDArray[np.int32]


def _found(outside: _Outside, marks: _Marks, *, listed: bool, first: bool, closed: bool) -> Members:
    events, codes = _events(marks, listed=listed)
    _check_events(outside, events, codes, first=first, listed=listed)
    named = np.flatnonzero(codes == _NAMED)
    names = events[named] - 1
    begin, behind = events[named] + 1, events[named + 1] if len(named) else named
    if len(names) and (wrong := outside.bytes[names] != _QUOTE).any():
        raise Malformed("a name is not a string", int(outside.at[names[int(np.argmax(wrong))]]))
    kinds = np.zeros(len(named), np.uint8)
    if len(named):
        edges = np.stack([begin, behind], axis=1).ravel()
        kinds = np.bitwise_or.reduceat(outside.kinds, edges)[::2]
    deep = _check_values(outside, marks, begin, behind - 1, kinds)
    starts = np.flatnonzero(codes == _BEGIN)
    consumed = int(outside.at[events[-1]]) + 1 if len(events) else 0
    places = (outside.at[events[starts]], outside.at[names] + 1, outside.until[names] - 1)
    objects, name_begin, name_end = (one.astype(np.int64) for one in places)
    return Members(
        objects,
        np.searchsorted(starts, named) - 1,
        name_begin,
        name_end,
        outside.at[begin].astype(np.int64),
        outside.until[behind - 1].astype(np.int64),
        kinds,
        deep,
        consumed,
        closed,
    )


def _events(marks: _Marks, *, listed: bool) -> tuple[Places, Bytes]:
    """What there is at the first depth and outside of objects: where, and what."""
    _, letters, depth = marks
    inner = depth == 1
    codes = np.full(len(letters), 7, np.uint8)
    codes[depth == 0] = _WRONG
    codes[inner & (letters == _OPEN)] = _BEGIN
    codes[inner & (letters == _LIST)] = _WRONG
    codes[inner & (letters == _COLON)] = _NAMED
    codes[inner & (letters == _COMMA)] = _NEXT
    codes[inner & (letters == _NEWLINE)] = _WRONG
    codes[(depth == 0) & (letters == _CLOSE)] = _DONE
    codes[(depth == 0) & (letters == (_COMMA if listed else _NEWLINE))] = _BETWEEN
    # A bracket that opens the second depth comes before it does, so an object inside is none of the first.
    chosen = np.flatnonzero(codes != 7)
    return marks.at[chosen], codes[chosen]


def _check_events(outside: _Outside, events: Places, codes: Bytes, *, first: bool, listed: bool) -> None:
    """Refuse a mark that may not follow the one before it."""
    if not len(events):
        return
    before = np.concatenate([[_BETWEEN if first else _DONE], codes[:-1]])
    steps = np.diff(events, prepend=-1)
    pairs = 6 * before + codes
    good = (steps >= _LEAST[pairs]) & (steps <= _MOST[pairs])
    if not listed:  # empty lines
        good |= (before == _BETWEEN) & (codes == _BETWEEN) & (steps == 1)
    if not good.all():
        wrong = int(np.argmin(good))
        raise Malformed(_NOT_JSON, int(outside.at[int(events[wrong - 1]) + 1 if wrong else 0]))


def _check_values(outside: _Outside, marks: _Marks, begin: Places, end: Places, kinds: Bytes) -> NDArray[np.bool_]:
    """Refuse values that are several, or none; whether each has brackets inside of its brackets.

    Args:
        outside: The bytes.
        marks: Punctuation among them.
        begin: The first byte of each value there.
        end: Its last one.
        kinds: What there is in it.
    """
    first, last = outside.bytes[begin], outside.bytes[end]
    text, nested = first == _QUOTE, (first == _OPEN) | (first == _LIST)
    good = np.where(text, begin == end, outside.at[end] - outside.at[begin] == end - begin)
    good &= text | nested | (kinds & (MARK | QUOTE) == 0)
    good[nested] = np.where(first == _OPEN, last == _CLOSE, last == _END)[nested]
    if not good.all():
        raise Malformed("this is no JSON value", int(outside.at[begin[int(np.argmin(good))]]))
    opening = _STEPS[marks.letters] == 1
    second = marks.at[opening & (marks.depth == 2)]
    if not np.array_equal(second, begin[nested]):
        known = begin[nested]
        wrong = np.flatnonzero(second[: len(known)] != known[: len(second)])
        at = second[int(wrong[0])] if len(wrong) else (second if len(second) > len(known) else known)[-1]
        raise Malformed("this is no JSON value", int(outside.at[at]))
    deep = np.zeros(len(begin), np.bool_)
    third = marks.at[opening & (marks.depth == 3)]
    deep[np.searchsorted(begin, third, side="right") - 1] = True
    return deep
