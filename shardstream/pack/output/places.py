"""How a verb reaches the places that it reads and the one that it writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

from shardstream.dataset.formats import Selection
from shardstream.dataset.opened import DatasetAddress, OpenedDataset
from shardstream.dataset.opening import Versions, find_replicas, place_of, refuse_unused, versions_of
from shardstream.storage import Location, PathOrUrl, Transport, locate
from shardstream.storage.cache import Cache
from shardstream.storage.opening import takes_options

Options = TypeVar("Options")


def take_options(kind: type[Options], given: dict[str, Any]) -> Options:
    """Those of some arguments by name that are fields of a dataclass, as that; they are taken out of ``given``."""
    assert is_dataclass(kind)
    return kind(**{one.name: given.pop(one.name) for one in fields(kind) if one.name in given})


@dataclass(frozen=True, kw_only=True)
class StorageArguments:
    """The arguments of a verb that lead to its stores; one meaning everywhere.

    Attributes:
        storage_options: Credentials and settings, for every place of the verb. Where places are of several kinds, for
            those that know these options.
        source_options: Those of what is read, in their stead; ``{}`` for the environment's.
        dest_options: Those of what is written, in their stead.
        transport: The library that speaks to stores.
    """

    storage_options: Mapping[str, Any] | None = None
    source_options: Mapping[str, Any] | None = None
    dest_options: Mapping[str, Any] | None = None
    transport: Transport = "auto"

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
            refuse_unused(self.source_options, read, name="source_options")
        refuse_unused(self.dest_options, [written], name="dest_options")
        own = [*((self.source_options,) * len(read)), self.dest_options]
        shared = [place for place, given in zip([*read, written], own, strict=True) if given is None]
        if not (names_urls and self.source_options is None):
            refuse_unused(self.storage_options, shared)
        serves = self._chosen([place for place in shared if not place.local])
        given = [
            options if options is not None else self.storage_options if place in serves else None
            for place, options in zip([*read, written], own, strict=True)
        ]
        places = [
            locate(place, storage_options=options, transport=self.transport)
            for place, options in zip([*sources, dest], given, strict=True)
        ]
        return places[:-1], places[-1]

    def open(
        self,
        urls: Sequence[PathOrUrl],
        dest: PathOrUrl,
        *,
        version: Versions = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        replicas: Sequence[PathOrUrl] = (),
    ) -> tuple[list[OpenedDataset], Location]:
        """The data sets that a verb reads, and where it writes.

        Args:
            urls: The data sets, each as it is written.
            dest: What is written.
            version: Of a data set that grew; of several, a list with one for each. ``None`` for the newest.
            cache: Where blocks that come over a network are kept.
            replicas: Places that have shards of them too, asked first.

        Raises:
            UsageError: As `locate`, or there is no such version.
            NotFoundError: There is no data set.
            StorageError: It cannot be read.
        """
        others = find_replicas(replicas)
        versions = versions_of(version, len(urls))
        wanted = [place_of(url) for url in urls]
        places, target = self.locate([*(root for root, _ in wanted), *others], dest)
        spec = None if cache is None else Cache.of(cache)
        near = places[len(urls) :]
        found = [
            DatasetAddress(place, one, tuple(near), spec, Selection(names)).open()
            for place, (_, names), one in zip(places[: len(urls)], wanted, versions, strict=True)
        ]
        return found, target

    def _chosen(self, places: Sequence[Location]) -> Sequence[Location]:
        """Those of some stores that ``storage_options`` are for: all where no one is known to be other."""
        if not self.storage_options or len({place.address.kind for place in places}) == 1:
            return places
        return [place for place in places if takes_options(self._with_options(place))] or places

    def _with_options(self, place: Location) -> Location:
        return locate(place, storage_options=self.storage_options, transport=self.transport)
