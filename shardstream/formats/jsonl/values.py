"""What the values of members are, by what there is in them outside of strings; and the numbers among them."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from shardstream.formats.jsonl.structure import DIGIT, LETTER, MARK, POINT, QUOTE, Members
from shardstream.formats.scans.protobuf import Bytes, Malformed, Places, cut_out

NULL, TEXT, INT, FLOAT, BOOL, INTS, FLOATS, NONE_OF_THEM, OTHER, INEXACT = (1 << place for place in range(10))
"""Kinds of values, as bits: lists are of numbers; `NONE_OF_THEM` is an empty list, `OTHER` anything else. `INEXACT`
stands beside another: an integer, or one of a list, would lose digits as float64."""
NAMES = {
    TEXT: "text",
    INT: "an integer",
    FLOAT: "a number",
    BOOL: "true or false",
    INTS: "a list of integers",
    FLOATS: "a list of numbers",
    NONE_OF_THEM: "an empty list",
    OTHER: "JSON of another kind",
}
_QUOTE, _OPEN, _LIST, _MINUS, _ZERO, _COMMA = b'"{[-0,'
_INTEGER = re.compile(rb"-?[0-9]+")
_WORDS = {b"null": NULL, b"true": BOOL, b"false": BOOL, b"NaN": FLOAT, b"Infinity": FLOAT, b"-Infinity": FLOAT}
_SURE_DIGITS = 18  # of an integer that 64 bits hold, whatever its digits
_EXACT_DIGITS = 15  # of one that float64 holds
_PART_OF_FLOATS = np.zeros(256, np.bool_)
_PART_OF_FLOATS[list(b".eENI")] = True
_LETTERS = re.compile(rb"[A-DF-Za-df-z]")
LONGEST = 64
"""Letters of a number that is read as one; longer ones stay JSON."""


def kinds_of(raw: Bytes, found: Members) -> NDArray[np.uint16]:
    """The kind of each value.

    Raises:
        Malformed: One is a word that JSON does not have.
    """
    first, kinds = raw[found.begin], found.kinds
    lengths = found.end - found.begin
    out = np.full(len(first), OTHER, np.uint16)
    numbers = (first != _QUOTE) & (first != _OPEN) & (first != _LIST)
    out[first == _QUOTE] = TEXT
    plain = numbers & (kinds & LETTER == 0) & (first != ord("e")) & (first != ord("E"))
    short = lengths <= LONGEST
    out[plain & short & (kinds & POINT == 0)] = INT
    out[plain & short & (kinds & POINT > 0)] = FLOAT
    words = numbers & ~plain
    if words.any():
        for word, kind in _WORDS.items():
            chosen = np.flatnonzero(words & (lengths == len(word)))
            same = (cut_out(raw, found.begin[chosen], len(word)) == np.frombuffer(word, np.uint8)).all(axis=1)
            out[chosen[same]] = kind
            words[chosen[same]] = False
        if words.any():
            raise Malformed("a word stands here that JSON does not have", int(found.begin[int(np.argmax(words))]))
    lists = (first == _LIST) & ~found.deep & (kinds & ~np.uint8(DIGIT | POINT | MARK) == 0)
    out[lists] = np.where(kinds & POINT > 0, FLOATS, INTS)[lists]
    out[lists & (kinds & (DIGIT | POINT) == 0)] = NONE_OF_THEM
    worded = (first == _LIST) & ~found.deep & (kinds & LETTER > 0) & (kinds & QUOTE == 0)
    for row in np.flatnonzero(worded).tolist():  # NaN is no JSON, but float64 holds it
        text = raw[found.begin[row] : found.end[row]].tobytes()
        if not _LETTERS.search(text.replace(b"NaN", b"0.").replace(b"Infinity", b"0.")) and b"{" not in text:
            out[row] = FLOATS
    long = np.flatnonzero(((out == INTS) | (out == FLOATS)) & (lengths > _EXACT_DIGITS + 2))
    if len(long):
        _mark_large(raw, found.begin[long], found.end[long], long, out)
    return out


def _mark_large(raw: Bytes, begin: Places, end: Places, rows: NDArray[np.int64], out: NDArray[np.uint16]) -> None:
    """Mark the lists, which lie one after another, with integers that float64 or 64 bits do not hold.

    Args:
        raw: The bytes.
        begin: Where each list begins.
        end: Where it ends.
        rows: Its place in ``out``.
        out: The kinds, which are changed.
    """
    first = int(begin[0])
    span = raw[first : end[-1]]
    edges = np.sort(np.concatenate([np.flatnonzero(span == _COMMA) + first, begin, end - 1]))
    numbers = np.flatnonzero(np.diff(edges) > _EXACT_DIGITS + 1)
    # Of embeddings nearly all numbers are that long, and have a point.
    points = np.cumsum(_PART_OF_FLOATS[span], dtype=np.int32)
    lengths = edges[numbers + 1] - edges[numbers]
    whole = points[edges[numbers + 1] - first] == points[edges[numbers] - first]
    for number in numbers[whole | (lengths > LONGEST)].tolist():
        one, two = int(edges[number]), int(edges[number + 1])
        of = int(np.searchsorted(begin, one, side="right")) - 1
        if two >= end[of] or out[rows[of]] == OTHER:
            continue  # between lists
        digits = raw[one + 1 : two].tobytes().strip()
        if len(digits) > LONGEST:
            out[rows[of]] = OTHER
        elif _INTEGER.fullmatch(digits):
            value = int(digits)
            if not -(1 << 63) <= value < 1 << 63 and out[rows[of]] & INTS:
                out[rows[of]] = OTHER
            elif not _is_exact(value):
                out[rows[of]] |= INEXACT


def _is_exact(value: int) -> bool:
    """Whether float64 holds an integer with all its digits."""
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def are_exact(values: NDArray[np.int64]) -> bool:
    """Whether float64 holds these integers with all their digits."""
    large = values[(values > 1 << 53) | (values < -(1 << 53))]
    return all(map(_is_exact, large.tolist()))


def integers(raw: Bytes, begin: Places, end: Places) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The whole numbers at some places, and which of them 64 bits do not hold.

    Raises:
        Malformed: One is none.
    """
    negative = raw[begin] == _MINUS
    width = int((end - begin).max(initial=0))
    digits, count = _right_aligned(raw, begin + negative, end, width)
    wrong = ((digits > 9) | (count == 0)[:, None]).any(axis=1)
    wrong |= (count > 1) & (raw[np.minimum(begin + negative, len(raw) - 1)] == _ZERO)
    if wrong.any():
        raise Malformed("this is not a number", int(begin[int(np.argmax(wrong))]))
    values = np.zeros(len(begin), np.int64)
    for place in range(max(width - _SURE_DIGITS, 0), width):
        values = values * 10 + digits[:, place]
    values[negative] *= -1
    beyond = np.zeros(len(begin), np.bool_)
    for row in np.flatnonzero(count > _SURE_DIGITS).tolist():
        value = int(raw[begin[row] : end[row]].tobytes())
        beyond[row] = not -(1 << 63) <= value < 1 << 63
        values[row] = 0 if beyond[row] else value
    return values, beyond


def _right_aligned(raw: Bytes, begin: Places, end: Places, width: int) -> tuple[Bytes, Places]:
    """Digits as numbers, with zeros before them: (n, width); and how many each has."""
    places = end[:, None] - np.arange(width, 0, -1)
    inside = places >= begin[:, None]
    digits = np.where(inside, raw[np.maximum(places, 0)] - np.uint8(_ZERO), np.uint8(0))
    return digits, end - begin


def floats(raw: Bytes, begin: Places, end: Places) -> NDArray[np.float64]:
    """The numbers at some places.

    Raises:
        Malformed: One is none.
    """
    width = int((end - begin).max(initial=1))
    places = begin[:, None] + np.arange(width)
    inside = places < end[:, None]
    letters = np.where(inside, raw[np.minimum(places, len(raw) - 1)], np.uint8(0))
    texts = np.ascontiguousarray(letters).view(f"S{width}")[:, 0]
    try:
        found: NDArray[np.float64] = texts.astype(np.float64)
    except ValueError:
        found = np.array([_float(text, int(at)) for text, at in zip(texts.tolist(), begin, strict=True)])
    return found


def _float(text: bytes, at: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise Malformed("this is not a number", at) from None
