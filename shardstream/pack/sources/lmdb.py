"""LMDB databases of encoded images, as LSUN and many others come: a key and a file each.

What a value is, its content says: ``jpg``, ``png``, ``webp``, or else ``bin``. Nothing is unpickled. Keys are held as
one blob of bytes; workers open the database themselves, read-only and without its lock, which a finished one needs not.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from shardstream.errors import SourceError, UsageError
from shardstream.extras import require
from shardstream.images.formats import format_of, refused
from shardstream.pack.sources.base import Item, Reject, Source, SourcePart
from shardstream.pack.sources.duplicates import check_unique
from shardstream.pack.sources.keys import check_mode, key_of_name
from shardstream.pack.sources.missing import instead_of
from shardstream.shards.index import check_key
from shardstream.text import valid_unicode

_FILE = "data.mdb"
_OTHER = "bin"
_PURPOSE = "to read LMDB databases"
# A meta page of LMDB's mdb.c with 64-bit words: magic, bytes a page (in its first MDB_db), last page, transaction.
_META = struct.Struct("@16xI20xI92xQQ")
_MAGIC = 0xBEEFC0DE


def is_lmdb(path: str) -> bool:
    """Whether a local path is an LMDB database: a folder with ``data.mdb``, or a file called so."""
    if os.path.isdir(path):
        return os.path.isfile(os.path.join(path, _FILE))
    return path.endswith((".mdb", ".lmdb")) and os.path.isfile(path)


@dataclass(frozen=True, slots=True)
class LmdbPart(SourcePart):
    """Some entries of a database, by their keys."""

    path: str
    mode: str
    numbers: NDArray[np.int64]
    keys: tuple[bytes, ...]

    def __iter__(self) -> Iterator[Item | Reject]:
        with _environment(self.path).begin(buffers=True) as transaction:
            for number, key in zip(self.numbers.tolist(), self.keys, strict=True):
                data = transaction.get(key)
                if data is None:
                    raise SourceError(
                        "the database changed while it was being packed", url=self.path, hint="pack it again"
                    )
                yield _item(self.mode, number, key, bytes(data))


def _item(mode: str, number: int, key: bytes, data: bytes) -> Item | Reject:
    name = _name(key)
    if not data:
        return Reject(number + 1, name, "the value is empty")
    found = format_of(data)
    never = refused(data) if found is None else None
    if never is not None:
        return Reject(number + 1, name, never)
    field = _OTHER if found is None else found.kind
    return Item(number + 1, name, _key(mode, number, name), {field: data})


def _name(key: bytes) -> str:
    return valid_unicode(key.decode("utf-8", "surrogateescape"))


def _key(mode: str, number: int, name: str) -> str:
    return key_of_name(mode, os.path.splitext(name)[0], number + 1)


class LmdbSource(Source):
    """The entries of a database, in the order of their keys.

    Args:
        path: The database, local.
        key: ``"path"`` for its own keys without an extension, ``"stem"`` for their last parts, ``"line"``, or
            ``"auto"``: as ``"path"``, equal ones numbered.

    Raises:
        SourceError: It cannot be read, or is empty.
        UsageError: ``key`` names a column, or a key of the database cannot be one here.
        MissingExtraError: The package lmdb is not installed.
    """

    lendable = True

    def __init__(self, path: str, *, key: str = "path") -> None:
        check_mode(key, "a database has no columns")
        self.url = path
        self._path = os.path.abspath(path)
        self._mode = key
        self._blob, self._ends = self._listed()
        if not len(self._ends):
            raise SourceError("the database is empty", url=path, hint="name a database that holds samples")
        if key != "line":
            self.numbering = check_unique(
                self._keys,
                len(self),
                named=lambda number: _name(self._raw(number)),
                url=path,
                hint="--key auto (key='auto') numbers equal keys; or choose other keys: --key path, stem or line",
                number=key == "auto",
            )

    def _listed(self) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        """All keys end to end, and where each ends."""
        blob, ends = bytearray(), array("Q")
        try:
            with _environment(self._path).begin(buffers=True) as transaction:
                for key in transaction.cursor().iternext(keys=True, values=False):
                    blob += key
                    ends.append(len(blob))
        except require("lmdb", extra="lmdb", purpose=_PURPOSE).Error as error:
            raise SourceError(
                f"the database cannot be read: {error}", url=self.url, hint=instead_of(self.url)
            ) from error
        return np.frombuffer(blob, np.uint8), np.frombuffer(ends, np.uint64)

    def _raw(self, number: int) -> bytes:
        return self._blob[int(self._ends[number - 1]) if number else 0 : int(self._ends[number])].tobytes()

    def _keys(self) -> Iterator[str]:
        for number in range(len(self)):
            try:
                yield check_key(_key(self._mode, number, _name(self._raw(number))))
            except UsageError as error:
                raise error.at(url=self.url) from None

    def __len__(self) -> int:
        return len(self._ends)

    def part(self, numbers: NDArray[np.int64]) -> LmdbPart:
        return LmdbPart(self._path, self._mode, numbers, tuple(map(self._raw, numbers.tolist())))

    @property
    def fingerprint(self) -> str:
        """By its keys, and the number of the last transaction that changed it."""
        hasher = xxhash.xxh3_128(b"lmdb\n")
        hasher.update(self._blob.data)
        hasher.update(self._ends.data.cast("B"))
        hasher.update(str(_environment(self._path).info()["last_txnid"]).encode())
        return hasher.hexdigest()


@lru_cache(maxsize=1)
def _environment(path: str) -> Any:
    lmdb = require("lmdb", extra="lmdb", purpose=_PURPOSE)
    folder = os.path.isdir(path)
    _check_whole(os.path.join(path, _FILE) if folder else path)
    return lmdb.open(path, subdir=folder, readonly=True, lock=False, readahead=False, create=False, max_dbs=0)


def _check_whole(path: str) -> None:
    """Refuse a file that ends before its last page: LMDB maps it, and to touch what is not there kills the process.

    Raises:
        SourceError: It is cut off, or too short to be a database.
    """
    try:
        opened = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise SourceError(f"the database cannot be read: {error.strerror}", url=path, hint=instead_of(path)) from error
    with opened as file:
        size = os.fstat(file.fileno()).st_size
        metas: list[_Meta] = []
        while len(metas) < 2:  # the first two pages; the last transaction is in either
            file.seek(metas[0].page if metas else 0)
            head = file.read(_META.size)
            if len(head) < _META.size:
                raise SourceError(
                    f"{size} bytes cannot be an LMDB database", url=path, hint="copy it again from its source"
                )
            magic, *found = _META.unpack(head)
            if magic != _MAGIC:  # another byte order or word size, or none at all: lmdb says so itself
                return
            metas.append(_Meta(*found))
    newest = max(metas, key=lambda meta: meta.transaction)
    whole = (newest.last + 1) * newest.page
    if size < whole:
        raise SourceError(
            f"the database ends at byte {size} of {whole}",
            url=path,
            hint="it is cut off: copy it again from its source",
        )


class _Meta(NamedTuple):
    """What a meta page says.

    Attributes:
        page: Bytes of a page.
        last: Number of the last page in use.
        transaction: Number of the transaction that wrote it.
    """

    page: int
    last: int
    transaction: int
