"""What version 1 wrote is read for ever, and version 1 is still what is written."""

from __future__ import annotations

import re
import tarfile

import numpy as np
import pytest

from shardstream.shards.fields import FieldType, from_bytes
from shardstream.shards.framings import writer_of
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.shards.manifest import Manifest, merge_fields
from shardstream.shards.table import NamedShards, ShardTable
from shardstream.storage import FetchedBuffers, MappedBuffers, open_store

from .golden import FOLDER, SETS, expectations, same, shards
from .peers import gnu_tar_names, split_at_the_first_dot, webdataset_samples


@pytest.mark.parametrize("name", SETS)
def test_the_manifest(name) -> None:
    manifest, expected = Manifest.load(FOLDER / name), expectations(name)
    assert manifest.framing == expected["framing"]
    assert {field: kind.name for field, kind in manifest.fields.items()} == expected["types"]
    assert manifest.classes == tuple(expected["classes"])
    for attribute in ("meta", "seed", "plan", "fingerprint"):
        assert getattr(manifest, attribute) == expected[attribute]
    assert list(manifest.codecs) == expected["zstd"]
    assert [manifest.shard_name(i) for i in range(manifest.shards)] == [shard for shard, _ in shards(name)]
    assert manifest.table.samples.tolist() == [len(samples) for _, samples in shards(name)]
    assert manifest.bytes == sum((FOLDER / name / shard).stat().st_size for shard, _ in shards(name))


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("name", SETS)
def test_every_value(name, mapped) -> None:
    manifest, store, seen = Manifest.load(FOLDER / name), open_store(FOLDER / name), set()
    for shard, samples in shards(name):
        index = manifest.reader.scan(store, shard, index_bytes=manifest.index_bytes)
        assert list(index.keys) == [sample.key for sample in samples]
        assert set(index.columns) == {field for sample in samples for field in sample.values}
        rows, fields = np.arange(index.samples), sorted(index.columns)
        plan = manifest.reader.plan(index, rows, fields)
        buffers = MappedBuffers(store) if mapped else FetchedBuffers((one, store.get(*one)) for one in plan)
        found = manifest.reader.extract(index, buffers, rows, fields)
        for field in fields:
            kind, values = manifest.fields[field], found[field]
            assert values.type == kind == index.column(field).type
            for row, sample in enumerate(samples):
                has = values.valid is None or bool(values.valid[row])
                assert has == (field in sample.values)
                if not has:
                    continue
                seen.add(field)
                value = values.data[row]
                if kind.kind == "payload":
                    assert bytes(value) == sample.stored[field]
                    value = from_bytes(kind, value)
                if sample.values[field] is not None:
                    assert same(value, sample.values[field]), (field, sample.key)
                else:
                    assert value == sample.stored[field]
    assert seen == set(manifest.fields) == set(expectations(name)["types"])


@pytest.mark.parametrize("name", SETS)
def test_the_writer_still_writes_these_bytes(name, tmp_path) -> None:
    expected, store, summaries = expectations(name), open_store(tmp_path), []
    zstd = frozenset(expected["zstd"])
    if zstd:
        zstandard = pytest.importorskip("zstandard")
        if list(zstandard.ZSTD_VERSION) != expected["zstd_version"]:
            pytest.skip("another zstd library compresses to other bytes")
    for shard_name, samples in shards(name):
        with store.create(shard_name) as out:
            shard = writer_of(expected["framing"])(out, **({"zstd": zstd} if zstd else {}))
            for sample in samples:
                shard.write(
                    sample.key, {field: encoded(expected["types"][field], sample, field) for field in sample.values}
                )
            summaries.append(shard.finish())
    names = [shard_name for shard_name, _ in shards(name)]
    pattern = "shard-{:03d}" + {"tar": ".tar", "record": ".rec"}[expected["framing"]]
    Manifest(
        framing=expected["framing"],
        fields=merge_fields(summaries, names),
        naming=(NamedShards(pattern, len(names)),),
        table=ShardTable.of(summaries),
        classes=tuple(expected["classes"]),
        meta=expected["meta"],
        seed=expected["seed"],
        plan=expected["plan"],
        index_bytes=max(summary.index_bytes for summary in summaries),
        codecs=dict.fromkeys(zstd, "zstd"),
    ).save(store)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    # Heads of the first writers have no checksum, which is the last entry since.
    written[MANIFEST_NAME], sealed = re.subn(
        rb',\n  "checksum": "[0-9a-f]{32}"\n}\n$', b"\n}\n", written[MANIFEST_NAME]
    )
    assert sealed == 1
    golden = {path.name: path.read_bytes() for path in (FOLDER / name).iterdir() if path.name != "expected.json"}
    assert sorted(written) == sorted(golden)
    for file in written:
        assert written[file] == golden[file], file


def encoded(kind: str, sample, field: str):
    parsed = FieldType.parse(kind)
    if parsed.kind == "payload":
        return parsed, sample.stored[field]
    if parsed.kind == "fixed":
        return parsed, np.frombuffer(sample.stored[field], parsed.dtype).reshape(parsed.shape)
    return parsed, sample.values[field]


def test_peers_read_the_golden_tars() -> None:
    for shard, samples in shards("tar"):
        path = FOLDER / "tar" / shard
        names = gnu_tar_names(path)
        assert names[-1] == "__shardstream__/index"
        with tarfile.open(path) as archive:
            assert archive.getnames() == names
        for read in (webdataset_samples, split_at_the_first_dot):
            found = read(path)
            assert [key for key, _ in found] == [sample.key for sample in samples]
            for (_, fields), sample in zip(found, samples, strict=True):
                assert set(fields) == set(sample.values)
                for field, data in sample.stored.items():
                    assert fields[field][-len(data) :] == data or not data
                    if field not in ("fixed", "empty"):  # those are whole NPY files
                        assert fields[field] == data
