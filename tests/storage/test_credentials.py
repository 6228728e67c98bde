"""Passwords and signatures in URLs, and that no secret is ever shown."""

from __future__ import annotations

import json
import logging

import pytest

from shardstream.errors import AccessError, ShardStreamError, StorageError, UsageError
from shardstream.storage import locate, open_store
from shardstream.storage.base.location import with_transport
from shardstream.storage.clients.names import AZURE, GCS, S3, OptionNames

from .credentials import HIDDEN, HIDDEN64, bare_environment, key_of, settings  # noqa: F401

pytestmark = pytest.mark.usefixtures("bare_environment")

# ------------------------------------------------------------------------------------------------------- web servers


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_web_servers_with_passwords_headers_and_signed_urls(transport, web_server) -> None:
    endpoint, folder = web_server
    for part in ("private", "signed"):
        (folder / part).mkdir(exist_ok=True)
        (folder / part / "x").write_bytes(b"123")
    host = endpoint.removeprefix("http://")
    header = {"headers": {"Authorization": "Basic dXNlcjpwYXNzIHdvcmQ="}}
    for url, options in (
        (f"http://user:pass%20word@{host}/private", None),
        (f"{endpoint}/private", header),
        (f"{endpoint}/signed?sig=signature", None),
    ):
        store = open_store(with_transport(url, transport), storage_options=options)
        assert bytes(store.get("x")) == b"123"
        assert store.size("x") == 3
        assert store.url in (f"{endpoint}/private", f"{endpoint}/signed")
    for url in (f"http://user:{HIDDEN}@{host}/private", f"{endpoint}/signed?sig={HIDDEN}"):
        with pytest.raises(AccessError, match="refuses") as caught:
            open_store(with_transport(url, transport)).get("x")
        assert HIDDEN not in str(caught.value)


# ------------------------------------------------------------------------------------------------------------ secrets


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (f"http://me:{HIDDEN}@127.0.0.1:1/a?sig={HIDDEN}", {"headers": {"Cookie": HIDDEN}}),
        ("s3://bucket/a", {"key": HIDDEN, "secret": HIDDEN, "token": HIDDEN, "endpoint": "http://127.0.0.1:1"}),
        (f"az://data/a?sv=1&sig={HIDDEN}", {"account_name": "acme", "endpoint": "http://127.0.0.1:1/acme"}),
        ("az://data/a", {"account_name": "acme", "account_key": HIDDEN64, "endpoint": "http://127.0.0.1:1/acme"}),
    ],
)
@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_secrets_stay_out_of_errors_logs_and_reprs(url, options, transport, caplog) -> None:
    from shardstream.storage import RetryPolicy

    caplog.set_level(logging.DEBUG)
    location = locate(with_transport(url, transport), storage_options=options)
    store = open_store(location).with_policy(RetryPolicy(deadline=0.2))
    with pytest.raises(StorageError) as caught:
        store.get("x")
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("shardstream")]
    shown = json.dumps(
        [str(caught.value), repr(caught.value), repr(store), repr(location), str(location), store.url, ours]
    )
    chain: BaseException | None = caught.value
    while chain is not None:
        if isinstance(chain, ShardStreamError) or chain is caught.value:
            shown += f"{chain} {chain!r}"
        assert HIDDEN not in str(chain)
        chain = None if chain.__suppress_context__ and chain.__cause__ is None else chain.__cause__ or chain.__context__
    assert HIDDEN not in shown
    assert HIDDEN64 not in shown
    assert "127.0.0.1" not in caught.value.what


@pytest.mark.parametrize("names", [S3, AZURE, GCS])
def test_every_name_of_an_option_serves_both_libraries(names: OptionNames) -> None:
    for one in names.table:
        for alias in (one.obstore, one.fsspec, *one.others, f"{names.prefix}{one.obstore}".upper()):
            assert names.for_obstore({alias: "x", "other": None}) == {one.obstore: "x"}
            assert names.for_fsspec({alias: "x", "more": 1}) == {one.fsspec: "x", "more": 1}
        for alias in one.others:
            with pytest.raises(UsageError, match=f"name '{one.obstore}' twice"):
                names.for_obstore({alias: "x", one.obstore: "y"})
