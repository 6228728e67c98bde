"""``ForeignSpec``: which objects a user means, and how they are to be read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import xxhash

from shardstream.errors import NotFoundError
from shardstream.formats.catalog.catalog import OURS, Catalogue, Reading
from shardstream.formats.contract import ObjectListing
from shardstream.names.globs import Glob
from shardstream.names.strays import Strays
from shardstream.storage import Store
from shardstream.storage.base.store import ObjectMeta
from shardstream.threads import each

GLOB = frozenset("*?[")
_AT_ONCE = 32  # names that are asked for

SCANS = 2
"""Version of what scans find in unchanged files. Raising it (a format was fixed) has kept catalogs made again."""


@dataclass(frozen=True, slots=True)
class ForeignSpec:
    """What of a root is meant.

    Attributes:
        names: Names of objects below the root, or globs of them, in order; empty for all objects.
        source: Name of the format; ``None`` to recognise it.
        options: Of reading it: names and values; ``None`` for those of the catalogue.
        chosen: Fields to read, as pairs of `Reading.chosen`; empty for all, ``None`` for those of the catalogue.
    """

    names: tuple[str, ...] = ()
    source: str | None = None
    options: tuple[tuple[str, str], ...] | None = None
    chosen: tuple[tuple[str, str], ...] | None = None

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        source: str | None,
        options: Mapping[str, str] | None,
        chosen: Mapping[str, str] | None = None,
    ) -> ForeignSpec:
        """The same, of options and fields as users write them."""
        pairs = None if options is None else tuple(sorted(options.items()))
        return cls(names, source, pairs, None if chosen is None else tuple(chosen.items()))

    @property
    def asks(self) -> bool:
        """Whether it says anything of how the objects are read."""
        return (self.source, self.options, self.chosen) != (None, None, None)

    def remembered(self, catalogue: Catalogue) -> str:
        """How a catalog says that the objects are read, as far as this doesn't say it; "" where that is the default."""
        return catalogue.told_choice(
            source=self.source is None, options=self.options is None, chosen=self.chosen is None
        )

    def as_read(self, catalogue: Catalogue) -> ForeignSpec:
        """The same, asking for all that a catalog remembers: for other machines, where nothing is remembered."""
        reading = catalogue.reading
        return ForeignSpec.of(self.names, reading.source, reading.options, reading.chosen)

    def digest(self, url: str, reading: Reading | None = None) -> str:
        """Of the place and the objects, as 32 hexadecimal digits: a catalogue is kept under it.

        Args:
            url: The place.
            reading: How they are read, for a catalog that only those find who ask for this.
        """
        apart = [] if reading is None else [[reading.source, dict(reading.options), dict(reading.chosen)]]
        return xxhash.xxh3_128_hexdigest(json.dumps([SCANS, url, list(self.names), *apart]).encode())

    def shown(self, store: Store) -> str:
        """What messages call it: the root, or the only file that is named."""
        return store.locate(self.names[0]) if len(self.names) == 1 else store.url

    def listing(self, store: Store) -> ObjectListing:
        """The objects that are meant, each read only as the version that is listed; raises as `objects`."""
        metas = self.objects(store)
        versions = {meta.path: meta.version for meta in metas}
        read = store.of_versions(lambda path: versions.get(path, 0))
        return ObjectListing(read, metas, self.shown(store), named=bool(self.names))

    def objects(self, store: Store) -> list[ObjectMeta]:
        """The objects that are meant, those of our own catalogue left out.

        Raises:
            NotFoundError: One that is named is not there, or a glob matches none.
            StorageError: The store cannot be read.
        """
        if not self.names:
            return [one for one in store.list() if not OURS.fullmatch(one.path)]
        at_once = 1 if store.mapped else _AT_ONCE
        found = each(lambda name: _named(store, name), self.names, at_once=at_once, what=f"files of {store.url}")
        return list({meta.path: meta for some in found for meta in some}.values())


def _named(store: Store, name: str) -> Sequence[ObjectMeta]:
    try:
        return [store.meta(name)]
    except NotFoundError as error:
        if not GLOB & set(name):
            raise NotFoundError(
                "there is no such file", url=store.locate(name), hint="write the name of a file that is there"
            ) from error
    left_out = Strays()
    pattern = Glob(name, left_out)
    prefix = name[: min(name.find(one) for one in GLOB if one in name)]
    depth = name.count("/")  # as everywhere else, a pattern stays in its folder
    matching = [one for one in store.list(prefix) if one.path.count("/") == depth and pattern.matches(one.path)]
    left_out.log(store.locate(name))
    if not matching:
        raise NotFoundError("no file matches", url=store.locate(name), hint="write a pattern of files that are there")
    return matching
