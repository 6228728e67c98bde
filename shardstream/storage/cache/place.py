"""``Place``: one data set's folder in one tier, in use by this process."""

from __future__ import annotations

import errno
import json
import os
import re
from contextlib import suppress
from urllib.parse import quote

import xxhash

from shardstream.storage.cache.blocks import SUFFIX, BlockFile, Described, make_file
from shardstream.storage.cache.locks import Held, lock_file
from shardstream.storage.cache.tier import ABOUT, LEASE, Tier, new_name, write_json

_SAFE = re.compile(r"[0-9a-f]{8,64}")
_NAME_BYTES = 120
_WAIT = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NoRoom(Exception):
    """An object has no room in a tier.

    Args:
        bound: Bytes that may be given out there.
        limited: Whether that is the user's limit, rather than what the file system has.
    """

    def __init__(self, bound: int, *, limited: bool) -> None:
        super().__init__(bound)
        self.bound = bound
        self.limited = limited


class Place:
    """The folder, leased for as long as this lives.

    Make it with `Place.open`.

    Attributes:
        broken: Why nothing can be written, if nothing can. What is there can be read.
    """

    def __init__(self, tier: Tier, folder: str) -> None:
        self.tier = tier
        self.folder = folder
        self.broken: OSError | None = None
        self._lease: Held | None = None

    @classmethod
    def open(cls, tier: Tier, fingerprint: str, url: str) -> Place:
        """The place of a data set, made if there is none.

        Raises:
            UsageError: The tier's folder is not ours.
            OSError: There is none, and none can be made.
        """
        name = fingerprint if _SAFE.fullmatch(fingerprint) else xxhash.xxh3_128_hexdigest(fingerprint.encode())
        place = cls(tier, os.path.join(tier.sets, name))
        try:
            tier.prepare()
            place._lease = place._join()
            os.utime(place._lease.descriptor)  # for `last_used`
            about = os.path.join(place.folder, ABOUT)
            if not os.path.exists(about):  # on a full disk, blocks of files that are there can still be stored
                write_json(about, {"url": url, "fingerprint": fingerprint})
        except OSError as error:
            if not os.path.isdir(place.folder):
                raise
            place.broken = error
        return place

    def _join(self) -> Held:
        for _ in range(3):
            os.makedirs(self.folder, exist_ok=True)
            with suppress(FileNotFoundError):  # cleared between the two steps
                held = lock_file(os.path.join(self.folder, LEASE), shared=True, wait=_WAIT)
                if held is not None:
                    return held
        raise OSError(errno.EAGAIN, "waited in vain for another process to clear the data set", self.folder)

    def file(self, described: Described) -> str:
        """The file of an object: another one for each path, size, checksum and version."""
        name = quote(described.path, safe="")
        key = xxhash.xxh3_64_hexdigest(json.dumps(described).encode())
        return os.path.join(self.folder, f"{name[-_NAME_BYTES:]}.{key}{SUFFIX}")

    def find(self, described: Described) -> BlockFile | None:
        """The object's file; ``None`` if there is none that can be used."""
        path = self.file(described)
        try:
            return BlockFile(path, described, writable=self.broken is None and os.access(path, os.W_OK))
        except OSError:
            return None

    def admit(self, described: Described) -> BlockFile | None:
        """The object's file, made if there is none; ``None`` where nothing can be written.

        Raises:
            NoRoom: There is no room for it.
            OSError, ValueError: It cannot be made.
        """
        if self.broken is not None:
            return None
        path, tier = self.file(described), self.tier
        with tier.ledger.open() as book:
            found = self.find(described)
            if found is not None:  # another process was faster
                return found
            need = described.file_size - _size(path)
            if not tier.make_room(need, self.folder, book):
                raise NoRoom(tier.bound(book), limited=tier.limited(need, book))
            book.give(need, tier.limit)
            new = new_name(self.folder)
            try:
                make_file(new, described)
                os.replace(new, path)  # also a damaged one, which those who have mapped it keep as it is
            except BaseException as error:
                with suppress(OSError):
                    os.unlink(new)
                book.give(-need, tier.limit)
                if isinstance(error, OSError) and error.errno in _FULL:
                    raise NoRoom(book.used, limited=False) from error
                raise
            return BlockFile(path, described, writable=True)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0
