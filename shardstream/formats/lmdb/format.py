"""``LmdbFormat``: which objects are LMDB databases, and which layout one has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from shardstream.formats.contract import Form, ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.lmdb.datum import datum_array, read_datum, scan_datums
from shardstream.formats.lmdb.fields import MSGPACK, PICKLE, Encoding
from shardstream.formats.lmdb.files import KeyNames, kind_of, samples, scan_bytes, scan_files, unnamed
from shardstream.formats.lmdb.forms import packed_array, pickled_array, pickled_bytes, pickled_json
from shardstream.formats.lmdb.numbered import COUNT, scan_numbered
from shardstream.formats.lmdb.packed import read_packed
from shardstream.formats.lmdb.pages import MAGIC, Entries, Pages, Tree
from shardstream.formats.lmdb.pickled import is_pickle
from shardstream.formats.lmdb.serialised import (
    check_length,
    encoding_of,
    in_order,
    listed_classes,
    listed_keys,
    scan_serialised,
)
from shardstream.formats.lmdb.values import NotUnderstood
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows, usable_key

_FILE, _LIST = "data.mdb", "meta_info.txt"
_ENDINGS = (".mdb", ".lmdb")
_LINE = re.compile(rb"[^\n]*\S[^\n]*")


class LmdbFormat(SourceFormat):
    """LMDB databases, folders with ``data.mdb`` or files, in the layouts that data sets are written in."""

    name: ClassVar[str] = "lmdb"
    title: ClassVar[str] = "an LMDB database"
    options: ClassVar[Mapping[str, str]] = {"db": "the named database to read; empty for what has no name"}
    window: ClassVar[int] = 16 << 10
    forms: ClassVar[Mapping[str, Form]] = {
        "datum": datum_array,
        "msgpack-array": packed_array,
        "pickle-array": pickled_array,
        "pickle-bytes": pickled_bytes,
        "pickle-json": pickled_json,
    }

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        found = [one for one in listing.objects if _is_database(listing, one.path, alone=len(listing.objects) == 1)]
        if not found:
            return None
        objects, classes = [], None
        for one in found:
            about: dict[str, Any] = {name: options[name] for name in ("db",) if name in options}
            if len(found) > 1:
                about["prefix"] = _prefix(one.path)
            listed = _listed(listing, one.path)
            if listed is not None:
                about["listed"] = listed
            objects.append(SourceObject(one.path, one.size, about))
            if len(objects) == 1:
                pages = Pages(ObjectBytes(listing.store, one.path, one.size, window=self.window))
                classes = listed_classes(pages, _tree(pages, about))
        return Recognized(tuple(objects), classes)

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        pages = Pages(data)
        count = 0
        for rows in _Layout(pages, _tree(pages, about), about).scan():
            count += len(rows.keys)
            yield rows
        if count != about.get("listed", count):
            raise data.damaged(
                f"{_LIST} beside it lists {about['listed']} images, and there are {count}",
                0,
                hint=f"fetch both again, or delete {_LIST}",
            )


class _Layout:
    """How samples are written in a database, as its keys and first values tell.

    Args:
        pages: The file.
        tree: The database.
        about: Of its `SourceObject`.
    """

    def __init__(self, pages: Pages, tree: Tree, about: Mapping[str, Any]) -> None:
        self._pages = pages
        self._tree = tree
        self._prefix = str(about.get("prefix", ""))
        self._skip_named = "db" in about

    def scan(self) -> Iterator[ScannedRows]:
        pages, tree = self._pages, self._tree
        if pages.find(tree, COUNT) is not None:
            yield from scan_numbered(pages, tree, self._prefix)
            return
        source = self._source()
        first = next((some for some in source() if len(some)), None)
        count = 0
        if first is not None:
            names = KeyNames(pages.data, tree, first.keys[0], self._prefix)
            for rows in self._scan(source, first, names):
                count += len(rows.keys)
                yield rows
        check_length(pages, tree, count)

    def _source(self) -> Callable[[], Iterator[Entries]]:
        """Gives the entries of samples in order."""
        listed = listed_keys(self._pages, self._tree)
        if listed is None:
            return lambda: samples(self._pages, self._tree, skip_named=self._skip_named)
        return in_order(self._pages, self._tree, listed)

    def _scan(self, source: Callable[[], Iterator[Entries]], first: Entries, names: KeyNames) -> Iterator[ScannedRows]:
        data = self._pages.data
        image = kind_of(data, first)
        if image is not None:
            return scan_files(self._pages, source(), names, *image)
        if self._is_datum(first):
            return scan_datums(data, source(), names)
        encoding = self._encoding(first)
        if encoding is not None:
            return scan_serialised(data, source, names, encoding)
        return scan_bytes(self._pages, source(), names)

    def _value(self, first: Entries) -> tuple[int, int]:
        return int(first.offsets[0]), int(first.lengths[0])

    def _is_datum(self, first: Entries) -> bool:
        value = self._pages.data.get(*self._value(first))
        try:
            return len(value) > 0 and bool(read_datum(value))
        except NotUnderstood:
            return False

    def _encoding(self, first: Entries) -> Encoding | None:
        """How the first sample is written, where it is a pickle, or msgpack with names; any, where ``__keys__`` is."""
        data, (offset, length) = self._pages.data, self._value(first)
        if any(self._pages.find(self._tree, key) is not None for key in (b"__keys__", b"__len__")):
            return encoding_of(data, first.keys[0], offset, length)
        value = data.get(offset, length)
        if is_pickle(value[:2], value[-1:]):
            return PICKLE
        try:
            found = read_packed(value)
        except NotUnderstood:
            return None
        return MSGPACK if isinstance(found, dict) and found else None


def _is_database(listing: ObjectListing, path: str, *, alone: bool) -> bool:
    base = path.rpartition("/")[2].lower()
    named = base.endswith(_ENDINGS) and not base.startswith("lock.")
    if not named and not alone:
        return False
    start = listing.start(path, 20)
    if start[16:20] == MAGIC:
        return True
    # What else is called *.mdb may be of another program; data.mdb of another machine is told so.
    return base == _FILE or MAGIC[::-1] in (start[16:20], start[12:16]) or (named and start[12:16] == MAGIC)


def _prefix(path: str) -> str:
    """What tells keys of one database among others: its folder, or its name."""
    folder, _, base = path.rpartition("/")
    own = folder if base == _FILE else "/".join(filter(None, [folder, base.rpartition(".")[0] or base]))
    key = usable_key(own)
    return f"{key}/" if key else ""


def _listed(listing: ObjectListing, path: str) -> int | None:
    """Lines of BasicSR's list beside a database."""
    folder, slash, base = path.rpartition("/")
    beside = f"{folder}{slash}{_LIST}"
    if base != _FILE or beside not in listing:
        return None
    return sum(1 for _ in _LINE.finditer(listing.read(beside)))


def _tree(pages: Pages, about: Mapping[str, Any]) -> Tree:
    """The database to read.

    Raises:
        FormatError: There are named ones, and it is not said which is meant; or none of that name.
    """
    name = about.get("db")
    if name:
        return pages.named(str(name))
    if name is None:
        first = next(pages.entries(pages.main), None)
        if first is not None and first.subtrees.any():
            raise unnamed(pages)
    return pages.main
