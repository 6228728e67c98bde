"""Plain web servers: a folder of files that can be read by range."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from shardstream.errors import StorageError, UsageError, did_you_mean
from shardstream.storage.base.address import Address
from shardstream.storage.clients.options import StoreSettings, allow_http, client_options


def web_settings(address: Address, options: Mapping[str, Any]) -> StoreSettings:
    """What an ``HTTPStore`` for this address is made of. The query, which may sign it, goes with every request.

    Raises:
        UsageError: An option that is none of the HTTP client's.
    """
    given = {name.lower(): value for name, value in options.items() if value is not None}
    headers = given.pop("headers", None)  # fsspec's and everybody's name
    client = client_options(given)
    if given:
        name = sorted(given)[0]
        raise UsageError(
            f"storage_options: {name!r} is not an option of a web server",
            hint=did_you_mean(name, ["headers", "proxy_url", "read_timeout", "connect_timeout"])
            + "headers={...}, read_timeout, connect_timeout, proxy_url, root_certificate",
        )
    headers = web_headers(address, client.get("default_headers"), headers)
    if headers:
        client["default_headers"] = headers
    allow_http(address.url, client)
    url = f"{address.url}?{address.query}" if address.query else address.url
    hint = "look at the URL's user, its query, or storage_options={'headers': ...}"
    credentials = "the user of the URL" if address.user else "headers of storage_options" if headers else "none"
    if address.query:
        credentials = "the query of the URL"
    return StoreSettings("HTTPStore", url, client=client, hint=hint, credentials=credentials)


def web_headers(address: Address, *given: Mapping[str, str] | None) -> dict[str, str]:
    """Headers of every request: those that were given, where later ones win, and the user that the URL holds."""
    headers: dict[str, str] = {}
    for some in given:
        if some is not None and not isinstance(some, Mapping):
            raise UsageError("storage_options: headers must be a dict", hint="headers={'X-Token': '...'}")
        headers |= some or {}
    if address.user:
        headers.setdefault("Authorization", "Basic " + base64.b64encode(unquote(address.user).encode()).decode())
    return headers


def not_listed() -> StorageError:
    """The error for asking a web server which files it has."""
    return StorageError(
        "a web server does not list its files",
        hint="give the URL of a dataset that has a dataset.json, or name the files with braces, as in "
        "http://HOST/DIRECTORY/shard-{0000..0099}.tar",
    )


def read_only() -> StorageError:
    """The error for writing to a web server."""
    return StorageError("a web server is read only", hint="write to the store that it serves")
