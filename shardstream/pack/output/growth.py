"""Appending: new shards beside those of a data set, published as its next version in one step."""

from __future__ import annotations

from shardstream.dataset.keys.tables import put_key_tables
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.errors import DestinationError
from shardstream.pack.output.destination import Destination, belongs, check_shards, is_ours
from shardstream.shards.growing import grown
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.shards.key_table import KEY_TABLE_NAME, TABLE_NAMES
from shardstream.shards.manifest import Manifest
from shardstream.storage import open_store


def leftovers(destination: Destination, pattern: str) -> tuple[str, ...]:
    """What an append that died has left: key tables, and what has names of the new shards. No other shard is looked at.

    Args:
        destination: With a data set, opened with ``append=True``.
        pattern: Of the new shards; the data set has none of this pattern. What begins like it is listed.

    Raises:
        DestinationError: One of them is not ours.
    """
    assert destination.old is not None
    found_tables = (one.path for of in TABLE_NAMES for one in destination.store.list(f"{of}-"))
    tables = (name for name in found_tables if KEY_TABLE_NAME.fullmatch(name))
    found = (*destination.of_pattern(pattern), *tables)
    names = tuple(name for name in found if not belongs(name, destination.old))
    for name in names:
        if not is_ours(destination.store, name):
            raise DestinationError(
                f"the folder holds {name}, which is called like a new shard but was not written by shardstream",
                url=destination.store.url,
                hint="move it away",
            )
    return names


def append(destination: Destination, new: Manifest, left: tuple[str, ...] = ()) -> Manifest:
    """Publish new shards as the next version of the data set in ``destination``; the version before stays readable.

    Costs requests for the new shards only, and writing the table. Until its last step nobody sees anything of it, and
    whenever it stops, doing it again completes it.

    Args:
        destination: With a data set, opened with ``append=True``.
        new: The shards that were written.
        left: From `leftovers`; those that are not of the next version are removed.

    Raises:
        UsageError, FieldError: The new shards do not go with the old ones, see `grown`.
        DestinationError: Somebody else has changed the data set meanwhile.
        StorageError: A shard is not as it was written, or the store cannot be written.
    """
    store, old = destination.store, destination.old
    assert old is not None
    manifest = grown(old, new)
    check_shards(store, new, again="append again")
    if destination.location.local:
        store = open_store(destination.location)  # which has nothing mapped
    head = bytes(store.get(MANIFEST_NAME))
    now = Manifest.parse(memoryview(head), lambda name: store.get(name), url=store.url)
    if (now.version, now.fingerprint) != (old.version, old.fingerprint):
        raise DestinationError(
            f"the data set was changed while this was written: it was version {old.version} of {old.samples} samples, "
            f"and is version {now.version} of {now.samples}",
            url=store.url,
            hint="append again; one writer at a time",
        )
    if destination.key_table:
        put_key_tables(OpenedDataset(DatasetAddress(destination.location), manifest), old)
    store.put(now.as_old.head, head)
    manifest.save(store)
    for name in left:
        if not belongs(name, manifest):
            store.delete(name)
    return Manifest.read(store)
