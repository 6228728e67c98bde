"""``storage_options`` as fsspec's file systems take them: the same options and variables serve both transports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from shardstream.errors import UsageError
from shardstream.storage.base.address import Address
from shardstream.storage.base.policy import seconds
from shardstream.storage.clients.aws import ENDPOINTS
from shardstream.storage.clients.azure import ALIASES, TokenProvider, choose
from shardstream.storage.clients.options import CONNECT_TIMEOUT, READ_TIMEOUT, first_set, named, truth

_S3 = {
    "access_key_id": "key",
    "secret_access_key": "secret",
    "session_token": "token",
    "endpoint": "endpoint_url",
    "skip_signature": "anon",
    "anonymous": "anon",
    "request_payer": "requester_pays",
    "region_name": "region",
}
_GCS = {
    "endpoint": "endpoint_url",
    "base_url": "endpoint_url",
    "application_credentials": "token",
    "skip_signature": "anon",
}
# Options of obstore's HTTP client that mean nothing to fsspec, and do no harm when they are left out.
_OBSTORE_ONLY = ("allow_http", "client_options", "retry_config", "virtual_hosted_style_request")


def protocol_of(address: Address) -> str:
    """What fsspec calls the file system for an address."""
    return {"s3": "s3", "azure": "abfs", "gcs": "gs"}.get(address.kind, address.scheme)


class FileSystem(NamedTuple):
    """What one of fsspec's file systems is made of, and how it names an object. Holds secrets: never shown.

    Attributes:
        arguments: Its keyword arguments.
        root: The path that stands before an object's.
    """

    arguments: dict[str, Any]
    root: str


def file_system_of(address: Address, options: Mapping[str, Any], environment: Mapping[str, str]) -> FileSystem:
    """The file system for an address.

    Raises:
        UsageError: Options that cannot work there.
    """
    given = {name.lower(): value for name, value in options.items() if value is not None}
    if address.kind != "fsspec":
        given = {name: value for name, value in given.items() if name not in _OBSTORE_ONLY}
    waits = {
        name: seconds(name, given.pop(name, usual))
        for name, usual in (("connect_timeout", CONNECT_TIMEOUT), ("read_timeout", READ_TIMEOUT))
    }
    root = f"{address.bucket}/{address.prefix}".rstrip("/")
    if address.kind == "s3":
        return FileSystem(_s3(given, waits, environment), root)
    if address.kind == "azure":
        return FileSystem(_azure(address, given, waits, environment), root)
    if address.kind == "gcs":
        return FileSystem(_gcs(given, environment), root)
    if address.query:
        raise UsageError("a query has no meaning in this URL", url=address.url, hint="give it by storage_options")
    user = f"{address.user}@" if address.user else ""
    return FileSystem(given, f"{address.scheme}://{user}{address.prefix}")


def _s3(given: dict[str, Any], waits: dict[str, float], environment: Mapping[str, str]) -> dict[str, Any]:
    arguments = named(given, _S3, "aws_")
    for name in ("anon", "requester_pays"):
        if name in arguments:
            arguments[name] = str(arguments[name]).lower() == "requester" or truth(name, arguments[name])
    client = dict(arguments.pop("client_kwargs", {}))
    endpoint = arguments.get("endpoint_url") or client.pop("endpoint_url", None)
    arguments["endpoint_url"] = endpoint or first_set(environment, *ENDPOINTS)
    if region := arguments.pop("region", None):
        client["region_name"] = region
    arguments["config_kwargs"] = waits | arguments.pop("config_kwargs", {})
    return arguments | {"client_kwargs": client}


def _azure(
    address: Address, given: dict[str, Any], waits: dict[str, float], environment: Mapping[str, str]
) -> dict[str, Any]:
    arguments = named(given, ALIASES, "azure_")
    chosen = choose(address, arguments, environment)
    arguments |= {"account_name": chosen.account, "assume_container_exists": True}
    arguments |= {"connection_timeout": waits["connect_timeout"], "read_timeout": waits["read_timeout"]}
    endpoint = chosen.endpoint or f"https://{chosen.account}.blob.core.windows.net"
    # By a connection string, which comes before whatever adlfs would find in the environment.
    text = f"AccountName={chosen.account};BlobEndpoint={endpoint};"
    if chosen.kind == "account_key":
        return arguments | {"connection_string": f"{text}AccountKey={chosen.value}"}
    if chosen.kind == "sas_token":
        return arguments | {"connection_string": f"{text}SharedAccessSignature={chosen.value.lstrip('?')}"}
    if chosen.endpoint:
        arguments["account_host"] = chosen.endpoint.partition("://")[2]
    if chosen.kind in ("anonymous", "machine"):
        return arguments | {"anon": chosen.kind == "anonymous"}
    if chosen.kind == "identity" and "client_secret" in chosen.value:
        return {**arguments, **chosen.value}
    if isinstance(chosen.value, TokenProvider):
        return arguments | {"credential": _Asynchronous(chosen.value)}
    raise UsageError(
        "adlfs does not take this kind of credential", url=address.url, hint="write the URL without fsspec+"
    )


def _gcs(given: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    arguments = named(given, _GCS, "google_")
    if truth("anon", arguments.pop("anon", False)):
        arguments["token"] = "anon"  # noqa: S105 - the name of a way, not a password
    elif environment.get("STORAGE_EMULATOR_HOST"):
        arguments.setdefault("token", "anon")
    return arguments


class _Asynchronous:
    """A credential of azure-identity, as adlfs asks for it."""

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider

    async def get_token(self, *scopes: str, **more: Any) -> Any:
        return await asyncio.to_thread(self._provider.token)

    async def close(self) -> None:
        """Nothing is open."""
