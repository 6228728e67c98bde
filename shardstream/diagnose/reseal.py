"""Checksums of manifests, after somebody has edited them by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardstream.options import takes_flat
from shardstream.shards.heads import MANIFEST_NAME, resealed
from shardstream.shards.manifest import Manifest
from shardstream.storage import PathOrUrl, open_store
from shardstream.storage.base.location import flat_transport


@takes_flat(flat_transport("url"))
def reseal(
    url: PathOrUrl,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Write the checksum of ``dataset.json`` anew, for those who have edited class names or ``meta`` by hand.

    The heads of old versions (``dataset-vN.json``) get theirs, too. What else they say is compared as ever: fields, and
    names and table of the shards, cannot be edited. Nothing is written unless all of them are sound.

    Args:
        url: Folder or URL of the data set.
        storage_options: Credentials and settings of the store by name. Default: those of the environment.

    Returns:
        Names of the files that were written: those whose checksum was missing or another. Empty if all were right.

    Raises:
        NotFoundError: There is no data set, or not all of it.
        DataError: A manifest is damaged in more than its checksum.
        StorageError: The store cannot be read or written.

    Example:
        >>> reseal("out/")
        ()
    """
    store = open_store(url, storage_options=storage_options)
    head = store.get(MANIFEST_NAME)
    new = {MANIFEST_NAME: resealed(head, url=store.url)}
    manifest = Manifest.parse(memoryview(new[MANIFEST_NAME] or head), store.get, url=store.url)
    for old in manifest.history:
        head = store.get(old.head)
        new[old.head] = resealed(head, url=store.url, name=old.head)
        Manifest.parse(memoryview(new[old.head] or head), store.get, url=store.url, old=old)
    written = {name: content for name, content in reversed(new.items()) if content is not None}
    for name, content in written.items():
        store.put(name, content)
    return tuple(written)
