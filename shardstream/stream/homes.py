"""From what people write for data sets to their homes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from shardstream.errors import UsageError
from shardstream.storage import Transport, locate
from shardstream.storage.cache import Cache
from shardstream.stream.home import Home
from shardstream.stream.places import Place, find_places

Versions: TypeAlias = "int | Sequence[int | None] | None"


def find_homes(
    url: Place | Sequence[Place],
    *,
    replicas: Sequence[Place] = (),
    cache: str | os.PathLike[str] | Cache | None = None,
    version: Versions = None,
    storage_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
) -> list[Home]:
    """The data sets that ``url`` names; see `ShardDataset` for the arguments.

    Raises:
        UsageError: One of the arguments cannot work.
        NotFoundError: There is no data set.
        StorageError: It cannot be read.
    """
    if isinstance(replicas, str | os.PathLike):
        raise UsageError("replicas must be a list of places", hint=f"replicas=[{os.fspath(replicas)!r}]")
    options: dict[str, Any] = {"storage_options": storage_options, "transport": transport}
    others = [locate(place, **options) for replica in replicas for place in find_places(replica)]
    spec = None if cache is None else Cache.of(cache)
    places = find_places(url)
    versions = _versions(version, len(places))
    return [
        Home(locate(place, **options), replicas=others, cache=spec, version=one)
        for place, one in zip(places, versions, strict=True)
    ]


def _versions(version: Versions, count: int) -> Sequence[int | None]:
    """A version for each data set."""
    if version is None:
        return [None] * count
    found: Sequence[int | None] = version if isinstance(version, Sequence) else [version]
    if len(found) != count:
        raise UsageError(
            f"version={version!r} for {count} data sets", hint="a list with a version, or None, for each of them"
        )
    return found
