"""URLs and paths to stores."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from shardstream.errors import ShardStreamError
from shardstream.options import takes_flat
from shardstream.storage.base.location import Location, PathOrUrl, flat_transport, locate
from shardstream.storage.base.store import Store
from shardstream.storage.local.store import LocalStore
from shardstream.storage.transfer.client import Client


@takes_flat(flat_transport("place"))
def open_store(
    place: PathOrUrl,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Store:
    """The store rooted at a URL or local folder. Nothing is asked of it yet.

    Args:
        place: A path, a URL, a store, which is returned as it is, or a `Location`.
        storage_options: Credentials and settings by name; default: the environment's.

    Raises:
        UsageError: The URL or an option cannot work.
        MissingExtraError: A package that this scheme needs is not installed.

        >>> open_store("file:///data/out").url
        '/data/out'
    """
    location = locate(place, storage_options=storage_options)
    if location.store is not None:
        return location.store
    if location.local:
        return LocalStore(location.address.prefix)
    from shardstream.storage.transfer.remote import RemoteStore

    if location.transport == "obstore":
        from shardstream.storage.clients.obstore_client import check
    elif location.address.kind == "http":
        from shardstream.storage.clients.web_client import check
    else:
        from shardstream.storage.clients.fsspec_client import check
    try:
        check(location)
        policy = location.access.policy
    except ShardStreamError as error:
        raise error.at(url=location.url) from error.__cause__
    return RemoteStore(location.url, functools.partial(make_client, location), policy=policy)


def make_client(location: Location) -> Client:
    """A client of this process for a store that is not local.

    Raises:
        UsageError: Options that cannot work.
        AccessError: No credentials.
        MissingExtraError: A package is not installed.
    """
    if location.transport == "obstore":
        from shardstream.storage.clients.obstore_client import ObstoreClient

        return ObstoreClient(location)
    if location.address.kind == "http":
        from shardstream.storage.clients.web_client import WebClient

        return WebClient(location)
    from shardstream.storage.clients.fsspec_client import FsspecClient

    return FsspecClient(location)


@takes_flat(flat_transport("place"))
def open_object(
    place: PathOrUrl,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Store, str]:
    """The store of the folder that holds an object, and the object's name in it.

    Raises:
        UsageError: As `open_store`, or the URL names no object.
    """
    location = locate(place, storage_options=storage_options)
    return open_store(location.parent()), location.url.rpartition("/")[2]


def takes_options(location: Location) -> bool:
    """Whether the client of a store takes the options that it is given; nothing is asked of the store."""
    try:
        if location.address.kind == "http":  # fsspec would take any, and fail with the first request
            from shardstream.storage.clients.web import web_settings

            web_settings(location.address, location.access.library_options)
        else:
            make_client(location)
    except ShardStreamError:
        return False
    return True
