"""Shards copied byte for byte from one place to another: inside a store where that can be, checked on the way else."""

from __future__ import annotations

from contextlib import suppress

from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.shard import Shard
from shardstream.errors import ChecksumError, NotFoundError, StorageError
from shardstream.shards.layout import Hasher
from shardstream.storage import Location, Store, open_store

_PIECE = 8 << 20
_LARGEST = 5_000_000_000  # bytes that stores copy in one request


class ShardCopier:
    """Copies shards of one data set.

    Args:
        dataset: The data set.
        dest: Where the copies go.
    """

    def __init__(self, dataset: OpenedDataset, dest: Location) -> None:
        self.dataset = dataset
        self._dest = open_store(dest)
        self._inside = _common(dataset.location, dest)

    def copy(self, number: int, target: str, known: int | None = None) -> None:
        """Copy a shard, unless it is there already.

        Args:
            number: Which.
            target: Its new name.
            known: Bytes of the object that has this name already; ``None`` if there is none.

        Raises:
            ChecksumError: The shard is not what the manifest says, wherever it lies; nothing was written.
            StorageError: It cannot be read or written.
        """
        shard = self.dataset.shard(number)
        if known == shard.size and self._same_end(shard, target):
            return
        if self._inside is not None and shard.size <= _LARGEST:
            store, here, there = self._inside
            with suppress(StorageError):  # no right to do so, for one: then the bytes come through here
                store.copy(here + self.dataset.manifest.shard_name(number), there + target)
                return
        self._send(number, shard, target)

    def _same_end(self, shard: Shard, target: str) -> bool:
        """Whether both end with the same index, which holds every value's place, and its checksum as a rule."""
        manifest = self.dataset.manifest
        length = manifest.reader.tail_bytes(manifest.index_bytes)
        return shard.store.get_tail(shard.name, length)[0] == self._dest.get_tail(target, length)[0]

    def _send(self, number: int, shard: Shard, target: str) -> None:
        """From the nearest place where it is whole; what a cache held of it and was damaged comes anew."""
        while True:
            try:
                self._send_from(shard, int(self.dataset.manifest.table.checksums[number]), target)
            except (ChecksumError, NotFoundError) as error:
                if shard.store.repair(shard.name, 0, shard.size):
                    continue
                other = self.dataset.open_elsewhere(number, shard, error)
                if other is None:
                    raise
                shard = other.shard
            else:
                return

    def _send_from(self, shard: Shard, checksum: int, target: str) -> None:
        hasher, size = Hasher(), 0
        with self._dest.create(target) as out:
            for piece in shard.store.pieces(shard.name, _PIECE):
                hasher.update(piece)
                out.write(piece)
                size += len(piece)
            if hasher.intdigest() != checksum or size != shard.size:
                raise ChecksumError(
                    "the shard is not what the manifest says",
                    url=shard.store.url,
                    shard=shard.name,
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
