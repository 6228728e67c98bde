"""Where Azure's account, credentials and endpoint come from, in the order that people expect.

Options given by the caller; the SAS token of the URL; a connection string, account key, SAS token, service principal,
federated token of the environment, under the names of adlfs, object_store, azure-identity and MosaicML Streaming; at
last azure-identity's ``DefaultAzureCredential`` (managed identity, ``az login``). Anonymous only when asked.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

from shardstream.errors import AccessError, ShardStreamError, UsageError
from shardstream.extras import require
from shardstream.storage.base.address import Address
from shardstream.storage.clients.names import AZURE
from shardstream.storage.clients.options import Fixed, StoreSettings, allow_http, bucket_settings, first_set, truth

_EMULATOR = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2U"
    "VErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;"
)  # published by Microsoft for everybody's emulator: no secret
_ACCOUNT = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_ACCOUNT_NAME")
# Variables that hold a credential; the first that is set counts.
_VARIABLES: dict[str, Literal["account_key", "sas_token", "token"]] = {
    "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
    "AZURE_STORAGE_ACCESS_KEY": "account_key",
    "AZURE_STORAGE_MASTER_KEY": "account_key",
    "AZURE_STORAGE_KEY": "account_key",
    "AZURE_ACCOUNT_ACCESS_KEY": "account_key",
    "AZURE_STORAGE_SAS_TOKEN": "sas_token",
    "AZURE_STORAGE_SAS_KEY": "sas_token",
    "AZURE_STORAGE_TOKEN": "token",
}
_CREDENTIALS = ("connection_string", "account_key", "sas_token", "token", "credential", "credential_provider")
_ANONYMOUS = ("AZURE_STORAGE_ANON", "AZURE_SKIP_SIGNATURE")
_IDENTITY = ("client_id", "client_secret", "tenant_id", "federated_token_file", "authority_host")
# Who gives each kind of credential, for people.
_KINDS = {
    "account_key": "an account key of {}",
    "sas_token": "a SAS token of {}",
    "token": "a token of {}",
    "provider": "a provider of {}",
    "identity": "a service principal or workload identity of {}",
    "anonymous": "none, as `anon` says in {}",
    "machine": "DefaultAzureCredential: a login, or the identity of this machine, if it has one",
}
_SCOPE = "https://storage.azure.com/.default"
_GIVE = (
    "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, or give one of "
    "storage_options={'account_key': ...}, {'sas_token': ...}, {'credential': ...}; for a public container "
    "{'anon': True}"
)


@dataclass(slots=True)
class Chosen:
    """The account, and the one credential that was chosen. Holds secrets: never shown.

    Attributes:
        kind: What ``value`` is; ``machine`` for none, where the machine gives one.
        value: The credential.
        hint: What to do when the store refuses.
        account: The account's name.
        endpoint: Its address, where it is not the usual one.
        source: Where the credential was found, for people.
    """

    kind: Literal["account_key", "sas_token", "token", "provider", "identity", "anonymous", "machine"]
    value: Any = field(repr=False)
    hint: str
    account: str = ""
    endpoint: str = ""
    source: str = "storage_options"


def _choose(address: Address, config: dict[str, Any], environment: Mapping[str, str]) -> Chosen:
    """Which account, and with which credential, by the order that the module describes.

    Args:
        address: What the URL says.
        config: Options under obstore's names; those that say something of it are taken out.
        environment: Variables.

    Raises:
        UsageError: No account is named, or a connection string cannot be read.
    """
    named_account = config.pop("account_name", None)
    if named_account and address.account and named_account != address.account:
        raise UsageError(
            f"the URL names the account {address.account!r}, storage_options name {named_account!r}", url=address.url
        )
    account = str(named_account or "") or address.account
    endpoint = config.pop("endpoint", None) or address.endpoint
    chosen = _from_options(config)
    if chosen is None and address.query:
        hint = "look at the SAS token in the URL: its times (st=, se=), rights (sp=) and signature"
        chosen = Chosen("sas_token", address.query, hint, source="the URL")
    if chosen is None:
        chosen = _from_environment(account, environment)
        chosen.source = "the environment"
    chosen.account = account or chosen.account or first_set(environment, *_ACCOUNT) or ""
    endpoint = endpoint or chosen.endpoint or first_set(environment, "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    chosen.endpoint = str(endpoint or "").rstrip("/")
    if not chosen.account:
        raise UsageError(
            "the storage account is not known",
            url=address.url,
            hint="set AZURE_STORAGE_ACCOUNT_NAME, give storage_options={'account_name': ...}, or write "
            f"abfss://{address.bucket}@ACCOUNT.dfs.core.windows.net/...",
        )
    return chosen


def azure_settings(address: Address, options: Mapping[str, Any], environment: Mapping[str, str]) -> StoreSettings:
    """What an ``AzureStore`` for this address is made of.

    Raises:
        UsageError: No account is named, or a connection string cannot be read.
        MissingExtraError: Nothing else is there, and azure-identity is not installed.
    """
    settings = bucket_settings("AzureStore", address, options, AZURE)
    config = settings.config
    chosen = _choose(address, config, environment)
    settings.hint = chosen.hint
    settings.credentials = _KINDS[chosen.kind].format(chosen.source)
    config |= {"account_name": chosen.account, "use_emulator": False, "skip_signature": chosen.kind == "anonymous"}
    if chosen.endpoint:
        config["endpoint"] = chosen.endpoint
        allow_http(chosen.endpoint, settings.client)
    match chosen.kind:  # put where obstore takes it; none of the others that it might find counts
        case "provider":
            settings.provider = chosen.value
        case "account_key":
            settings.provider = Fixed({"access_key": chosen.value})
        case "sas_token":
            token = str(chosen.value).removeprefix("?")
            settings.provider, settings.ends = Fixed({"sas_token": token}), _end_of(token)
        case "token":
            settings.provider = Fixed({"token": chosen.value})
        case "identity":
            config |= chosen.value
            config["credential_type"] = "client_secret" if "client_secret" in chosen.value else "workload_identity"
        case "machine":
            settings.provider = TokenProvider(None)
    return settings


def adlfs_arguments(
    address: Address, options: Mapping[str, Any], waits: Mapping[str, float], environment: Mapping[str, str]
) -> dict[str, Any]:
    """The arguments of an ``AzureBlobFileSystem`` for this address, with the same account and credential.

    Args:
        address: What the URL says.
        options: Those that the user gave.
        waits: ``connect_timeout`` and ``read_timeout``.
        environment: Variables.

    Raises:
        UsageError: As `azure_settings`, or adlfs takes no such credential.
    """
    arguments = AZURE.for_obstore(options)
    chosen = _choose(address, arguments, environment)
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


def _end_of(token: str) -> datetime.datetime | None:
    """When a SAS token ends, if it says so (one with a stored policy does not)."""
    try:
        found = datetime.datetime.fromisoformat(dict(parse_qsl(token))["se"])
    except (KeyError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _from_options(config: dict[str, Any]) -> Chosen | None:
    """The credential that the caller gave, taken out of ``config``; the most explicit one first."""
    text, key, sas, token, credential, provider = (config.pop(name, None) for name in _CREDENTIALS)
    anonymous = truth("anon", config.pop("skip_signature", False))
    identity = {name: config.pop(name) for name in _IDENTITY if name in config}
    if truth("use_emulator", config.pop("use_emulator", False)):
        text = _EMULATOR
    if text:
        return _from_text(str(text), "look at the connection string in storage_options")
    if provider is not None:
        return Chosen("provider", provider, "look at what the credential_provider gives")
    if isinstance(credential, str):  # as azure-storage-blob has it: an account key, or a SAS token
        hint = "look at the credential in storage_options"
        return Chosen("sas_token" if "sig=" in credential else "account_key", credential, hint)
    if credential is not None:
        if not hasattr(credential, "get_token"):
            raise UsageError(
                "the credential has no get_token", hint="give one of azure.identity's, a key or a SAS token"
            )
        hint = "look at the credential in storage_options, and its role"
        return Chosen("provider", TokenProvider(credential), hint)
    if key is not None:
        return Chosen("account_key", key, "look at account_key in storage_options")
    if sas is not None:
        hint = "look at sas_token in storage_options: its times (st=, se=) and rights (sp=)"
        return Chosen("sas_token", sas, hint)
    if token is not None:
        return Chosen("token", token, "look at the token in storage_options: it lasts about an hour")
    if identity:
        return Chosen("identity", identity, "look at the service principal in storage_options, and its role")
    if anonymous:
        hint = "the container is not open to everybody: leave out `anon`, and give credentials"
        return Chosen("anonymous", None, hint)
    return None


def _from_environment(account: str, environment: Mapping[str, str]) -> Chosen:
    """The credential that the environment holds; keys of another account than the one that is read are left alone."""
    text = environment.get("AZURE_STORAGE_CONNECTION_STRING")
    if text:
        found = _from_text(text, "look at AZURE_STORAGE_CONNECTION_STRING")
        if account in ("", found.account):
            return found
    if account in ("", first_set(environment, *_ACCOUNT) or account):
        for variable, kind in _VARIABLES.items():
            if environment.get(variable):
                return Chosen(kind, environment[variable], f"look at {variable}")
    values = {
        name: first_set(environment, f"AZURE_STORAGE_{name.upper()}", f"AZURE_{name.upper()}") for name in _IDENTITY
    }
    identity = {name: value for name, value in values.items() if value}
    if {"client_id", "tenant_id"} <= set(identity) and {"client_secret", "federated_token_file"} & set(identity):
        hint = "look at AZURE_CLIENT_ID and its companions, and at the role of that identity"
        return Chosen("identity", identity, hint)
    anonymous = next((variable for variable in _ANONYMOUS if environment.get(variable)), None)
    if anonymous and truth(anonymous, environment[anonymous]):
        return Chosen("anonymous", None, f"the container is not open to everybody, but {anonymous} is set")
    return Chosen("machine", None, _GIVE)


def _from_text(text: str, hint: str) -> Chosen:
    """Account, endpoint and credential of a connection string."""
    parts: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = part.partition("=")
        if not equals:
            raise UsageError("the Azure connection string cannot be read", hint="it has the form Name=Value;Name=Value")
        parts[name.strip().lower()] = value.strip()
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        return _from_text(_EMULATOR, hint)
    account, endpoint = parts.get("accountname", ""), parts.get("blobendpoint", "")
    if not endpoint and account:
        suffix = parts.get("endpointsuffix") or "core.windows.net"
        endpoint = f"{parts.get('defaultendpointsprotocol') or 'https'}://{account}.blob.{suffix}"
    if not account and endpoint:  # one with a SAS token may name the endpoint only
        host, _, path = endpoint.partition("://")[2].partition("/")
        account = path.strip("/") or host.partition(".")[0]
    if not account:
        raise UsageError("the Azure connection string names neither AccountName nor BlobEndpoint")
    if "accountkey" in parts:
        return Chosen("account_key", parts["accountkey"], hint, account, endpoint)
    if "sharedaccesssignature" in parts:
        return Chosen("sas_token", parts["sharedaccesssignature"], hint, account, endpoint)
    raise UsageError("the Azure connection string holds neither AccountKey nor SharedAccessSignature")


class TokenProvider:
    """Tokens of one of azure-identity's credentials, by default ``DefaultAzureCredential``. A provider for obstore."""

    def __init__(self, credential: Any) -> None:
        if credential is None:
            require("azure.identity", extra="azure", purpose="to find Azure credentials, for none were given")
        self._credential = credential
        self.problem: ShardStreamError | None = None

    def __call__(self) -> dict[str, Any]:
        token = self.token()
        return {"token": token.token, "expires_at": datetime.datetime.fromtimestamp(token.expires_on, datetime.UTC)}

    def token(self) -> Any:
        """A token of azure-identity.

        Raises:
            AccessError: There was none to be had; without azure-identity's own words: they may quote secrets.
        """
        if self._credential is None:
            identity = require("azure.identity", extra="azure", purpose="to find Azure credentials")
            self._credential = identity.DefaultAzureCredential()
        try:
            return self._credential.get_token(_SCOPE)
        except Exception as error:
            self.problem = AccessError(f"Azure gave no token ({type(error).__name__})", hint=_GIVE)
            raise self.problem from None


class _Asynchronous:
    """A credential of azure-identity, as adlfs asks for it."""

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider

    async def get_token(self, *scopes: str, **more: Any) -> Any:
        return await asyncio.to_thread(self._provider.token)

    async def close(self) -> None:
        """Nothing is open."""
