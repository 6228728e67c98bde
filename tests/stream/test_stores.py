"""Data sets in real stores: the same samples as from a disk, whatever the start method, the cache and the replicas."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import NotFoundError, StorageError, UsageError
from shardstream.storage.base.location import with_transport
from tests.grouped import grouped

from ..storage.faults import FaultProxy
from ..storage.places import Place, WebPlace
from .making import numbered, write_dataset


def payload(number: int) -> bytes:
    return np.random.default_rng(number).bytes(5_000 + number * 37 % 3_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("local"), numbered([60, 40, 70, 30], bin=payload))


def upload(folder: Path, place: Place) -> None:
    for file in folder.iterdir():
        place.plant(file.name, file.read_bytes())


def flat(batches) -> list:
    return [(batch["__key__"], batch["id"].tolist(), [bytes(one.numpy()) for one in batch["bin"]]) for batch in batches]


SETTINGS: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 5, "tail": "exact"}


def local(folder: Path) -> list:
    return flat(ss.ShardDataset(folder, **SETTINGS))


@pytest.fixture
def proxy(web: WebPlace) -> Iterator[FaultProxy]:
    """In front of the web server."""
    with FaultProxy(web.endpoint.removeprefix("http://")) as found:
        yield found


@pytest.mark.parametrize(
    "kind", ["s3", "web", *(pytest.param(one, marks=pytest.mark.full) for one in ("azure", "gcs"))]
)
def test_a_data_set_in_a_store_is_streamed_like_a_local_one(kind, folder, request) -> None:
    place = request.getfixturevalue(kind)
    upload(folder, place)
    transport = "fsspec" if kind == "gcs" else "auto"  # the emulator lacks the interface that obstore speaks
    dataset = ss.ShardDataset(with_transport(place.url(), transport), storage_options=place.options, **SETTINGS)
    assert flat(dataset) == local(folder)
    assert dataset.fingerprint == ss.ShardDataset(folder).fingerprint


@pytest.mark.parametrize("kind", ["s3", pytest.param("azure", marks=pytest.mark.full)])
def test_fsspec_on_request(kind, folder, request) -> None:
    place = request.getfixturevalue(kind)
    upload(folder, place)
    dataset = ss.ShardDataset(with_transport(place.url(), "fsspec"), storage_options=place.options, **SETTINGS)
    loader = ss.Loader(dataset, num_workers=1, multiprocessing_context="fork")
    assert flat(loader) == local(folder)


def test_any_url_of_fsspec(folder) -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    for file in folder.iterdir():
        files.pipe(f"/streamed/{file.name}", file.read_bytes())
    try:
        assert flat(ss.ShardDataset("memory://streamed", **SETTINGS)) == local(folder)
    finally:
        files.rm("/streamed", recursive=True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.full)])
def test_workers_of_every_start_method_after_the_parent_has_read(method, folder, s3, tmp_path) -> None:
    upload(folder, s3)
    dataset = ss.ShardDataset(s3.url(), storage_options=s3.options, cache=tmp_path / "cache", **SETTINGS)
    dataset.peek()
    loader = ss.Loader(dataset, num_workers=2, multiprocessing_context=method)
    near = ss.ShardDataset(folder, **SETTINGS)
    for _ in range(2):
        assert flat(loader) == flat(near)
    stats = loader.stats.transfers
    size = dataset.manifest.bytes
    assert stats["cache_fetched_bytes"] <= size + 4 * 2**20
    assert stats["cache_hit_bytes"] > 0


@pytest.mark.full
def test_workers_read_no_manifest_of_their_own(folder, web, proxy) -> None:
    upload(folder, web)
    url = web.url().replace(web.endpoint, proxy.url)
    dataset = ss.ShardDataset(url, **SETTINGS)
    loader = ss.Loader(dataset, num_workers=2, multiprocessing_context="spawn", persistent_workers=False)
    assert flat(loader) == local(folder)
    names = [one.target.rpartition("/")[2] for one in proxy.log()]
    assert names.count("dataset.json") == 1
    assert sum(name.endswith(".table") for name in names) == 1
    assert sum(name.endswith(".tar") for name in names) >= 4


@pytest.mark.parametrize("prefetch", [1, None])
def test_a_first_batch_asks_for_nothing_else(folder, web, proxy, prefetch) -> None:
    upload(folder, web)
    url = web.url().replace(web.endpoint, proxy.url)
    next(iter(ss.ShardDataset(url, **grouped(SETTINGS | {"prefetch": prefetch}))))
    # The manifest and its table, one after another; the ends of the shards, side by side; the samples, side by side.
    assert proxy.requests <= 2 + 4 + 16
    assert not [one for one in proxy.log() if one.method != "GET"]


def test_secrets_stay_where_they_are(folder, s3, tmp_path, caplog) -> None:
    upload(folder, s3)
    caplog.set_level(logging.DEBUG)
    options = s3.options
    dataset = ss.ShardDataset(s3.url(), storage_options=options, cache=tmp_path / "cache", **SETTINGS)
    loader = ss.Loader(dataset, num_workers=0)
    next(iter(loader))
    shown = [repr(dataset), repr(dataset._source.datasets[0].location), json.dumps(loader.state_dict()), caplog.text]
    shown += [repr(loader.stats), dataset.manifest.url]
    kept = [file.read_bytes() for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    secret = options["secret_access_key"]
    assert not [text for text in shown if secret in text]
    assert not [data for data in kept if secret.encode() in data]
    assert pickle.loads(pickle.dumps(dataset)).fingerprint == dataset.fingerprint
    with pytest.raises(NotFoundError) as caught:
        ss.ShardDataset(s3.url("nothing"), storage_options=options)
    assert secret not in str(caught.value)


# ------------------------------------------------------------------------------------------------------------ replicas


def test_shards_come_from_the_nearest_replica_that_has_them(folder, web, proxy, tmp_path) -> None:
    upload(folder, web)
    near = tmp_path / "near"
    shutil.copytree(folder, near)
    (near / "shard-000002.tar").unlink()
    url = web.url().replace(web.endpoint, proxy.url)
    dataset = ss.ShardDataset(url, replicas=[near], **SETTINGS)
    assert flat(dataset) == local(folder)
    shards = {one.target.rpartition("/")[2] for one in proxy.log() if ".tar" in one.target}
    assert shards == {"shard-000002.tar"}


def test_a_replica_is_known_by_what_is_in_it(folder, web, tmp_path, caplog) -> None:
    upload(folder, web)
    # Equal names, other bytes; and a part of the same shards under other names.
    other = write_dataset(tmp_path / "other", numbered([60, 40, 70, 30], bin=lambda n: payload(n + 1)))
    part = write_dataset(tmp_path / "part", numbered([60, 40, 70, 30], bin=payload)[:2][::-1])
    dataset = ss.ShardDataset(web.url(), replicas=[other, part, tmp_path / "nothing"], **SETTINGS)
    assert flat(dataset) == local(folder)
    homes = dataset._source.datasets[0]
    assert [homes.shard(number).store.url for number in range(4)] == [str(part), str(part), web.url(), web.url()]
    assert homes.shard(0).name == "shard-000001.tar"
    assert "the replica" in caplog.text
    assert "is not used" in caplog.text


def test_a_truncated_shard_of_a_replica_is_left_alone(folder, web, tmp_path) -> None:
    upload(folder, web)
    near = tmp_path / "near"
    shutil.copytree(folder, near)
    with open(near / "shard-000001.tar", "r+b") as file:
        file.truncate(4096)
    assert flat(ss.ShardDataset(web.url(), replicas=[near], **SETTINGS)) == local(folder)


def test_replicas_need_a_list(folder) -> None:
    with pytest.raises(UsageError, match="list of places"):
        ss.ShardDataset(folder, replicas="near/ds")  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------- the store out of reach


def cached(url: str, cache: Path) -> ss.ShardDataset:
    return ss.ShardDataset(url, cache=cache, **SETTINGS)


@pytest.mark.full
def test_a_cached_data_set_trains_without_its_store(folder, web, proxy, tmp_path, caplog) -> None:
    upload(folder, web)
    url, cache = web.url().replace(web.endpoint, proxy.url), tmp_path / "cache"
    assert flat(cached(url, cache)) == local(folder)
    proxy.down()
    again = cached(url, cache)
    loader = ss.Loader(again, num_workers=2, multiprocessing_context="fork")
    assert flat(loader) == local(folder)
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "taken from the cache" in warnings[0].getMessage()


@pytest.mark.full
def test_without_store_and_cache_it_is_one_error(folder, web, proxy, tmp_path, monkeypatch) -> None:
    upload(folder, web)
    url, cache = web.url().replace(web.endpoint, proxy.url), tmp_path / "cache"
    cached(url, cache)  # only its manifest is kept
    proxy.down()
    dataset = cached(url, cache)
    _be_impatient(monkeypatch, dataset)
    with pytest.raises(StorageError) as caught:
        next(iter(dataset))
    assert str(caught.value.place["url"]).startswith(url)


def _be_impatient(monkeypatch: pytest.MonkeyPatch, dataset: ss.ShardDataset) -> None:
    from shardstream.storage import RetryPolicy

    store = dataset._source.datasets[0].store
    monkeypatch.setattr(store, "policy", RetryPolicy(deadline=1.0, contact=1.0, stall=1.0))


def test_a_data_set_that_was_replaced_under_its_url_is_seen(folder, web, tmp_path) -> None:
    upload(folder, web)
    cache = tmp_path / "cache"
    first = cached(web.url(), cache)
    assert flat(first) == local(folder)
    newer = write_dataset(tmp_path / "newer", numbered([60, 40, 70, 30], bin=lambda n: payload(n + 7)))
    upload(newer, web)
    second = cached(web.url(), cache)
    assert second.fingerprint != first.fingerprint
    assert flat(second) == local(newer)


@pytest.mark.parametrize("where", [None, {"cls": [1]}], ids=["all", "filtered"])
def test_views_and_indexes_over_a_network(where, web, tmp_path) -> None:
    near = write_dataset(tmp_path / "ds", numbered([30] * 12, cls=lambda n: n % 3))
    upload(near, web)
    arguments = {"split": ("train", {"train": 0.8, "val": 0.2}), "where": where, "batch_size": None}
    far = ss.ShardDataset(web.url(), **grouped(arguments))
    assert [one["id"] for one in far] == [one["id"] for one in ss.ShardDataset(near, **grouped(arguments))]


def test_random_access(folder, azure) -> None:
    upload(folder, azure)
    reader = ss.Reader(azure.url(), storage_options=azure.options)
    near = ss.Reader(folder)
    assert bytes(reader[123]["bin"]) == bytes(near[123]["bin"])
    assert reader.get("k000007")["id"] == 7


def test_globs_of_folders_need_a_local_path_and_say_so_without_secrets() -> None:
    with pytest.raises(UsageError, match="local path") as caught:
        ss.ShardDataset("https://acme.blob.core.windows.net/box/part-*/of?sig=hidden")
    assert "hidden" not in str(caught.value)


def test_braces_in_a_url(web, tmp_path) -> None:
    make: Callable[[int], Path] = lambda part: write_dataset(tmp_path / str(part), numbered([10 * part]))  # noqa: E731
    for part in (1, 2):
        for file in make(part).iterdir():
            web.plant(f"part-{part}/{file.name}", file.read_bytes())
    assert ss.ShardDataset(web.url() + "/part-{1..2}").samples == 30


def test_nothing_is_listed_to_train(folder, s3, monkeypatch, tmp_path) -> None:
    from shardstream.storage.transfer.remote import RemoteStore

    upload(folder, s3)
    monkeypatch.setattr(RemoteStore, "list", lambda *_: pytest.fail("a bucket was listed"))
    dataset = ss.ShardDataset(s3.url(), storage_options=s3.options, cache=tmp_path / "cache", **SETTINGS)
    assert flat(dataset) == local(folder)


def test_nothing_is_written_beside_a_local_data_set(folder) -> None:
    before = folder.stat().st_mtime_ns, sorted(folder.iterdir())
    dataset = ss.ShardDataset(folder, cache=folder.parent / "unused", where={"id": list(range(50))}, **SETTINGS)
    list(ss.Loader(dataset, num_workers=1, multiprocessing_context="fork"))
    assert (folder.stat().st_mtime_ns, sorted(folder.iterdir())) == before
    assert not (folder.parent / "unused").exists()
