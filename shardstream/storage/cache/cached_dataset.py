"""``CachedDataset``: one data set's folder in one tier, in use by this process."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

import numpy as np
import xxhash

from shardstream.storage.base.counters import counters
from shardstream.storage.cache.blocks import SUFFIX, BlockFile, Described, describe, make_file
from shardstream.storage.cache.folder import Folder
from shardstream.storage.cache.ledger import LedgerEntry
from shardstream.storage.cache.locks import FileLock, lock_file
from shardstream.storage.cache.tier import ABOUT, LEASE, NoRoom, Tier

_SAFE = re.compile(r"[0-9a-f]{8,64}")
_NAME_BYTES = 120
_WAIT = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CachedDataset:
    """The folder, leased for as long as this lives.

    Make it with `CachedDataset.open`.

    Attributes:
        broken: Why nothing can be written, if nothing can. What is there can be read.
    """

    def __init__(self, tier: Tier, folder: Folder, lease: FileLock | None, broken: OSError | None) -> None:
        self.tier = tier
        self.folder = folder
        self.broken = broken
        self._lease = lease

    @classmethod
    def open(cls, tier: Tier, fingerprint: str, url: str) -> CachedDataset:
        """The place of a data set, made if there is none.

        Raises:
            UsageError: The tier's folder is not ours.
            OSError: There is none, and none can be made.
        """
        name = fingerprint if _SAFE.fullmatch(fingerprint) else xxhash.xxh3_128_hexdigest(fingerprint.encode())
        lease = None
        try:
            tier.prepare()
            folder, lease = _join(tier, name)
            os.utime(lease.descriptor)  # for `last_used`
            try:
                folder.check(ABOUT)
            except FileNotFoundError:  # on a full disk, blocks of files that are there can still be stored
                folder.write_json(ABOUT, {"url": url, "fingerprint": fingerprint})
        except OSError as error:
            with suppress(OSError):
                return cls(tier, tier.set(name), lease, error)
            raise
        return cls(tier, folder, lease, None)

    def file(self, described: Described) -> str:
        """The name of an object's file: another one for each path, size, checksum and version.

        That of one which is kept as it came is known from its path.
        """
        return _named(described.path, [described.path] if described.came else described)

    def came(self, path: str) -> BlockFile | None:
        """The file of an object that is kept as it came, all of it there and compared; ``None`` if there is none."""
        name = _named(path, [path])
        try:
            described = describe(self.folder, name)
            if described is None or described.path != path or not described.came:
                return None
            file = BlockFile(self.folder, name, described, writable=self.broken is None)
            counters().add("cache_repaired", file.verify(np.arange(described.blocks)))
        except OSError:
            return None
        return file if file.complete else None

    def remove(self, described: Described) -> None:
        """Remove an object's file, whatever it holds by now.

        Raises:
            OSError: It cannot be removed.
        """
        name = self.file(described)
        with self.tier.ledger.open() as entry:
            there = self.folder.stat(name)
            if there is not None:
                self.folder.unlink(name)
                entry.give(-there.st_size, self.tier.limit)

    def find(self, described: Described) -> BlockFile | None:
        """The object's file; ``None`` if there is none that can be used."""
        try:
            file = BlockFile(self.folder, self.file(described), described, writable=self.broken is None)
            counters().add("cache_repaired", file.compare())
        except OSError:
            return None
        return file

    def admit(self, described: Described) -> BlockFile | None:
        """The object's file, made if there is none; ``None`` where nothing can be written.

        Raises:
            NoRoom: There is no room for it.
            OSError, ValueError: It cannot be made.
        """
        if self.broken is not None:
            return None
        if not self.folder.named():
            raise FileNotFoundError(errno.ENOENT, "the data set's folder was removed", self.folder.path)
        name, tier = self.file(described), self.tier
        with tier.ledger.open() as entry:
            found = self.find(described)
            if found is not None:  # another process was faster
                return found
            need = self._take(name, described.file_size, entry)
            try:
                make_file(self.folder, name, described)  # also a damaged one, which those who have it keep as it is
            except BaseException as error:
                entry.give(-need, tier.limit)
                if isinstance(error, OSError) and error.errno in _FULL:
                    raise NoRoom(entry.used, limited=False) from error
                raise
            return BlockFile(self.folder, name, described, writable=True)

    @contextmanager
    def keeping(self, name: str, size: int) -> Iterator[int]:
        """A descriptor of a new file of the data set, which gets this name at the end of the block, see `Folder`.

        Args:
            name: Its name, which ends with `tier.KEPT`.
            size: Bytes that it will have.

        Raises:
            NoRoom: There is no room for it.
            OSError: It cannot be made.
        """
        with self.tier.ledger.open() as entry:
            need = self._take(name, size, entry)
        try:
            with self.folder.replacing(name) as descriptor:
                yield descriptor
        except BaseException:
            with self.tier.ledger.open() as entry:
                entry.give(-need, self.tier.limit)
            raise

    def _take(self, name: str, size: int, entry: LedgerEntry) -> int:
        """Take the bytes that a file of this name needs beyond the one that is there; returns how many.

        Raises:
            NoRoom: There is no room for them.
        """
        there = self.folder.stat(name)
        need = size - (0 if there is None else there.st_size)
        self.tier.take(need, self.folder, entry)
        return need


def _named(path: str, key: object) -> str:
    digest = xxhash.xxh3_64_hexdigest(json.dumps(key).encode())
    return f"{quote(path, safe='')[-_NAME_BYTES:]}.{digest}{SUFFIX}"


def _join(tier: Tier, name: str) -> tuple[Folder, FileLock]:
    for _ in range(3):
        folder = tier.set(name, make=True)
        with suppress(FileNotFoundError):  # cleared between the two steps
            lease = lock_file(folder, LEASE, shared=True, wait=_WAIT)
            if lease is not None and folder.named():
                return folder, lease
    raise OSError(errno.EAGAIN, "waited in vain for another process to clear the data set", tier.root)
