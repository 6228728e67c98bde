"""Data sets that become one: shards copied byte for byte, nothing lost, nothing twice."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardstream import StorageOptions
from shardstream.diagnose import verify
from shardstream.errors import ChecksumError, DestinationError, DuplicateKeyError, FieldError, StorageError, UsageError
from shardstream.pack.merge import _Work, merge
from shardstream.pack.output.copies import ShardCopier
from shardstream.pack.writer import ShardWriter
from shardstream.progress import ProgressEvent
from shardstream.shards import key_table
from shardstream.shards.key_table import key_table_name
from shardstream.shards.manifest import Manifest
from shardstream.storage.local.store import LocalStore

from ..storage.places import S3Place
from .making import samples, tree


def write(dest: Any, *numbers: int, **options: Any) -> Any:
    """Two samples a shard."""
    with ShardWriter(dest, **{"shard_size": 5000, **options}) as writer:
        for i in numbers:
            writer.write({"__key__": f"k/{i}", "raw": np.random.default_rng(i).bytes(2200), "cls": i})
    return dest


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    return [write(tmp_path / f"{begin}", *range(begin, begin + 5)) for begin in (0, 10, 20)]


def test_shards_are_copied_as_they_are(three: list[Path], tmp_path: Path) -> None:
    dest = tmp_path / "all"
    found = merge(three, dest)
    assert list(samples(dest)) == [key for one in three for key in samples(one)]
    assert samples(dest) == {key: value for one in three for key, value in samples(one).items()}
    assert (found.samples, found.shards, found.version, found.url) == (15, 9, 1, str(dest))
    copied = [data for name, data in sorted(tree(dest).items()) if name.endswith(".tar")]
    assert copied == [data for one in three for name, data in sorted(tree(one).items()) if name.endswith(".tar")]
    assert verify(dest).ok


def test_again_it_is_only_loaded(three: list[Path], tmp_path: Path) -> None:
    dest = tmp_path / "all"
    told: list[ProgressEvent] = []
    merge(three, dest, progress=told.append)
    size = Manifest.load(dest).bytes
    assert told[-1] == ProgressEvent("copy", 9, 9, "shards", {"bytes": size, "total_bytes": size})
    before, told[:] = tree(dest), []
    assert merge(three, dest, progress=told.append).samples == 15
    assert (tree(dest), told) == (before, [])
    with pytest.raises(DestinationError, match="15 samples"):
        merge(three[:2], dest)
    assert merge(three[:2], dest, overwrite=True).samples == 10
    assert len(tree(dest)) == 6 + 3  # dataset.json and two tables


@pytest.mark.full
def test_stopped_anywhere_it_goes_on_with_the_same_result(
    three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge(three, tmp_path / "whole")
    expected = tree(tmp_path / "whole")
    written: list[str] = []
    create = LocalStore.create

    def limited(store: LocalStore, path: str) -> Any:
        if len(written) == room:
            raise StorageError("no space left on device")
        written.append(path)
        return create(store, path)

    monkeypatch.setattr(LocalStore, "create", limited)
    for room in range(11):
        written.clear()
        dest = tmp_path / f"stopped-{room}"
        with pytest.raises(StorageError, match="no space"):
            merge(three, dest)
        before = set(written)
        written.clear()
        room = 100
        merge(three, dest)
        assert tree(dest) == expected
        again = {Manifest.load(dest).table_name, key_table_name(Manifest.load(dest).fingerprint)}
        assert not before & set(written) or before & set(written) <= again


def test_what_lies_there_under_the_name_of_a_shard_is_compared(three: list[Path], tmp_path: Path) -> None:
    merge(three, tmp_path / "a")
    expected = tree(tmp_path / "a")
    shards = sorted(name for name in expected if name.endswith(".tar"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / shards[0]).write_bytes(expected[shards[1]])  # of the same size, but another
    assert len(expected[shards[0]]) == len(expected[shards[1]])
    merge(three, tmp_path / "b")
    assert tree(tmp_path / "b") == expected


def test_classes_and_meta_are_united(tmp_path: Path) -> None:
    one = write(tmp_path / "1", 1, classes=["a", "b"], meta={"x": 1, "y": 2})
    two = write(tmp_path / "2", 2, classes=["a", "b", "c"], meta={"x": 1, "z": 3})
    three = write(tmp_path / "3", 3)
    found = merge([one, two, three], tmp_path / "all")
    assert (found.classes, found.meta) == (("a", "b", "c"), {"x": 1, "y": 2, "z": 3})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda path: write(path, 1, format="record"), UsageError, "has tar shards, .* record shards"),
        (lambda path: write(path, 1, classes=["b"]), UsageError, "label 0 means 'a' in .*, but 'b' in"),
        (lambda path: write(path, 1, meta={"x": 2}), UsageError, r"meta\['x'\] is 1 in .*, but 2 in"),
        (lambda path: write(path, 1, fields={"cls": "int32"}), FieldError, "int64 in .*, but int32 in"),
        (lambda path: write(path, 0, classes=["a"], meta={"x": 1}), UsageError, "same samples"),
    ],
)
def test_what_does_not_go_together(
    make: Callable[[Path], Path], error: type[Exception], message: str, tmp_path: Path
) -> None:
    first = write(tmp_path / "first", 0, classes=["a"], meta={"x": 1})
    with pytest.raises(error, match=message):
        merge([first, make(tmp_path / "second")], tmp_path / "all")
    assert not tree(tmp_path / "all")


@pytest.mark.parametrize("urls", [[], "one", None])
def test_bad_arguments(urls: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="list of data sets"):
        merge(urls, tmp_path / "all")


@pytest.mark.parametrize("run", [4, 1000])
def test_keys_that_occur_twice(three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: int) -> None:
    monkeypatch.setattr(key_table, "_RUN", run)  # hashes that are held in memory
    again = write(tmp_path / "again", 30, 31, 32, 13, 33)
    with pytest.raises(DuplicateKeyError) as caught:
        merge([*three, again], tmp_path / "all")
    assert f"sample 1 of {three[1]}/shard-000001.tar has the same key" in str(caught.value)
    assert caught.value.place == {"url": str(again), "shard": "shard-000001.tar", "sample": 1, "key": "k/13"}
    assert not tree(tmp_path / "all")
    assert merge(three, tmp_path / "all").samples == 15


def test_of_many_keys_that_occur_twice_some_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_table, "_RUN", 8)  # so that there are many parts, each with some of them
    monkeypatch.setattr(sys.modules[_Work.__module__], "_SUSPECTS", 6)
    compared: list[int] = []
    compare = _Work._compare

    def counted(work: _Work, suspects: Sequence[int]) -> None:
        compared.extend(suspects)
        compare(work, suspects)

    monkeypatch.setattr(_Work, "_compare", counted)
    one, other = write(tmp_path / "one", *range(40)), write(tmp_path / "other", *range(41))
    with pytest.raises(DuplicateKeyError, match="has the same key"):
        merge([one, other], tmp_path / "all")
    assert 6 <= len(compared) <= 3 * 6


def test_no_shard_stays_mapped_for_its_keys(three: list[Path], tmp_path: Path) -> None:
    mapped: list[str] = []

    def look(event: ProgressEvent) -> None:
        if event.phase == "copy" and event.done == 0:
            lines = Path("/proc/self/maps").read_text().splitlines()
            mapped.extend(line for line in lines if str(tmp_path) in line and line.endswith(".tar"))

    merge(three, tmp_path / "all", progress=look)
    assert not mapped


def test_keys_come_from_the_next_place_where_a_replica_is_damaged(three: list[Path], tmp_path: Path) -> None:
    shutil.copytree(three[0], tmp_path / "replica")
    path = tmp_path / "replica/shard-000001.tar"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    found = merge(three, tmp_path / "all", storage=StorageOptions(replicas=[tmp_path / "replica"]))
    assert found.fingerprint == merge(three, tmp_path / "without").fingerprint
    assert tree(tmp_path / "all") == tree(tmp_path / "without")


def test_a_damaged_shard_is_not_copied(three: list[Path], tmp_path: Path) -> None:
    path = three[1] / "shard-000001.tar"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(ChecksumError) as caught:
        merge(three, tmp_path / "all")
    assert caught.value.place == {"url": str(three[1]), "shard": "shard-000001.tar"}
    assert "dataset.json" not in tree(tmp_path / "all")


def test_the_newest_version_is_merged_and_grows_on(three: list[Path], tmp_path: Path) -> None:
    write(three[0], 7, append=True)
    found = merge(three, tmp_path / "all")
    assert (found.samples, found.version, found.history) == (16, 1, ())
    write(tmp_path / "all", 99, append=True)
    assert Manifest.load(tmp_path / "all").samples == 17


def test_in_a_bucket_the_store_copies(
    three: list[Path], tmp_path: Path, s3: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [s3 / f"in/{number}" for number in range(2)]
    for number, url in enumerate(urls):
        write(url, *range(10 * number, 10 * number + 5), storage=StorageOptions(options=s3.options))
    here = {"storage": StorageOptions(options=s3.options, source=s3.options)}
    monkeypatch.setattr(ShardCopier, "_send", None)  # would bring the bytes through here
    found = merge(urls, s3 / "out/all", **here)
    monkeypatch.undo()
    assert merge(three[:2], tmp_path / "all").fingerprint == found.fingerprint
    down = merge(urls, tmp_path / "down", storage=StorageOptions(source=s3.options))
    assert down.fingerprint == found.fingerprint
    assert tree(tmp_path / "down") == tree(tmp_path / "all")
