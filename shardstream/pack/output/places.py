"""How a verb reaches the places that it reads and the one that it writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from shardstream.errors import UsageError
from shardstream.storage import Location, Transport, locate
from shardstream.storage.opening import takes_options

PathOrUrl: TypeAlias = "str | os.PathLike[str] | Location"


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
        remote = [place for place in read if not place.local]
        if not (remote or names_urls):
            _refuse("source_options", self.source_options, "what is read is no store, but lies on this machine")
        if written.local:
            _refuse("dest_options", self.dest_options, "what is written is no store, but lies on this machine")
        own = [*((self.source_options,) * len(read)), self.dest_options]
        shared = [place for place, given in zip([*read, written], own, strict=True) if given is None]
        shared = [place for place in shared if not place.local]
        if not (shared or (names_urls and self.source_options is None)):
            _refuse("storage_options", self.storage_options, "no place of this call is a store that they could serve")
        serves = self._chosen(shared)
        given = [
            options if options is not None else self.storage_options if place in serves else None
            for place, options in zip([*read, written], own, strict=True)
        ]
        places = [
            locate(place, storage_options=options, transport=self.transport)
            for place, options in zip([*sources, dest], given, strict=True)
        ]
        return places[:-1], places[-1]

    def _chosen(self, places: Sequence[Location]) -> Sequence[Location]:
        """Those of some stores that ``storage_options`` are for: all where no one is known to be other."""
        if not self.storage_options or len({place.address.kind for place in places}) == 1:
            return places
        return [place for place in places if takes_options(self._with_options(place))] or places

    def _with_options(self, place: Location) -> Location:
        return locate(place, storage_options=self.storage_options, transport=self.transport)


def _refuse(name: str, options: Mapping[str, Any] | None, why: str) -> None:
    if options:
        raise UsageError(
            f"{name} ({', '.join(sorted(options))}) cannot be used: {why}",
            hint="leave them out, or give a URL such as s3://bucket/name",
        )
