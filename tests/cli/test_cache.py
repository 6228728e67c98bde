from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shardstream.cli.app import app
from shardstream.cli.report import size
from shardstream.dataset.opened import DatasetAddress
from shardstream.diagnose import cache as caches
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, locate
from shardstream.storage.cache import Cache


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["cache", *[str(argument) for argument in arguments]])


@pytest.fixture
def url(web, tmp_path) -> str:
    with ShardWriter(tmp_path / "set", shard_size="400kB") as writer:
        for i in range(60):
            writer.write({"__key__": f"{i}", "raw": bytes([i]) * 40_000})
    for path in (tmp_path / "set").iterdir():
        web.plant(path.name, path.read_bytes())
    return web.url()


@pytest.fixture
def local(tmp_path, url) -> Manifest:
    return Manifest.load(tmp_path / "set")


def test_warm_status_verify_clear(url, local, tmp_path) -> None:
    cache = tmp_path / "cache"
    result = run("warm", url, cache)
    assert result.exit_code == 0, result.output
    assert f"{url}: {local.shards} of {local.shards} shards" in result.stdout
    assert result.stdout.splitlines()[-1] == f"next: shardstream cache status {cache}"

    again = run("warm", url, cache, "--json")
    report = json.loads(again.stdout)
    assert (report["shards"], report["bytes"], report["fetched"]) == (local.shards, local.bytes, 0)

    result = run("status", cache)
    assert result.exit_code == 0, result.output
    assert f"{url}: complete, trains without the store" in result.stdout
    held = f"  {url}: {size(local.bytes)} of {size(local.bytes)} in {local.shards} of {local.shards} shards, last used "
    assert held in result.stdout
    found = json.loads(run("status", cache, "--json").stdout)
    (tier,) = found["tiers"]
    (one,) = tier["sets"]
    assert (one["url"], one["fingerprint"], one["present"]) == (url, local.fingerprint, local.bytes)
    assert found["known"][0]["offline"] is True

    result = run("verify", cache)
    assert result.exit_code == 0
    assert f"{cache}: sound" in result.stdout
    file = sorted(cache.rglob("*.blocks"))[0]
    data = bytearray(file.read_bytes())
    data[9000] ^= 1
    file.write_bytes(data)
    result = run("verify", cache, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["damages"][0]["offset"] == 0
    assert json.loads(run("warm", url, cache, "--json").stdout)["fetched"] == file.stat().st_size - 8192

    assert run("clear", cache, "--only", "s3://other").exit_code == 2
    result = run("clear", cache, "--only", url)
    assert result.exit_code == 0
    assert f"{url}: " in result.stdout
    assert not list(cache.rglob("*.blocks"))
    assert "nothing to clear" in run("clear", cache).stdout


def test_a_cache_too_small_for_all_of_it(url, local, tmp_path) -> None:
    result = run("warm", url, tmp_path / "cache", "--size", "900kB", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["full"]
    assert 0 < report["shards"] < local.shards
    assert run("warm", url, tmp_path / "cache", "--size", "900kB").stdout.count("no room for the rest") == 1


def test_what_is_in_use_stays(url, tmp_path) -> None:
    cache = tmp_path / "cache"
    run("warm", url, cache)
    home = DatasetAddress(locate(url), cache=Cache(cache)).open()
    shard = home.shard(0)
    shard.store.hold()
    result = run("clear", cache)
    assert result.exit_code == 1
    assert "in use" in result.stdout
    assert shard.store.get(shard.name, 0, 10)
    assert "in use" in run("status", cache).stdout


def test_the_shares_of_nodes_are_those_of_training(url, local, tmp_path) -> None:
    shares = [caches._share(local, (node, 3), seed=5) for node in range(3)]
    assert sorted(set().union(*map(set, shares))) == list(range(local.shards))
    # A shard across a cut belongs to both sides.
    assert sum(map(len, shares)) <= local.shards + 2
    report = caches.warm(url, tmp_path / "cache", node=(1, 3), seed=5)
    assert report.total_shards == report.shards == len(shares[1])
    names = {local.shard_name(shard) for shard in shares[1].tolist()}
    assert {path.name.rpartition(".")[0].rpartition(".")[0] for path in (tmp_path / "cache").rglob("*.blocks")} == names


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("warm", "{local}", "{cache}"), "needs no cache"),
        (("warm", "{url}", "{cache}", "--node", "4/4"), "no node 4 of 4"),
        (("warm", "{url}", "{cache}", "--node", "1"), "--node must be I/N"),
        (("warm", "{url}", "{local}"), "lie in a data set"),
        (("warm", "{url}", "{cache}", "--size", "much"), "size of the cache must be a size"),
        (("status", "{local}"), "lie in a data set"),
    ],
)
def test_wrong_arguments(url, tmp_path, arguments, what) -> None:
    names = {"url": url, "cache": tmp_path / "cache", "local": tmp_path / "set"}
    result = run(*(text.format(**names) for text in arguments))
    assert result.exit_code == 2
    assert what in result.stderr
    assert sorted(path.name for path in (tmp_path / "set").iterdir())[0] == "dataset.json"


@pytest.mark.parametrize("verb", ["status", "verify", "clear"])
def test_no_cache(tmp_path, verb) -> None:
    result = run(verb, tmp_path / "none")
    assert result.exit_code == 3
    assert "no cache here" in result.stderr


def test_secrets_of_a_url_are_nowhere_in_a_cache(web, url, tmp_path) -> None:
    secret = "sig=Tr0ub4dor3"
    report = caches.warm(f"{url}?{secret}", tmp_path / "cache")
    assert secret not in repr(report)
    assert isinstance(locate(f"{url}?{secret}"), Location)
    files = [path for path in Path(tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(files) > 4
    for path in files:
        assert b"Tr0ub4dor3" not in path.read_bytes()
        assert "Tr0ub4dor3" not in path.name
    assert "Tr0ub4dor3" not in run("status", tmp_path / "cache", "--json").output


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of others")
def test_a_cache_of_others_is_refused_and_one_of_the_group_is_not(url, tmp_path) -> None:
    cache = tmp_path / "cache"
    assert run("warm", url, cache, "--shared").exit_code == 0
    assert {path.stat().st_mode & 0o7777 for path in (cache, *cache.rglob("*"))} == {0o2770, 0o660}
    assert "complete, trains without the store" in run("status", cache, "--shared").stdout
    assert run("verify", cache, "--shared").exit_code == 0
    for path in (cache, *cache.rglob("*")):
        os.chown(path, 54_321, os.getgid())
    assert "complete, trains without the store" in run("status", cache, "--shared").stdout
    for verb in ("status", "verify", "clear"):
        result = run(verb, cache)
        assert result.exit_code == 3
        assert f"{cache} belongs to user 54321: name a folder of your own" in " ".join(result.output.split())
    assert run("clear", cache, "--shared").exit_code == 0
    assert not list(cache.rglob("*.blocks"))
