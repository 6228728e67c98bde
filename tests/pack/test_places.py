"""Storage options: one meaning in every verb that reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shardstream.cli.app import app
from shardstream.errors import AccessError, UsageError
from shardstream.pack.export.run import export
from shardstream.pack.merge import merge
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.repack import repack
from shardstream.pack.run import pack
from shardstream.pack.sources.opening import roots
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest

from ..storage.places import S3Place, WebPlace, make_buckets, s3_client
from ..storage.servers import Server, Unavailable
from .making import jpeg, photo_list, photos

Verb = Callable[..., Any]


def export_files(url: Any, dest: Any, **options: Any) -> Any:
    return export(url, dest, to="files", workers=0, **options)


def merge_one(url: Any, dest: Any, **options: Any) -> Any:
    return merge([url], dest, **options)


def repack_here(url: Any, dest: Any, **options: Any) -> Any:
    return repack(url, dest, workers=0, **options)


def pack_folder(url: Any, dest: Any, **options: Any) -> Any:
    """A data set is files too: it is packed as a folder of ``.bin`` files beside it."""
    return pack(f"{url}-files/" if "://" in str(url) else f"{url}-files", dest, workers=0, **options)


VERBS = pytest.mark.parametrize("verb", [pack_folder, repack_here, merge_one, export_files])


@pytest.fixture(scope="module")
def far_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A second server that speaks S3, which knows nothing of the first one's objects."""
    try:
        server = Server("weed", tmp_path_factory.mktemp("far"))
    except Unavailable as error:
        pytest.skip(str(error))
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def far(far_server: str) -> Iterator[S3Place]:
    client = s3_client(far_server)
    make_buckets(client)
    yield S3Place(far_server, client)
    client.close()


def write(url: Any, **options: Any) -> None:
    with ShardWriter(url, **options) as writer:
        for i in range(5):
            writer.write({"__key__": f"{i}", "bin": bytes([i]) * 10, "cls": i})


@pytest.fixture
def stored(s3: S3Place) -> str:
    """A data set in a store, and files beside it."""
    write(s3 / "in", storage=StorageOptions(options=s3.options))
    for i in range(5):
        s3.plant(f"in-files/{i}.bin", bytes([i]) * 10)
    return s3 / "in"


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """The same here."""
    write(tmp_path / "in")
    (tmp_path / "in-files").mkdir()
    for i in range(5):
        (tmp_path / f"in-files/{i}.bin").write_bytes(bytes([i]) * 10)
    return tmp_path / "in"


@pytest.mark.one_in(4)
@VERBS
def test_from_a_store_to_a_folder(verb: Verb, stored: str, s3: S3Place, tmp_path: Path) -> None:
    assert verb(stored, tmp_path / "out", storage=StorageOptions(options=s3.options)).samples == 5
    assert verb(stored, tmp_path / "own", storage=StorageOptions(source=s3.options)).samples == 5


@pytest.mark.one_in(4)
@VERBS
def test_from_a_folder_to_a_store(verb: Verb, local: Path, s3: S3Place) -> None:
    assert verb(local, s3 / "out", storage=StorageOptions(options=s3.options)).samples == 5
    assert verb(local, s3 / "own", storage=StorageOptions(dest=s3.options)).samples == 5


@pytest.mark.one_in(4)
@VERBS
def test_from_a_store_to_another_with_two_sets_of_keys(verb: Verb, stored: str, s3: S3Place, far: S3Place) -> None:
    assert verb(stored, far / "out", storage=StorageOptions(source=s3.reader, dest=far.options)).samples == 5
    assert verb(stored, far / "two", storage=StorageOptions(options=s3.reader, dest=far.options)).samples == 5
    assert verb(stored, far / "three", storage=StorageOptions(options=far.options, source=s3.reader)).samples == 5
    with pytest.raises(AccessError):  # who may read may not write
        verb(stored, s3 / "out", storage=StorageOptions(source=s3.options, dest=s3.reader))
    found = {one["Key"] for one in far.client.list_objects_v2(Bucket=far.bucket, Prefix=far.name)["Contents"]}
    assert {name.split("/")[1] for name in found} == {"out", "two", "three"}


@pytest.mark.one_in(4)
@VERBS
def test_empty_options_of_one_place_are_the_environments(
    verb: Verb, stored: str, s3: S3Place, far: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    assert verb(stored, far / "out", storage=StorageOptions(options=far.options, source={})).samples == 5


@VERBS
@pytest.mark.parametrize("name", ["options", "source", "dest"])
def test_options_that_no_place_can_use_are_named(verb: Verb, local: Path, tmp_path: Path, name: str) -> None:
    secret = {"region": "x", "access_key_id": "the-secret-itself"}
    with pytest.raises(UsageError, match=rf"takes storage=.*{name}=.*: 'region', 'access_key_id'") as caught:
        verb(local, tmp_path / "out", storage=StorageOptions(**{name: secret}))
    assert "the-secret-itself" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert verb(local, tmp_path / "out", storage=StorageOptions(**{name: {}})).samples == 5


def test_options_that_others_take_the_place_of_are_named(stored: str, s3: S3Place, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"takes storage=StorageOptions\(options=...\): 'anon'"):
        export_files(stored, tmp_path / "out", storage=StorageOptions(source=s3.options, options={"anon": True}))


def test_a_writer_here_has_no_use_for_options(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"takes storage=StorageOptions\(options=...\): 'anon'"):
        ShardWriter(tmp_path / "out", storage=StorageOptions(options={"anon": True}))


def test_lists_here_may_name_files_that_options_serve(s3: S3Place, tmp_path: Path) -> None:
    for i in range(3):
        s3.plant(f"{i}.jpg", jpeg(i))
    (tmp_path / "list.tsv").write_text("".join(f"{s3 / f'{i}.jpg'}\t0\n" for i in range(3)))
    for name in ("options", "source"):
        storage = StorageOptions(**{name: s3.options})
        assert pack(tmp_path / "list.tsv", tmp_path / name, workers=0, storage=storage).samples == 3


def test_of_several_kinds_of_stores_options_serve_those_that_know_them(
    s3: S3Place, web: WebPlace, tmp_path: Path
) -> None:
    for path in photos(tmp_path, 3):
        web.plant(path, (tmp_path / path).read_bytes())
    lines = "".join(f"{web.url(path)}\t0\n" for path in photos(tmp_path, 3))
    (tmp_path / "list.tsv").write_text(lines)
    web.plant("list.tsv", lines.encode())
    here = pack(tmp_path / "list.tsv", tmp_path / "out", workers=0)
    # A list on the machine, and one on the web server, of files there: neither knows the keys of the bucket.
    for number, source in enumerate((tmp_path / "list.tsv", web.url("list.tsv"))):
        found = pack(source, s3 / f"out{number}", storage=StorageOptions(options=s3.options), workers=0)
        assert found.table.equals(here.table)
    with pytest.raises(UsageError, match="access_key_id"):
        pack(web.url("list.tsv"), s3 / "wrong", storage=StorageOptions(source=s3.options, dest=s3.options), workers=0)


def test_a_plan_carries_them(stored: str, s3: S3Place, far: S3Place) -> None:
    plan = pack_plan(f"{stored}-files/", far / "out", storage=StorageOptions(source=s3.reader, dest=far.options))
    for task in plan.tasks:
        task.run()
    assert plan.commit().samples == 5


@pytest.mark.full
def test_commands_mean_the_same(stored: str, s3: S3Place, far: S3Place, tmp_path: Path) -> None:
    def flags(name: str, place: dict[str, Any]) -> list[str]:
        return [word for key, value in place.items() for word in (f"--{name}-option", f"{key}={value}")]

    def run(*arguments: object) -> str:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    both = [*flags("source", s3.reader), *flags("dest", far.options)]
    assert "5 samples" in run("pack", f"{stored}-files/", far / "packed", "--workers", 0, *both)
    assert "5 samples" in run("repack", stored, far / "repacked", "--workers", 0, *both)
    assert "5 samples" in run("merge", stored, far / "merged", *both)
    assert "5 samples" in run("export", stored, far / "exported", "--to", "files", "--workers", 0, *both)
    alone = flags("storage", s3.options)
    assert "5 samples" in run("export", stored, tmp_path / "exported", "--to", "files", "--workers", 0, *alone)
    assert "5 samples" in run("repack", stored, tmp_path / "repacked", "--workers", 0, *alone)
    assert Manifest.load(tmp_path / "repacked").samples == 5
    refused = CliRunner().invoke(app, ["repack", str(tmp_path / "repacked"), str(tmp_path / "x"), *alone])
    assert refused.exit_code == 2
    told = "no place that is read or written takes --storage-option KEY=VALUE: 'access_key_id'"
    assert told in refused.stderr


def test_a_list_of_photographs_goes_to_a_store_as_before(s3: S3Place, tmp_path: Path) -> None:
    found = pack(photo_list(tmp_path, 5), s3 / "out", storage=StorageOptions(options=s3.options), workers=2)
    assert found.samples == 5


@pytest.mark.parametrize("name", ["list.tsv?sv=1&sig=x", "photos/?.jpg", "{0..9}.tar"])
def test_a_source_in_a_container_that_the_path_of_its_url_names(name: str, tmp_path: Path) -> None:
    source = f"https://acme.blob.core.windows.net/data/{name}"
    read, _ = StorageOptions(options={"anon": True}).locate(roots(source), tmp_path, names_urls=True)
    assert [(place.address.kind, place.address.bucket) for place in read] == [("azure", "data")]
