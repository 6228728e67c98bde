"""Where Azure's account, credentials and endpoint come from, in the order that people expect.

Options given by the caller; the SAS token of the URL; a connection string, account key, SAS token, service principal,
federated token of the environment, under the names of adlfs, object_store, azure-identity and MosaicML Streaming; at
last azure-identity's ``DefaultAzureCredential`` (managed identity, ``az login``). Anonymous only when asked.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from shardstream.errors import AccessError, ShardStreamError, UsageError
from shardstream.extras import require
from shardstream.storage.base.address import Address
from shardstream.storage.clients.options import Fixed, StoreSettings, allow_http, client_options, named, texts, truth

_ALIASES = {
    "storage_account_name": "account_name",
    "account": "account_name",
    "storage_account_key": "account_key",
    "access_key": "account_key",
    "master_key": "account_key",
    "storage_access_key": "account_key",
    "storage_sas_token": "sas_token",
    "sas_key": "sas_token",
    "storage_sas_key": "sas_token",
    "storage_connection_string": "connection_string",
    "account_url": "endpoint",
    "storage_endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "anon": "skip_signature",
    "anonymous": "skip_signature",
    "use_development_storage": "use_emulator",
}
_EMULATOR = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2U"
    "VErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;"
)  # published by Microsoft for everybody's emulator: no secret
_ACCOUNT = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT", "AZURE_ACCOUNT_NAME")
_KEY = (
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_KEY",
    "AZURE_ACCOUNT_ACCESS_KEY",
)
_SAS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_ANONYMOUS = ("AZURE_STORAGE_ANON", "AZURE_SKIP_SIGNATURE")
_IDENTITY = ("client_id", "client_secret", "tenant_id", "federated_token_file", "authority_host")
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
        account: Its name.
        endpoint: Its address, where it is not the usual one.
        credential: One of ``account_key``, ``sas_token``, ``token``, ``provider``, ``identity`` and ``anonymous`` by
            name; empty: what the machine gives.
        hint: What to do when the store refuses.
        rest: Options that say something else.
    """

    account: str
    endpoint: str | None
    credential: dict[str, Any] = field(repr=False)
    hint: str
    rest: dict[str, Any] = field(repr=False)


def choose(address: Address, options: Mapping[str, Any], environment: Mapping[str, str]) -> Chosen:
    """Which account, and with which credential, by the order that the module describes.

    Raises:
        UsageError: No account is named, or a connection string cannot be read.
    """
    rest = named(options, _ALIASES, "azure_")
    named_account = rest.pop("account_name", None)
    if named_account and address.account and named_account != address.account:
        raise UsageError(
            f"the URL names the account {address.account!r}, storage_options name {named_account!r}", url=address.url
        )
    account = str(named_account or "") or address.account
    endpoint = rest.pop("endpoint", None) or address.endpoint or None
    text = rest.pop("connection_string", None)
    if truth("use_emulator", rest.pop("use_emulator", False)):
        text = _EMULATOR
    given = _from_options(rest, text)
    if given is None and address.query:
        hint = "look at the SAS token in the URL: its times (st=, se=), rights (sp=) and signature"
        given = {"sas_token": address.query, "hint": hint}
    if given is None:
        given = _from_environment(account, environment)
    account = account or given.get("account", "") or _first(environment, _ACCOUNT) or ""
    endpoint = endpoint or given.get("endpoint") or _first(environment, ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"))
    if not account:
        raise UsageError(
            "the storage account is not known",
            url=address.url,
            hint="set AZURE_STORAGE_ACCOUNT_NAME, give storage_options={'account_name': ...}, or write "
            f"abfss://{address.bucket}@ACCOUNT.dfs.core.windows.net/...",
        )
    hint = given.get("hint", _GIVE)
    credential = {name: value for name, value in given.items() if name not in ("account", "endpoint", "hint")}
    return Chosen(account, str(endpoint).rstrip("/") if endpoint else None, credential, hint, rest)


def azure_settings(address: Address, options: Mapping[str, Any], environment: Mapping[str, str]) -> StoreSettings:
    """What an ``AzureStore`` for this address is made of.

    Raises:
        UsageError: No account is named, or a connection string cannot be read.
        MissingExtraError: Nothing else is there, and azure-identity is not installed.
    """
    chosen = choose(address, options, environment)
    config = chosen.rest
    client = client_options(config)
    settings = StoreSettings("AzureStore", address.bucket, address.prefix, config, client, hint=chosen.hint)
    settings.retry = config.pop("retry_config", None)
    config |= {"account_name": chosen.account, "use_emulator": False, "skip_signature": False}
    if chosen.endpoint:
        config["endpoint"] = chosen.endpoint
        allow_http(chosen.endpoint, client)
    _credentials(settings, chosen.credential)
    settings.config = texts(config)
    return settings


def _credentials(settings: StoreSettings, given: dict[str, Any]) -> None:
    """Put the one credential that was chosen where obstore takes it; none of the others that it might find counts."""
    config = settings.config
    if given.get("anonymous"):
        config["skip_signature"] = True
    elif "provider" in given:
        settings.provider, settings.renewable = given["provider"], True
    elif "account_key" in given:
        settings.provider = Fixed({"access_key": given["account_key"]})
    elif "sas_token" in given:
        token = str(given["sas_token"]).removeprefix("?")
        settings.provider, settings.ends = Fixed({"sas_token": token}), _end_of(token)
    elif "token" in given:
        settings.provider = Fixed({"token": given["token"]})
    elif "identity" in given:
        config |= given["identity"]
        config["credential_type"] = "client_secret" if "client_secret" in given["identity"] else "workload_identity"
        settings.renewable = True
    else:
        settings.provider, settings.renewable = TokenProvider(None), True


def _end_of(token: str) -> datetime.datetime | None:
    """When a SAS token ends, if it says so (one with a stored policy does not)."""
    try:
        found = datetime.datetime.fromisoformat(dict(parse_qsl(token))["se"])
    except (KeyError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _from_options(config: dict[str, Any], text: str | None) -> dict[str, Any] | None:
    """The credential that the caller gave, taken out of ``config``; the most explicit one first."""
    key, sas, token = config.pop("account_key", None), config.pop("sas_token", None), config.pop("token", None)
    credential, provider = config.pop("credential", None), config.pop("credential_provider", None)
    anonymous = truth("anon", config.pop("skip_signature", False))
    identity = {name: config.pop(name) for name in _IDENTITY if name in config}
    if text:
        return _from_text(str(text)) | {"hint": "look at the connection string in storage_options"}
    if provider is not None:
        return {"provider": provider, "hint": "look at what the credential_provider gives"}
    if credential is not None:
        if isinstance(credential, str):  # as azure-storage-blob has it: an account key, or a SAS token
            name = "sas_token" if "sig=" in credential else "account_key"
            return {name: credential, "hint": "look at the credential in storage_options"}
        if not hasattr(credential, "get_token"):
            raise UsageError(
                "the credential has no get_token", hint="give one of azure.identity's, a key or a SAS token"
            )
        return {
            "provider": TokenProvider(credential),
            "hint": "look at the credential in storage_options, and its role",
        }
    if key is not None:
        return {"account_key": key, "hint": "look at account_key in storage_options"}
    if sas is not None:
        return {"sas_token": sas, "hint": "look at sas_token in storage_options: its times (st=, se=) and rights (sp=)"}
    if token is not None:
        return {"token": token, "hint": "look at the token in storage_options: it lasts about an hour"}
    if identity:
        return {"identity": identity, "hint": "look at the service principal in storage_options, and its role"}
    if anonymous:
        return {
            "anonymous": True,
            "hint": "the container is not open to everybody: leave out `anon`, and give credentials",
        }
    return None


def _from_environment(account: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The credential that the environment holds; keys of another account than the one that is read are left alone."""
    text = environment.get("AZURE_STORAGE_CONNECTION_STRING")
    if text:
        found = _from_text(text)
        if not account or found.get("account", account) == account:
            return found | {"hint": "look at AZURE_STORAGE_CONNECTION_STRING"}
    if (_first(environment, _ACCOUNT) or account) == account or not account:
        for names, name in ((_KEY, "account_key"), (_SAS, "sas_token"), (("AZURE_STORAGE_TOKEN",), "token")):
            variable = next((variable for variable in names if environment.get(variable)), None)
            if variable:
                return {name: environment[variable], "hint": f"look at {variable}"}
    identity = {}
    for name in _IDENTITY:
        value = _first(environment, (f"AZURE_STORAGE_{name.upper()}", f"AZURE_{name.upper()}"))
        if value:
            identity[name] = value
    if {"client_id", "tenant_id"} <= set(identity) and {"client_secret", "federated_token_file"} & set(identity):
        return {
            "identity": identity,
            "hint": "look at AZURE_CLIENT_ID and its companions, and at the role of that identity",
        }
    anonymous = next((variable for variable in _ANONYMOUS if environment.get(variable)), None)
    if anonymous and truth(anonymous, environment[anonymous]):
        return {"anonymous": True, "hint": f"the container is not open to everybody, but {anonymous} is set"}
    return {}


def _from_text(text: str) -> dict[str, Any]:
    """Account, endpoint and credential of a connection string."""
    parts: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = part.partition("=")
        if not equals:
            raise UsageError("the Azure connection string cannot be read", hint="it has the form Name=Value;Name=Value")
        parts[name.strip().lower()] = value.strip()
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        return _from_text(_EMULATOR)
    account, endpoint = parts.get("accountname", ""), parts.get("blobendpoint", "")
    found: dict[str, Any] = {}
    if not endpoint and account:
        suffix = parts.get("endpointsuffix") or "core.windows.net"
        endpoint = f"{parts.get('defaultendpointsprotocol') or 'https'}://{account}.blob.{suffix}"
    if not account and endpoint:  # one with a SAS token may name the endpoint only
        host, _, path = endpoint.partition("://")[2].partition("/")
        account = path.strip("/") or host.partition(".")[0]
    if not account:
        raise UsageError("the Azure connection string names neither AccountName nor BlobEndpoint")
    found |= {"account": account, "endpoint": endpoint}
    if "accountkey" in parts:
        return found | {"account_key": parts["accountkey"]}
    if "sharedaccesssignature" in parts:
        return found | {"sas_token": parts["sharedaccesssignature"]}
    raise UsageError("the Azure connection string holds neither AccountKey nor SharedAccessSignature")


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


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
