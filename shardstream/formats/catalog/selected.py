"""The objects that a `Selection` means, and what it says of reading them, compared with a catalog."""

from __future__ import annotations

import json
from collections.abc import Sequence

import xxhash

from shardstream.dataset.formats import Selection
from shardstream.errors import NotFoundError
from shardstream.formats.catalog.catalog import OURS, Catalogue, Reading
from shardstream.formats.contract import ObjectListing
from shardstream.names.globs import WILDCARDS, Glob
from shardstream.names.strays import Strays
from shardstream.storage import Store
from shardstream.storage.base.store import ObjectMeta
from shardstream.threads import each

_AT_ONCE = 32  # names that are asked for

SCANS = 2
"""Version of what scans find in unchanged files. Raising it (a format was fixed) has kept catalogs made again."""


def tell_remembered(selection: Selection, catalogue: Catalogue) -> str:
    """Say how a catalog has the objects read, as far as a selection doesn't say it; "" where that is the default."""
    return catalogue.told_choice(
        source=selection.source is None, options=selection.options is None, chosen=selection.chosen is None
    )


def with_remembered(selection: Selection, catalogue: Catalogue) -> Selection:
    """The same, asking for all that a catalog remembers: for other machines, where nothing is remembered."""
    reading = catalogue.reading
    return Selection.of(selection.names, reading.source, reading.options, reading.chosen)


def digest(selection: Selection, url: str, reading: Reading | None = None) -> str:
    """Of the place and the objects, as 32 hexadecimal digits: a catalog is kept under it.

    Args:
        selection: Which objects are meant.
        url: The place.
        reading: How they are read, for a catalog that only those find who ask for this.
    """
    apart = [] if reading is None else [[reading.source, dict(reading.options), dict(reading.chosen)]]
    return xxhash.xxh3_128_hexdigest(json.dumps([SCANS, url, list(selection.names), *apart]).encode())


def list_selected(selection: Selection, store: Store) -> ObjectListing:
    """The objects that are meant, each read only as the version that is listed; raises as `find_selected`."""
    metas = find_selected(selection, store)
    versions = {meta.path: meta.version for meta in metas}
    read = store.of_versions(lambda path: versions.get(path, 0))
    url = store.locate(selection.names[0]) if len(selection.names) == 1 else store.url
    return ObjectListing(read, metas, url, named=bool(selection.names))


def find_selected(selection: Selection, store: Store) -> list[ObjectMeta]:
    """The objects that are meant, those of our own catalog left out.

    Raises:
        NotFoundError: One that is named is not there, or a glob matches none.
        StorageError: The store cannot be read.
    """
    if not selection.names:
        return [one for one in store.list() if not OURS.fullmatch(one.path)]
    at_once = 1 if store.mapped else _AT_ONCE
    found = each(lambda name: _named(store, name), selection.names, at_once=at_once, what=f"files of {store.url}")
    return list({meta.path: meta for some in found for meta in some}.values())


def _named(store: Store, name: str) -> Sequence[ObjectMeta]:
    try:
        return [store.meta(name)]
    except NotFoundError as error:
        if not WILDCARDS & set(name):
            raise NotFoundError(
                "there is no such file", url=store.locate(name), hint="write the name of a file that is there"
            ) from error
    left_out = Strays()
    pattern = Glob(name, left_out)
    prefix = name[: min(name.find(one) for one in WILDCARDS if one in name)]
    depth = name.count("/")  # as everywhere else, a pattern stays in its folder
    matching = [one for one in store.list(prefix) if one.path.count("/") == depth and pattern.matches(one.path)]
    left_out.log(store.locate(name))
    if not matching:
        raise NotFoundError("no file matches", url=store.locate(name), hint="write a pattern of files that are there")
    return matching
