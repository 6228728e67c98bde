from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardstream import StorageOptions
from shardstream.diagnose import verify, whole
from shardstream.diagnose.whole import read_shards
from shardstream.errors import AccessError
from shardstream.pack.writer import ShardWriter
from shardstream.shards.manifest import Manifest
from shardstream.storage import open_store

from ..storage.faults import FaultProxy
from ..storage.places import S3Place


@pytest.fixture
def shards(s3: S3Place) -> S3Place:
    with ShardWriter(s3.url(), storage=StorageOptions(options=s3.options), shard_size="9kB") as writer:
        for i in range(30):
            writer.write({"__key__": f"{i}", "raw": bytes([i]) * 1000})
    return s3


def test_the_next_shard_is_on_its_way_and_no_more(shards: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    begin = whole._begin
    monkeypatch.setattr(
        whole, "_begin", lambda store, manifest, shard: begun.append(shard) or begin(store, manifest, shard)
    )
    store = open_store(shards.url(), storage_options=shards.options)
    manifest = Manifest.read(store)
    assert manifest.shards == 5
    for number, found in enumerate(read_shards(store, manifest)):
        assert isinstance(found.data, memoryview)
        assert bytes(found.data) == shards.dig(manifest.shard_name(number))
        assert begun == list(range(min(number + 2, 5)))


def test_a_large_object_comes_in_parts(s3: S3Place, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(20 << 20)
    with ShardWriter(s3.url(), storage=StorageOptions(options=s3.options)) as writer:
        writer.write({"__key__": "a", "raw": noise})
    report = verify(s3.url(), storage_options=s3.options)
    assert report.ok
    assert report.bytes > 20 << 20


def test_a_store_that_refuses_is_no_damage_of_the_data(shards: S3Place) -> None:
    with FaultProxy(shards.endpoint.removeprefix("http://")) as proxy:
        options = {**shards.options, "endpoint": proxy.url}
        proxy.add("reset in body", after=500, times=2, match="shard-000001")
        assert verify(shards.url(), storage_options=options).ok
        assert proxy.hits("reset in body") == 2
        proxy.add("status", status=403, match="shard-000002")
        with pytest.raises(AccessError) as caught:
            verify(shards.url(), storage_options=options)
        assert "shard-000002" in str(caught.value.place["url"])
