"""Where S3's credentials come from: every way, in the right order; on a real server where one runs."""

from __future__ import annotations

import pytest

from shardstream.errors import AccessError, MissingExtraError, NotFoundError, UsageError
from shardstream.storage import open_store
from shardstream.storage.base.location import with_transport
from shardstream.storage.clients.aws import s3fs_arguments

from .credentials import HIDDEN, HIDDEN64, bare_environment, key_of, settings  # noqa: F401
from .places import OPEN, S3Place
from .servers import KEY, SECRET

pytestmark = pytest.mark.usefixtures("bare_environment")

# ---------------------------------------------------------------------------------------------------- S3, which one


@pytest.mark.parametrize(
    ("options", "environment", "endpoint", "http"),
    [
        ({}, {}, None, False),
        ({}, {"AWS_ENDPOINT_URL": "https://a"}, "https://a", False),
        ({}, {"AWS_ENDPOINT_URL": "https://a", "AWS_ENDPOINT_URL_S3": "http://b/"}, "http://b", True),
        ({}, {"S3_ENDPOINT_URL": "http://c"}, "http://c", True),
        ({"endpoint_url": "http://d"}, {"AWS_ENDPOINT_URL_S3": "https://b"}, "http://d", True),
        ({"endpoint": "https://e"}, {"AWS_ENDPOINT_URL_S3": "http://b"}, "https://e", False),
        ({"client_kwargs": {"endpoint_url": "https://f"}}, {}, "https://f", False),
    ],
)
def test_s3_endpoints(options, environment, endpoint, http) -> None:
    found = settings("s3://bucket/a", {"anon": True, **options}, **environment)
    assert found.config.get("aws_endpoint_url_s3") == endpoint
    assert found.client.get("allow_http", False) == http
    assert found.detect_region == (endpoint is None)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "S3_ENDPOINT_URL"])
def test_both_transports_look_for_the_endpoint_in_the_same_variables(name) -> None:
    variables = {name: "https://a"}
    assert settings("s3://bucket", {"anon": True}, **variables).config["aws_endpoint_url_s3"] == "https://a"
    assert s3fs_arguments({"anon": True}, {}, variables)["endpoint_url"] == "https://a"
    own = {"anon": True, "client_kwargs": {"endpoint_url": "https://b"}}
    assert s3fs_arguments(own, {}, variables)["endpoint_url"] == "https://b"


@pytest.mark.parametrize("url", ["s3://bucket", "az://bucket", "gs://bucket"])
def test_retries_of_writing_are_an_option_of_every_bucket(url) -> None:
    options = {"anon": True, "retry_config": {"max_retries": 1}}
    found = settings(url, options | ({"account_name": "acme"} if url.startswith("az") else {}))
    assert found.retry == {"max_retries": 1}
    assert "retry_config" not in found.config


@pytest.mark.parametrize(
    ("options", "environment", "region"),
    [
        ({}, {}, "us-east-1"),
        ({}, {"AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        ({}, {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "eu-west-2"}, "eu-west-2"),
        ({"region_name": "eu-west-3"}, {"AWS_REGION": "eu-west-2"}, "eu-west-3"),
    ],
)
def test_s3_regions(options, environment, region) -> None:
    assert settings("s3://bucket", {"anon": True, **options}, **environment).config["region"] == region


FROM_VARIABLES = {"AWS_ACCESS_KEY_ID": "variable", "AWS_SECRET_ACCESS_KEY": HIDDEN}
PROFILES = "[default]\naws_access_key_id=plain\naws_secret_access_key=x\n[work]\naws_access_key_id=working\naws_secret_access_key=x\nregion=eu-north-1\nendpoint_url=http://127.0.0.1:9\n"


@pytest.mark.parametrize(
    ("options", "environment", "key"),
    [
        ({"access_key_id": "option", "secret_access_key": "x"}, FROM_VARIABLES, "option"),
        ({"aws_access_key_id": "option", "aws_secret_access_key": "x"}, FROM_VARIABLES, "option"),
        ({"key": "option", "secret": "x"}, {"AWS_PROFILE": "work"}, "option"),
        ({}, FROM_VARIABLES, None),  # obstore's own
        ({}, {**FROM_VARIABLES, "AWS_PROFILE": "work"}, None),  # as in botocore: keys come before a profile
        ({}, {"AWS_PROFILE": "work"}, "working"),
        ({"profile": "work"}, FROM_VARIABLES, "working"),
        ({}, {}, "plain"),
        ({"anon": True}, FROM_VARIABLES, None),
        ({}, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/x"}, None),
    ],
)
def test_s3_credentials(options, environment, key, tmp_path, monkeypatch) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(PROFILES)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = settings("s3://bucket", options, **environment)
    assert key_of(found) == key
    assert found.config["skip_signature"] == ("anon" in options)
    if key == "working":
        assert found.config["region"] == "eu-north-1"
        assert found.config["aws_endpoint_url_s3"] == "http://127.0.0.1:9"


def test_s3_without_any_credentials_says_what_to_set() -> None:
    with pytest.raises(AccessError, match="there are no credentials for S3") as caught:
        open_store("s3://bucket/a")
    assert "AWS_ACCESS_KEY_ID" in str(caught.value)
    assert caught.value.place["url"] == "s3://bucket/a"


def test_a_profile_that_does_not_exist() -> None:
    with pytest.raises(AccessError, match="there is no AWS profile 'nobody'"):
        open_store("s3://bucket/a", storage_options={"profile": "nobody"})


def test_a_profile_needs_botocore(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "botocore.session", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[aws\]"):
        open_store("s3://bucket/a", storage_options={"profile": "work"})


@pytest.mark.parametrize(
    "options",
    [
        {"access_key_id": HIDDEN},
        {"session_token": HIDDEN},
        {"access_key_id": "a", "aws_access_key_id": HIDDEN, "secret_access_key": "b"},
        {"anon": HIDDEN},
        {"anon": True, "acess_key": HIDDEN},
        {"anon": True, "read_timeout": HIDDEN},
        {"anon": True, "read_timeout": -1},
        {"anon": True, "client_options": {"read_timeuot": HIDDEN}},
    ],
)
def test_options_that_cannot_work_are_refused_by_name(options) -> None:
    with pytest.raises(UsageError) as caught:
        open_store("s3://bucket/a", storage_options=options).size("x")
    assert HIDDEN not in str(caught.value)
    assert caught.value.place["url"].startswith("s3://bucket/a")


# ------------------------------------------------------------------------------------------------- S3, a real server


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_s3_by_variables(transport, s3, monkeypatch) -> None:
    s3.plant("x", b"123")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    assert bytes(open_store(with_transport(s3.url(), transport)).get("x")) == b"123"


def test_s3_by_a_profile(s3, tmp_path, monkeypatch) -> None:
    s3.plant("x", b"123")
    (tmp_path / ".aws").mkdir()
    file = tmp_path / ".aws/config"
    text = "[profile p]\naws_access_key_id={}\naws_secret_access_key={}\nendpoint_url={}\n"
    file.write_text(text.format(KEY, SECRET, s3.endpoint))
    monkeypatch.setenv("AWS_PROFILE", "p")
    store = open_store(s3.url())
    assert bytes(store.get("x")) == b"123"


def test_s3_options_come_before_variables(s3, monkeypatch) -> None:
    s3.plant("x", b"123")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, HIDDEN)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert bytes(open_store(s3.url(), storage_options=s3.options).get("x")) == b"123"


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_s3_anonymous(transport, s3_server) -> None:
    place = S3Place(*s3_server, bucket=OPEN)
    place.plant("x", b"123")
    options = {"anon": True, "endpoint": place.endpoint}
    assert bytes(open_store(with_transport(place.url(), transport), storage_options=options).get("x")) == b"123"
    closed = S3Place(*s3_server)
    closed.plant("x", b"123")
    with pytest.raises(AccessError, match="refuses") as caught:
        open_store(with_transport(closed.url(), transport), storage_options=options).get("x")
    assert caught.value.place["url"] == closed.url("x")


@pytest.mark.parametrize("transport", ["obstore", "fsspec"])
def test_s3_refusals_are_clear_and_at_once(transport, s3) -> None:
    s3.plant("x", b"123")
    wrong = {**s3.options, "secret_access_key": HIDDEN}
    with pytest.raises(AccessError, match="the secret key does not belong to the access key") as caught:
        open_store(with_transport(s3.url(), transport), storage_options=wrong).get("x")
    assert HIDDEN not in str(caught.value)
    reader = open_store(with_transport(s3.url(), transport), storage_options=s3.reader)
    assert bytes(reader.get("x")) == b"123"
    with pytest.raises(AccessError, match="access is denied") as caught:
        reader.put("y", b"1")
    assert "writing needs the right" in str(caught.value)
    nowhere = open_store(with_transport("s3://no-such-bucket/a", transport), storage_options=s3.options)
    for ask in (nowhere.get, lambda path: list(nowhere.list(path))):
        with pytest.raises(NotFoundError, match="no bucket or container 'no-such-bucket'"):
            ask("x")
    if transport == "obstore":
        with pytest.raises(NotFoundError, match="no bucket or container 'no-such-bucket'"):
            nowhere.size("x")


def test_a_provider_that_fails_is_named_without_what_it_says(s3) -> None:
    def fail():
        raise RuntimeError(HIDDEN)

    store = open_store(s3.url(), storage_options={"credential_provider": fail, "endpoint": s3.endpoint})
    with pytest.raises(AccessError, match="credential provider") as caught:
        store.get("x")
    assert HIDDEN not in str(caught.value)
