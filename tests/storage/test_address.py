"""What a URL says, in every form that people write."""

from __future__ import annotations

import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.storage import Location, locate
from shardstream.storage.base.address import Address, parse
from shardstream.storage.base.location import with_transport

SECRET = "geheim0815"
ACME = "https://acme.blob.core.windows.net"


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket/a/b", "bucket", "a/b"),
        ("s3a://bucket/a/b/", "bucket", "a/b"),
        ("s3n://bucket", "bucket", ""),
        ("S3://bucket/", "bucket", ""),
        ("s3://bucket/a%20b/c#d", "bucket", "a%20b/c#d"),  # as every tool of AWS has it: nothing is decoded
        ("s3://my.bucket/ä ö", "my.bucket", "ä ö"),
    ],
)
def test_s3(url, bucket, prefix) -> None:
    address = parse(url)
    assert (address.kind, address.bucket, address.prefix, address.secret) == ("s3", bucket, prefix, "")


@pytest.mark.parametrize("url", ["gs://bucket/a/b", "gcs://bucket/a/b/"])
def test_gcs(url) -> None:
    address = parse(url)
    assert (address.kind, address.bucket, address.prefix) == ("gcs", "bucket", "a/b")


@pytest.mark.parametrize(
    ("url", "account", "endpoint"),
    [
        ("az://data/a/b", "", ""),
        ("azure://data/a/b", "", ""),
        ("abfs://data/a/b", "", ""),
        ("adl://data/a/b", "", ""),
        ("azure://acme.blob.core.windows.net/data/a/b", "acme", ACME),
        ("az://acme.blob.core.windows.net/data/a/b", "acme", ACME),
        ("az://data@acme.blob.core.windows.net/a/b", "acme", ACME),
        ("azure://data@acme.blob.core.windows.net/a/b", "acme", ACME),
        ("abfs://data@acme.dfs.core.windows.net/a/b", "acme", ACME),
        ("abfss://data@acme.dfs.core.windows.net/a/b/", "acme", ACME),
        ("abfss://data@ACME.DFS.core.windows.net/a/b/", "acme", ACME),
        ("wasb://data@acme.blob.core.windows.net/a/b", "acme", ACME),
        ("wasbs://data@acme.blob.core.windows.net/a/b", "acme", ACME),
        ("https://acme.blob.core.windows.net/data/a/b", "acme", ACME),
        ("https://acme.dfs.core.windows.net/data/a/b/", "acme", ACME),
        ("https://acme.blob.core.chinacloudapi.cn/data/a/b", "acme", "https://acme.blob.core.chinacloudapi.cn"),
        ("https://acme.z12.blob.storage.azure.net/data/a/b", "acme", "https://acme.z12.blob.storage.azure.net"),
        ("abfss://data@acme.dfs.fabric.microsoft.com/a/b", "acme", "https://acme.dfs.fabric.microsoft.com"),
    ],
)
def test_azure(url, account, endpoint) -> None:
    address = parse(url)
    assert (address.kind, address.bucket, address.prefix) == ("azure", "data", "a/b")
    assert (address.account, address.endpoint) == (account, endpoint)


@pytest.mark.parametrize(
    ("url", "prefix"), [("https://acme.blob.core.windows.net/data/a%20b", "a b"), ("az://data/a%20b", "a%20b")]
)
def test_only_web_addresses_are_decoded(url, prefix) -> None:
    assert parse(url).prefix == prefix


@pytest.mark.parametrize(
    ("url", "shown", "secret"),
    [
        (f"az://data/a?sv=1&sig={SECRET}", "az://data/a", f"?sv=1&sig={SECRET}"),
        (f"{ACME}/data/a/?sv=1&sig={SECRET}", f"{ACME}/data/a", f"?sv=1&sig={SECRET}"),
        (f"https://host/a/b?sig={SECRET}", "https://host/a/b", f"?sig={SECRET}"),
        (f"https://me:{SECRET}@host:81/a", "https://host:81/a", f"me:{SECRET}"),
        (f"http://{SECRET}@host/a?b=1#c", "http://host/a", f"{SECRET}?b=1#c"),
        (f"ftp://me:{SECRET}@host/a", "ftp://host/a", f"me:{SECRET}"),
        (f"sftp://me:p@{SECRET}@host/a@b", "sftp://host/a@b", f"me:p@{SECRET}"),
        ("hf://datasets/org/name@main/x", "hf://datasets/org/name@main/x", ""),
        ("memory://", "memory://", ""),
        ("memory://a/b/", "memory://a/b", ""),
    ],
)
def test_what_is_secret_is_cut_off_and_found_again(url, shown, secret) -> None:
    address = parse(url)
    assert (address.url, address.secret) == (shown, secret)
    assert parse(address.url, address.secret) == address


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///a",
        "az://",
        "https://",
        "https://acme.blob.core.windows.net",
        "abfss://@acme.dfs.core.windows.net/a",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "az://data/./b",
        "file://elsewhere/data",
        f"s3://key:{SECRET}@bucket/a",
        f"s3://bucket/a?X-Amz-Signature={SECRET}",
        f"gs://bucket/a?token={SECRET}",
        f"simplecache::s3://key:{SECRET}@bucket",
        f"abfss://data:{SECRET}@acme.dfs.core.windows.net/a",
        f"abfss://data@acme.example.org/a?sig={SECRET}",
        f"file://me:{SECRET}@elsewhere/data?x={SECRET}",
        f"https://me:{SECRET}@/a",
    ],
)
def test_what_cannot_be_meant_is_refused_without_showing_secrets(url) -> None:
    with pytest.raises(UsageError) as caught:
        parse(url)
    assert caught.value.place["url"]
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


SCHEMES = ("s3", "gs", "az", "azure", "abfss", "http", "https", "ftp", "hf", "memory", "webhdfs")
TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="/?@:#\0", exclude_categories=["Cs"]), min_size=1, max_size=9
)


@given(st.sampled_from(SCHEMES), TEXT, st.lists(TEXT, max_size=3), st.booleans(), st.booleans())
def test_no_secret_is_ever_shown_and_a_location_leads_back(scheme, host, parts, user, query) -> None:
    url = f"{scheme}://{f'me:{SECRET}@' if user else ''}{host}/{'/'.join(parts)}{f'?sig={SECRET}' if query else ''}"
    problem = None
    try:
        location = locate(url, storage_options={"account_key": SECRET, "nested": {"token": SECRET}})
    except UsageError as error:
        problem = str(error)
    if problem is not None:
        assert SECRET not in problem
        return
    shown = f"{location} {location!r} {location.access!r} {location.address!r} {location.join('x')!r}"
    if scheme != "hf":  # where an @ belongs to the name
        assert SECRET not in shown
    assert locate(location) is location
    assert pickle.loads(pickle.dumps(location)) == location
    assert hash(pickle.loads(pickle.dumps(location))) == hash(location)
    again = locate(str(location), storage_options=location.access.options)
    assert again.url == location.url
    if user or query:
        assert SECRET in location.access.secret or scheme == "hf"


def test_locations_of_folders() -> None:
    location = locate("data/x/", storage_options={"anon": True})
    assert location.local
    assert location.url == os.path.abspath("data/x")
    assert location.access.options == {}
    assert location.join("a/b").url == os.path.abspath("data/x/a/b")
    assert locate("/").join("a").url == "/a"


def test_options_given_later_replace_those_of_a_location() -> None:
    first = locate(f"https://me:{SECRET}@host/a", storage_options={"proxy_url": "http://p"})
    second = locate(with_transport(first, "fsspec"))
    assert second.access.options == first.access.options
    assert (second.transport, first.transport) == ("fsspec", "obstore")
    assert second.access.secret == f"me:{SECRET}"
    assert locate(first, storage_options={}).access.options == {}


def test_join_keeps_the_access() -> None:
    location = locate(f"az://data/a?sig={SECRET}")
    below = location.join("b.tar")
    assert below.url == "az://data/a/b.tar"
    assert below.address.query == f"sig={SECRET}"
    assert isinstance(below, Location)
    assert isinstance(below.address, Address)


def test_transports() -> None:
    assert locate("hf://datasets/a/b").transport == "fsspec"
    assert locate("s3://b/a").transport == "obstore"
    with pytest.raises(UsageError, match="obstore does not speak hf://"):
        locate(with_transport("hf://datasets/a/b", "obstore"))
    with pytest.raises(UsageError, match="transport must be one of auto, obstore, fsspec, got 'boto'"):
        locate(with_transport("s3://b/a", "boto"))
