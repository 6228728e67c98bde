"""``tf.train.Example`` and ``SequenceExample`` without protobuf: where the values of each feature lie.

An Example is a map of names to lists of bytes, floats or integers. A SequenceExample has such a map, its context, and
a second one of names to lists of such lists: a list a frame. Messages are read as all writers write them, fields in
order and each once; anything else is not an Example.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack
import numpy as np
from numpy.typing import NDArray

from shardstream.formats.scans.protobuf import (
    FIXED32_1,
    LENGTH_1,
    LENGTH_2,
    LENGTH_3,
    VARINT_1,
    Bytes,
    Malformed,
    Places,
    Spans,
    all_varints,
    cut_out,
    delimited,
    refuse,
    repeated,
    varint,
    varints,
)
from shardstream.shards.arrays import npy_bytes

MOST_FEATURES = 1024
"""Features that the samples of an object may have, all together: each is a column."""
BYTES, FLOATS, INTS = LENGTH_1, LENGTH_2, LENGTH_3  # the tag of the list says what it holds
_MOST_FRAMES = 1 << 20  # of a list
_NOTHING = 0
_FLOAT = 4
_UNPACKED = 1 + _FLOAT  # bytes of a float with its own tag


class Lists(NamedTuple):
    """Lists of values, one row each.

    Attributes:
        kind: `BYTES`, `FLOATS`, `INTS`; 0 where nothing says.
        span: The list, as a message.
        counts: Their values; of bytes, and of integers outside of frames, 2 means several.
        first: Of bytes and floats, where the first value begins; of integers, the first value.
    """

    kind: NDArray[np.uint8]
    span: Spans
    counts: Places
    first: Places

    def at(self, chosen: NDArray[Any]) -> Lists:
        """Those of a mask, or at some indices."""
        return Lists(self.kind[chosen], self.span.where(chosen), self.counts[chosen], self.first[chosen])


@dataclass(slots=True, eq=False)
class Feature:
    """The values of a feature, in order of their samples.

    Attributes:
        name: As it is written.
        framed: Whether it is a list of lists: one of a SequenceExample's second map.
        rows: The samples that have it.
        lists: Their lists; of frames, the kind of all, the span of the list of frames, and of ``counts`` the largest.
        least: The smallest count of the frames.
    """

    name: str
    framed: bool
    rows: Places
    lists: Lists
    least: Places


def whole(raw: Bytes, records: Spans) -> tuple[int, list[Feature], Malformed | None]:
    """How many records from the first on are Examples, their features, and what is wrong with the next."""
    try:
        return len(records.begin), features(raw, records), None
    except Malformed as error:
        bad = error
    good, over, found = 0, len(records.begin), list[Feature]()
    while over - good > 1:  # records before `good` are Examples, not all before `over` are
        half = (good + over) // 2
        try:
            found, good = features(raw, records.where(np.arange(half))), half
        except Malformed:
            over = half
    try:
        features(raw, records.where(np.arange(good, over)))
    except Malformed as error:
        bad = error
    return good, found, bad


def features(raw: Bytes, records: Spans) -> list[Feature]:
    """All features of some Examples.

    Raises:
        Malformed: One is not an Example.
    """
    full = np.flatnonzero(records.begin < records.end)
    tags, first = delimited(raw, records.where(full), LENGTH_1, LENGTH_2)
    end = records.end[full]
    more = first.end < end
    refuse(more & (tags == LENGTH_2), first.end, "a field that does not belong here")
    _, second = delimited(raw, Spans(first.end[more], end[more]), LENGTH_2)
    refuse(second.end != end[more], second.end, "a field that does not belong here")
    single, framed = tags == LENGTH_1, tags == LENGTH_2
    rows = np.concatenate([full[framed], full[more]])
    frames = Spans(np.concatenate([first.begin[framed], second.begin]), np.concatenate([first.end[framed], second.end]))
    return [
        *_of_map(raw, full[single], first.where(single), framed=False),
        *_of_map(raw, rows, frames, framed=True),
    ]


def _of_map(raw: Bytes, rows: Places, maps: Spans, *, framed: bool) -> Iterator[Feature]:
    if not len(rows):
        return
    owner, entries = repeated(raw, maps, most=MOST_FEATURES)
    _, keys = delimited(raw, entries, LENGTH_1)
    empty = keys.end == entries.end
    _, values = delimited(raw, Spans(keys.end[~empty], entries.end[~empty]), LENGTH_2)
    refuse(values.end != entries.end[~empty], values.end, "a field that does not belong here")
    spans = Spans(entries.end.copy(), entries.end.copy())
    spans.begin[~empty] = values.begin
    lists, least = _framed(raw, spans) if framed else _single(raw, spans)
    for name, chosen in _named(raw, keys):
        where = rows[owner[chosen]]
        order = np.argsort(where, kind="stable")
        chosen, where = chosen[order], where[order]
        twice = where[1:] == where[:-1]
        refuse(twice, keys.begin[chosen][1:], f"a second feature {name!r}")
        yield Feature(name, framed, where, lists.at(chosen), least[chosen])


def _single(raw: Bytes, spans: Spans) -> tuple[Lists, Places]:
    lists = read_lists(raw, spans)
    return lists, lists.counts


def _framed(raw: Bytes, spans: Spans) -> tuple[Lists, Places]:
    """The lists of frames as one list each, and the smallest count of their frames."""
    owner, frames = repeated(raw, spans, most=_MOST_FRAMES)
    lists = read_lists(raw, frames)
    _exact(raw, lists)
    total = len(spans.begin)
    kinds, most, least = np.zeros(total, np.uint8), np.zeros(total, np.int64), np.zeros(total, np.int64)
    if len(owner):
        begins = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
        has = owner[begins]
        kinds[has] = np.maximum.reduceat(lists.kind, begins)
        most[has] = np.maximum.reduceat(lists.counts, begins)
        least[has] = np.minimum.reduceat(lists.counts, begins)
        refuse((lists.kind != _NOTHING) & (lists.kind != kinds[owner]), frames.begin, "frames of two types")
    return Lists(kinds, spans, most, np.zeros(total, np.int64)), least


def read_lists(raw: Bytes, spans: Spans) -> Lists:
    """The list that each Feature message holds."""
    total = len(spans.begin)
    kinds, count, first = np.zeros(total, np.uint8), np.zeros(total, np.int64), np.zeros(total, np.int64)
    inner = Spans(spans.end.copy(), spans.end.copy())
    full = np.flatnonzero(spans.begin < spans.end)
    kinds[full], content = delimited(raw, spans.where(full), BYTES, FLOATS, INTS)
    refuse(content.end != spans.end[full], content.end, "a field that does not belong here")
    inner.begin[full] = content.begin
    full = full[content.begin < content.end]
    for kind, read in ((BYTES, _bytes), (FLOATS, _floats), (INTS, _ints)):
        rows = full[kinds[full] == kind]
        if len(rows):
            count[rows], first[rows] = read(raw, inner.where(rows))
    return Lists(kinds, inner, count, first)


def _bytes(raw: Bytes, spans: Spans) -> tuple[Places, Places]:
    _, value = delimited(raw, spans, LENGTH_1)
    return np.where(value.end < spans.end, 2, 1), value.begin


def _floats(raw: Bytes, spans: Spans) -> tuple[Places, Places]:
    sizes = spans.end - spans.begin
    count, first = sizes // _UNPACKED, spans.begin + 1
    packed = np.flatnonzero(raw[spans.begin] == LENGTH_1)
    _, content = delimited(raw, spans.where(packed), LENGTH_1)
    uneven = (content.end != spans.end[packed]) | ((content.end - content.begin) % _FLOAT != 0)
    refuse(uneven, content.begin, "a list of floats of another size than it should have")
    count[packed], first[packed] = (content.end - content.begin) // _FLOAT, content.begin
    loose = raw[spans.begin] != LENGTH_1
    bad = loose & ((raw[spans.begin] != FIXED32_1) | (sizes % _UNPACKED != 0))
    refuse(bad, spans.begin, "a field that does not belong here")
    return count, first


def _ints(raw: Bytes, spans: Spans) -> tuple[Places, Places]:
    packed = raw[spans.begin] == LENGTH_1
    refuse(~packed & (raw[spans.begin] != VARINT_1), spans.begin, "a field that does not belong here")
    inner = Spans(spans.begin + 1, spans.end)
    _, content = delimited(raw, spans.where(packed), LENGTH_1)
    refuse(content.end != spans.end[packed], content.end, "a field that does not belong here")
    inner.begin[packed] = content.begin
    count = np.zeros(len(packed), np.int64)
    first = count.copy()
    full = np.flatnonzero(inner.begin < inner.end)
    values, after = varints(raw, inner.where(full))
    first[full], count[full] = values.view(np.int64), 1
    several = full[after < inner.end[full]]
    refuse(raw[inner.end[several] - 1] > 127, inner.end[several], "a number is cut off")
    count[several] = 2
    return count, first


def _exact(raw: Bytes, lists: Lists) -> None:
    """Count the values of lists of several integers."""
    for row in np.flatnonzero((lists.kind == INTS) & (lists.counts > 1)).tolist():
        content = raw[int(lists.span.begin[row]) : int(lists.span.end[row])]
        if content[0] == LENGTH_1:
            _, begin = varint(content.data, 1, len(content))
            lists.counts[row] = int(np.count_nonzero(content[begin:] < 128))
        else:
            lists.counts[row] = int(np.count_nonzero(content < 128)) // 2  # and as many tags


def _named(raw: Bytes, keys: Spans) -> Iterator[tuple[str, Places]]:
    """The names, and which of the keys are each: as many gathers as there are lengths of names."""
    lengths = keys.end - keys.begin
    found = 0
    for length in np.unique(lengths).tolist():
        left = np.flatnonzero(lengths == length)
        if not length:
            yield "", left
            continue
        text = cut_out(raw, keys.begin[left], length).view(f"V{length}")[:, 0]
        while len(left):
            same = text == text[0]
            if (found := found + 1) > MOST_FEATURES:
                raise Malformed(f"more than {MOST_FEATURES} features", int(keys.begin[left[0]]))
            yield text[0].tobytes().decode("utf-8", "surrogateescape"), left[same]
            left, text = left[~same], text[~same]


# ------------------------------------------------------------------------------------------------------------ forms


def floats_form(data: memoryview, _text: str) -> bytes:
    """The NPY file of a list of floats."""
    return npy_bytes(_numbers(data, FLOATS))


def ints_form(data: memoryview, _text: str) -> bytes:
    """The NPY file of a list of integers."""
    return npy_bytes(_numbers(data, INTS))


def bytes_form(data: memoryview, _text: str) -> bytes:
    """The msgpack list of a list of bytes."""
    packed: bytes = msgpack.packb(_strings(data))
    return packed


def frames_form(data: memoryview, text: str) -> bytes:
    """What the frames of a list hold: ``KIND:1`` one value each, ``KIND:2`` equally many, ``KIND:0`` any number.

    The first is an NPY file of 1 dimension, the second one of 2, the third a msgpack list of lists; bytes are a
    msgpack list in the first case, and in the others a list of lists.
    """
    kind, _, rank = text.partition(":")
    expected = {"bytes": BYTES, "float32": FLOATS, "int64": INTS}[kind]
    frames = [_frame(content, expected) for content in _contents(data)]
    if rank == "1" and any(len(frame) != 1 for frame in frames):
        raise ValueError("a frame of no or several values")
    if expected == BYTES or rank == "0":
        plain = frames if expected == BYTES else [frame.tolist() for frame in frames]
        packed: bytes = msgpack.packb([frame[0] for frame in plain] if rank == "1" else plain)
        return packed
    joined = np.stack(frames) if frames else np.zeros((0, 0), kind)
    return npy_bytes(joined.reshape(-1) if rank == "1" else joined)


def _frame(data: memoryview, expected: int) -> Any:
    if not len(data):
        return _values(data, expected)
    if data[0] != expected:
        raise ValueError("a frame of another type")
    length, begin = varint(data, 1, len(data))
    if begin + length != len(data):
        raise ValueError("a frame of another size")
    return _values(data[begin:], expected)


def _values(data: memoryview, kind: int) -> Any:
    return _strings(data) if kind == BYTES else _numbers(data, kind)


def _strings(data: memoryview) -> list[bytes]:
    return [bytes(content) for content in _contents(data)]


def _contents(data: memoryview) -> list[memoryview]:
    """The contents of fields 1 of a message that has no others."""
    whole = Spans(np.array([0]), np.array([len(data)]))
    _, spans = repeated(np.frombuffer(data, np.uint8), whole)
    return [data[begin:end] for begin, end in zip(spans.begin.tolist(), spans.end.tolist(), strict=True)]


def _numbers(data: memoryview, kind: int) -> NDArray[Any]:
    """The values of a list of floats or integers, packed or not."""
    if not len(data):
        return np.zeros(0, np.float32 if kind == FLOATS else np.int64)
    if data[0] == LENGTH_1:
        length, begin = varint(data, 1, len(data))
        if begin + length != len(data):
            raise ValueError("a list of another size")
        content = data[begin:]
        return all_varints(content).view(np.int64) if kind == INTS else np.frombuffer(content, "<f4")
    if kind == FLOATS:
        rows = np.frombuffer(data, np.dtype([("tag", "u1"), ("value", "<f4")]))
        tags, values = rows["tag"] == FIXED32_1, rows["value"]
    else:
        numbers = all_varints(data)
        if len(numbers) % 2:
            raise ValueError("a number is cut off")
        tags, values = numbers[0::2] == VARINT_1, numbers[1::2].view(np.int64)
    if not tags.all():
        raise ValueError("a field that does not belong here")
    return values
