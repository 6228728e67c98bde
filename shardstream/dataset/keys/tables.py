"""The key tables in a data set: one of its samples and, where these are bins, one of the documents in them."""

from __future__ import annotations

from functools import partial

from shardstream.dataset.keys.listings import SAMPLE_KEYS, KeyListing, listings_of
from shardstream.dataset.opened import OpenedDataset
from shardstream.errors import ChangedError, DataError, FormatError, NotFoundError
from shardstream.shards.key_table import TAIL_BYTES, Covers, KeyTable, SortedKeys, key_table_name, table_bytes
from shardstream.shards.manifest import Manifest
from shardstream.storage import Store
from shardstream.storage.base.verified import settled

_FEW = 8  # a new table takes in an older one that has at most so many times its entries


def put_key_tables(dataset: OpenedDataset, old: Manifest | None = None, *, samples: SortedKeys | None = None) -> None:
    """Write the key tables of a data set that is about to be published. Reads the indexes of its shards, or more.

    Args:
        dataset: As it will be.
        old: The version that it grew from. A table is then one of what is new, and of what small tables before it have;
            where the old version has no sound table, there is none.
        samples: The keys of all samples, where they are known already.

    Raises:
        StorageError: The store cannot be read or written.
        DataError: A shard is damaged.
    """
    for listing in listings_of(dataset.manifest):
        if samples is not None and listing is SAMPLE_KEYS:
            _write(dataset, listing, samples)
        else:
            _put(dataset, listing, old)


def _put(dataset: OpenedDataset, listing: KeyListing, old: Manifest | None) -> None:
    manifest = dataset.manifest
    covers = all_of(listing, manifest)
    taken: list[KeyTable] = []
    if old is not None:
        try:
            levels = stored_tables(dataset.store, old, listing)
        except (NotFoundError, DataError):
            return
        covers = covers._replace(start=all_of(listing, old).stop, below=old.fingerprint)
        while levels and _entries(levels[-1].covers) <= _FEW * _entries(covers):
            taken.insert(0, levels.pop())
            covers = covers._replace(start=taken[0].covers.start, below=taken[0].covers.below)
    with SortedKeys(covers) as keys:
        for table in taken:
            for part in table.entries():
                keys.add(*part)
        add_keys(keys, dataset, listing, range(0 if old is None else old.shards, manifest.shards))
        _write(dataset, listing, keys)


def _write(dataset: OpenedDataset, listing: KeyListing, keys: SortedKeys) -> None:
    fingerprint = dataset.manifest.fingerprint
    keys.covers = keys.covers._replace(fingerprint=fingerprint)
    with dataset.store.create(key_table_name(fingerprint, listing.name)) as out:
        for piece in table_bytes(keys):
            out.write(piece)


def all_of(listing: KeyListing, manifest: Manifest) -> Covers:
    """What the table of a whole data set is about."""
    count = listing.count(manifest)
    assert count is not None, "old versions alone may not know it"
    return Covers(0, count, manifest.fingerprint)


def add_keys(keys: SortedKeys, dataset: OpenedDataset, listing: KeyListing, shards: range) -> None:
    """Add the keys of some shards, the last ones that a table has.

    Raises:
        FormatError: The data set has more of them than its manifest says, or fewer.
        DataError, StorageError: A shard cannot be read.
    """
    for part in listing.read(dataset, shards):
        if keys.lacks < len(part[0]):
            break
        keys.add(*part)
    else:
        if not keys.lacks:
            return
    raise FormatError(
        f"the shards have other {listing.name} than the manifest counts",
        url=dataset.url,
        hint="restore the data set's files from their source",
    )


def stored_tables(store: Store, manifest: Manifest, listing: KeyListing = SAMPLE_KEYS) -> list[KeyTable]:
    """The tables of a version of a data set, that of what is oldest first. Each takes a request.

    Raises:
        NotFoundError: It has none.
        DataError: One is damaged, or of another data set.
        StorageError: It cannot be read.
    """
    found: list[KeyTable] = []
    fingerprint, stop = manifest.fingerprint, listing.count(manifest)
    while fingerprint:
        name = key_table_name(fingerprint, listing.name)
        tail, size = store.get_tail(name, TAIL_BYTES)
        numbers = None if listing is SAMPLE_KEYS else range(manifest.samples)
        table = KeyTable.parse(tail, size, partial(_read, store, name), url=store.locate(name), numbers=numbers)
        start, end, own, below = table.covers
        if (end, own) != (stop, fingerprint) or (start > 0) != bool(below) or start > end:
            raise FormatError("the key table is not one of this data set", url=store.locate(name), hint="remove it")
        if below and start == end:
            raise FormatError("the key table has no entries", url=store.locate(name), hint="remove it")
        found.insert(0, table)
        fingerprint, stop = below, start
    return found


def _read(store: Store, name: str, offset: int, length: int) -> tuple[memoryview, bool]:
    try:
        return settled(store.get(name, offset, length), mapped=store.mapped)
    except ChangedError as error:
        raise error.at(url=store.locate(name)) from None


def _entries(covers: Covers) -> int:
    return covers.stop - covers.start
