"""Data sets that grow: new shards beside the old ones, the old version still there."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shardstream import ShardOptions, StorageOptions
from shardstream.diagnose import reseal
from shardstream.errors import (
    ChecksumError,
    DestinationError,
    FieldError,
    FormatError,
    NotFoundError,
    ShardStreamError,
    UsageError,
)
from shardstream.pack.run import pack
from shardstream.pack.writer import ShardWriter
from shardstream.shards.key_table import key_table_name
from shardstream.shards.manifest import Manifest
from shardstream.storage import open_store

from ..storage.places import S3Place
from .making import PYTHON, photo_list, samples, tree


def add(dest: Any, *numbers: int, append: bool = True, **options: Any) -> None:
    """Write samples of these numbers, two a shard."""
    options = {"shard_size": 5000, **options}
    with ShardWriter(dest, append=append, **options) as writer:
        for i in numbers:
            writer.write({"__key__": f"k/{i}", "raw": bytes([i % 256]) * 2200, "cls": i})


@pytest.mark.parametrize("format", ["tar", "record"])
def test_the_old_version_stays_byte_for_byte(tmp_path: Path, format: Any) -> None:
    add(tmp_path, 0, 1, 2, append=False, format=format, classes=["a"], meta={"x": 1, "y": 1})
    first, before = Manifest.load(tmp_path), tree(tmp_path)
    add(tmp_path, 3, 4, classes=["a", "b"], meta={"y": 2})
    add(tmp_path, 5)
    newest, after = Manifest.load(tmp_path), tree(tmp_path)

    assert list(samples(tmp_path)) == [f"k/{i}" for i in range(6)]
    assert (newest.version, newest.samples, newest.framing, newest.classes) == (3, 6, format, ("a", "b"))
    assert newest.meta == {"x": 1, "y": 2}
    assert [run.pattern.partition("{")[0] for run in newest.naming] == ["shard-", "shard-r1-", "shard-r2-"]
    assert after["dataset-v1.json"] == before.pop("dataset.json")
    assert {name: after[name] for name in before} == before

    for version, count in ((1, 3), (2, 5), (3, 6)):
        found = Manifest.load(tmp_path, version=version)
        assert (found.version, found.samples, found.url) == (version, count, str(tmp_path))
    assert Manifest.load(tmp_path, version=1).fingerprint == first.fingerprint
    assert [one.fingerprint for one in newest.history] == [
        Manifest.load(tmp_path, version=version).fingerprint for version in (1, 2)
    ]


@pytest.mark.parametrize("again", [False, True])
def test_what_was_packed_grows(tmp_path: Path, again: bool) -> None:
    source = photo_list(tmp_path / "in", 9)
    dest = tmp_path / "out"
    for _ in range(1 + again):
        pack(source, dest, workers=0, overwrite=again, shard_size=5000, seed=int(again))
    before = tree(dest)
    add(dest, 1)
    add(dest, 2)
    after = tree(dest)
    assert after.pop("dataset-v1.json") == before.pop("dataset.json")
    assert {name: after.get(name) for name in before} == before
    assert list(samples(dest, ["cls"]))[9:] == ["k/1", "k/2"]
    assert len(samples(dest, ["cls"])) == 11


def test_the_first_append_makes_the_data_set(tmp_path: Path) -> None:
    add(tmp_path / "a", 1, 2)
    add(tmp_path / "b", 1, 2, append=False)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert "history" not in json.loads((tmp_path / "a/dataset.json").read_text())


def test_the_same_steps_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        add(tmp_path / name, 1, 2)
        add(tmp_path / name, 3)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_a_version_that_is_not_there(tmp_path: Path) -> None:
    add(tmp_path, 1)
    with pytest.raises(UsageError, match="no version 2") as caught:
        Manifest.load(tmp_path, version=2)
    assert "take 1" in str(caught.value)
    add(tmp_path, 2)
    add(tmp_path, 3)
    for wrong in (0, 4, "1"):
        with pytest.raises(UsageError, match="one of 1, 2 and 3"):
            Manifest.load(tmp_path, version=wrong)  # type: ignore[arg-type]
    (tmp_path / "dataset-v1.json").unlink()
    with pytest.raises(NotFoundError, match="dataset-v1"):
        Manifest.load(tmp_path, version=1)
    (tmp_path / "dataset-v2.json").write_bytes((tmp_path / "dataset.json").read_bytes())
    with pytest.raises(FormatError, match="disagree"):
        Manifest.load(tmp_path, version=2)


def test_every_version_says_when_its_head_is_not_what_was_written(tmp_path: Path) -> None:
    for i in range(3):
        add(tmp_path, i, classes=["a"], meta={"i": i})
    for version, name in ((1, "dataset-v1.json"), (2, "dataset-v2.json"), (3, "dataset.json")):
        path = tmp_path / name
        sound = path.read_text()
        path.write_text(sound.replace('"a"', '"b"'))
        with pytest.raises(ChecksumError, match=f"{name} differs") as caught:
            Manifest.load(tmp_path, version=version)
        assert f"shardstream verify --reseal {tmp_path}" in str(caught.value.hint)
        assert caught.value.place == {"url": str(path)}
        assert reseal(tmp_path) == (name,)
        assert Manifest.load(tmp_path, version=version).classes == ("b",)
        path.write_text(sound)
    assert reseal(tmp_path) == ()


def test_what_was_edited_by_hand_is_not_replaced_unseen(tmp_path: Path) -> None:
    add(tmp_path, 0, classes=["a"])
    path = tmp_path / "dataset.json"
    path.write_text(path.read_text().replace('"a"', '"b"'))
    before = tree(tmp_path)
    with pytest.raises(DestinationError, match=r"dataset\.json differs") as caught:
        add(tmp_path, 1)
    assert "--reseal" in str(caught.value.hint)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "history",
    [
        "1",
        "[1]",
        "[{}]",
        "[two, two]",
        "[two | {'version': 2}]",
        "[two | {'table': '../x'}]",
        "[two | {'fingerprint': '../x'}]",
    ],
)
def test_a_damaged_history(tmp_path: Path, history: str) -> None:
    add(tmp_path, 1)
    add(tmp_path, 2)
    path = tmp_path / "dataset.json"
    head = json.loads(path.read_text())
    head["history"] = eval(history, {"two": head["history"][0]})
    del head["checksum"]  # or nothing but that would be seen
    path.write_text(json.dumps(head))
    with pytest.raises(FormatError):
        Manifest.load(tmp_path)
    with pytest.raises(FormatError):
        Manifest.load(tmp_path, version=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"format": "record"}, UsageError, "tar shards, the new shards record"),
        ({"classes": ["b"]}, UsageError, "label 0 means 'a' in the data set, but 'b'"),
        ({"fields": {"cls": "int32"}}, FieldError, "int64 in the data set, but int32"),
        ({"overwrite": True}, UsageError, "exclude"),
        ({"shards": ShardOptions(zstd=["raw"])}, UsageError, "tar"),
        ({"format": "zip"}, UsageError, "zip"),
    ],
    ids=str,
)
def test_what_does_not_go_with_the_data_set_is_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    add(tmp_path, 1, classes=["a"])
    before = tree(tmp_path)
    with pytest.raises(error, match=message):
        ShardWriter(tmp_path, append=True, **options)
    assert tree(tmp_path) == before


def test_values_take_the_types_there_are(tmp_path: Path) -> None:
    add(tmp_path, 1, fields={"cls": "int32"}, format="record", shards=ShardOptions(zstd=["raw"]))
    before = tree(tmp_path)
    with pytest.raises(FieldError, match="does not fit int32"):
        add(tmp_path, 1 << 40)
    assert tree(tmp_path) == before
    add(tmp_path, 7)
    grown = Manifest.load(tmp_path)
    assert (grown.fields["cls"].name, grown.codecs) == ("int32", {"raw": "zstd"})
    assert samples(tmp_path, ["cls"])["k/7"] == {"cls": 7}


def test_a_run_that_fails_leaves_the_data_set_as_it_was(tmp_path: Path) -> None:
    add(tmp_path, 1, 2)
    before = tree(tmp_path)
    with pytest.raises(ZeroDivisionError), ShardWriter(tmp_path, append=True, shard_size=1000) as writer:  # noqa: PT012
        writer.write({"__key__": "a", "raw": bytes(2000)})
        raise ZeroDivisionError
    assert tree(tmp_path) == before


KILLED = """
import os, sys
from shardstream.pack.writer import ShardWriter
from shardstream.storage.base.store import Store
put = Store.put
def put_or_die(store, path, data):
    if path == sys.argv[2]:
        os.kill(os.getpid(), 9)
    put(store, path, data)
Store.put = put_or_die
with ShardWriter(sys.argv[1], append=True, shard_size=1000) as writer:
    for i in range(3):
        writer.write({"__key__": f"lost/{i}", "raw": bytes(2000)})
"""


@pytest.mark.full
@pytest.mark.parametrize("moment", ["dataset-v1.json", "dataset.json"])
def test_what_a_killed_run_left_is_replaced(tmp_path: Path, moment: str) -> None:
    for name in ("a", "b"):
        add(tmp_path / name, 1, 2)
    died = subprocess.run([*PYTHON, "-c", KILLED, str(tmp_path / "a"), moment], timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "a").glob("shard-r1-*"))) == 3
    assert (tmp_path / "a/dataset-v1.json").exists() == (moment == "dataset.json")
    assert Manifest.load(tmp_path / "a").samples == 2
    for name in ("a", "b"):
        add(tmp_path / name, 3)
    found = tree(tmp_path / "a")
    if moment == "dataset.json":  # the table that nobody names: the next new data set here removes it
        lost = found.keys() - tree(tmp_path / "b").keys()
        assert [name.endswith(".table") for name in lost] == [True]
        found = {name: data for name, data in found.items() if name not in lost}
    assert found == tree(tmp_path / "b")


def test_what_is_not_ours_is_not_replaced(tmp_path: Path) -> None:
    add(tmp_path, 1)
    (tmp_path / "shard-r1-000001.tar").write_bytes(b"mine")
    with pytest.raises(DestinationError, match=r"shard-r1-000001\.tar"):
        add(tmp_path, 2)


def test_two_writers_at_once(tmp_path: Path) -> None:
    add(tmp_path, 1)
    with pytest.raises(DestinationError, match="version 1 of 1 samples, and is version 2 of 2"):  # noqa: PT012, SIM117
        with ShardWriter(tmp_path, append=True) as writer:
            writer.write({"__key__": "a", "cls": 1})
            with ShardWriter(tmp_path, append=True) as other:
                other.write({"__key__": "b", "cls": 1})
    assert Manifest.load(tmp_path).version == 2


def test_overwriting_removes_all_versions(tmp_path: Path) -> None:
    add(tmp_path, 1)
    add(tmp_path, 2)
    add(tmp_path, 3)
    add(tmp_path, 4, append=False, overwrite=True)
    new = Manifest.load(tmp_path)
    tables = {new.table_name, key_table_name(new.fingerprint)}
    assert set(tree(tmp_path)) == {"dataset.json", "shard-r3-000000.tar"} | tables
    assert Manifest.load(tmp_path).version == 1


def test_an_old_head_that_is_not_ours_stops_a_new_data_set(tmp_path: Path) -> None:
    (tmp_path / "dataset-v3.json").write_text("{}")
    with pytest.raises(DestinationError, match="dataset-v3"):
        add(tmp_path, 1, append=False)


def test_in_a_store(s3: S3Place) -> None:
    url = s3 / "grown"
    add(url, 1, 2, 3, storage=StorageOptions(options=s3.options))
    add(url, 4, storage=StorageOptions(options=s3.options))
    newest = Manifest.load(url, storage_options=s3.options)
    assert (newest.version, newest.samples) == (2, 4)
    assert Manifest.load(url, version=1, storage_options=s3.options).samples == 3
    store = open_store(url, storage_options=s3.options)
    add(url, 5, append=False, overwrite=True, storage=StorageOptions(options=s3.options))
    newest = Manifest.load(url, storage_options=s3.options)
    assert sorted(one.path for one in store.list()) == [
        "dataset.json",
        key_table_name(newest.fingerprint),
        "shard-r2-000000.tar",
        newest.table_name,
    ]
    with pytest.raises(ShardStreamError):
        Manifest.load(url, version=2, storage_options=s3.options)
