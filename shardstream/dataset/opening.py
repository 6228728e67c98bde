"""From what people write for data sets to their homes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.paths import find_paths
from shardstream.errors import UsageError
from shardstream.storage import PathOrUrl, Transport, locate
from shardstream.storage.cache import Cache

Versions: TypeAlias = "int | Sequence[int | None] | None"


def open_datasets(
    url: PathOrUrl | Sequence[PathOrUrl],
    *,
    replicas: Sequence[PathOrUrl] = (),
    cache: str | os.PathLike[str] | Cache | None = None,
    version: Versions = None,
    storage_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
) -> list[OpenedDataset]:
    """The data sets that ``url`` names; see `ShardDataset` for the arguments.

    Raises:
        UsageError: One of the arguments cannot work.
        NotFoundError: There is no data set.
        StorageError: It cannot be read.
    """
    if isinstance(replicas, str | os.PathLike):
        raise UsageError("replicas must be a list of places", hint=f"replicas=[{os.fspath(replicas)!r}]")
    options: dict[str, Any] = {"storage_options": storage_options, "transport": transport}
    others = [locate(place, **options) for replica in replicas for place in find_paths(replica)]
    spec = None if cache is None else Cache.of(cache)
    places = find_paths(url)
    versions = _versions(version, len(places))
    return [
        OpenedDataset(locate(place, **options), replicas=others, cache=spec, version=one)
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
