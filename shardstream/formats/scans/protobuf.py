"""The wire format of protocol buffers, read for many messages at once: spans of bytes in, spans of their fields out.

Nothing knows a schema: callers say which fields they expect, and in which order writers put them. Spans are indices
into an array of bytes.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LENGTH_1, LENGTH_2, LENGTH_3 = 0x0A, 0x12, 0x1A  # tags of fields 1, 2 and 3 that are messages, strings or packed lists
VARINT_1, FIXED32_1 = 0x08, 0x0D
_FEW = 64  # messages; fewer are walked one by one, so that a long one costs no calls of numpy for each of its fields
_LONGEST = 10  # bytes of a varint

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


class Malformed(ValueError):
    """Bytes that are no such message.

    Attributes:
        at: Where, as an index into the bytes.
    """

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


class Spans(NamedTuple):
    """Where messages, or the contents of fields, begin and end."""

    begin: Places
    end: Places

    def where(self, chosen: NDArray[Any]) -> Spans:
        """Those of a mask, or at some indices."""
        return Spans(self.begin[chosen], self.end[chosen])


def refuse(bad: NDArray[np.bool_], at: Places, what: str) -> None:
    """Raise `Malformed` for the first that is bad."""
    if bad.any():
        raise Malformed(what, int(at[int(np.argmax(bad))]))


def cut_out(raw: Bytes, at: Places, width: int) -> Bytes:
    """Runs of bytes of one length that begin at these places: uint8 (n, width); all are inside."""
    if not len(at) or not width:
        return np.zeros((len(at), width), np.uint8)
    return np.ndarray((len(raw) - width + 1, width), np.uint8, raw, strides=(1, 1))[at]


def varints(raw: Bytes, spans: Spans) -> tuple[NDArray[np.uint64], Places]:
    """The number at the beginning of each span, and where it ends.

    Raises:
        Malformed: One is cut off, or has more than 10 bytes.
    """
    refuse(spans.begin >= spans.end, spans.begin, "a number is cut off")
    byte = raw[spans.begin]
    values, after = (byte & 127).astype(np.uint64), spans.begin + 1
    rows = np.flatnonzero(byte > 127)
    for place in range(1, _LONGEST):
        if not len(rows):
            return values, after
        here = after[rows]
        refuse(here >= spans.end[rows], here, "a number is cut off")
        byte = raw[here]
        values[rows] |= (byte & 127).astype(np.uint64) << np.uint64(7 * place)
        after[rows] += 1
        rows = rows[byte > 127]
    refuse(np.ones(len(rows), np.bool_), after[rows], "a number has more than 10 bytes")
    return values, after


def delimited(raw: Bytes, spans: Spans, *tags: int) -> tuple[Bytes, Spans]:
    """The tag and content of the field at the beginning of each span, which has one of these tags.

    Raises:
        Malformed: It has another, or reaches past the end of the span.
    """
    refuse(spans.begin >= spans.end, spans.begin, "a field is cut off")
    found = raw[spans.begin]
    known = found == tags[0]
    for tag in tags[1:]:
        known |= found == tag
    refuse(~known, spans.begin, "a field that does not belong here")
    lengths, begin = varints(raw, Spans(spans.begin + 1, spans.end))
    room = spans.end - begin
    refuse(lengths > room.astype(np.uint64), begin, "a field reaches past the end of its message")
    return found, Spans(begin, begin + lengths.astype(np.int64))


def repeated(raw: Bytes, spans: Spans, *, most: int | None = None) -> tuple[Places, Spans]:
    """The contents of all fields 1 of messages that have no others, in order, and which message each is of.

    Args:
        raw: The bytes.
        spans: The messages.
        most: Of one message.

    Raises:
        Malformed: A message has another field, or more of them.
    """
    owner = np.flatnonzero(spans.begin < spans.end)
    rest = spans.where(owner)
    owners, found = [owner[:0]], [rest.where(owner[:0])]
    steps = 0
    while len(owner) > _FEW:
        _, content = delimited(raw, rest, LENGTH_1)
        owners.append(owner)
        found.append(content)
        more = content.end < rest.end
        owner, rest = owner[more], Spans(content.end[more], rest.end[more])
        steps += 1
        if most is not None and steps > most:
            raise Malformed(f"a message of more than {most} fields", int(rest.begin[0]) if len(owner) else 0)
    for one, begin, end in zip(owner.tolist(), rest.begin.tolist(), rest.end.tolist(), strict=True):
        content = _walked(raw, begin, end, most)
        owners.append(np.full(len(content.begin), one))
        found.append(content)
    whole = np.concatenate(owners)
    order = np.argsort(whole, kind="stable")
    joined = Spans(np.concatenate([one.begin for one in found]), np.concatenate([one.end for one in found]))
    return whole[order], joined.where(order)


def _walked(raw: Bytes, at: int, end: int, most: int | None) -> Spans:
    """`repeated` for one message."""
    data = raw.data
    begins, ends = array("q"), array("q")
    while at < end:
        if data[at] != LENGTH_1:
            raise Malformed("a field that does not belong here", at)
        if most is not None and len(begins) >= most:
            raise Malformed(f"a message of more than {most} fields", at)
        length, begin = varint(data, at + 1, end)
        at = begin + length
        if at > end:
            raise Malformed("a field reaches past the end of its message", begin)
        begins.append(begin)
        ends.append(at)
    return Spans(np.frombuffer(begins, np.int64), np.frombuffer(ends, np.int64))


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number at a place, and where it ends.

    Raises:
        Malformed: It is cut off, or has more than 10 bytes.
    """
    value = 0
    for place in range(_LONGEST):
        if at + place >= end:
            raise Malformed("a number is cut off", at)
        byte = data[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value & (1 << 64) - 1, at + place + 1
    raise Malformed("a number has more than 10 bytes", at)


def all_varints(data: memoryview) -> NDArray[np.uint64]:
    """The numbers that bytes hold one after another.

    Raises:
        ValueError: The last is cut off, or one has more than 10 bytes.
    """
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    if not len(raw):
        return np.zeros(0, np.uint64)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise ValueError("a number is cut off")
    begins = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - begins + 1
    if lengths.max() > _LONGEST:
        raise ValueError("a number has more than 10 bytes")
    places = np.arange(len(raw)) - np.repeat(begins, lengths)
    bits = (raw & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, begins)
