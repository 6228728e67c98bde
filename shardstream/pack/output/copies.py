"""Shards copied byte for byte from one place to another: inside a store where that can be, checked on the way else."""

from __future__ import annotations

from contextlib import suppress

from shardstream.errors import ChecksumError, StorageError
from shardstream.shards.layout import Hasher
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, Store, open_store

_PIECE = 8 << 20
_LARGEST = 5_000_000_000  # bytes that stores copy in one request


class ShardCopier:
    """Copies shards of one data set.

    Args:
        source: Where it lies.
        manifest: What it is.
        dest: Where the copies go.
    """

    def __init__(self, source: Location, manifest: Manifest, dest: Location) -> None:
        self.source = open_store(source)
        self.manifest = manifest
        self._dest = open_store(dest)
        self._inside = _common(source, dest)

    def copy(self, number: int, target: str, known: int | None = None) -> None:
        """Copy a shard, unless it is there already.

        Args:
            number: Which.
            target: Its new name.
            known: Bytes of the object that has this name already; ``None`` if there is none.

        Raises:
            ChecksumError: The shard is not what the manifest says; nothing was written.
            StorageError: It cannot be read or written.
        """
        name = self.manifest.shard_name(number)
        size = int(self.manifest.table.sizes[number])
        if known == size and self._same_end(name, target):
            return
        if self._inside is not None and size <= _LARGEST:
            store, here, there = self._inside
            with suppress(StorageError):  # no right to do so, for one: then the bytes come through here
                store.copy(here + name, there + target)
                return
        self._send(name, target, size, int(self.manifest.table.checksums[number]))

    def _same_end(self, name: str, target: str) -> bool:
        """Whether both end with the same index, which holds every value's place, and its checksum as a rule."""
        length = self.manifest.reader.tail_bytes(self.manifest.index_bytes)
        return self.source.get_tail(name, length)[0] == self._dest.get_tail(target, length)[0]

    def _send(self, name: str, target: str, size: int, checksum: int) -> None:
        hasher = Hasher()
        with self._dest.create(target) as out:
            for offset in range(0, size, _PIECE):
                piece = self.source.get(name, offset, min(_PIECE, size - offset))
                hasher.update(piece)
                out.write(piece)
            if hasher.intdigest() != checksum or self.source.size(name) != size:
                raise ChecksumError(
                    "the shard is not what the manifest says",
                    url=self.source.url,
                    shard=name,
                    hint="`shardstream verify` says what is wrong with this data set",
                )


def _common(source: Location, dest: Location) -> tuple[Store, str, str] | None:
    """The bucket that both lie in, and where in it, if both are reached in the same way; ``None`` if not."""
    here, there = source.address, dest.address
    root = here.url.removesuffix(here.prefix)
    if source.access != dest.access or here.kind not in ("s3", "azure", "gcs") or not here.prefix or not there.prefix:
        return None
    if root == here.url or root != there.url.removesuffix(there.prefix):
        return None
    return open_store(Location(root.rstrip("/"), source.access)), f"{here.prefix}/", f"{there.prefix}/"
