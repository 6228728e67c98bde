"""A store given where a URL can be: one of somebody's own, in memory."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import shardstream as ss
from shardstream.diagnose import view
from shardstream.errors import NotFoundError, StorageError, UsageError
from shardstream.storage import ObjectMeta, ObjectWriter, Store, locate, open_object


class Memory(Store):
    """Objects in a dict, as somebody might write it in half a page."""

    def __init__(self, name: str = "one") -> None:
        self.url = f"mine://{name}"
        self.objects: dict[str, bytes] = {}
        self.reads = 0

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        self.reads += 1
        end = self.size(path) if length is None else offset + length
        if not 0 <= offset <= end <= self.size(path):
            raise StorageError("past the end", url=self.locate(path), offset=offset)
        return memoryview(self.objects[path])[offset:end]

    def size(self, path: str) -> int:
        if path not in self.objects:
            raise NotFoundError("no such object", url=self.locate(path))
        return len(self.objects[path])

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        return (ObjectMeta(path, self.size(path)) for path in sorted(self.objects) if path.startswith(prefix))

    def create(self, path: str) -> ObjectWriter:
        return _Writer(self, path)

    def delete(self, path: str) -> None:
        self.objects.pop(path, None)


class _Writer(ObjectWriter):
    def __init__(self, store: Memory, path: str) -> None:
        self._store, self._path, self._data = store, path, bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._data += data

    def tell(self) -> int:
        return len(self._data)

    def commit(self) -> None:
        self._store.objects[self._path] = bytes(self._data)

    def discard(self) -> None:
        self._data.clear()


class Locked(Memory):
    """One that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


def fill(store: Any, first: int = 0) -> Any:
    """200 samples in three shards or so."""
    with ss.ShardWriter(store, shard_size="4kB") as out:
        for number in range(first, first + 200):
            out.write({"__key__": f"k{number:04}", "bin": bytes([number % 251]) * 50, "id": number})
    return store


def ids(dataset: Any) -> list[int]:
    return [int(one) for batch in dataset for one in batch["id"]]


SHAPE: dict[str, Any] = {"batch_size": 16, "shuffle": True, "fields": ["id", "bin"], "tail": "exact"}


def test_what_is_written_into_a_store_is_read_out_of_it(tmp_path) -> None:
    store = fill(Memory())
    assert any(path.startswith("shard-") for path in store.objects)
    assert ids(ss.ShardDataset(store, **SHAPE)) == ids(ss.ShardDataset(fill(tmp_path / "same"), **SHAPE))
    assert ss.Manifest.load(store).samples == 200
    assert ss.Manifest.load(store).url == "mine://one"
    reader = ss.Reader(store)
    assert (len(reader), reader[7]["id"], reader.get("k0199")["id"]) == (200, 7, 199)


@pytest.mark.full
def test_several_stores_and_folders_are_one_data_set(tmp_path) -> None:
    places = [fill(Memory()), fill(tmp_path / "folder", 200), fill(Memory("two"), 400)]
    assert sorted(ids(ss.ShardDataset(places, **SHAPE))) == [*range(600)]


def test_replicas_may_be_stores(tmp_path) -> None:
    near = fill(Memory("near"))
    dataset = ss.ShardDataset(fill(tmp_path / "folder"), replicas=[near], **SHAPE)
    assert sorted(ids(dataset)) == [*range(200)]
    assert near.reads > 3


def test_a_cache_may_stand_before_it(tmp_path) -> None:
    store = fill(Memory())
    for _ in range(2):
        dataset = ss.ShardDataset(store, cache=tmp_path / "cache", **SHAPE)
        before = store.reads
        assert sorted(ids(dataset)) == [*range(200)]
    assert store.reads == before


@pytest.mark.one_in(5)
@pytest.mark.parametrize("wrong", [Memory("near"), locate("s3://near/ds"), "near", 7, None])
def test_one_replica_in_place_of_a_list_is_an_error_of_its_own(tmp_path, wrong: Any) -> None:
    fill(tmp_path / "folder")
    refused = r"replicas must be a list of places, got .*\n.*replicas=\["
    for verb in (ss.ShardDataset, ss.Reader, view):
        with pytest.raises(UsageError, match=refused):
            verb(tmp_path / "folder", replicas=wrong)
    with pytest.raises(UsageError, match=refused):
        ss.export(tmp_path / "folder", tmp_path / "out", to="files", storage=ss.StorageOptions(replicas=wrong))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_have_it_too(context: str) -> None:
    store = fill(Memory())
    loader = ss.Loader(ss.ShardDataset(store, **SHAPE), num_workers=2, multiprocessing_context=context)
    assert sorted(ids(loader)) == [*range(200)]


def test_one_that_cannot_be_pickled_is_used_here_and_with_fork() -> None:
    store = fill(Locked())
    assert len(ids(ss.ShardDataset(store, **SHAPE))) == 200
    loader = ss.Loader(ss.ShardDataset(store, **SHAPE), num_workers=1, multiprocessing_context="fork")
    assert len(ids(loader)) == 200


def test_that_it_cannot_be_pickled_is_one_clear_error(tmp_path) -> None:
    dataset = ss.ShardDataset(fill(Locked()), **SHAPE)
    with pytest.raises(UsageError, match=r"Locked.*cannot be pickled.*mine://locked"):
        pickle.dumps(dataset)
    with pytest.raises(UsageError, match=r"Locked.*cannot be pickled"):
        next(iter(ss.Loader(dataset, num_workers=1, multiprocessing_context="spawn")))
    with pytest.raises(UsageError, match=r"Locked.*cannot be pickled"):
        ss.export(fill(Locked()), tmp_path / "out", to="files", workers=2)
    assert ss.export(fill(Locked()), tmp_path / "here", to="files", workers=0).samples == 200


def test_verbs_take_it(tmp_path) -> None:
    for name in "abcdefghij":
        (tmp_path / f"{name}.bin").write_bytes(name.encode() * 10)
    (tmp_path / "list.tsv").write_text("".join(f"{name}.bin\t1\n" for name in "abcdefghij"))
    store = Memory()
    ss.pack(tmp_path / "list.tsv", store, shard_size="1kB", images=ss.ImageOptions(jpeg="keep"))
    assert ss.Manifest.load(store).samples == 10
    merged, again, out = Memory("merged"), Memory("again"), Memory("out")
    ss.merge([store], merged)
    ss.repack(merged, again, shard_size="1MB")
    assert ss.Manifest.load(again).samples == 10
    assert ss.export(again, out, to="webdataset").samples == 10
    assert ss.export(again, tmp_path / "files", to="files", workers=2).samples == 10


def test_options_beside_it_are_refused() -> None:
    store = fill(Memory())
    for options in ({"storage_options": {"anon": True}}, {"transport": "fsspec"}):
        with pytest.raises(UsageError, match=r"(storage_options are|transport is) for URLs.*Memory.*mine://one"):
            ss.ShardDataset(store, **SHAPE, **options)
    with pytest.raises(UsageError, match="where the URL of one object is needed"):
        open_object(store)


def test_a_place_below_it_is_a_store_of_its_own() -> None:
    store = Memory()
    store.put("deep/down/x", b"0123")
    store.put("deeper", b"")
    below = pickle.loads(pickle.dumps(locate(store).join("deep"))).join("down").store
    assert below is not None
    store = below.inner.inner
    assert (below.url, below.locate("x")) == ("mine://one/deep/down", "mine://one/deep/down/x")
    assert (bytes(below.get("x", 1, 2)), below.get_tail("x", 1), below.exists("y")) == (b"12", (b"3", 4), False)
    below.put("y", b"5")
    below.move("y", "z")
    assert [meta[:2] for meta in below.list()] == [("x", 4), ("z", 1)]
    assert [meta[:2] for meta in locate(store).join("deep").store.list("down/z")] == [("down/z", 1)]
