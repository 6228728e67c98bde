"""What `doctor` finds of stores: servers and proxies that misbehave, and whose credentials are taken."""

from __future__ import annotations

import email.utils
import json
import socket
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream import diagnose
from shardstream.cli.app import app
from shardstream.diagnose import Finding
from shardstream.diagnose.doctor import reaching
from shardstream.storage import RetryPolicy, locate
from shardstream.storage.clients.servers import server_of
from shardstream.testing import make_dataset

from ..storage.faults import FaultProxy
from ..storage.places import WebPlace

KEYS = {"access_key_id": "hidden-key", "secret_access_key": "hidden-secret"}
EXPIRED = {
    "status": 403,
    "headers": {"Content-Type": "application/xml"},
    "body": "<Error><Code>ExpiredToken</Code><Message>hidden</Message></Error>",
}


@pytest.fixture
def served(web: WebPlace) -> WebPlace:
    make_dataset(web.folder, samples=20)
    return web


def asked(url: str, **options: object) -> dict[str, Finding]:
    found = reaching.store_findings(locate(url, storage_options=options or None))
    return {one.check: one for one in found}


def through(proxy: FaultProxy, place: WebPlace) -> str:
    return f"{proxy.url}/{place.name}"


def test_a_store_that_answers(served: WebPlace) -> None:
    found = asked(served.url())
    assert [*found] == ["credentials", "clock", "store"]
    assert found["credentials"].fact == f"none; for {served.endpoint}"
    assert found["clock"].level == "ok"
    assert found["store"].fact.startswith("dataset.json: size after ")


@pytest.mark.parametrize("name", ["photos/0.jpg", "photos/*.jpg", "photos/{0,1}.jpg"])
def test_one_object_is_enough(name: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/0.jpg").write_bytes(b"x" * 70_000)
    (found,) = reaching.store_findings(locate(f"{tmp_path}/{name}"))
    assert found.level == "ok"
    assert found.fact.startswith("0.jpg: ")
    assert "65.5 kB in" in found.fact


def test_a_store_that_is_far_away(served: WebPlace) -> None:
    with FaultProxy(served.endpoint.removeprefix("http://")) as proxy:
        proxy.add("latency", seconds=0.2)
        found = asked(through(proxy, served))["store"]
    assert found.level == "warn"
    assert "far away" in found.fact
    assert "cache=" in found.fix


@pytest.mark.parametrize(("ahead", "level"), [(120, "warn"), (-120, "warn"), (3600, "fail")])
def test_a_clock_that_is_wrong(served: WebPlace, ahead: float, level: str) -> None:
    with FaultProxy(served.endpoint.removeprefix("http://")) as proxy:
        there = email.utils.formatdate(time.time() - ahead, usegmt=True)
        proxy.add("header", headers={"Date": there})
        found = asked(through(proxy, served))["clock"]
    assert found.level == level
    assert ("ahead of" if ahead > 0 else "behind") in found.fact
    assert "chronyc" in found.fix


def test_a_server_that_does_not_say_the_time(served: WebPlace) -> None:
    with FaultProxy(served.endpoint.removeprefix("http://")) as proxy:
        proxy.add("header", headers={"Date": None})
        assert "clock" not in asked(through(proxy, served))


def test_an_expired_token_is_found_and_not_shown(served: WebPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultProxy(served.endpoint.removeprefix("http://")) as proxy:
        proxy.add("status", **EXPIRED)
        options = {**KEYS, "session_token": "hidden-token", "endpoint": proxy.url}
        flags = [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]
        done = CliRunner().invoke(app, ["doctor", "s3://bucket/data", "--json", *flags])
    found = {one["check"]: Finding(**one) for one in json.loads(done.stdout)["findings"]}
    assert found["credentials"].fact.startswith("access_key_id of storage_options; for http://127.0.0.1:")
    assert found["store"].level == "fail"
    assert "expired" in found["store"].fact
    assert "storage_options" in found["store"].fix
    assert done.exit_code == 1
    assert "hidden" not in done.output


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "_PATIENCE", RetryPolicy(deadline=0.5, contact=0.5, stall=0.5))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = asked(f"http://127.0.0.1:{port}/data")
    assert "clock" not in found
    assert found["store"].level == "fail"
    assert found["store"].fix


def test_a_folder_with_nothing_in_it(tmp_path: Path) -> None:
    found = asked(str(tmp_path))["store"]
    assert found.level == "fail"
    assert "nothing" in found.fact


HOME = {"HOME": "/nowhere"}


@pytest.mark.parametrize(
    ("url", "options", "environment", "credentials", "server"),
    [
        ("s3://b/x", KEYS, {}, "access_key_id of storage_options", "https://s3.us-east-1.amazonaws.com"),
        (
            "s3://b/x",
            {},
            {"AWS_ACCESS_KEY_ID": "hidden", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_REGION": "eu-west-1"},
            "AWS_ACCESS_KEY_ID of the environment",
            "https://s3.eu-west-1.amazonaws.com",
        ),
        ("s3://b/x", {"anon": True}, {}, "none, as `anon` says", "https://s3.us-east-1.amazonaws.com"),
        (
            "s3://b/x",
            {},
            {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ENDPOINT_URL": "http://store:9000/"},
            "the role of AWS_WEB_IDENTITY_TOKEN_FILE",
            "http://store:9000",
        ),
        ("s3://b/x", {}, {}, "the role of this machine, if it has one", "https://s3.us-east-1.amazonaws.com"),
        (
            "abfss://c@acme.dfs.core.windows.net/x",
            {"account_key": "aGlkZGVu"},
            {},
            "an account key of storage_options",
            "https://acme.blob.core.windows.net",
        ),
        (
            "az://c/x",
            {},
            {"AZURE_STORAGE_ACCOUNT": "acme", "AZURE_STORAGE_SAS_TOKEN": "sig=hidden"},
            "a SAS token of the environment",
            "https://acme.blob.core.windows.net",
        ),
        (
            "https://acme.blob.core.windows.net/c/x?sig=hidden",
            {},
            {},
            "a SAS token of the URL",
            "https://acme.blob.core.windows.net",
        ),
        (
            "gs://b/x",
            {},
            {"GOOGLE_APPLICATION_CREDENTIALS": "/hidden.json"},
            "GOOGLE_APPLICATION_CREDENTIALS of the environment",
            "https://storage.googleapis.com",
        ),
        ("gs://b/x", {"anon": True}, {}, "none, as `anon` or an emulator says", "https://storage.googleapis.com"),
        ("gs://b/x", {}, {}, "the service account of this machine, if it has one", "https://storage.googleapis.com"),
        ("https://user:hidden@host:8443/x", {}, {}, "the user of the URL", "https://host:8443"),
        ("https://host/x?sig=hidden", {}, {}, "the query of the URL", "https://host"),
    ],
)
def test_who_gives_the_credentials(
    url: str, options: dict[str, object], environment: dict[str, str], credentials: str, server: str
) -> None:
    found = server_of(locate(url, storage_options=options or None), HOME | environment)
    assert found is not None
    assert (found.credentials, found.url) == (credentials, server)


def test_a_profile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = hidden\naws_secret_access_key = hidden\n")
    (tmp_path / "config").write_text("[profile lab]\nregion = eu-north-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    found = server_of(locate("s3://b/x"), {"AWS_PROFILE": "lab"})
    assert found == ("https://s3.eu-north-1.amazonaws.com", "the AWS profile 'lab'")
    missing = asked("s3://b/x", profile="nobody")["credentials"]
    assert missing.level == "fail"
    assert "no AWS profile 'nobody'" in missing.fact


def test_nobody_knows_the_server_of_other_stores(tmp_path: Path) -> None:
    assert server_of(locate(str(tmp_path))) is None
    assert server_of(locate("memory://x")) is None


def test_credentials_that_are_half_there() -> None:
    found = asked("s3://b/x", access_key_id="hidden")
    assert [*found] == ["credentials"]
    assert found["credentials"].level == "fail"
    assert "hidden" not in str(found["credentials"])


def test_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, says Rich
    monkeypatch.setenv("TERM", "dumb")  # of 80 columns and without colours
    found = ss.doctor(num_workers=4000)
    with monkeypatch.context() as patch:  # memory differs from one moment to the next
        patch.setattr(diagnose, "doctor", lambda *_, **__: found)
        done = CliRunner().invoke(app, ["doctor", "--workers", "4000"])
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if line[:2] in ("ok", "wa", "fa")] == [one.level for one in found]
    fixes = [one.fix for one in found if one.fix]
    assert fixes == [line.removeprefix("      fix: ") for line in lines if line.startswith("      fix: ")]
    assert all(len(line) <= 80 for line in lines if not line.startswith("      fix: "))
    failed = any(one.level == "fail" for one in found)
    assert done.exit_code == (1 if failed else 0)
    assert lines[-1].startswith("next: ")
    empty = CliRunner().invoke(app, ["doctor", str(tmp_path)])
    assert empty.exit_code == 1
    assert empty.stdout.splitlines()[-1] == "next: the fixes above, then shardstream doctor again"
