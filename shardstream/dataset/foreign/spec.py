"""``ForeignSpec``: which objects a user means, and how they are to be read."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import xxhash

from shardstream.errors import NotFoundError
from shardstream.shards.catalogue import OURS
from shardstream.storage import Store
from shardstream.storage.base.store import ObjectMeta

_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class ForeignSpec:
    """What of a root is meant.

    Attributes:
        names: Names of objects below the root, or globs of them, in order; empty for all objects.
        source: Name of the format; ``None`` to recognise it.
        options: Of reading it: names and values; ``None`` for those that a catalogue was made with.
    """

    names: tuple[str, ...] = ()
    source: str | None = None
    options: tuple[tuple[str, str], ...] | None = None

    @classmethod
    def of(cls, names: tuple[str, ...], source: str | None, options: Mapping[str, str] | None) -> ForeignSpec:
        """The same, of options as users write them."""
        return cls(names, source, None if options is None else tuple(sorted(options.items())))

    def digest(self, url: str) -> str:
        """Of the place and the objects, as 32 hexadecimal digits: a catalogue is kept under it."""
        return xxhash.xxh3_128_hexdigest(json.dumps([url, list(self.names)]).encode())

    def objects(self, store: Store) -> list[ObjectMeta]:
        """The objects that are meant, those of our own catalogue left out.

        Raises:
            NotFoundError: One that is named is not there, or a glob matches none.
            StorageError: The store cannot be read.
        """
        if not self.names:
            return [one for one in store.list() if not OURS.fullmatch(one.path)]
        found = [meta for name in self.names for meta in _named(store, name)]
        return list({meta.path: meta for meta in found}.values())


def _named(store: Store, name: str) -> Iterator[ObjectMeta]:
    if not _GLOB & set(name):
        try:
            yield store.meta(name)
        except NotFoundError as error:
            raise NotFoundError(
                "there is no such file",
                url=store.locate(name),
                hint="write the name of a folder, or of files that are there",
            ) from error
        return
    prefix = name[: min(name.find(one) for one in _GLOB if one in name)]
    matching = [one for one in store.list(prefix) if fnmatch.fnmatchcase(one.path, name)]
    if not matching:
        raise NotFoundError("no file matches", url=store.locate(name), hint="write a pattern of files that are there")
    yield from matching
