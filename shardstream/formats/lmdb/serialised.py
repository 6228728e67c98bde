"""A pickle or msgpack object a sample, as the scripts write them that follow tensorpack and ``folder2lmdb``.

``__keys__`` has the keys of samples in their order, ``__len__`` their number; both are optional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np

from shardstream.errors import FormatError
from shardstream.formats.lmdb.fields import (
    HEAD,
    MSGPACK,
    PICKLE,
    Encoding,
    SampleFields,
    has_arrays,
    shapes_of,
)
from shardstream.formats.lmdb.files import KeyNames
from shardstream.formats.lmdb.packed import read_packed_names
from shardstream.formats.lmdb.pages import Entries, Pages, Tree
from shardstream.formats.lmdb.pickled import is_pickle, read_names
from shardstream.formats.lmdb.values import EndsEarly, NotUnderstood
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, RowBuilder, ScannedRows

KEYS, LENGTH, CLASSES = b"__keys__", b"__len__", (b"__classes__", b"classes")
_WORD = 1 << 16  # more than there are buffers in an object of pyarrow
_CONTINUES = b"\xff\xff\xff\xff"
_PLAIN = "write it again, with plain values and numpy arrays alone; a pickle is never run here"
_CONVERT = (
    "where pyarrow < 12 is installed: for each key of a cursor, "
    "new.put(key, pickle.dumps(pyarrow.deserialize(value), 4)) into a new database"
)


def scan_serialised(
    data: ObjectBytes, source: Callable[[], Iterator[Entries]], names: KeyNames, encoding: Encoding
) -> Iterator[ScannedRows]:
    """The fields of objects, one a sample.

    Args:
        data: The object.
        source: Gives the entries in order, from the beginning at each call.
        names: Makes keys.
        encoding: How the samples are written.
    """
    read = _read(data, source(), encoding)
    head = list(islice(read, HEAD))
    said = [(value, sample) for _, _, value, sample in head]
    shapes: dict[str, str | None] = {}
    if has_arrays(said):  # whether all are of one shape has to be known before the first piece
        shapes = shapes_of((value, sample) for _, _, value, sample in _read(data, source(), encoding))
    try:
        parts = SampleFields(encoding, said, shapes)
    except NotUnderstood as error:
        raise _refused(data, error, head[0][0], head[0][1]) from None
    rows = RowBuilder(data)
    for key, offset, value, sample in chain(head, read):
        rows.begin(*names.of([key], offset))
        try:
            parts.add(rows, offset, value, sample)
        except NotUnderstood as error:
            raise _refused(data, error, key, offset) from None
        if len(rows) == PIECE:
            yield rows.take()
    if len(rows):
        yield rows.take()


def _read(
    data: ObjectBytes, entries: Iterator[Entries], encoding: Encoding
) -> Iterator[tuple[bytes, int, memoryview, Any]]:
    """Key, offset, value, and what it says."""
    for some in entries:
        for key, offset, length in zip(some.keys, some.offsets.tolist(), some.lengths.tolist(), strict=True):
            value = data.get(offset, length)
            try:
                yield key, offset, value, encoding.read(value)
            except NotUnderstood as error:
                raise _refused(data, error, key, offset) from None


def _refused(data: ObjectBytes, error: NotUnderstood, key: bytes, offset: int) -> FormatError:
    name = key[:80].decode("utf-8", "backslashreplace")
    what, at = f"{error}, in the value of key {name!r}", offset + error.at
    return data.damaged(what, at) if isinstance(error, EndsEarly) else data.unsupported(what, at, hint=_PLAIN)


# ------------------------------------------------------------------------------------------------------ keys and counts


def encoding_of(data: ObjectBytes, key: bytes, offset: int, length: int) -> Encoding:
    """How a value is written.

    Raises:
        FormatError: It is of pyarrow, or of nothing that is known.
    """
    start = bytes(data.get(offset, min(length, 64)))
    last = data.get(offset + length - 1, 1) if length else b""
    if is_pickle(start, last) or (start[:1] in (b"(", b"]") and bytes(last) == b"."):
        return PICKLE
    if is_arrow(start):
        raise data.unsupported(
            f"the value of key {key[:80]!r} is of pyarrow.serialize, which pyarrow removed with version 12",
            offset,
            hint=_CONVERT,
        )
    return MSGPACK


def is_arrow(start: bytes) -> bool:
    """Whether a value begins as ``pyarrow.serialize`` wrote them: counts of 4 bytes, then a stream of Arrow."""
    words = [start[at : at + 4] for at in range(0, len(start) - 3, 4)]
    before = words.index(_CONTINUES) if _CONTINUES in words else 0
    small = all(int.from_bytes(word, "little") < _WORD for word in words[: max(before, 3)])
    return len(words) > 4 and small and (before > 2 or words[0] == bytes(4))


def listed_keys(pages: Pages, tree: Tree) -> list[bytes] | None:
    """The keys that ``__keys__`` names; ``None`` where there is no such entry."""
    place = pages.find(tree, KEYS)
    if place is None:
        return None
    found = said_by(pages.data, KEYS, *place)
    if isinstance(found, list | tuple) and all(type(key) is bytes for key in found):
        return list(found)
    raise pages.data.unsupported("__keys__ is not a list of keys", place[0], hint=_PLAIN)


def listed_classes(pages: Pages, tree: Tree) -> tuple[str, ...] | None:
    """Names of classes, where the database has them as a list of text."""
    for key in CLASSES:
        place = pages.find(tree, key)
        try:
            found = said_by(pages.data, key, *place) if place else None
            if isinstance(found, list | tuple) and found and all(type(name) is bytes for name in found):
                return tuple(name.decode() for name in found)
        except (FormatError, UnicodeDecodeError):
            continue
    return None


def check_length(pages: Pages, tree: Tree, count: int) -> None:
    """Compare a number of samples with ``__len__``, if there is one."""
    place = pages.find(tree, LENGTH)
    if place is None:
        return
    text = bytes(pages.data.get(place[0], min(place[1], 20)))
    if text.isdigit() and int(text) == count:
        return
    found = said_by(pages.data, LENGTH, *place)
    if found != count:
        raise pages.data.damaged(f"__len__ says {str(found)[:40]}, and there are {count} samples", place[0])


def said_by(data: ObjectBytes, key: bytes, offset: int, length: int) -> Any:
    """What an entry beside the samples says: a number, or a list of bytes."""
    encoding = encoding_of(data, key, offset, length)
    value = data.get(offset, length)
    try:
        return read_names(value) if encoding is PICKLE else read_packed_names(value)
    except NotUnderstood as error:
        raise _refused(data, error, key, offset) from None


def in_order(pages: Pages, tree: Tree, wanted: list[bytes]) -> Callable[[], Iterator[Entries]]:
    """What gives the entries of these keys in their order.

    Raises:
        FormatError: A key is there twice; when they are read: one is in the list alone.
    """
    if all(a < b for a, b in pairwise(wanted)):
        return lambda: _those(pages, tree, wanted)
    order = np.array(sorted(range(len(wanted)), key=wanted.__getitem__), np.int64)
    ascending = [wanted[number] for number in order.tolist()]
    for a, b in pairwise(ascending):
        if a == b:
            raise pages.data.damaged(f"__keys__ names {a[:80]!r} twice", 0)
    offsets, lengths = np.zeros((2, len(wanted)), np.int64)
    done = 0
    for some in _those(pages, tree, ascending):
        rows = order[done : done + len(some)]
        offsets[rows], lengths[rows] = some.offsets, some.lengths
        done += len(some)

    def pieces() -> Iterator[Entries]:
        for begin in range(0, len(wanted), PIECE):
            rows = slice(begin, begin + PIECE)
            keys = wanted[rows]
            yield Entries(keys, offsets[rows], lengths[rows], np.zeros(len(keys), np.bool_))

    return pieces


def _those(pages: Pages, tree: Tree, wanted: list[bytes]) -> Iterator[Entries]:
    """The entries of ascending keys."""
    done = 0
    for some in pages.entries(tree):
        chosen = np.zeros(len(some), np.bool_)
        for row, key in enumerate(some.keys):
            if done < len(wanted) and key == wanted[done]:
                chosen[row] = True
                done += 1
        if (chosen & some.subtrees).any():
            raise pages.data.damaged("__keys__ names a database in this one", 0)
        if chosen.any():
            yield some.take(chosen)
    if done < len(wanted):
        raise pages.data.damaged(f"__keys__ names {wanted[done][:80]!r}, and there is no such entry", 0)
