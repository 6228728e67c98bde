"""A file a value, as LSUN, BasicSR and mmcv write them; and values that nothing else claims, as bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import FormatError
from shardstream.formats.lmdb.pages import Entries, Pages, Tree
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, START, ScannedRows, image_type, usable_key
from shardstream.shards.fields import FieldType
from shardstream.shards.index import Column

BOOKKEEPING = frozenset(
    [b"__keys__", b"__len__", b"__classes__", b"classes", b"length", b"num-samples", b"num_samples"]
)
"""Keys of what is not a sample."""
HEAD = 16
"""Values at the beginning that decide what all are."""
_EXTENSION = re.compile(r"\.(jpe?g|png|webp|bmp|gif|tiff?|ppm|pgm)$", re.IGNORECASE)
_TEXT = re.compile(r"[^\x00-\x1f\x7f]+")


class KeyNames:
    """Keys of samples, of those of entries.

    Keys that are names of image files lose their extensions, but where two would become one.

    Args:
        data: The object, for errors.
        tree: The database.
        first: Its first key.
        prefix: What all keys begin with.
    """

    def __init__(self, data: ObjectBytes, tree: Tree, first: bytes, prefix: str = "") -> None:
        self._data = data
        self._integers = tree.integer_keys
        self._prefix = prefix
        self._named = tree.plain and _EXTENSION.search(first.decode("utf-8", "replace")) is not None
        self._open: list[str] = []  # keys that were given, each the beginning of the next, and of the last one

    def of(self, keys: list[bytes], offset: int) -> list[str]:
        """Keys of samples; FormatError, with this offset, where one can be none."""
        if self._integers or b"\0" in b"".join(keys):
            names = [self._number(key) for key in keys]
        else:
            names = [key.decode("utf-8", "surrogateescape") for key in keys]
        if self._named:
            names = [self._stem(name) for name in names]
        joined = "\n".join(names)
        if not joined.isascii() or "/" in joined:
            names = [usable_key(name) for name in names]
        if not all(names):
            raise self._data.unsupported("a key without a character that a key can have", offset, hint="rename it")
        return [self._prefix + name for name in names] if self._prefix else names

    def readable(self, key: bytes) -> bool:
        """Whether a key is a number or text."""
        if self._integers or _is_number(key):
            return True
        try:
            return _TEXT.fullmatch(key.decode()) is not None
        except UnicodeDecodeError:
            return False

    def _number(self, key: bytes) -> str:
        if self._integers:
            return str(int.from_bytes(key, "little"))
        if _is_number(key):
            return str(min(int.from_bytes(key, "little"), int.from_bytes(key, "big")))
        return key.decode("utf-8", "surrogateescape")

    def _stem(self, name: str) -> str:
        while self._open and not name.startswith(self._open[-1]):
            self._open.pop()
        stem = _EXTENSION.sub("", name)
        found = name if stem in self._open or not stem.rpartition("/")[2] else stem
        self._open.append(found)
        return found


def _is_number(key: bytes) -> bool:
    """Whether a key is a number below 2**32 in 8 bytes, in either order."""
    return len(key) == 8 and key.count(0) >= 4


def samples(pages: Pages, tree: Tree, *, skip_named: bool) -> Iterator[Entries]:
    """The entries of a database but those that are not samples; among them named databases are skipped, or an error."""
    for found in pages.entries(tree):
        if found.subtrees.any() and not skip_named:
            raise unnamed(pages)
        kept = ~found.subtrees
        kept &= np.array([key not in BOOKKEEPING for key in found.keys], np.bool_)
        yield found if kept.all() else found.take(kept)


def unnamed(pages: Pages) -> FormatError:
    """The error where it is not said which of the named databases is meant."""
    names = pages.names()
    return pages.data.unsupported(
        f"it holds named databases: {', '.join(names)}",
        0,
        hint=f"say which one: option db={names[0]}; an empty db= means what has no name",
    )


def kind_of(data: ObjectBytes, entries: Entries) -> tuple[str, str] | None:
    """Name and type of a field of image files, if the first values are any; ``None`` if one is not."""
    found = []
    for offset, length in zip(entries.offsets[:HEAD].tolist(), entries.lengths[:HEAD].tolist(), strict=True):
        found.append(image_type(data.get(offset, min(length, START))))
    if not found or None in found:
        return None
    return str(found[0]), str(found[0]) if len(set(found)) == 1 else "image"


def scan_files(
    pages: Pages, entries: Iterator[Entries], names: KeyNames, field: str, kind: str
) -> Iterator[ScannedRows]:
    """A field of whole values."""
    type_ = FieldType.parse(kind)
    for some in pieces_of(entries):
        keys = names.of(some.keys, int(some.offsets[0]))
        yield ScannedRows(keys, (column(field, type_, some.offsets, some.lengths),))


def scan_bytes(pages: Pages, entries: Iterator[Entries], names: KeyNames) -> Iterator[ScannedRows]:
    """What nothing else claims, under keys that are text or numbers."""

    def checked() -> Iterator[Entries]:
        for some in entries:
            joined = b"".join(some.keys)
            if not (joined.isascii() and joined.decode().isprintable()):
                for key, offset in zip(some.keys, some.offsets.tolist(), strict=True):
                    if not names.readable(key):
                        raise _unclaimed(pages.data, key, offset)
            yield some

    yield from scan_files(pages, checked(), names, "bin", "bytes")


def _unclaimed(data: ObjectBytes, key: bytes, offset: int) -> FormatError:
    return data.unsupported(
        f"a database whose layout is not known: keys such as {key[:40]!r} are not text, and its values not images",
        offset,
        hint="write its samples as WebDataset or with shardstream's ShardWriter",
    )


def column(name: str, kind: FieldType, offsets: NDArray[Any], lengths: NDArray[Any]) -> Column:
    """A field of values that all samples have."""
    return Column(name, kind, offsets=offsets.astype(np.uint64), lengths=lengths.astype(np.uint64))


def pieces_of(entries: Iterator[Entries]) -> Iterator[Entries]:
    """The same entries, `PIECE` at a time."""
    held: list[Entries] = []
    count = 0
    for some in entries:
        held.append(some)
        count += len(some)
        while count >= PIECE:
            whole = _joined(held)
            yield whole.take(slice(0, PIECE))
            held, count = [whole.take(slice(PIECE, None))], count - PIECE
    if count:
        yield _joined(held)


def _joined(held: list[Entries]) -> Entries:
    return Entries(
        [key for one in held for key in one.keys],
        np.concatenate([one.offsets for one in held]),
        np.concatenate([one.lengths for one in held]),
        np.concatenate([one.subtrees for one in held]),
    )
