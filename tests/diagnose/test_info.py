from __future__ import annotations

from pathlib import Path

import pytest

import shardstream as ss
from shardstream.diagnose import FieldInfo, info
from shardstream.errors import NotFoundError
from shardstream.shards.manifest import Manifest
from shardstream.storage.local.store import LocalStore

from .making import flip, make


@pytest.mark.parametrize("format", ["tar", "record"])
def test_what_is_there(tmp_path: Path, format: str) -> None:
    url = make(tmp_path, format=format, classes=["x", "y"], meta={"a": 1})
    found, manifest = info(url), Manifest.load(url)
    assert (found.samples, found.shards, found.bytes, found.format) == (20, manifest.shards, manifest.bytes, format)
    assert (found.classes, found.meta, found.seed, found.plan, found.version) == (("x", "y"), {"a": 1}, None, None, 1)
    assert found.samples_per_shard.most == manifest.table.samples.max()
    assert found.samples_per_shard.mean == pytest.approx(20 / manifest.shards)
    assert found.shard_bytes.least == manifest.table.sizes.min()
    assert found.fingerprint == manifest.fingerprint
    assert found.checksums
    assert found.rejects == 0
    fields = {field.name: field for field in found.fields}
    assert fields["raw"] == FieldInfo("raw", "bytes", "none", 1500.0, 1.0, {})
    assert fields["cls"] == FieldInfo("cls", "int64", "none", 8.0, 1.0, {})
    assert fields["fix"].mean_bytes == 16.0
    assert fields["txt"].mean_bytes == 2.0
    assert 0.5 < (fields["txt"].present or 0) < 0.7


def test_a_notebook_shows_one_line_of_it(tmp_path: Path) -> None:
    url = make(tmp_path, classes=["x", "y"])
    said = f"Info({str(url)!r}: 20 samples in {Manifest.load(url).shards} shards (tar), "
    assert repr(info(url)).startswith(said)
    assert repr(info(url)).endswith("; 2 classes)")
    assert "cls int64" in repr(info(url))


def test_compression_and_missing_checksums_are_told(tmp_path: Path) -> None:
    found = info(make(tmp_path, format="record", shards=ss.ShardOptions(zstd=["raw"], checksums=False)))
    fields = {field.name: field for field in found.fields}
    assert fields["raw"].codec == "zstd"
    assert (fields["raw"].mean_bytes or 0) < 100
    assert found.checksums is False


def test_no_payload_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = make(tmp_path, 60)
    largest = max(path.stat().st_size for path in url.glob("*.tar"))
    asked: list[int] = []
    tail = LocalStore.get_tail
    monkeypatch.setattr(
        LocalStore, "get_tail", lambda self, path, length: asked.append(length) or tail(self, path, length)
    )
    info(url)
    assert 1 < len(asked) <= 16
    assert max(asked) < largest


def test_a_damaged_shard_only_leaves_out_the_estimates(tmp_path: Path) -> None:
    url = make(tmp_path)
    path = url / Manifest.load(url).shard_name(0)
    flip(path, path.stat().st_size - 1024 - 100)
    found = info(url)
    assert found.samples == 20
    assert found.counted == 20 - Manifest.load(url).table.samples[0]
    assert found.counted_shards == found.shards - 1


@pytest.mark.parametrize("shard_size", [2_000, 20_000, 10**9])
def test_shares_are_of_the_whole_data_set(tmp_path: Path, shard_size: int) -> None:
    with ss.ShardWriter(tmp_path / "out", shard_size=shard_size) as writer:
        for number in range(400):
            value = {"other": "y" * 100} if 100 <= number < 200 else {"txt": "x" * 300}
            writer.write({"__key__": f"{number:04d}", **value})
    found = info(tmp_path / "out")
    fields = {field.name: field for field in found.fields}
    assert fields["txt"].present == pytest.approx(0.75, abs=0.13)
    assert fields["other"].present == pytest.approx(0.25, abs=0.13)
    assert (fields["txt"].mean_bytes, fields["other"].mean_bytes) == (300, 100)
    assert (found.counted == 400) == (found.shards <= 16)


def test_rejects_are_counted(tmp_path: Path) -> None:
    url = make(tmp_path)
    (url / "rejects.jsonl").write_text('{"path": "x", "line": 1, "reason": "y"}\n' * 3)
    assert info(url).rejects == 3


def test_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no data set"):
        info(tmp_path)
