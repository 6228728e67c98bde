"""``storage_options`` as fsspec's file systems take them: the same options and variables serve both transports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from shardstream.errors import AccessError, UsageError
from shardstream.storage.base.address import Address
from shardstream.storage.clients.azure import TokenProvider, choose
from shardstream.storage.clients.options import CONNECT_TIMEOUT, READ_TIMEOUT, basic_auth, seconds, truth

_S3 = {
    "access_key_id": "key",
    "secret_access_key": "secret",
    "session_token": "token",
    "endpoint": "endpoint_url",
    "skip_signature": "anon",
    "anonymous": "anon",
    "request_payer": "requester_pays",
}
_GCS = {"endpoint": "endpoint_url", "base_url": "endpoint_url", "application_credentials": "token"}
# Options of obstore's HTTP client that mean nothing to fsspec, and do no harm when they are left out.
_OBSTORE_ONLY = ("allow_http", "client_options", "retry_config", "virtual_hosted_style_request")


def file_system_of(address: Address, options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Protocol and keyword arguments of a file system, and how to write the address for it.

    Returns:
        ``protocol``, ``arguments``, ``root`` (the path to put before an object's) and ``query`` (to put after it).

    Raises:
        UsageError: Options that cannot work there.
    """
    given = {name.lower(): value for name, value in options.items() if value is not None}
    if address.kind != "fsspec":
        given = {name: value for name, value in given.items() if name not in _OBSTORE_ONLY}
    waits = (
        seconds("connect_timeout", given.pop("connect_timeout", CONNECT_TIMEOUT)),
        seconds("read_timeout", given.pop("read_timeout", READ_TIMEOUT)),
    )
    root = f"{address.bucket}/{address.prefix}".rstrip("/")
    if address.kind == "s3":
        return {"protocol": "s3", "arguments": _s3(given, waits, environment), "root": root, "query": ""}
    if address.kind == "azure":
        return {"protocol": "abfs", "arguments": _azure(address, given, waits, environment), "root": root, "query": ""}
    if address.kind == "gcs":
        return {"protocol": "gs", "arguments": _gcs(given, environment), "root": root, "query": ""}
    if address.kind == "http":
        query = f"?{address.query}" if address.query else ""
        return {
            "protocol": address.scheme,
            "arguments": _http(address, given, waits),
            "root": address.url,
            "query": query,
        }
    if address.query:
        raise UsageError("a query has no meaning in this URL", url=address.url, hint="give it by storage_options")
    user = f"{address.user}@" if address.user else ""
    root = f"{address.scheme}://{user}{address.prefix}"
    return {"protocol": address.scheme, "arguments": given, "root": root, "query": ""}


def _renamed(given: dict[str, Any], names: Mapping[str, str], strip: str) -> dict[str, Any]:
    return {names.get(name.removeprefix(strip), name.removeprefix(strip)): value for name, value in given.items()}


def _s3(given: dict[str, Any], waits: tuple[float, float], environment: Mapping[str, str]) -> dict[str, Any]:
    arguments = _renamed(given, _S3, "aws_")
    for name in ("anon", "requester_pays"):
        if name in arguments:
            arguments[name] = str(arguments[name]).lower() == "requester" or truth(name, arguments[name])
    client = dict(arguments.pop("client_kwargs", None) or {})
    region = arguments.pop("region", None) or arguments.pop("region_name", None)
    if region:
        client["region_name"] = region
    if not arguments.get("endpoint_url") and environment.get("S3_ENDPOINT_URL"):
        named = any(environment.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
        if not named:
            arguments["endpoint_url"] = environment["S3_ENDPOINT_URL"]
    config = {"connect_timeout": waits[0], "read_timeout": waits[1]}
    arguments["config_kwargs"] = config | dict(arguments.pop("config_kwargs", None) or {})
    return arguments | {"client_kwargs": client}


def _azure(
    address: Address, given: dict[str, Any], waits: tuple[float, float], environment: Mapping[str, str]
) -> dict[str, Any]:
    chosen = choose(address, given, environment)
    arguments: dict[str, Any] = dict(chosen.rest)
    credential = chosen.credential
    arguments |= {"account_name": chosen.account, "assume_container_exists": True}
    arguments |= {"connection_timeout": waits[0], "read_timeout": waits[1]}
    endpoint = chosen.endpoint or f"https://{chosen.account}.blob.core.windows.net"
    # By a connection string, which comes before whatever adlfs would find in the environment.
    text = f"AccountName={chosen.account};BlobEndpoint={endpoint};"
    if "account_key" in credential:
        return arguments | {"connection_string": f"{text}AccountKey={credential['account_key']}"}
    if "sas_token" in credential:
        return arguments | {"connection_string": f"{text}SharedAccessSignature={credential['sas_token'].lstrip('?')}"}
    if chosen.endpoint:
        arguments["account_host"] = chosen.endpoint.partition("://")[2]
    if credential.get("anonymous"):
        return arguments | {"anon": True}
    if "identity" in credential and "client_secret" in credential["identity"]:
        return {**arguments, **credential["identity"]}
    provider = credential.get("provider")
    if isinstance(provider, TokenProvider):
        return arguments | {"credential": _Asynchronous(provider)}
    if credential:
        raise UsageError("adlfs does not take this kind of credential", url=address.url, hint='use transport="obstore"')
    return arguments | {"anon": False}


def _gcs(given: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    arguments = _renamed(given, _GCS, "google_")
    anonymous = [truth("anon", arguments.pop(name, False)) for name in ("anon", "skip_signature")]
    if any(anonymous):
        arguments["token"] = "anon"  # noqa: S105 - the name of a way, not a password
    elif environment.get("STORAGE_EMULATOR_HOST"):
        arguments.setdefault("token", "anon")
    return arguments


def _http(address: Address, given: dict[str, Any], waits: tuple[float, float]) -> dict[str, Any]:
    headers = {**(given.pop("default_headers", None) or {}), **(given.pop("headers", None) or {})}
    if address.user:
        headers.setdefault("Authorization", basic_auth(address.user))
    client = dict(given.pop("client_kwargs", None) or {})
    if headers:
        client["headers"] = {**headers, **client.get("headers", {})}
    return {**given, "client_kwargs": client, "encoded": True}


async def same_host_session(**arguments: Any) -> Any:
    """A session of aiohttp that follows no redirect to another host."""
    from aiohttp import ClientSession, TraceConfig
    from yarl import URL

    async def look(_session: Any, _context: Any, redirect: Any) -> None:
        headers = redirect.response.headers
        target = redirect.url.join(URL(headers.get("Location") or headers.get("URI") or ""))
        if target.origin() != redirect.url.origin():
            raise AccessError(
                f"the web server redirects to another host, {target.host}", hint="allow_other_origins=True permits it"
            )

    trace = TraceConfig()
    trace.on_request_redirect.append(look)
    return ClientSession(trace_configs=[trace], **arguments)


def web_path(path: str) -> str:
    """An object's path as a URL writes it."""
    return quote(path)


class _Asynchronous:
    """A credential of azure-identity, as adlfs asks for it."""

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider

    async def get_token(self, *scopes: str, **more: Any) -> Any:
        return await asyncio.to_thread(self._provider.token)

    async def close(self) -> None:
        """Nothing is open."""
