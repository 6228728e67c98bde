"""A store behind a cache is a store to read from: by contract, over a real server."""

from __future__ import annotations

import pytest
import xxhash

from shardstream.errors import StorageError
from shardstream.storage import open_store
from shardstream.storage.cache import Cache, CachedStore, Identity
from shardstream.testing import ReadOnlyStoreConformance


class _Planted:
    """Identities of what lies on the server, as a manifest has them."""

    def __init__(self) -> None:
        self.found: dict[str, Identity] = {}

    def __call__(self, path: str) -> Identity | None:
        return self.found.get(path)


class TestCachedStore(ReadOnlyStoreConformance):
    @pytest.fixture(autouse=True)
    def _at(self, s3, tmp_path):
        self.s3, self.folder, self.planted = s3, tmp_path / "cache", _Planted()

    def make_store(self) -> CachedStore:
        origin = open_store(self.s3.url(), storage_options=self.s3.options)
        return CachedStore(origin, Cache(self.folder), fingerprint="0" * 32, identify=self.planted)

    def plant(self, path: str, data: bytes) -> None:
        self.s3.plant(path, data)
        self.planted.found[path] = Identity(len(data), xxhash.xxh3_64_intdigest(data))

    def test_it_is_read_only(self) -> None:
        store = self.make_store()
        self.plant("x", b"1")
        for ask in (
            lambda: store.put("y", b"1"),
            lambda: store.delete("x"),
            lambda: store.move("x", "y"),
            lambda: store.sweep(),
        ):
            with pytest.raises(StorageError, match="read only"):
                ask()
        assert [meta.path for meta in store.list()] == ["x"]
