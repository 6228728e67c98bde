"""``ss.merge``: several data sets become one, without their samples being looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import xxhash

from shardstream.dataset.keys.listings import keys_in, scan_once
from shardstream.dataset.numbering import Numbering
from shardstream.errors import DuplicateKeyError, UsageError
from shardstream.options import takes_flat
from shardstream.pack.options import ShardOptions, check_meta
from shardstream.pack.output.copies import ShardCopier
from shardstream.pack.output.destination import Destination, check_shards, open_destination
from shardstream.pack.output.places import StorageOptions
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.shards.growing import joined, united_meta
from shardstream.shards.index import ShardIndex
from shardstream.shards.key_table import Covers, SortedKeys
from shardstream.shards.manifest import Manifest
from shardstream.shards.table import NamedShards
from shardstream.storage import PathOrUrl
from shardstream.storage.base.location import flat_transport
from shardstream.threads import each

_AT_ONCE = 4  # shards; each holds some 50 MB on its way to a store
_SUSPECTS = 1000  # samples with repeated hashes that are looked at: the first repeated key is named, or nearly
_WINDOW = 1024  # shards whose work is handed out together


@takes_flat(flat_transport("urls", "dest", "replicas"), shards=ShardOptions, storage=StorageOptions)
def merge(
    urls: Sequence[PathOrUrl],
    dest: PathOrUrl,
    *,
    version: Sequence[int | None] | None = None,
    meta: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: OnProgress | None = None,
    shards: ShardOptions | None = None,
    storage: StorageOptions | None = None,
) -> Manifest:
    """Make one data set of several, in this order: their shards are copied byte for byte, under new names.

    They have one format, fields of equal names have equal types, and lists of class names begin alike. Keys are unique
    in what comes of it: all are compared, in bounded memory. Inside one bucket the store copies by itself; else the
    bytes come through here and are compared with their checksums. A run that was stopped goes on when it is started
    again; the result is the same to the byte.

    Args:
        urls: The data sets: folders, URLs or stores.
        dest: Folder, URL or store of the result.
        version: A version of each data set that grew, in a list; ``None`` for the newest.
        meta: Of the result. Default: the entries of all.
        overwrite: Replace another data set in ``dest``, once this one is complete.
        progress: Called with a `ProgressEvent` as shards are done.
        shards: Whether a table of the keys is written beside the shards: ``ShardOptions(key_table=...)``.
        storage: Credentials and settings of stores, a cache and replicas, as of `repack`.

    Returns:
        The manifest. If the same was complete in ``dest`` already, it is only loaded.

    Raises:
        UsageError: Nothing to merge, data of another library, another format, class names that disagree, entries of
            ``meta`` that do.
        FieldError: A field with two types.
        DuplicateKeyError: Two samples with one key; names both places.
        DestinationError: ``dest`` holds another data set, or files in the way that are not ours.
        ChecksumError: A shard is not what its data set says.
        StorageError: A store cannot be read or written.

    Example:
        >>> with ss.ShardWriter("more/") as writer:
        ...     writer.write({"__key__": "another", "jpg": jpeg_bytes, "cls": 0})
        >>> merge(["out/", "more/"], "both/").samples
        201
    """
    given: object = urls
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise UsageError("merge needs a list of data sets", hint='ss.merge(["a/", "b/"], "both/")')
    check_meta(meta or {})
    datasets, place = (storage or StorageOptions()).open(urls, dest, version=version)
    for dataset in datasets:
        if (external := dataset.manifest.external) is not None:
            raise UsageError(
                f"merging copies shards of ours, and this is {external.title}",
                url=dataset.url,
                hint="pack it first: shardstream repack",
            )
    destination = open_destination(place, shards or ShardOptions())
    copiers = [ShardCopier(dataset, destination.location) for dataset in datasets]
    names = [dataset.store.url for dataset in datasets]
    manifest = _merged([dataset.manifest for dataset in datasets], names, meta)
    if destination.old is not None and not overwrite:
        if destination.old.plan != manifest.plan:
            raise destination.refuse()
        check_shards(destination.store, destination.old)
        destination.clean(destination.old)
        return destination.old
    work = _Work(copiers, manifest, progress or ignore)
    with SortedKeys(Covers(0, manifest.samples, manifest.fingerprint)) as keys:
        work.collect_keys(keys)
        assert manifest.plan is not None
        pattern = destination.pattern(f"shard-{manifest.plan[:8]}", manifest.reader.suffix)
        manifest = replace(manifest, naming=(NamedShards(pattern, manifest.shards),))
        work.copy(destination, pattern)
        return destination.commit(destination.settle(manifest), keys=keys)


def _merged(manifests: Sequence[Manifest], names: Sequence[str], meta: Mapping[str, Any] | None) -> Manifest:
    """What comes of it, under the old names of its shards."""
    seen: dict[str, str] = {}
    for one, name in zip(manifests, names, strict=True):
        if one.fingerprint in seen:
            raise UsageError(f"{seen[one.fingerprint]} and {name} hold the same samples", hint="name one of them")
        seen[one.fingerprint] = name
    found = joined(manifests, names)
    found = replace(found, meta=united_meta(manifests, names) if meta is None else dict(meta))
    identity = {"merge": list(seen), "classes": found.classes, "meta": found.meta}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return replace(found, plan=xxhash.xxh3_128_hexdigest(text.encode()))


def _event(stage: str, shards: int, total_shards: int, done: int, total: int) -> ProgressEvent:
    copied = {} if stage == "keys" else {"bytes": done, "total_bytes": total}
    return ProgressEvent(stage, shards, total_shards, "shards", copied)


class _Work:
    """What takes time.

    Args:
        copiers: One a data set.
        manifest: What comes of it.
        tell: Progress.
    """

    def __init__(self, copiers: Sequence[ShardCopier], manifest: Manifest, tell: OnProgress) -> None:
        self._copiers = copiers
        self._total = manifest
        self._shards_of = Numbering([copier.dataset.manifest.shards for copier in copiers])
        self._tell = tell

    def _shards(self, stage: Literal["keys", "copy"]) -> Iterator[range]:
        """The numbers of all shards, some at a time; says how far it is."""
        shards, total = self._total.shards, self._total.bytes
        done = 0
        for start in range(0, shards, _WINDOW):
            window = range(start, min(start + _WINDOW, shards))
            self._tell(_event(stage, start, shards, done, total))
            yield window
            done += int(self._total.table.sizes[start : window.stop].sum(dtype=np.uint64))
        self._tell(_event(stage, shards, shards, total, total))

    def _from(self, shard: int) -> tuple[ShardCopier, int]:
        which, number = self._shards_of.find(shard)
        return self._copiers[which], number

    def _scan(self, shard: int) -> ShardIndex:
        copier, number = self._from(shard)
        return scan_once(copier.dataset, number)

    def collect_keys(self, keys: SortedKeys) -> None:
        """Read all keys, and refuse those that occur twice.

        Raises:
            DuplicateKeyError: One does.
        """
        for window in self._shards("keys"):
            for part in keys_in(self._total, self._scan, window):
                keys.add(*part)
        suspects: list[int] = []
        for hashes, numbers in keys.parts():
            again = np.flatnonzero(hashes[1:] == hashes[:-1])[:_SUSPECTS]
            suspects += numbers[np.union1d(again, again + 1)].tolist()
            if len(suspects) >= _SUSPECTS:  # of two data sets that share many keys, all would not fit in memory
                break
        self._compare(sorted(suspects))

    def _compare(self, suspects: Sequence[int]) -> None:
        """Refuse the first of these samples whose key an earlier one of them has."""
        samples = Numbering(self._total.table.samples)
        places: dict[str, tuple[str, int]] = {}
        index, opened = None, -1
        for shard, row in map(samples.find, suspects):
            if index is None or shard != opened:
                index, opened = self._scan(shard), shard
            key = index.keys[row]
            if key in places:
                where, first = places[key]
                raise DuplicateKeyError(
                    f"sample {first} of {where} has the same key",
                    url=index.url,
                    shard=index.path,
                    sample=row,
                    key=key,
                    hint="keys are unique in a data set: pack one of the two with other keys",
                )
            places[key] = (f"{index.url}/{index.path}", row)

    def copy(self, destination: Destination, pattern: str) -> None:
        """Copy all shards."""
        there = {found.path: found.size for found in destination.store.list(pattern.partition("{")[0])}

        def copy(shard: int) -> None:
            copier, number = self._from(shard)
            target = pattern.format(shard)
            copier.copy(number, target, there.get(target))

        for window in self._shards("copy"):
            what = f"one of the shards {window.start} to {window.stop - 1} to be copied to {destination.store.url}"
            for _ in each(copy, window, at_once=_AT_ONCE, what=what):
                pass
