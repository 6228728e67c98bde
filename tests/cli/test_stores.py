"""The verbs on URLs, and the options that lead there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shardstream import StorageOptions
from shardstream.cli.app import app
from shardstream.cli.stores import parse_options
from shardstream.errors import UsageError
from shardstream.pack.writer import ShardWriter

from ..pack.making import photo_list
from ..storage.places import AzurePlace, Place, S3Place
from ..storage.servers import ACCOUNT, SECRET


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def flags(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]


def test_options_are_text_unless_they_are_json() -> None:
    texts = ["endpoint=http://x/?a=b", "anon=true", 'client_kwargs={"verify": false}', "key=123", "token=", " a =[1]"]
    assert parse_options(texts) == {
        "endpoint": "http://x/?a=b",
        "anon": True,
        "client_kwargs": {"verify": False},
        "key": "123",
        "token": "",
        "a": [1],
    }
    assert parse_options(None) is None
    assert parse_options([]) is None


@pytest.mark.parametrize("text", ["the-secret-itself", "=the-secret-itself", "token={the-secret-itself"])
def test_an_option_that_is_none_is_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_options([text])
    assert "the-secret-itself" not in str(caught.value)
    result = run("info", "s3://bucket/x", "--storage-option", text)
    assert result.exit_code == 2
    assert "the-secret-itself" not in result.output


@pytest.mark.full
def test_all_verbs_by_options(s3: S3Place, tmp_path: Path) -> None:
    source, options, url = photo_list(tmp_path, 20), flags(s3.options), s3.url()
    packed = run("pack", source, url, "--workers", 0, *options)
    assert packed.exit_code == 0, packed.output
    assert packed.stdout.splitlines()[-1] == f"next: shardstream info {url}"
    shown = run("info", url, *options)
    assert "samples     20" in shown.stdout
    assert run("verify", url, *options, "-q").stdout.startswith(f"{url}: sound (1 shard")
    viewed = run("view", url, 3, "--save", tmp_path / "one", *options)
    assert "8 x 8, jpg, colour" in viewed.stdout
    assert len(list((tmp_path / "one").rglob("*.jpg"))) == 1
    timed = run("bench", url, "--workers", 0, "--batches", 3, "--batch-size", 4, "--json", *options)
    assert timed.exit_code == 0, timed.output
    found = json.loads(timed.stdout)
    assert (found["samples"], found["batches"]) == (12, 3)
    assert found["transfers"]["requests"] > 0
    everything = "".join(one.output for one in (packed, shown, viewed, timed))
    assert SECRET not in everything


@pytest.mark.full
def test_all_verbs_by_environment(azure: AzurePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in azure.environment.items():
        monkeypatch.setenv(name, value)
    assert run("pack", photo_list(tmp_path, 20), azure.url(), "--workers", 2, "--shard-size", 5000).exit_code == 0
    assert json.loads(run("verify", azure.url(), "--json").stdout)["ok"] is True
    assert json.loads(run("info", azure.url(), "--json").stdout)["url"] == azure.url()
    azure.plant("dataset.json", b"{}")
    damaged = run("verify", azure.url())
    assert damaged.exit_code == 3
    assert "not a manifest of shardstream" in damaged.stderr


@pytest.mark.full
def test_what_a_url_holds_is_not_shown(azure: AzurePlace, tmp_path: Path) -> None:
    sas = azure.sas(rights="rwdlc")
    signature = re.search(r"sig=([^&]+)", sas)
    assert signature
    options = flags({"account_name": ACCOUNT, "endpoint": azure.options["endpoint"]})
    url = f"{azure.url()}?{sas}"
    results = [
        run("pack", photo_list(tmp_path, 5), url, "--workers", 0, *options),
        run("info", url, *options),
        run("info", url, "--json", *options),
        run("verify", url, *options),
        run("view", url, *options),
        run("bench", url, "--workers", 0, "--batches", 1, "--batch-size", 2, *options),
        run("--debug", "info", f"{azure.url('none')}?{sas}", *options),
    ]
    assert [one.exit_code for one in results] == [0, 0, 0, 0, 0, 0, 3], results[0].output
    shown = "".join(one.output for one in results)
    assert azure.url() in shown
    assert signature[1] not in shown
    assert "sig=" not in shown


def test_a_damaged_shard_in_a_store(s3: S3Place) -> None:
    with ShardWriter(s3.url(), storage=StorageOptions(options=s3.options), shard_size="9kB") as writer:
        for i in range(20):
            writer.write({"__key__": f"{i}", "raw": bytes([i]) * 1000})
    damaged = bytearray(s3.dig("shard-000000.tar") or b"")
    damaged[700] ^= 1
    s3.plant("shard-000000.tar", bytes(damaged))
    s3.plant("shard-000001.tar", (s3.dig("shard-000001.tar") or b"")[:-600])
    s3.client.delete_object(Bucket=s3.bucket, Key=f"{s3.name}/shard-000002.tar")
    s3.plant("shard-000003.tar", bytes(3 << 20))
    result = run("verify", s3.url(), "--json", *flags(s3.options))
    assert result.exit_code == 1
    problems = json.loads(result.stdout)["problems"]
    assert [(one["check"], one["shard"][-5]) for one in problems] == [
        *(("checksum", "0"), ("value", "0"), ("size", "1"), ("index", "1"), ("missing", "2"), ("size", "3")),
    ]


def test_view_and_bench_of_a_folder(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "set", classes=["cat", "dog"]) as writer:
        for i in range(20):
            writer.write({"__key__": f"[red]{i}", "txt": f"[bold]text {i}", "cls": i % 2})
    url = tmp_path / "set"
    result = run("view", url)
    assert result.exit_code == 0
    assert result.stdout.count("sample ") == 5
    assert "sample 4 of 20: [red]4 [shard-000000.tar, row 4]" in result.stdout
    assert "'[bold]text 4'" in result.stdout
    assert result.stdout.splitlines()[-1] == f"next: shardstream view {url} 0 --save DIR"
    found = json.loads(run("view", url, 7, "--key", "[red]3", "--json").stdout)
    assert [one["number"] for one in found["samples"]] == [7, 3]
    assert run("view", url, 20).exit_code == 2
    timed = run("bench", url, "--workers", 0, "--batches", 2, "--batch-size", 5, "--field", "cls", "--no-shuffle")
    assert timed.exit_code == 0, timed.output
    assert "10 samples (0.50 epochs)" in timed.stdout
    assert timed.stdout.splitlines()[-2].startswith("limit")
    assert timed.stdout.splitlines()[-1].startswith("next: shardstream ")
    assert run("bench", url, "--batch-size", 21, "--workers", 0).exit_code == 2


@pytest.mark.parametrize(
    ("server", "transport"),
    [
        *(("s3", "obstore"), ("azure", "obstore"), ("web", "obstore"), ("s3", "fsspec"), ("azure", "fsspec")),
        pytest.param(
            "gcs", "fsspec", marks=pytest.mark.full
        ),  # obstore speaks GCS's XML interface, which the emulator has not
    ],
)
def test_looking_at_a_data_set_anywhere(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, transport: str
) -> None:
    if transport == "fsspec":
        pytest.importorskip({"s3": "s3fs", "azure": "adlfs", "gcs": "gcsfs"}[server])
    place: Place = request.getfixturevalue(server)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    with ShardWriter(tmp_path, shard_size="9kB", format="record") as writer:
        for i in range(20):
            writer.write({"__key__": f"{i}", "raw": bytes([i]) * 1000, "cls": i})
    for path in tmp_path.iterdir():
        place.plant(f"set/{path.name}", path.read_bytes())
    url, chosen = place.url("set"), ["--transport", transport]
    for verb, expected in (
        (["info"], "samples     20"),
        (["verify", "-q"], f"{url}: sound (3 shards"),
        (["view", "--key", "17"], "sample 17 of 20: 17"),
        (["bench", "-q", "--workers", 0, "--batches", 2, "--batch-size", 5], "10 samples (0.50 epochs)"),
    ):
        result = run(verb[0], url, *verb[1:], *chosen)
        assert result.exit_code == 0, result.output
        assert expected in result.stdout
