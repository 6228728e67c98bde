"""Plain web servers: a folder of files that can be read by range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardstream.errors import UsageError, did_you_mean
from shardstream.storage.base.address import Address
from shardstream.storage.clients.options import StoreSettings, allow_http, basic_auth, client_options


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
    headers = {**(client.get("default_headers") or {}), **(headers or {})}
    if address.user:
        headers.setdefault("Authorization", basic_auth(address.user))
    if headers:
        client["default_headers"] = headers
    allow_http(address.url, client)
    url = f"{address.url}?{address.query}" if address.query else address.url
    return StoreSettings(
        "HTTPStore", url, client=client, hint="look at the URL's user, its query, or storage_options={'headers': ...}"
    )
