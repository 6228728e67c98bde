"""URLs to stores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shardstream.errors import MissingExtraError, UsageError
from shardstream.storage import locate, open_object, open_store
from shardstream.storage.local.store import LocalStore
from shardstream.storage.transfer.remote import RemoteStore


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/data/out", "/data/out"),
        ("/data/out/", "/data/out"),
        (Path("/data/out"), "/data/out"),
        ("file:///data/out", "/data/out"),
        ("file://localhost/data/o%20t", "/data/o t"),
        ("/a/../b", "/b"),
    ],
)
def test_folders(url, folder) -> None:
    store = open_store(url)
    assert isinstance(store, LocalStore)
    assert store.url == folder
    assert open_store(locate(url)).url == folder


def test_relative_paths_become_absolute(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("out/").url == str(tmp_path / "out")
    store, name = open_object("x.tar")
    assert (store.url, name) == (str(tmp_path), "x.tar")


def test_objects() -> None:
    store, name = open_object("file:///data/out/x.tar")
    assert (store.url, name) == ("/data/out", "x.tar")
    assert open_object("/x.tar")[0].url == "/"
    store, name = open_object("s3://bucket/data/x.tar", storage_options={"anon": True})
    assert (store.url, name) == ("s3://bucket/data", "x.tar")
    assert open_object("s3://bucket/x.tar", storage_options={"anon": True})[0].url == "s3://bucket"
    store, name = open_object("https://acme.blob.core.windows.net/data/x.tar?sig=1")
    assert (store.url, name) == ("https://acme.blob.core.windows.net/data", "x.tar")
    for url in ("s3://bucket", "https://acme.blob.core.windows.net/data?sig=1", "memory://x"):
        with pytest.raises(UsageError):
            open_object(url, storage_options={"anon": True} if url.startswith("s3") else None)


@pytest.mark.parametrize("url", ["s3://bucket/a", "memory://a/b", "https://host/a"])
def test_stores_behind_a_network(url) -> None:
    store = open_store(url, storage_options={"anon": True} if url.startswith("s3") else None)
    assert isinstance(store, RemoteStore)
    assert store.url == url
    assert open_store(locate(url)).url == url if not url.startswith("s3") else True


def test_unknown_schemes_are_refused_with_a_list_of_what_is_known() -> None:
    with pytest.raises(UsageError, match=r"unknown URL scheme s33://") as caught:
        open_store("s33://key:geheim@bucket/data?token=geheim")
    assert caught.value.place["url"] == "s33://bucket/data"
    assert "geheim" not in str(caught.value)
    assert "did you mean 's3'" in str(caught.value)
    assert "fsspec.available_protocols()" in str(caught.value)


def test_protocols_of_fsspec_that_need_a_package_say_which(monkeypatch) -> None:
    import fsspec

    def missing(protocol):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[s3fs\]"):
        open_store("fsspec+s3://bucket/a", storage_options={"anon": True})


@pytest.mark.parametrize(
    ("url", "absent", "hint"),
    [
        ("s3://bucket/a", "obstore", "[s3]"),
        ("az://data/a", "obstore", "[azure]"),
        ("gs://bucket/a", "obstore", "[gcs]"),
        ("https://host/a", "obstore", "[http]"),
        ("memory://a", "fsspec", "[fsspec]"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(url, absent, hint, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    monkeypatch.setitem(sys.modules, f"{absent}.registry", None)
    with pytest.raises(MissingExtraError) as caught:
        open_store(url)
    assert hint in str(caught.value)
    assert caught.value.place["url"] == url


def test_optional_packages_are_imported_when_they_are_used() -> None:
    code = (
        "import sys\nimport shardstream.storage\nfrom shardstream.storage import open_store\n"
        "open_store('/tmp')\nfrom shardstream.storage import locate\nlocate('s3://bucket/a')\n"
        "names = ('obstore', 'fsspec', 'botocore', 'boto3', 'azure', 'aiohttp', 'torch')\n"
        "print([name for name in names if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
