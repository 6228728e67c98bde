"""A store behind a cache is a store to read from: by contract, over a real server."""

from __future__ import annotations

import pytest
import xxhash

from shardstream.errors import StorageError
from shardstream.storage import open_store
from shardstream.storage.cache import Cache, CachedStore, Identity

from ..contract import ReadingContract


class _Planted:
    """Identities of what lies on the server, as a manifest has them."""

    def __init__(self) -> None:
        self.found: dict[str, Identity] = {}

    def __call__(self, path: str) -> Identity | None:
        return self.found.get(path)


class TestCachedStore(ReadingContract):
    @pytest.fixture
    def planted(self) -> _Planted:
        return _Planted()

    @pytest.fixture
    def store(self, s3, planted, tmp_path) -> CachedStore:
        origin = open_store(s3.url(), storage_options=s3.options)
        return CachedStore(origin, Cache(tmp_path / "cache"), fingerprint="0" * 32, identify=planted)

    @pytest.fixture
    def plant(self, s3, planted):
        def plant(path: str, data: bytes) -> None:
            s3.plant(path, data)
            planted.found[path] = Identity(len(data), xxhash.xxh3_64_intdigest(data))

        return plant

    @pytest.fixture
    def dig(self, s3):
        return s3.dig

    def test_it_is_read_only(self, store, plant) -> None:
        plant("x", b"1")
        for ask in (
            lambda: store.put("y", b"1"),
            lambda: store.delete("x"),
            lambda: store.move("x", "y"),
            lambda: store.sweep(),
        ):
            with pytest.raises(StorageError, match="read only"):
                ask()
        assert [meta.path for meta in store.list()] == ["x"]
