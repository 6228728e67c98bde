"""Where Azure's credentials come from: every way, in the right order; on a real server where one runs."""

from __future__ import annotations

import datetime
import types

import pytest

from shardstream.errors import AccessError, MissingExtraError, NotFoundError, UsageError
from shardstream.storage import open_store
from shardstream.storage.base.location import with_transport
from shardstream.storage.clients.options import Fixed

from .credentials import HIDDEN, HIDDEN64, bare_environment, key_of, settings  # noqa: F401
from .places import OPEN, AzurePlace
from .servers import ACCOUNT, ACCOUNT_KEY

pytestmark = pytest.mark.usefixtures("bare_environment")


class Rotating:
    """A provider whose first answer has expired already, as far as the server is concerned."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self):
        self.asked += 1
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        return {**(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]), "expires_at": expires}


# ------------------------------------------------------------------------------------------------- Azure, which one

CONNECTION = f"DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={HIDDEN64};EndpointSuffix=core.windows.net"
ACME = "abfss://data@acme.dfs.core.windows.net/a"


@pytest.mark.parametrize(
    ("url", "options", "environment", "key"),
    [
        (ACME, {"account_key": "option"}, {"AZURE_STORAGE_ACCOUNT_KEY": "variable"}, "option"),
        (ACME, {"sas_token": "?option"}, {"AZURE_STORAGE_ACCOUNT_KEY": "variable"}, "option"),
        (ACME, {"azure_storage_account_key": "option"}, {}, "option"),
        (ACME, {"connection_string": CONNECTION, "account_key": "option"}, {}, HIDDEN64),
        (ACME, {"credential": "option"}, {}, "option"),
        (ACME, {"credential": "sv=1&sig=option"}, {}, "sv=1&sig=option"),
        (ACME, {"token": "option"}, {}, "option"),
        (f"{ACME}?sv=1&sig=url", {}, {"AZURE_STORAGE_ACCOUNT_KEY": "variable"}, "sv=1&sig=url"),
        (f"{ACME}?sv=1&sig=url", {"account_key": "option"}, {}, "option"),
        (ACME, {}, {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION, "AZURE_STORAGE_ACCOUNT_KEY": "variable"}, HIDDEN64),
        (ACME, {}, {"AZURE_STORAGE_ACCOUNT_KEY": "variable", "AZURE_STORAGE_SAS_TOKEN": "sas"}, "variable"),
        (ACME, {}, {"AZURE_STORAGE_ACCESS_KEY": "variable"}, "variable"),
        (ACME, {}, {"AZURE_ACCOUNT_ACCESS_KEY": "variable", "AZURE_ACCOUNT_NAME": "acme"}, "variable"),
        (ACME, {}, {"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=variable"}, "sv=1&sig=variable"),
        (ACME, {}, {"AZURE_STORAGE_SAS_KEY": "sv=1&sig=variable"}, "sv=1&sig=variable"),
        (ACME, {}, {"AZURE_STORAGE_TOKEN": "variable"}, "variable"),
        (ACME, {"anon": True}, {"AZURE_STORAGE_ANON": "false"}, None),
        (ACME, {}, {"AZURE_STORAGE_ANON": "true"}, None),
        (ACME, {"anon": True}, {"AZURE_STORAGE_ACCOUNT_KEY": "variable"}, None),
    ],
)
def test_azure_credentials(url, options, environment, key) -> None:
    found = settings(url, options, **environment)
    assert key_of(found) == key
    assert found.config["skip_signature"] == (key is None)
    assert found.config["account_name"] == "acme"


@pytest.mark.parametrize(
    "environment",
    [
        {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION},
        {"AZURE_STORAGE_ACCOUNT_NAME": "acme", "AZURE_STORAGE_ACCOUNT_KEY": HIDDEN64},
        {"AZURE_STORAGE_ACCOUNT_NAME": "acme", "AZURE_STORAGE_SAS_TOKEN": HIDDEN},
    ],
)
def test_keys_of_another_account_are_left_alone(environment) -> None:
    other = settings("abfss://data@other.dfs.core.windows.net/a", {}, **environment)
    assert type(other.provider).__name__ == "TokenProvider"
    assert other.config["account_name"] == "other"
    assert isinstance(settings("az://data/a", {}, **environment).provider, Fixed)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        (CONNECTION, "https://acme.blob.core.windows.net"),
        (f"AccountName=acme;AccountKey={HIDDEN64}", "https://acme.blob.core.windows.net"),
        (f"BlobEndpoint=https://acme.blob.example/;SharedAccessSignature={HIDDEN}", "https://acme.blob.example"),
        (f"BlobEndpoint=http://10.0.0.1:10000/acme;SharedAccessSignature={HIDDEN}", "http://10.0.0.1:10000/acme"),
    ],
)
def test_connection_strings(text, endpoint) -> None:
    found = settings("az://data/a", {"connection_string": text})
    assert found.config["account_name"] == "acme"
    assert found.config["endpoint"] == endpoint
    assert found.client.get("allow_http", False) == endpoint.startswith("http://")


def test_the_emulator() -> None:
    for options, environment in (
        ({"connection_string": "UseDevelopmentStorage=true"}, {}),
        ({}, {"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true;"}),
        ({"use_emulator": True}, {}),
    ):
        found = settings("az://data/a", options, **environment)
        assert found.config["endpoint"] == "http://127.0.0.1:10000/devstoreaccount1"
        assert key_of(found) == ACCOUNT_KEY


@pytest.mark.parametrize("text", [HIDDEN, f"AccountKey={HIDDEN}", f"AccountName=acme;Key={HIDDEN}"])
def test_connection_strings_that_cannot_be_read(text) -> None:
    with pytest.raises(UsageError, match="connection string") as caught:
        open_store("az://data/a", storage_options={"connection_string": text})
    assert HIDDEN not in str(caught.value)


def test_azure_without_an_account_says_what_to_set() -> None:
    with pytest.raises(UsageError, match="the storage account is not known") as caught:
        open_store("az://data/a", storage_options={"anon": True})
    assert "AZURE_STORAGE_ACCOUNT_NAME" in str(caught.value)
    with pytest.raises(UsageError, match="names the account 'acme'"):
        open_store(ACME, storage_options={"account_name": "other", "anon": True})


def test_a_service_principal_and_a_federated_token() -> None:
    principal = {"AZURE_CLIENT_ID": "a", "AZURE_CLIENT_SECRET": HIDDEN, "AZURE_TENANT_ID": "b"}
    found = settings(ACME, {}, **principal)
    assert (found.config["credential_type"], found.config["client_secret"]) == ("client_secret", HIDDEN)
    federated = {"AZURE_CLIENT_ID": "a", "AZURE_FEDERATED_TOKEN_FILE": "/x", "AZURE_TENANT_ID": "b"}
    found = settings(ACME, {}, **federated)
    assert (found.config["credential_type"], found.config["federated_token_file"]) == ("workload_identity", "/x")


def test_nothing_given_asks_azure_identity_or_says_what_is_missing(monkeypatch) -> None:
    class Nobody:
        def get_token(self, scope):
            raise ValueError(HIDDEN)

    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Nobody)
    with pytest.raises(AccessError, match=r"Azure gave no token \(ValueError\)") as caught:
        open_store(ACME).get("x")
    assert HIDDEN not in str(caught.value)
    assert "AZURE_STORAGE_ACCOUNT_KEY" in str(caught.value)
    monkeypatch.setitem(__import__("sys").modules, "azure.identity", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[azure\]"):
        open_store(ACME)


def test_a_credential_object_gives_tokens() -> None:
    class Mine:
        def get_token(self, scope):
            return types.SimpleNamespace(token=HIDDEN, expires_on=4102444800)

    assert key_of(settings(ACME, {"credential": Mine()})) == HIDDEN
    with pytest.raises(UsageError, match="has no get_token"):
        settings(ACME, {"credential": object()})


# ---------------------------------------------------------------------------------------------- Azure, a real server


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
@pytest.mark.parametrize(
    "way", ["key", "sas option", "sas in the URL", "sas variable", "connection string", "sas string"]
)
def test_azure_by_every_way(way, transport, azure, monkeypatch) -> None:
    azure.plant("x", b"123")
    url, options, sas = azure.url(), dict(azure.options), azure.sas()
    if way != "key":
        del options["account_key"]
    if way == "sas option":
        options["sas_token"] = sas
    elif way == "sas in the URL":
        url += f"?{sas}"
    elif way == "sas variable":
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", sas)
    elif way == "connection string":
        options = {}
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure.connection_string)
    elif way == "sas string":
        options = {"connection_string": f"BlobEndpoint={options['endpoint']};SharedAccessSignature={sas}"}
    store = open_store(with_transport(url, transport), storage_options=options)
    assert store.url == azure.url()
    assert bytes(store.get("x")) == b"123"
    assert [meta.path for meta in store.list()] == ["x"]


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_azure_refusals_are_clear_and_at_once(transport, azure) -> None:
    azure.plant("x", b"123")
    account = {name: value for name, value in azure.options.items() if name != "account_key"}
    for options, said in (
        ({**account, "account_key": HIDDEN64}, "the key or token is not right"),
        ({**account, "sas_token": azure.sas(hours=-1)}, "has expired"),
    ):
        with pytest.raises(AccessError, match=said) as caught:
            open_store(with_transport(azure.url(), transport), storage_options=options).get("x")
        assert HIDDEN64 not in str(caught.value)
        assert "sig=" not in str(caught.value)
        assert ("it ended at 20" in str(caught.value)) == (transport == "obstore" and "sas_token" in options)
        assert caught.value.place["url"] == azure.url("x")
    reader = open_store(with_transport(azure.url(), transport), storage_options={**account, "sas_token": azure.sas()})
    with pytest.raises(AccessError, match="refuses"):
        reader.put("y", b"1")
    nowhere = open_store(with_transport("az://no-such-container/a", transport), storage_options=azure.options)
    with pytest.raises(NotFoundError, match="no bucket or container 'no-such-container'"):
        nowhere.get("x")


def test_azure_anonymous(azure_server) -> None:
    place = AzurePlace(*azure_server, container=OPEN)
    place.plant("x", b"123")
    options = {"account_name": ACCOUNT, "endpoint": place.options["endpoint"], "anon": True}
    assert bytes(open_store(place.url(), storage_options=options).get("x")) == b"123"
    closed = AzurePlace(*azure_server)
    closed.plant("x", b"123")
    with pytest.raises(AccessError, match="refuses"):
        open_store(closed.url(), storage_options=options).get("x")


def test_a_token_that_expired_is_asked_for_anew_once(azure) -> None:
    azure.plant("x", b"123")
    old, new = {"sas_token": azure.sas(hours=-1)}, {"sas_token": azure.sas()}
    options = {"account_name": ACCOUNT, "endpoint": azure.options["endpoint"]}
    provider = Rotating(old, new)
    store = open_store(azure.url(), storage_options={**options, "credential_provider": provider})
    assert bytes(store.get("x")) == b"123"
    asked = provider.asked
    assert bytes(store.get("x", 1)) == b"23"
    assert provider.asked == asked
    stuck = Rotating(old)
    with pytest.raises(AccessError, match="has expired"):
        open_store(azure.url(), storage_options={**options, "credential_provider": stuck}).get("x")
    assert stuck.asked <= 4
