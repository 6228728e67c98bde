"""Samples by key, by many numbers, and by what stands in the index; key tables, wherever they come from."""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import os
import pickle
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardstream as ss
from shardstream.dataset import dataset_rows
from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.keys import finder, listings
from shardstream.dataset.keys.tables import stored_tables
from shardstream.dataset.rows import RowBatch
from shardstream.errors import ChecksumError, FieldError, MissingKeyError, UsageError
from shardstream.shards import key_table
from shardstream.shards.heads import seal
from shardstream.shards.key_table import key_table_name
from shardstream.storage import open_store
from shardstream.storage.cache import maintenance

from ..storage.faults import FaultProxy
from ..storage.places import S3Place
from .making import numbered, write_dataset

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/"), min_size=1, max_size=6)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's tables are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "shardstream" / "keys"


def write(folder: Path | str, *keys: str, **options) -> ss.Manifest:
    with ss.ShardWriter(folder, shard_size=2000, format="record", append=True, **options) as writer:
        for i, key in enumerate(keys):
            writer.write({"__key__": key, "n": i % 7, "half": i / 2, "raw": bytes([i % 256] * 100)})
    storage = options.get("storage", ss.StorageOptions())
    return ss.Manifest.load(folder, storage_options=storage.options)


def table_of(folder: Path) -> Path:
    return folder / key_table_name(ss.Manifest.load(folder).fingerprint)


def names(count: int, prefix: str = "k") -> list[str]:
    return [f"{prefix}/{i}" for i in range(count)]


# ------------------------------------------------------------------------------------------------------ by number


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader") / "set"
    write(folder, *names(300))
    return folder


def test_lists_and_slices_are_read_together(folder: Path) -> None:
    reader = ss.Reader(folder)
    assert [one["__key__"] for one in reader[[7, 3, -1, 7]]] == ["k/7", "k/3", "k/299", "k/7"]
    assert [one["__key__"] for one in reader[np.array([250, 0])]] == ["k/250", "k/0"]
    assert [one["__key__"] for one in reader[5:300:100]] == ["k/5", "k/105", "k/205"]
    assert [one["__key__"] for one in reader[::-1]] == names(300)[::-1]  # more than are read at once
    assert reader[[]] == reader[3:3] == []
    assert reader[np.int64(3)]["__key__"] == "k/3"
    for wrong in (300, -301, [0, 300]):
        with pytest.raises(IndexError):
            reader[wrong]
    for wrong in ("k/3", [True, False], 1.0):
        with pytest.raises(UsageError, match="integers"):
            reader[wrong]


@pytest.fixture
def counted(folder: Path, s3: S3Place, s3_server) -> Iterator[tuple[ss.Reader, FaultProxy]]:
    """A reader of a bucket, and what counts its requests from now on."""
    for file in folder.iterdir():
        s3.plant(file.name, file.read_bytes())
    with FaultProxy(s3_server[0].removeprefix("http://")) as proxy:
        reader = ss.Reader(s3.url(), storage_options=s3.options | {"endpoint": proxy.url})
        proxy.reset_counts()
        yield reader, proxy


def test_a_list_takes_few_requests(counted: tuple[ss.Reader, FaultProxy]) -> None:
    reader, proxy = counted
    found = reader[[3, 4, 290, 291]]
    assert [one["__key__"] for one in found] == ["k/3", "k/4", "k/290", "k/291"]
    assert proxy.requests <= 4  # two indexes, two ranges of neighbours


def test_iterating_takes_few_requests(folder: Path, counted: tuple[ss.Reader, FaultProxy]) -> None:
    reader, proxy = counted
    found = list(reader)
    assert proxy.requests <= 2 * reader.manifest.shards + 2  # indexes and ranges; two shards are met in two parts
    assert found == ss.Reader(folder)[:]
    assert [sample["__key__"] for sample in found] == names(300)


def test_iterating_ends_at_the_sample_that_is_damaged(tmp_path: Path) -> None:
    samples = numbered([40], raw=lambda n: bytes([n]) * 50)
    folder = write_dataset(tmp_path / "set", [samples[0]], format="record")
    (file,) = folder.glob("shard-*")
    data = bytearray(file.read_bytes())
    for broken in (31, 7):  # the first in order is the one that is named
        data[data.index(bytes([broken]) * 50)] ^= 1
    file.write_bytes(data)
    seen: list[str] = []
    with pytest.raises(ChecksumError, match="k000007"):
        seen.extend(sample["__key__"] for sample in ss.Reader(folder))
    assert seen == [f"k{i:06d}" for i in range(7)]


def test_iterating_decodes_one_after_another(folder: Path) -> None:
    decoded: list[bytes] = []
    samples = iter(ss.Reader(folder, fields={"raw": decoded.append}))
    for count in (1, 2, 3):
        next(samples)
        assert len(decoded) == count


def test_iterating_holds_few_bytes_however_they_are_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a few large samples among many small ones, nor what unpacks to much, is read together."""
    monkeypatch.setattr(dataset_rows, "_PART", 10_000)
    sizes = [1] * 300 + [9000] * 8
    with ss.ShardWriter(
        tmp_path, format="record", shards=ss.ShardOptions(zstd=["packed"]), fields={"plain": "bytes", "packed": "bytes"}
    ) as writer:
        for i, size in enumerate(sizes):
            values = {"plain": bytes(size)} if i % 2 else {"packed": bytes(size)}
            writer.write({"__key__": f"k{i}"} | values)
    held: list[int] = []
    whole = ss.Reader(tmp_path)[:]

    def watched(reader: DatasetRows, *given: Any) -> RowBatch:
        rows = one_by_one(reader, *given)
        held.append(sum(len(value) for i in range(len(rows.rows)) for value in rows.values(i).values()))
        return rows

    one_by_one = DatasetRows._one_by_one
    monkeypatch.setattr(DatasetRows, "_one_by_one", watched)
    assert list(ss.Reader(tmp_path)) == whole
    assert max(held) <= 10_000
    assert len(held) <= 10


def test_a_sample_that_is_kept_does_not_hold_those_beside_it(tmp_path: Path) -> None:
    samples = numbered([100, 100], vector=lambda n: np.full(8, n, np.float32))
    reader = ss.Reader(write_dataset(tmp_path, samples, types={"vector": "array:float32:8"}))
    for i, sample in enumerate((next(iter(reader)), reader[:2][1], reader[2])):
        vector = sample["vector"]
        assert vector.tolist() == [i] * 8
        assert vector.flags.writeable
        assert vector.base is None or vector.base.nbytes == vector.nbytes


def test_find_gives_the_numbers_of_rows_that_match(folder: Path) -> None:
    reader = ss.Reader(folder)
    assert reader.find(where={"n": 3}).tolist() == [i for i in range(300) if i % 7 == 3]
    assert reader.find(where={"n": [1, 3], "half": [5.0, 5.5, 2.0]}).tolist() == [10]
    assert reader.find(where={}).tolist() == list(range(300))
    assert [one["n"] for one in reader[reader.find(where={"n": 6})[:3]]] == [6, 6, 6]
    assert reader.find(where={"n": []}).tolist() == []
    with pytest.raises(FieldError, match="index"):
        reader.find(where={"raw": 1})


def test_a_reader_that_was_used_can_be_pickled(folder: Path) -> None:
    reader = ss.Reader(folder, fields={"n": None}, version=1)
    assert reader.get("k/9") == {"__key__": "k/9", "n": 2}
    assert pickle.loads(pickle.dumps(reader)).get("k/9") == reader[9]


# --------------------------------------------------------------------------------------------------------- by key


def test_a_key_is_found_without_looking_through_indexes(folder: Path, home: Path, monkeypatch) -> None:
    reader = ss.Reader(folder)
    opened: list[int] = []
    index = type(reader._rows).index
    monkeypatch.setattr(type(reader._rows), "index", lambda self, shard: (opened.append(shard), index(self, shard))[1])
    assert reader.get("k/280")["__key__"] == "k/280"
    assert len(opened) == 1
    assert "k/0" in reader
    assert "k/300" not in reader
    assert 3 not in reader
    assert "\ud800" not in reader
    assert not home.exists()


def test_a_missing_key_says_which_and_where(folder: Path) -> None:
    with pytest.raises(MissingKeyError, match="no sample has this key") as error:
        ss.Reader(folder).get("k/300")
    assert isinstance(error.value, KeyError)
    assert error.value.place == {"url": str(folder), "key": "k/300"}


@pytest.mark.full
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(versions=st.lists(st.lists(NAMES, min_size=1, max_size=9, unique=True), min_size=1, max_size=5), table=...)
def test_every_version_finds_its_first_samples(versions: list[list[str]], table: bool, home: Path) -> None:
    """Keys may come again in a later version; all hashes are among four, so most are equal."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as root:
        patch.setattr(key_table, "key_hash", lambda key: len(bytes(key)) % 4)
        patch.setattr(key_table, "_LEAST_BLOCK", 3)
        folder = Path(root) / "set"
        for keys in versions:
            write(folder, *keys, shards=ss.ShardOptions(key_table=table))
        there: list[str] = []
        for number, keys in enumerate(versions, 1):
            there += keys
            reader = ss.Reader(folder, version=number)
            for key in {key for some in versions for key in some}:
                assert (key in reader) == (key in there)
                if key in there:
                    assert reader.get(key) == reader[there.index(key)]
        assert table == (len(list(folder.glob("keys-*.table"))) == len(versions))


def test_small_tables_are_taken_in_and_large_ones_stay(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "set"
    write(folder, *names(100, "a"))
    levels = []
    for i in range(12):
        write(folder, f"b/{i}", f"c/{i}")
        tables = stored_tables(open_store(folder), ss.Manifest.load(folder))
        levels.append([table.covers.stop - table.covers.start for table in tables])
    assert levels[:3] == [[100, 2], [100, 4], [100, 6]]
    assert max(map(len, levels)) == 2
    reader = ss.Reader(folder)
    assert [reader.get(key)["__key__"] for key in ("a/99", "b/0", "c/11")] == ["a/99", "b/0", "c/11"]
    assert not home.exists()


def test_what_changes_the_data_drops_its_tables(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write(folder, "a")
    write(folder, "b")
    assert len(list(folder.glob("keys-*"))) == 2
    with ss.ShardWriter(folder, overwrite=True) as writer:
        writer.write({"__key__": "c"})
    assert [*folder.glob("keys-*")] == [table_of(folder)]
    with ss.ShardWriter(folder, overwrite=True, shards=ss.ShardOptions(key_table=False)) as writer:
        writer.write({"__key__": "d"})
    assert not [*folder.glob("keys-*")]


def id_of(folder: Path, key: str) -> int:
    return ss.Reader(folder).get(key)["id"]


def test_without_a_table_one_is_made_once(tmp_path: Path, home: Path, monkeypatch) -> None:
    folder = write_dataset(tmp_path / "set", numbered([30, 40]))
    assert ss.Reader(folder).get("k000055")["id"] == 55
    (kept,) = home.glob("[0-9a-f]*")
    before = kept.stat().st_mtime_ns
    with multiprocessing.get_context("fork").Pool(1) as elsewhere:
        assert elsewhere.apply(id_of, (folder, "k000069")) == 69
    assert kept.stat().st_mtime_ns == before


def test_changed_data_is_never_answered_from_an_old_table(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "set"
    for keys in (["a", "b"], ["b", "a"], ["c"]):
        with ss.ShardWriter(folder, overwrite=True, shards=ss.ShardOptions(key_table=False)) as writer:
            for key in keys:
                writer.write({"__key__": key})
        reader = ss.Reader(folder)
        assert [key for key in "abc" if key in reader] == sorted(keys)
        assert [reader.get(key)["__key__"] for key in keys] == keys
    assert len([*home.glob("[0-9a-f]*")]) == 3


def test_with_a_cache_it_is_kept_there(tmp_path: Path, home: Path) -> None:
    folder, cache = tmp_path / "set", tmp_path / "cache"
    fingerprint = write(folder, *names(20), shards=ss.ShardOptions(key_table=False)).fingerprint
    reader = ss.Reader(folder, cache=cache)
    assert "k/3" in reader
    assert (cache / "sets" / fingerprint / f"{fingerprint}.keys").exists()
    assert not home.exists()
    del reader
    gc.collect()  # from Python 3.12 on, a context manager of contextlib that raises is part of a cycle
    cleared, _ = maintenance.clear(ss.Cache(cache), chosen=lambda _: True)
    assert len(cleared) == 1
    assert not [*(cache / "sets").iterdir()]


def test_a_full_cache_leaves_it_to_the_user_s_folder(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "set"
    write(folder, *names(20), shards=ss.ShardOptions(key_table=False))
    assert "k/3" in ss.Reader(folder, cache=ss.Cache(tmp_path / "cache", size=10))
    assert [*home.glob("[0-9a-f]*")]


@pytest.mark.parametrize("where", ["data set", "kept"])
@pytest.mark.parametrize("how", ["cut", "damaged", "end", "empty", "foreign"])
def test_a_damaged_table_is_made_anew_with_a_warning(where, how, tmp_path: Path, home: Path, caplog) -> None:
    folder = tmp_path / "set"
    write(folder, *names(50), shards=ss.ShardOptions(key_table=where == "data set"))
    if where == "kept":
        assert "k/1" in ss.Reader(folder)
        (file,) = home.glob("[0-9a-f]*")
    else:
        file = table_of(folder)
    data = bytearray(file.read_bytes())
    data[{"end": -3}.get(how, 5)] ^= 1
    file.write_bytes({"cut": data[:-100], "empty": b"", "foreign": bytes(1000)}.get(how, bytes(data)))
    with caplog.at_level(logging.WARNING):
        reader = ss.Reader(folder)
        assert [reader.get(key)["__key__"] for key in names(50)] == names(50)
    assert (where == "kept" and how != "damaged") or "made anew" in caplog.text
    caplog.clear()
    if where == "kept":
        assert "k/1" in ss.Reader(folder)
        assert not caplog.text


def test_damage_of_a_shard_is_not_taken_for_the_table_s(tmp_path: Path, home: Path, caplog) -> None:
    folder = tmp_path / "set"
    write(folder, *names(5))
    (file,) = folder.glob("shard-*")
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    for _ in range(2):
        with pytest.raises(ChecksumError, match="index"):
            ss.Reader(folder).get("k/3")
        table_of(folder).unlink(missing_ok=True)
    assert not caplog.text


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path, monkeypatch, caplog) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = tmp_path / "set"
    write(folder, *names(5), shards=ss.ShardOptions(key_table=False))
    assert ss.Reader(folder).get("k/3")["__key__"] == "k/3"
    assert "cannot be kept" in caplog.text


@pytest.mark.parametrize("damaged", [False, True])
def test_a_kept_table_grows_with_its_data_set(damaged: bool, tmp_path: Path, home: Path, monkeypatch) -> None:
    """Only the new shards are looked at; all of them where the table of the old version is damaged."""
    folder = tmp_path / "set"
    old = write(folder, *names(50), shards=ss.ShardOptions(key_table=False))
    assert "k/3" in ss.Reader(folder)
    (file,) = home.glob("[0-9a-f]*")
    if damaged:
        data = bytearray(file.read_bytes())
        data[5] ^= 1
        file.write_bytes(data)
    new = write(folder, "n/0", "k/3", shards=ss.ShardOptions(key_table=False))
    looked, whole = [], listings.hashes_of
    monkeypatch.setattr(listings, "hashes_of", lambda keys: looked.append(list(keys)) or whole(keys))
    reader = ss.Reader(folder)
    assert [reader.get(key)["n"] for key in ("n/0", "k/3", "k/49")] == [0, 3, 0]
    assert len(looked) == (new.shards if damaged else new.shards - old.shards)


@pytest.mark.parametrize("shards", [0, 2, 10**12])
def test_a_history_that_contradicts_the_shards_is_no_beginning_of_a_table(
    shards: int, tmp_path: Path, home: Path
) -> None:
    folder = tmp_path / "set"
    write(folder, *names(50), shards=ss.ShardOptions(key_table=False))
    assert "k/3" in ss.Reader(folder)
    write(folder, "n/0", shards=ss.ShardOptions(key_table=False))
    head = json.loads((folder / "dataset.json").read_bytes())
    assert head["history"][0]["shards"] == 3
    head["history"][0]["shards"] = shards
    (folder / "dataset.json").write_bytes(seal(head))
    assert ss.Reader(folder).get("n/0")["__key__"] == "n/0"


def look_up(folder: Path, found: Any) -> None:
    found.put(ss.Reader(folder).get("k/17")["__key__"])


def look_up_and_die(folder: Path, found: Any) -> None:
    whole = finder.table_bytes

    def killed(keys: Any) -> Iterator[Any]:
        for piece in whole(keys):
            yield piece[:50]
            os.kill(os.getpid(), signal.SIGKILL)

    finder.table_bytes = killed  # in this process, which is a fork
    look_up(folder, found)


def test_two_processes_at_once_and_one_that_was_killed(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "set"
    write(folder, *names(50), shards=ss.ShardOptions(key_table=False))
    fork = multiprocessing.get_context("fork")
    found = fork.SimpleQueue()
    died = fork.Process(target=look_up_and_die, args=(folder, found))
    died.start()
    died.join(60)
    assert died.exitcode == -signal.SIGKILL
    both = [fork.Process(target=look_up, args=(folder, found)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert [found.get(), found.get()] == ["k/17"] * 2
    assert sorted(name[-5:] for name in os.listdir(home)) == [".keys", ".keys"]  # the table and the lock


# ---------------------------------------------------------------------------------------------------- in a store


@pytest.fixture
def far(s3: S3Place, s3_server) -> Iterator[tuple[dict, FaultProxy]]:
    with FaultProxy(s3_server[0].removeprefix("http://")) as proxy:
        yield s3.options | {"endpoint": proxy.url}, proxy


@pytest.mark.parametrize("table", [True, False])
def test_a_first_get_from_a_store_takes_four_requests(table: bool, s3: S3Place, far, home: Path) -> None:
    options, proxy = far
    write(s3.url(), *names(300), shards=ss.ShardOptions(key_table=table), storage=ss.StorageOptions(options=s3.options))
    if not table:
        assert "k/1" in ss.Reader(s3.url(), storage_options=s3.options)
    reader = ss.Reader(s3.url(), storage_options=options)
    proxy.reset_counts()
    assert reader.get("k/280")["raw"] == bytes([280 % 256] * 100)
    assert proxy.requests <= 4
    proxy.reset_counts()
    assert reader.get("k/281")["__key__"] == "k/281"
    assert proxy.requests <= 2
    proxy.reset_counts()
    assert "nobody" not in reader
    assert proxy.requests == 0  # of 300 keys there is one block
