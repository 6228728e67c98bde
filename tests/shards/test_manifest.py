"""The manifest: there and back, damaged, foreign, newer."""

from __future__ import annotations

import json
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream import sizes
from shardstream.errors import (
    ChecksumError,
    DataError,
    FieldError,
    FormatError,
    NotFoundError,
    StorageError,
    UsageError,
    VersionError,
)
from shardstream.shards.fields import FieldType
from shardstream.shards.heads import MANIFEST_NAME, resealed
from shardstream.shards.manifest import Manifest, merge_fields, unknown_field
from shardstream.shards.table import NamedShards, ShardTable
from shardstream.shards.writing import ShardSummary
from shardstream.storage.local.store import LocalStore


def summary(samples: int, size: int = 1000, checksum: int = 7, **fields: str) -> ShardSummary:
    return ShardSummary(samples, size, checksum, 512, {name: FieldType.parse(kind) for name, kind in fields.items()})


def manifest(**changes) -> Manifest:
    options = {
        "framing": "tar",
        "fields": {"jpg": FieldType.parse("jpg"), "cls": FieldType.parse("int64")},
        "naming": (NamedShards("shard-{:06d}.tar", 2), NamedShards("more/{:d}.tar", 1)),
        "table": ShardTable.of([summary(3), summary(0, 1 << 40, (1 << 64) - 1), summary(4)]),
        "classes": ("cat", "dög"),
        "meta": {"source": "é", "n": [1, 2.5, None, True]},
        "seed": 5,
        "plan": "abc",
        "index_bytes": 512,
    }
    return Manifest(**{**options, **changes})


@pytest.fixture
def folder(tmp_path):
    manifest().save(LocalStore(tmp_path))
    return tmp_path


def test_there_and_back(folder) -> None:
    found, given_ = Manifest.load(folder), manifest()
    for name in ("framing", "fields", "naming", "classes", "meta", "seed", "plan", "version", "index_bytes", "codecs"):
        assert getattr(found, name) == getattr(given_, name), name
    for name in ("samples", "sizes", "checksums"):
        np.testing.assert_array_equal(getattr(found.table, name), getattr(given_.table, name))
        assert not getattr(found.table, name).flags.owndata
    assert (found.samples, found.shards, found.bytes, found.url) == (7, 3, (1 << 40) + 2000, str(folder))
    assert found.fingerprint == given_.fingerprint
    assert [found.shard_name(i) for i in range(3)] == ["shard-000000.tar", "shard-000001.tar", "more/0.tar"]
    for bad in (3, -1):
        with pytest.raises(IndexError):
            found.shard_name(bad)
    assert found.reader.name == "tar"


def test_the_same_manifest_has_the_same_bytes_and_no_place_in_them(folder, tmp_path) -> None:
    other = tmp_path / "other"
    manifest(fields=dict(reversed(manifest().fields.items()))).save(LocalStore(other))
    for name in (MANIFEST_NAME, manifest().table_name):
        assert (other / name).read_bytes() == (folder / name).read_bytes()
        assert str(tmp_path).encode() not in (other / name).read_bytes()


def test_an_empty_data_set(tmp_path) -> None:
    manifest(naming=(), table=ShardTable.of([]), fields={}, classes=None, meta={}, seed=None, plan=None).save(
        LocalStore(tmp_path)
    )
    found = Manifest.load(tmp_path)
    assert (found.samples, found.shards, found.bytes) == (0, 0, 0)


def test_the_fingerprint_is_of_the_stored_data_only() -> None:
    base = manifest().fingerprint
    assert re.fullmatch("[0-9a-f]{32}", base)
    for same in ({"classes": None}, {"meta": {}}, {"seed": 1}, {"plan": None}, {"version": 2}, {"index_bytes": 0}):
        assert manifest(**same).fingerprint == base
    for other in (
        {"framing": "record"},
        {"fields": {"jpg": FieldType.parse("jpg")}},
        {"naming": (NamedShards("s-{:06d}.tar", 2), NamedShards("more/{:d}.tar", 1))},
        {"table": ShardTable.of([summary(3), summary(0, 1 << 40, 8), summary(4)])},
    ):
        assert manifest(**other).fingerprint != base


def test_codecs_are_kept(tmp_path) -> None:
    manifest(framing="record", codecs={"cls": "zstd"}).save(LocalStore(tmp_path))
    assert Manifest.load(tmp_path).codecs == {"cls": "zstd"}


def test_no_data_set(tmp_path) -> None:
    with pytest.raises(NotFoundError, match="no data set") as caught:
        Manifest.load(tmp_path / "nowhere")
    assert "shardstream pack" in str(caught.value.hint)


def test_a_lost_table_is_named(folder) -> None:
    (folder / manifest().table_name).unlink()
    with pytest.raises(StorageError) as caught:
        Manifest.load(folder)
    assert manifest().table_name in str(caught.value)


def test_every_flipped_byte_of_the_table_is_found(folder) -> None:
    path = folder / manifest().table_name
    data = path.read_bytes()
    assert len(data) == 64 + 20 * 3
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        with pytest.raises((FormatError, ChecksumError)):
            Manifest.load(folder)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises((FormatError, ChecksumError)):
            Manifest.load(folder)


def test_newer_versions(folder) -> None:
    edit(folder, lambda head: head.update(format_version=2))
    with pytest.raises(VersionError, match="version 2") as caught:
        Manifest.load(folder)
    assert caught.value.place["url"] == str(folder / MANIFEST_NAME)
    table = bytearray(manifest().table.pack())
    struct.pack_into("<I", table, 8, 9)
    with pytest.raises(VersionError, match="version 9"):
        ShardTable.parse(memoryview(bytes(table)), url="t")


def edit(folder, change) -> None:
    path = folder / MANIFEST_NAME
    head = json.loads(path.read_text())
    del head["checksum"]  # or nothing but that would be seen
    head = change(head) or head
    path.write_text(json.dumps(head))


HOSTILE = {
    "a list": lambda h: [1],
    "another program's": lambda h: {"format": "parquet"},
    "no version": lambda h: h.pop("format_version") and None,
    "a version in words": lambda h: h.update(format_version="1"),
    "a true version": lambda h: h.update(format_version=True),
    "version 0": lambda h: h.update(format_version=0),
    "framing": lambda h: h.update(framing="zip"),
    "type": lambda h: h["fields"]["cls"].update(type="pickle"),
    "another type": lambda h: h["fields"]["cls"].update(type="int32"),
    "fields": lambda h: h.update(fields=[1]),
    "a field that is a path": lambda h: h["fields"].update({"b/../../victim": {"type": "jpg"}}),
    "naming": lambda h: h.update(naming=[{"pattern": "shard-{:06d}.tar", "shards": 4}]),
    "naming none": lambda h: h.update(naming=None),
    "naming negative": lambda h: h["naming"][0].update(shards=-2),
    "naming of another folder": lambda h: h["naming"][0].update(pattern="../{:d}.tar"),
    "naming with attributes": lambda h: h["naming"][0].update(pattern="{0.__class__}"),
    "naming gigabytes wide": lambda h: h["naming"][0].update(pattern="{:>9999999999}"),
    "naming gigabytes long": lambda h: h["naming"][0].update(pattern="{:09999999999d}"),
    "naming without a number": lambda h: h["naming"][0].update(pattern="shard.tar"),
    "table": lambda h: h.update(table="../../etc/hostname"),
    "table none": lambda h: h.update(table=None),
    "classes": lambda h: h.update(classes=[1, 2]),
    "classes a number": lambda h: h.update(classes=3),
    "meta": lambda h: h.update(meta=[]),
    "meta with NaN": lambda h: h.update(meta={"a": float("nan")}),
    "meta beyond all numbers": lambda h: h.update(meta={"a": float("inf")}),
    "meta of half a pair": lambda h: h.update(meta={"\ud800": "\udfff"}),
    "classes of half a pair": lambda h: h.update(classes=["\ud800"]),
    "kinds negative": lambda h: h["fields"]["jpg"].update(kinds={"addressable": -5}),
    "seed": lambda h: h.update(seed="1"),
    "plan": lambda h: h.update(plan=3),
    "fingerprint": lambda h: h.update(fingerprint="0" * 32),
    "nothing else": lambda h: {"format": "shardstream", "format_version": 1},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_manifests_that_contradict_themselves(folder, name) -> None:
    edit(folder, HOSTILE[name])
    with pytest.raises(FormatError) as caught:
        Manifest.load(folder)
    assert caught.value.hint


def test_a_field_that_is_a_path_is_refused_by_its_name(folder) -> None:
    edit(folder, HOSTILE["a field that is a path"])
    with pytest.raises(FormatError, match="victim"):  # whatever its fingerprint is
        Manifest.load(folder)


def test_people_may_edit_classes_and_meta(folder) -> None:
    edit(folder, lambda head: head.update(classes=["a"], meta={"by": "hand"}))
    found = Manifest.load(folder)
    assert (found.classes, found.meta) == (("a",), {"by": "hand"})


@pytest.mark.parametrize(
    "change", [{"classes": ["dog", "cat"]}, {"meta": {}}, {"seed": 6}, {"checksum": None}], ids=str
)
def test_a_head_that_is_not_what_was_written_is_named_with_what_to_do(folder, change) -> None:
    path = folder / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ChecksumError, match=r"dataset\.json differs") as caught:
        Manifest.load(folder)
    assert caught.value.place == {"url": str(path)}
    assert f"shardstream verify --reseal {folder}" in caught.value.hint
    path.write_bytes(resealed(memoryview(path.read_bytes()), url="x"))
    found = Manifest.load(folder)
    assert {name: json.loads(json.dumps(getattr(found, name))) for name in change if name != "checksum"} == {
        name: value for name, value in change.items() if name != "checksum"
    }
    assert resealed(memoryview(path.read_bytes()), url="x") is None


def test_the_checksum_is_of_what_is_said_not_of_how_it_is_written(folder) -> None:
    path = folder / MANIFEST_NAME
    head = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(head.items())), ensure_ascii=True, indent=None))
    assert Manifest.load(folder).classes == ("cat", "dög")


@pytest.mark.full
def test_every_flipped_bit_of_the_head_is_found(folder) -> None:
    path = folder / MANIFEST_NAME
    data = path.read_bytes()
    key = range(data.index(b'"checksum"'), data.index(b'"checksum"') + len(b'"checksum"'))
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            if at in key:  # without a checksum nothing can be compared; all else is as it was
                continue
            with pytest.raises((FormatError, ChecksumError)):
                Manifest.load(folder)


@pytest.mark.parametrize(
    "meta",
    [
        {10: "a", 9: "b", "10x": (1, 2)},
        {"float": [1e-7, 1e22, -0.0, 0.1, 2.5e300], "int": [1 << 70, -(1 << 63)], "text": "\u0000\u2028é\U0001f600"},
        {True: 1, None: 2, 1.5: 3},
        {"checksum": "of another thing"},
    ],
    ids=str,
)
def test_meta_of_any_kind_is_sealed_as_it_is_read(tmp_path, meta) -> None:
    manifest(meta=meta).save(LocalStore(tmp_path))
    assert Manifest.load(tmp_path).meta == json.loads(json.dumps(meta))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '{"format": "shardstream"}', "\x00"])
def test_what_is_no_manifest(tmp_path, text) -> None:
    (tmp_path / MANIFEST_NAME).write_text(text)
    with pytest.raises(FormatError):
        Manifest.load(tmp_path)


@given(data=st.data())
def test_any_bytes_are_a_manifest_or_a_data_error(data, tmp_path_factory) -> None:
    folder = tmp_path_factory.getbasetemp()
    manifest().save(LocalStore(folder))
    content = bytearray((folder / MANIFEST_NAME).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    (folder / MANIFEST_NAME).write_bytes(content)
    try:
        assert Manifest.load(folder).samples == 7
    except (DataError, NotFoundError) as error:
        assert error.place  # noqa: PT017 - or no error at all


@pytest.mark.parametrize(
    "changes", [{"meta": {"a": float("nan")}}, {"meta": {"a": {1}}}, {"meta": {(1, 2): 3}}, {"classes": (chr(0xD800),)}]
)
def test_what_is_no_json_is_refused_before_anything_is_written(tmp_path, changes) -> None:
    with pytest.raises(FieldError, match="meta must be JSON"):
        manifest(**changes).save(LocalStore(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "pattern", ["", "x", "{}", "{:d}{:d}", "/x{:d}", "a//{:d}", "./{:d}", "{:d}/..", "{:s}", "{x:d}", "{{:d}}"]
)
def test_what_is_no_pattern(pattern) -> None:
    with pytest.raises(UsageError, match="cannot name shards"):
        NamedShards(pattern, 1)


def test_a_table_of_a_million_shards_is_20_megabytes_and_hashes_without_a_copy() -> None:
    import tracemalloc

    count = 1_000_000
    table = ShardTable(np.ones(count, "<u4"), np.ones(count, "<u8"), np.ones(count, "<u8"))
    tracemalloc.start()
    before = table.checksum
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    data = table.pack()
    assert len(data) == 64 + 20 * count
    assert ShardTable.parse(memoryview(data), url="t").checksum == before


def test_unknown_fields_name_the_nearest(folder) -> None:
    error = unknown_field("jgp", Manifest.load(folder).fields)
    assert "no field 'jgp'" in str(error)
    assert "did you mean 'jpg'?" in error.hint
    assert "fields are" in unknown_field("zzzzz", ["jpg"]).hint


def test_fields_of_shards_are_merged() -> None:
    merged = merge_fields([summary(1, jpg="jpg"), summary(1, cls="int8"), summary(1, jpg="jpg")], ["a", "b", "c"])
    assert {name: kind.name for name, kind in merged.items()} == {"cls": "int8", "jpg": "jpg"}
    with pytest.raises(FieldError, match="int8 in a, but int16 here") as caught:
        merge_fields([summary(1, x="int8"), summary(1, x="int16")], ["a", "b"])
    assert caught.value.place == {"shard": "b", "field": "x"}


def test_a_prompt_shows_a_table_and_no_arrays() -> None:
    made = manifest(
        classes=("cat", "dog\x1b[31m"),
        codecs={"cls": "zstd"},
        kinds={"jpg": {"addressable": 3000, "progressive": 4}},
        url="/data/out",
    )
    lines = repr(made).splitlines()
    assert lines[0] == f"Manifest of /data/out: {made.samples:,} samples in 3 shards, {sizes.size(made.bytes)}"
    assert lines[1:4] == [
        "  field  type   stored as",
        "  jpg    jpg    3,000 addressable, 4 progressive",
        "  cls    int64  zstd",
    ]
    assert lines[4:] == [
        f"format tar, version {made.version}, fingerprint {made.fingerprint}",
        "2 classes: cat, dog\\x1b[31m",
    ]
    assert "array" not in made._repr_html_()
    assert '<td style="text-align:left">3,000 addressable, 4 progressive</td>' in made._repr_html_()


def test_a_prompt_shows_some_of_many_fields_and_classes() -> None:
    fields = {f"f{i}": FieldType.parse("int64") for i in range(100)}
    shown = repr(manifest(fields=fields, classes=tuple(map(str, range(1000)))))
    assert "... and 60 more fields" in shown
    assert "1,000 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..." in shown
    assert len(shown.splitlines()) == 45
