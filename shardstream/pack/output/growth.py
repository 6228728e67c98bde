"""Appending: new shards beside those of a data set, published as its next version in one step."""

from __future__ import annotations

import re
from itertools import count

from shardstream.dataset.key_tables import put_key_table
from shardstream.errors import DestinationError, StorageError
from shardstream.pack.output.destination import Destination, belongs, is_ours
from shardstream.shards.growing import grown
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.shards.key_table import KEY_TABLE_NAME
from shardstream.shards.manifest import Manifest
from shardstream.storage import Store, open_store
from shardstream.threads import each

_AT_ONCE = 16  # requests to a remote store


def append_pattern(destination: Destination, suffix: str) -> str:
    """A name pattern for new shards of a `ShardWriter`: one whose beginning no shard that is there has."""
    assert destination.old is not None
    used = {run.pattern for run in destination.old.naming}
    patterns = (f"shard-r{number}-{{:06d}}{suffix}" for number in count(destination.old.version))
    return next(pattern for pattern in patterns if pattern not in used)


def leftovers(destination: Destination, pattern: str) -> tuple[str, ...]:
    """What an append that died has left: key tables, and what has names of the new shards. No other shard is looked at.

    Args:
        destination: With a data set, opened with ``append=True``.
        pattern: Of the new shards; the data set has none of this pattern. What begins like it is listed.

    Raises:
        DestinationError: One of them is not ours.
    """
    assert destination.old is not None
    start, _, end = pattern.partition("{:06d}")
    numbered = re.compile(re.escape(start) + r"\d{6,}" + re.escape(end))
    found = [one.path for prefix in (start, "keys-") for one in destination.store.list(prefix)]
    named = [name for name in found if numbered.fullmatch(name) or KEY_TABLE_NAME.fullmatch(name)]
    names = [name for name in named if not belongs(name, destination.old)]
    for name in names:
        if not is_ours(destination.store, name):
            raise DestinationError(
                f"the folder holds {name}, which is called like a new shard but was not written by shardstream",
                url=destination.store.url,
                hint="move it away",
            )
    return tuple(names)


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
    _check_sizes(store, new, at_once=1 if destination.location.local else _AT_ONCE)
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
        put_key_table(open_store(destination.location), manifest, old)
    store.put(now.as_old.head, head)
    manifest.save(store)
    for name in left:
        if not belongs(name, manifest):
            store.delete(name)
    return Manifest.read(store)


def _check_sizes(store: Store, manifest: Manifest, *, at_once: int) -> None:
    names = (manifest.shard_name(i) for i in range(manifest.shards))
    what = f"the size of a shard in {store.url}"
    for i, size in enumerate(each(store.size, names, at_once=at_once, what=what)):
        expected = int(manifest.table.sizes[i])
        if size != expected:
            raise StorageError(
                f"the shard is of {size} bytes, not {expected}",
                url=store.url,
                shard=manifest.shard_name(i),
                hint="does another run write into this folder? append again",
            )
