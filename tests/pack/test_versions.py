"""What can be trained on can be handled: old versions, caches and replicas in the verbs that read data sets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shardstream import StorageOptions
from shardstream.cli.app import app
from shardstream.errors import ChecksumError, NotFoundError, UsageError
from shardstream.pack.export.run import export
from shardstream.pack.merge import merge
from shardstream.pack.repack import repack
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest

from ..storage.places import S3Place
from .making import tree

Verb = Callable[..., Any]


def export_files(url: Any, dest: Any, *, workers: int = 0, **options: Any) -> Any:
    return export(url, dest, to="files", workers=workers, **options)


def export_tables(url: Any, dest: Any, *, workers: int = 1, **options: Any) -> Any:
    return export(url, dest, to="parquet", workers=workers, **options)


def repack_here(url: Any, dest: Any, *, workers: int = 0, **options: Any) -> Any:
    return repack(url, dest, workers=workers, shuffle=True, **options)


def repack_there(url: Any, dest: Any, *, workers: int = 1, **options: Any) -> Any:
    return repack(url, dest, workers=workers, shard_size="4kB", **options)


def merge_one(url: Any, dest: Any, *, version: int | None = None, workers: int = 0, **options: Any) -> Any:
    assert not workers  # it has none
    return merge([url], dest, version=None if version is None else [version], **options)


# What is expected is made without workers, which change no byte.
VERBS = pytest.mark.parametrize("verb", [export_files, export_tables, repack_here, repack_there, merge_one])


def write(url: Path, start: int, stop: int, **options: Any) -> None:
    with ShardWriter(url, shard_size="8kB", **options) as writer:
        for i in range(start, stop):
            writer.write({"__key__": f"{i}", "bin": bytes([i]) * 1000, "cls": i})


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """20 samples in three shards, then 10 more."""
    write(tmp_path / "in", 0, 20)
    write(tmp_path / "in", 20, 30, append=True)
    return tmp_path / "in"


def planted(place: S3Place, folder: Path, name: str) -> str:
    for path, data in tree(folder).items():
        place.plant(f"{name}/{path}", data)
    return place / name


def spoil(path: Path) -> None:
    """Other bytes of the same length, in the middle of a value."""
    data = bytearray(path.read_bytes())
    data[1500] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.one_in(5)
@VERBS
def test_an_old_version(verb: Verb, grown: Path, tmp_path: Path) -> None:
    assert verb(grown, tmp_path / "old", version=1).samples == 20
    assert verb(grown, tmp_path / "new").samples == 30
    write(tmp_path / "alone", 0, 20)
    if verb is not merge_one:  # whose shards are called by the history too
        verb(tmp_path / "alone", tmp_path / "expected", workers=0)
        assert {name for name in tree(tmp_path / "old") if "bin" in name} == {
            name for name in tree(tmp_path / "expected") if "bin" in name
        }
    with pytest.raises(UsageError, match="version"):
        verb(grown, tmp_path / "none", version=7)


@pytest.mark.one_in(5)
@VERBS
def test_damage_in_the_first_place_is_read_in_the_next(verb: Verb, grown: Path, tmp_path: Path) -> None:
    verb(grown, tmp_path / "expected", workers=0)
    shutil.copytree(grown, tmp_path / "near")
    spoil(tmp_path / "near" / Manifest.load(grown).shard_name(1))
    with pytest.raises(ChecksumError):
        verb(tmp_path / "near", tmp_path / "damaged")
    verb(grown, tmp_path / "out", storage=StorageOptions(replicas=[tmp_path / "near"]))
    assert tree(tmp_path / "out") == tree(tmp_path / "expected")


@pytest.mark.one_in(5)
@VERBS
def test_a_replica_serves_what_is_gone(verb: Verb, grown: Path, tmp_path: Path) -> None:
    shutil.copytree(grown, tmp_path / "near")
    verb(tmp_path / "near", tmp_path / "expected", workers=0)
    (grown / Manifest.load(grown).shard_name(1)).unlink()
    with pytest.raises(NotFoundError):
        verb(grown, tmp_path / "missing")
    verb(grown, tmp_path / "out", storage=StorageOptions(replicas=[tmp_path / "near"]))
    assert tree(tmp_path / "out") == tree(tmp_path / "expected")


@pytest.mark.one_in(5)
@VERBS
def test_a_cache_is_filled_and_serves(verb: Verb, grown: Path, s3: S3Place, tmp_path: Path) -> None:
    verb(grown, tmp_path / "expected", workers=0)
    url = planted(s3, grown, "in")
    for name in ("first", "second"):
        verb(url, tmp_path / name, storage=StorageOptions(source=s3.options, cache=tmp_path / "cache"))
        assert tree(tmp_path / name) == tree(tmp_path / "expected")
        manifest = Manifest.load(grown)
        for shard in range(manifest.shards):  # the second time nothing is left there but the manifest
            s3.client.delete_object(Bucket=s3.bucket, Key=f"{s3.name}/in/{manifest.shard_name(shard)}")


@pytest.mark.one_in(5)
@VERBS
def test_what_a_cache_holds_and_is_damaged_comes_anew(verb: Verb, grown: Path, s3: S3Place, tmp_path: Path) -> None:
    verb(grown, tmp_path / "expected", workers=0)
    url = planted(s3, grown, "in")
    verb(url, tmp_path / "first", storage=StorageOptions(source=s3.options, cache=tmp_path / "cache"))
    blocks = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.stat().st_size > 4000]
    assert blocks
    for path in blocks:
        if b"\x07" * 900 in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(b"\x07" * 900, b"\x08" * 900))
    verb(url, tmp_path / "second", storage=StorageOptions(source=s3.options, cache=tmp_path / "cache"))
    assert tree(tmp_path / "second") == tree(tmp_path / "expected")


def test_versions_of_several(grown: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", 40, 45)
    assert merge([grown, tmp_path / "other"], tmp_path / "old", version=[1, None]).samples == 25
    assert merge([grown, tmp_path / "other"], tmp_path / "new").samples == 35
    with pytest.raises(UsageError, match="2 data sets"):
        merge([grown, tmp_path / "other"], tmp_path / "none", version=[1])


@pytest.mark.full
def test_commands(grown: Path, s3: S3Place, tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    shutil.copytree(grown, tmp_path / "near")
    (grown / Manifest.load(grown).shard_name(1)).unlink()
    near = ("--replica", tmp_path / "near")
    assert "20 samples" in run("repack", grown, tmp_path / "repacked", "--version", 1, "--workers", 0, *near)
    assert "20 samples" in run("export", grown, tmp_path / "files", "--to", "files", "--version", 1, *near)
    write(tmp_path / "other", 40, 45)
    merged = run("merge", grown, tmp_path / "other", tmp_path / "all", "--version", 1, "--version", "newest", *near)
    assert "25 samples" in merged
    options = [word for key, value in s3.options.items() for word in ("--source-option", f"{key}={value}")]
    url = planted(s3, tmp_path / "near", "in")
    found = run("export", url, tmp_path / "far", "--to", "files", "--cache", tmp_path / "cache", *options)
    assert "30 samples" in found
    assert any((tmp_path / "cache").iterdir())


def test_a_data_set_that_was_replaced_since_this_process_read_it(tmp_path: Path) -> None:
    for start in (0, 50):
        write(tmp_path / "in", start, start + 5, overwrite=True)
        export_files(tmp_path / "in", tmp_path / f"files{start}")
        repack_here(tmp_path / "in", tmp_path / f"again{start}")
        assert (tmp_path / f"files{start}/{start}.bin").read_bytes() == bytes([start]) * 1000
