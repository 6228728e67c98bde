"""Which server holds a store, and who gives the credentials for it: for people who look for what is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from shardstream.storage.base.location import Location
from shardstream.storage.clients.obstore_client import settings_of


class StoreServer(NamedTuple):
    """A server of a store.

    Attributes:
        url: ``https://host`` of it, without anything secret.
        credentials: Who gives the credentials, never what they are: ``"the AWS profile 'default'"``.
    """

    url: str
    credentials: str


def server_of(location: Location, environment: Mapping[str, str] = os.environ) -> StoreServer | None:
    """The server of a place; ``None`` for a local folder, and where only fsspec knows it.

    Nothing is asked of it.

    Raises:
        UsageError: Options that cannot work.
        AccessError: No credentials.
        MissingExtraError: Credentials that need a package which is not installed.
    """
    address = location.address
    if address.kind not in ("s3", "azure", "gcs", "http"):
        return None
    settings = settings_of(location, environment)
    config = settings.config
    if address.kind == "s3":
        url = config.get("aws_endpoint_url_s3") or f"https://s3.{config['region']}.amazonaws.com"
    elif address.kind == "azure":
        url = config.get("endpoint") or f"https://{config['account_name']}.blob.core.windows.net"
    elif address.kind == "gcs":
        url = config.get("base_url") or "https://storage.googleapis.com"
    else:
        url = f"{address.scheme}://{address.bucket}"
    return StoreServer(str(url), settings.credentials)
