"""``view``, ``info`` and ``verify`` of a version, through a cache, and with replicas; as verbs and as commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shardstream.cli.app import app
from shardstream.diagnose import info, verify, view
from shardstream.errors import DataError, UsageError
from shardstream.pack.writer import ShardWriter

from ..storage.places import S3Place

COUNTS = (20, 30)  # samples of version 1, and of version 2


def raw(number: int) -> bytes:
    return bytes([number]) * 1500


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grown") / "set"
    for start, stop in ((0, COUNTS[0]), COUNTS):
        with ShardWriter(folder, shard_size="18kB", format="record", append=start > 0) as writer:
            for number in range(start, stop):
                writer.write({"__key__": f"k{number}", "raw": raw(number), "cls": number})
    return folder


@pytest.fixture
def far(grown: Path, s3: S3Place) -> S3Place:
    for file in grown.iterdir():
        if file.is_file():
            s3.plant(file.name, file.read_bytes())
    return s3


def flipped(folder: Path, number: int) -> str:
    """Change a byte of a sample; the name of its shard."""
    for file in sorted(folder.glob("shard-*")):
        data = bytearray(file.read_bytes())
        at = data.find(raw(number))
        if at >= 0:
            data[at + 3] ^= 1
            file.write_bytes(data)
            return file.name
    raise AssertionError(number)


def damage(place: S3Place, folder: Path, tmp_path: Path, number: int) -> str:
    """Change a byte of a sample far away."""
    copy = tmp_path / "damaged"
    shutil.copytree(folder, copy)
    name = flipped(copy, number)
    place.plant(name, (copy / name).read_bytes())
    return name


def command(*arguments: Any, options: dict[str, Any] | None = None) -> tuple[int, Any]:
    words = [word for name, value in (options or {}).items() for word in ("--storage-option", f"{name}={value}")]
    result = CliRunner().invoke(app, [*map(str, arguments), "--json", *words])
    return result.exit_code, json.loads(result.stdout) if result.stdout else result.stderr


def test_a_version_is_what_it_was(grown: Path) -> None:
    for version, count in enumerate(COUNTS, 1):
        assert info(grown, version=version).samples == count
        assert view(grown, [-1], version=version).samples[0].key == f"k{count - 1}"
        report = verify(grown, version=version)
        assert report.ok
        assert report.samples == count
        assert command("info", grown, "--version", version)[1]["samples"] == count
        assert command("view", grown, count - 1, "--version", version)[1]["total"] == count
        assert command("verify", grown, "-q", "--version", version)[1]["samples"] == count
    with pytest.raises(UsageError, match="no sample 20"):
        view(grown, [20], version=1)
    for verb in (info, view, verify):
        with pytest.raises(UsageError, match="version"):
            verb(grown, version=3)


def test_damage_of_the_last_version_is_none_of_the_first(grown: Path, tmp_path: Path) -> None:
    shutil.copytree(grown, tmp_path / "set")
    name = flipped(tmp_path / "set", 25)
    assert verify(tmp_path / "set", version=1).ok
    assert {one.shard for one in verify(tmp_path / "set").problems} == {name}


@pytest.mark.parametrize("verb", [info, view, verify])
def test_options_that_no_place_can_use(grown: Path, verb: Callable[..., Any], s3: S3Place) -> None:
    with pytest.raises(UsageError, match="takes storage_options: 'region'"):
        verb(grown, storage_options={"region": "x"})
    code, text = command(verb.__name__, grown, options={"region": "x"})
    assert code == 2
    assert "region" in text
    verb(grown, replicas=[s3.url()], storage_options=s3.options)


def test_what_was_read_once_comes_out_of_the_cache(far: S3Place, tmp_path: Path) -> None:
    there: dict[str, Any] = {"cache": tmp_path / "cache", "storage_options": far.options}
    before = view(far.url(), [3, 21], keys=["k4"], **there)
    assert [one.key for one in before.samples] == ["k3", "k21", "k4"]
    assert info(far.url(), **there).checksums
    shards = {one.shard for one in before.samples}
    for name in shards:
        far.plant(name, b"\0" * len(far.dig(name) or b""))
    after = view(far.url(), [3, 21], keys=["k4"], **there)
    assert after == before
    with pytest.raises(DataError):
        view(far.url(), [3], storage_options=far.options)


def test_a_replica_is_read_in_place_of_the_store(far: S3Place, grown: Path, tmp_path: Path) -> None:
    name = damage(far, grown, tmp_path, 3)
    assert view(far.url(), [3], replicas=[grown], storage_options=far.options).samples[0].key == "k3"
    code, found = command("view", far.url(), 3, "--replica", grown, options=far.options)
    assert code == 0
    assert found["samples"][0]["shard"] == name
    # The replica's damage is made up for by the store.
    near = tmp_path / "near"
    shutil.copytree(grown, near)
    flipped(near, 22)
    assert view(far.url(), [22], replicas=[near], storage_options=far.options).samples[0].key == "k22"
    (near / name).write_bytes(b"")
    assert info(far.url(), replicas=[near], storage_options=far.options).fields[0].mean_bytes is not None


def test_verify_looks_at_the_place_itself_and_names_a_sound_copy(far: S3Place, grown: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    there: dict[str, Any] = {"storage_options": far.options}
    view(far.url(), range(COUNTS[1]), cache=cache, **there)  # all of it
    name = damage(far, grown, tmp_path, 3)
    alone = verify(far.url(), **there).problems
    assert {one.check for one in alone} == {"checksum", "value"}
    assert {(one.shard, one.sound_copy) for one in alone} == {(name, None)}
    damaged = tmp_path / "damaged"
    for places, copy in (
        ({"replicas": [damaged]}, None),
        ({"replicas": [damaged, grown]}, f"{grown}/{name}"),
        ({"cache": cache}, str(cache)),
        ({"cache": tmp_path / "other"}, None),
    ):
        report = verify(far.url(), **places, **there)
        assert [(one.check, one.shard) for one in report.problems] == [(one.check, one.shard) for one in alone]
        assert {one.sound_copy for one in report.problems} == {copy}
    code, report = command("verify", far.url(), "-q", "--replica", grown, options=far.options)
    assert code == 1
    assert report["problems"][0]["sound_copy"] == f"{grown}/{name}"
    words = [word for key, value in far.options.items() for word in ("--storage-option", f"{key}={value}")]
    shown = CliRunner().invoke(app, ["verify", far.url(), "-q", "--cache", str(cache), *words]).stdout
    assert f"{name}: a sound copy is in {cache}" in shown.replace("\n", " ").replace("  ", " ")
