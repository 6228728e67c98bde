"""How a verb reaches the places that it reads and the one that it writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardstream.dataset.formats import Selection
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.dataset.opening import Versions, find_replicas, place_of, refuse_unused, versions_of
from shardstream.options import PACK, option, spelled
from shardstream.storage import Location, PathOrUrl, locate
from shardstream.storage.cache import Cache
from shardstream.storage.opening import takes_options


def _named(name: str) -> str:
    return spelled("storage", StorageOptions, [name])


_DATASETS = ("repack", "merge", "export")


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """How a verb reaches the places that it reads and the one that it writes, as its ``storage=``.

    Attributes:
        options: Credentials and settings of stores by name, for every place of the verb; of several kinds of stores,
            for those that know them (``docs/storage.md``). Default: those of the environment.
        source: Those of what is read alone, in their stead: the stores that it lies in, and those of URLs in lists.
            ``{}`` for the environment's.
        dest: Those of what is written alone, in their stead.
        cache: Directory of a cache that what comes over a network is read through, or a `Cache`; see `ShardDataset`.
            For verbs that read datasets: `repack`, `merge`, `export`. Default: none.
        replicas: Places that have shards of what is read, too, asked first. Where one is damaged, the next place is
            read. For the same verbs.

    Example:
        >>> storage = ss.StorageOptions(options={"endpoint": "http://localhost:9000"}, source={})
    """

    options: Mapping[str, Any] | None = option(
        None,
        "Setting of the store, such as endpoint=URL or anon=true; may be repeated. Others see a command line: keys and "
        "tokens belong into the environment.",
        flag="--storage-option",
        was="storage_options",
        metavar="KEY=VALUE",
    )
    source: Mapping[str, Any] | None = option(
        None,
        "The same for what is read alone, files behind URLs of a list included; may be repeated.",
        flag="--source-option",
        was="source_options",
        metavar="KEY=VALUE",
        verbs=(*PACK, *_DATASETS),
    )
    dest: Mapping[str, Any] | None = option(
        None,
        "The same for DEST alone; may be repeated.",
        flag="--dest-option",
        was="dest_options",
        metavar="KEY=VALUE",
        verbs=(*PACK, *_DATASETS),
    )
    cache: str | os.PathLike[str] | Cache | None = option(
        None,
        "Keep what is read over a network in this folder.",
        flag="--cache",
        was="cache",
        metavar="DIR",
        verbs=_DATASETS,
    )
    replicas: Sequence[PathOrUrl] = option(
        (),
        "Another place that has its shards, read first; may be repeated.",
        flag="--replica",
        metavar="URL",
        verbs=_DATASETS,
    )

    def locate(
        self, sources: Sequence[PathOrUrl], dest: PathOrUrl, *, names_urls: bool = False
    ) -> tuple[list[Location], Location]:
        """Where the places of a verb are.

        Args:
            sources: What is read.
            dest: What is written.
            names_urls: Whether what is read may name files behind URLs, so that options serve it wherever it lies.

        Raises:
            UsageError: Options that no place can use; names them.
        """
        read, written = [locate(place) for place in sources], locate(dest)
        if not names_urls:
            refuse_unused(self.source, read, name=_named("source"))
        refuse_unused(self.dest, [written], name=_named("dest"))
        own = [*((self.source,) * len(read)), self.dest]
        shared = [place for place, given in zip([*read, written], own, strict=True) if given is None]
        if not (names_urls and self.source is None):
            refuse_unused(self.options, shared, name=_named("options"))
        serves = self._chosen([place for place in shared if not place.local])
        given = [
            options if options is not None else self.options if place in serves else None
            for place, options in zip([*read, written], own, strict=True)
        ]
        places = [
            locate(place, storage_options=options) for place, options in zip([*sources, dest], given, strict=True)
        ]
        return places[:-1], places[-1]

    def open(
        self,
        urls: Sequence[PathOrUrl],
        dest: PathOrUrl,
        *,
        version: Versions = None,
    ) -> tuple[list[OpenedDataset], Location]:
        """The data sets that a verb reads, and where it writes.

        Args:
            urls: The data sets, each as it is written.
            dest: What is written.
            version: Of a data set that grew; of several, a list with one for each. ``None`` for the newest.

        Raises:
            UsageError: As `locate`, or there is no such version.
            NotFoundError: There is no data set.
            StorageError: It cannot be read.
        """
        others = find_replicas(self.replicas)
        versions = versions_of(version, len(urls))
        wanted = [place_of(url) for url in urls]
        places, target = self.locate([*(root for root, _ in wanted), *others], dest)
        spec = None if self.cache is None else Cache.of(self.cache)
        near = places[len(urls) :]
        found = [
            DatasetAddress(place, one, tuple(near), spec, Selection(names)).open()
            for place, (_, names), one in zip(places[: len(urls)], wanted, versions, strict=True)
        ]
        return found, target

    def _chosen(self, places: Sequence[Location]) -> Sequence[Location]:
        """Those of some stores that ``storage_options`` are for: all where no one is known to be other."""
        if not self.options or len({place.address.kind for place in places}) == 1:
            return places
        return [place for place in places if takes_options(self._with_options(place))] or places

    def _with_options(self, place: Location) -> Location:
        return locate(place, storage_options=self.options)
