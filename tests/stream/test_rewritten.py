"""Objects that are written again while a run reads them: with the same bytes, with others, and not at all any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import ChangedError, NotFoundError
from shardstream.storage.base.location import with_transport

from ..storage.places import AzurePlace, Place, S3Place, WebPlace

SAMPLES = 60
SETTINGS: dict[str, Any] = {
    "batch_size": 4,
    "shuffle": True,
    "tail": "exact",
    "order": ss.OrderOptions(window=4, lanes=4),
    "reads": ss.ReadOptions(prefetch="400KB"),
}


def payload(number: int) -> bytes:
    return np.random.default_rng(number).bytes(79_000 + number * 37 % 3_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("local") / "set")


def written(folder: Path, **options: Any) -> Path:
    with ss.ShardWriter(folder, shard_size="1.3MB", **options) as writer:
        for number in range(SAMPLES):
            writer.write({"__key__": f"{number}", "raw": payload(number), "id": number})
    assert len(list(folder.glob("*.tar"))) == 4  # each of two blocks of a cache
    return folder


def put(place: Place, name: str, data: bytes) -> None:
    """Write an object so that its version is another one, whatever is in it."""
    if isinstance(place, S3Place):  # an ETag is the MD5 of what was sent at once
        where = {"Bucket": place.bucket, "Key": f"{place.name}/{name}"}
        upload = place.client.create_multipart_upload(**where) | where
        upload = {key: upload[key] for key in ("Bucket", "Key", "UploadId")}
        tag = place.client.upload_part(**upload, PartNumber=1, Body=data)["ETag"]
        parts = {"Parts": [{"ETag": tag, "PartNumber": 1}]}
        place.client.complete_multipart_upload(**upload, MultipartUpload=parts)
        if place.client.head_object(**where)["ETag"].strip('"').endswith("-1"):
            return
        raise AssertionError("it has the version of before")
    if isinstance(place, WebPlace):  # in one step: what is on its way is of the version of before
        was = (place.folder / name).stat().st_mtime_ns
        place.plant(".new", data)
        os.utime(place.folder / ".new", ns=(was, was + 5 * 10**9))
        (place.folder / ".new").rename(place.folder / name)
        return
    place.plant(name, data)


def remove(place: Place, name: str) -> None:
    if isinstance(place, S3Place):
        place.client.delete_object(Bucket=place.bucket, Key=f"{place.name}/{name}")
    elif isinstance(place, AzurePlace):
        place._blob(name).delete_blob()
    else:
        assert isinstance(place, WebPlace)
        (place.folder / name).unlink()


def upload(folder: Path, place: Place) -> None:
    for file in folder.iterdir():
        place.plant(file.name, file.read_bytes())


def again(folder: Path, place: Place, change: Callable[[bytes], bytes] = bytes) -> None:
    for file in folder.glob("*.tar"):
        put(place, file.name, change(file.read_bytes()))


def other_payloads(data: bytes) -> bytes:
    """As long, with the same index, and another byte in each of the values."""
    found = bytearray(data)
    for at in range(1024, len(found) - 80_000, 1024):
        found[at] ^= 1
    return bytes(found)


def open_set(place: Place, transport: str = "auto", **options: Any) -> ss.ShardDataset:
    return ss.ShardDataset(
        with_transport(place.url(), transport), storage_options=place.options, **(SETTINGS | options)
    )


def epoch(dataset: ss.ShardDataset, events: dict[int, Callable[[], object]]) -> list[int]:
    """Its numbers; after so many batches something happens."""
    found = []
    for number, batch in enumerate(dataset):
        for one, raw in zip(batch["id"].tolist(), batch["raw"], strict=True):
            assert bytes(raw.numpy()) == payload(one)
            found.append(one)
        if number in events:
            events[number]()
    return found


STORES = [("s3", "obstore"), ("s3", "fsspec"), ("azure", "obstore"), ("azure", "fsspec"), ("web", "obstore")]
STORES += [("web", "fsspec")]


@pytest.fixture(params=STORES, ids=lambda one: "-".join(one))
def where(request) -> tuple[Place, str]:
    return request.getfixturevalue(request.param[0]), request.param[1]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("cached", [False, True])
def test_objects_written_again_with_the_same_bytes_cost_a_read(where, cached, folder, tmp_path) -> None:
    place, transport = where
    upload(folder, place)
    cache = ss.Cache(tmp_path / "cache", size="2.9MB") if cached else None  # for two of four
    dataset = open_set(place, transport=transport, cache=cache)
    for _ in range(2):
        found = epoch(dataset, {3: lambda: again(folder, place)} if not _ else {})
        assert sorted(found) == list(range(SAMPLES))


def test_an_object_is_read_anew_once(web, folder) -> None:
    upload(folder, web)
    write = lambda: again(folder, web)  # noqa: E731
    with pytest.raises(ChangedError, match="replaced") as caught:
        epoch(open_set(web), {2: write, 7: write})
    assert caught.value.place["url"].startswith(web.url("shard-"))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_other_bytes_are_a_changed_object_and_no_damage(web, folder, on_error) -> None:
    upload(folder, web)
    seen = []

    def change() -> None:
        again(folder, web, other_payloads)
        seen.append(True)

    with pytest.raises(ChangedError, match="replaced"):
        epoch(open_set(web, on_error=on_error, max_skips=1000), {3: change})
    assert seen


@pytest.mark.parametrize("without", ["checksums", "verify"])
def test_what_cannot_be_compared_is_not_read_anew(web, folder, tmp_path, without) -> None:
    if without == "checksums":
        folder = written(tmp_path / "set", shards=ss.ShardOptions(checksums=False))
    upload(folder, web)
    with pytest.raises(ChangedError, match="replaced"):
        epoch(
            open_set(web, reads=ss.ReadOptions(prefetch="400KB", verify=without != "verify")),
            {3: lambda: again(folder, web)},
        )


def test_a_cache_of_two_versions_is_repaired_once_the_first_is_back(web, folder, tmp_path) -> None:
    upload(folder, web)
    dataset = open_set(web, cache=tmp_path / "cache", shuffle=False, order=ss.OrderOptions())
    with pytest.raises(ChangedError, match="replaced"):
        epoch(dataset, {4: lambda: again(folder, web, other_payloads)})  # the index of the next shard has come
    again(folder, web)
    for _ in range(2):
        assert sorted(epoch(open_set(web, cache=tmp_path / "cache"), {})) == list(range(SAMPLES))


@pytest.mark.parametrize("cached", [False, True])
def test_an_index_that_is_read_again_has_to_be_the_same(web, folder, tmp_path, monkeypatch, cached) -> None:
    monkeypatch.setattr("shardstream.dataset.indexes.OPEN_INDEXES", 2)
    upload(folder, web)
    dataset = open_set(web, cache=ss.Cache(tmp_path / "cache", size=1) if cached else None)
    assert sorted(epoch(dataset, {3: lambda: again(folder, web)})) == list(range(SAMPLES))
    # Shards of the same sizes, each with an index of its own that fits it.
    other = tmp_path / "other"
    with ss.ShardWriter(other, shard_size="1.3MB") as writer:
        for number in range(SAMPLES):
            writer.write({"__key__": f"{number}", "raw": payload(number), "id": number + 1})

    def change() -> None:
        for file in other.glob("*.tar"):
            assert file.stat().st_size == (folder / file.name).stat().st_size
            put(web, file.name, file.read_bytes())

    with pytest.raises(ChangedError, match="replaced"):
        epoch(open_set(web), {3: change})


@pytest.mark.one_in(3)
def test_an_object_that_is_gone_was_not_replaced(where, folder) -> None:
    place, transport = where
    upload(folder, place)

    def change() -> None:
        for file in folder.glob("*.tar"):
            remove(place, file.name)

    with pytest.raises(NotFoundError, match="no such object"):
        epoch(open_set(place, transport=transport), {3: change})


def test_workers_read_anew_each_for_itself(web, folder) -> None:
    upload(folder, web)
    loader = ss.Loader(open_set(web), num_workers=2)
    found = []
    for number, batch in enumerate(loader):
        found += batch["id"].tolist()
        if number == 3:
            again(folder, web)
    assert sorted(found) == list(range(SAMPLES))


@pytest.mark.parametrize("how", ["renamed", "in place"])
def test_local_files_written_again_are_read_on(folder, tmp_path, how) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())

    def change() -> None:
        for file in copy.glob("*.tar"):
            data = file.read_bytes()
            if how == "renamed":
                (copy / ".new").write_bytes(data)
                (copy / ".new").rename(file)
            else:  # as rsync --inplace: never shorter
                with open(file, "r+b") as out:
                    out.write(data)

    dataset = ss.ShardDataset(copy, **SETTINGS)
    assert sorted(epoch(dataset, {3: change})) == list(range(SAMPLES))
    assert sorted(epoch(dataset, {})) == list(range(SAMPLES))
