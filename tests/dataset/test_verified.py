"""Files that are written to in place while a process has them open: what was verified is what is used, or an error."""

from __future__ import annotations

import gc
import math
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.dataset import dataset_rows, gathered_rows, rows
from shardstream.errors import ChangedError
from shardstream.storage.base import verified
from shardstream.storage.base.verified import copied_bytes, settled

SAMPLES = 60
SHARD = 12_000
OTHER = 100_000  # what is added to all values of the other dataset


def sample(number: int, other: int = 0) -> dict[str, Any]:
    value = number + other
    return {"__key__": f"k{number:03d}", "n": value, "m": value * 3, "raw": b"%06d" % value * 30}


def written(folder: Path, other: int = 0, **options: Any) -> Path:
    """Some shards, whose files have the same sizes whatever is added."""
    with ss.ShardWriter(folder, shard_size=SHARD, **options) as writer:
        for number in range(SAMPLES):
            writer.write(sample(number, other))
    return folder


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("shard-*"))


def overwrite(path: Path, data: bytes) -> None:
    """As ``rsync --inplace`` or ``cp`` does it."""
    assert len(data) == path.stat().st_size
    with open(path, "r+b") as file:
        file.write(data)


def overwrite_all(folder: Path, other: Path) -> None:
    for path, new in zip(shards(folder), shards(other), strict=True):
        overwrite(path, new.read_bytes())


@pytest.fixture(scope="module", params=["tar", "record"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    for name, other in (("a", 0), ("b", OTHER)):
        written(folder / name, other, format=request.param)
    return folder


@pytest.fixture
def both(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A dataset, and one that it is overwritten with."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture(params=["copied", "mapped"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether indexes and blocks of key tables are copied, or there is no room for copies."""
    if request.param == "mapped":
        monkeypatch.setattr(verified, "COPIED_BYTES", 0)
    return request.param


def look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have readers look at their files at each read, not once a second."""
    for module in (rows, dataset_rows):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: math.inf))


def read_all(reader: ss.Reader) -> tuple[int, int]:
    """How many samples are right, and how many are an error because a file has changed."""
    right = changed = 0
    for number in range(SAMPLES):
        try:
            found = reader[number]
        except ChangedError:
            changed += 1
        else:
            assert found == sample(number)
            right += 1
    return right, changed


def test_a_dataset_written_over_is_an_error_and_never_mixed(both, how, monkeypatch) -> None:
    ours, other = both
    reader, numbers = ss.Reader(ours), ss.Reader(ours, fields=["n", "m"])
    for opened in (reader, numbers):
        opened[:]
    overwrite_all(ours, other)
    if how == "copied":  # before anyone looks: values do not fit the checksums, and numbers are those of before
        assert read_all(reader) == (0, SAMPLES)
        assert [found["n"] for found in numbers[:]] == [*range(SAMPLES)]
    look_always(monkeypatch)
    assert read_all(reader) == (0, SAMPLES)
    with pytest.raises(ChangedError, match="in place"):
        numbers[:]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_training_ends_when_its_files_are_written_over(both, how, monkeypatch, on_error) -> None:
    ours, other = both
    look_always(monkeypatch)
    dataset = ss.ShardDataset(ours, batch_size=4, shuffle=True, on_error=on_error, max_skips=SAMPLES)
    batches = iter(ss.Loader(dataset, num_workers=0))
    next(batches)
    overwrite_all(ours, other)
    with pytest.raises(ChangedError, match="in place"):
        for _ in batches:
            pass


def test_a_byte_of_a_label_that_changes_is_not_delivered(both, how, monkeypatch) -> None:
    ours, _ = both
    reader = ss.Reader(ours)
    reader[:]
    path = shards(ours)[0]
    data = bytearray(path.read_bytes())
    data[data.rindex(np.arange(3, dtype="<i8").tobytes())] ^= 99
    overwrite(path, data)
    if how == "copied":
        assert read_all(reader) == (SAMPLES, 0)
    look_always(monkeypatch)
    with pytest.raises(ChangedError, match="in place") as caught:
        reader[0]
    assert caught.value.place["url"] == str(path)


def chmod(path: Path) -> None:
    path.chmod(0o400)


def link(path: Path) -> None:
    os.link(path, path.with_name(f"again-{path.name}"))


def write_the_same(path: Path) -> None:
    overwrite(path, path.read_bytes())


def replace(path: Path) -> None:
    new = path.with_name("new")
    new.write_bytes(bytes(path.stat().st_size))
    new.rename(path)


@pytest.mark.parametrize("change", [chmod, link, Path.touch, write_the_same, replace, Path.unlink])
def test_files_that_are_still_the_same_are_read_on(both, monkeypatch, change: Callable[[Path], None]) -> None:
    ours, _ = both
    monkeypatch.setattr(verified, "COPIED_BYTES", 0)
    reader = ss.Reader(ours)
    reader[:]
    look_always(monkeypatch)
    for path in shards(ours):
        change(path)
    assert read_all(reader) == (SAMPLES, 0)


def test_a_dataset_that_grows_meanwhile_is_read_on(both, how, monkeypatch) -> None:
    ours, _ = both
    reader = ss.Reader(ours)
    reader[:], reader.get("k007")
    look_always(monkeypatch)
    with ss.ShardWriter(ours, format=reader.manifest.format, append=True) as writer:
        writer.write({**sample(SAMPLES)})
    assert read_all(reader) == (SAMPLES, 0)
    assert reader.get("k041") == sample(41)
    assert ss.Reader(ours).get(f"k{SAMPLES:03d}") == sample(SAMPLES)


@pytest.mark.parametrize("checksums", [False, True])
def test_values_that_nobody_compares_are_not_taken_for_the_same(tmp_path, monkeypatch, checksums) -> None:
    ours = written(tmp_path / "a", shards=ss.ShardOptions(checksums=checksums))
    reader = ss.Reader(ours, reads=ss.ReadOptions(verify=not checksums))
    reader[:]
    look_always(monkeypatch)
    chmod(shards(ours)[0])
    assert read_all(reader) == (SAMPLES, 0)
    os.utime(shards(ours)[0], ns=(5, 5))
    with pytest.raises(ChangedError, match="in place"):
        reader[0]


@pytest.mark.parametrize("damage", ["zeros", "cut"])
def test_keys_are_found_whatever_becomes_of_their_table(both, how, damage, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(both[0].parent / "home"))
    reader = ss.Reader(both[0])
    reader.get("k000")
    (table,) = both[0].glob("keys-*")
    if damage == "zeros":
        overwrite(table, bytes(table.stat().st_size))
    else:
        os.truncate(table, 10)
    for number in range(SAMPLES):
        assert reader.get(f"k{number:03d}") == sample(number)


def test_a_key_is_not_missing_because_an_index_is_another_one(both, how) -> None:
    ours, _ = both
    reader = ss.Reader(ours)
    reader[:]
    with ss.ShardWriter(ours.parent / "c", shard_size=SHARD, format=reader.manifest.format) as writer:
        for number in range(SAMPLES):
            writer.write(sample(number) | {"__key__": f"x{number:03d}"})
    overwrite_all(ours, ours.parent / "c")
    if how == "copied":
        assert reader.get("k007") == sample(7)
    else:
        with pytest.raises(ChangedError, match="in place"):
            reader.get("k007")


def test_a_replica_that_is_written_over_is_left(both, monkeypatch, caplog) -> None:
    ours, other = both
    near = ours.parent / "near"
    shutil.copytree(ours, near)
    reader = ss.Reader(ours, replicas=[near])
    reader[:]
    look_always(monkeypatch)
    overwrite_all(near, other)
    assert read_all(reader) == (SAMPLES, 0)
    assert "instead" in caplog.text


def test_a_file_that_was_cut_is_an_error_at_the_next_look(both, how, monkeypatch) -> None:
    ours, _ = both
    reader = ss.Reader(ours)
    reader[:]
    look_always(monkeypatch)
    os.truncate(shards(ours)[0], 700)
    with pytest.raises(ChangedError, match="to 700 bytes while it was in use"):
        reader[0]


def test_data_of_another_library_are_watched_too(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "set"
    folder.mkdir()
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"text {number}")
    with tarfile.open(folder / "0.tar", "w") as archive:
        for number in range(3):
            archive.add(tmp_path / f"{number}.txt", f"{number}.txt")
    reader = ss.Reader(folder)
    assert [found["txt"] for found in reader[:]] == ["text 0", "text 1", "text 2"]
    look_always(monkeypatch)
    chmod(folder / "0.tar")
    assert reader[2]["txt"] == "text 2"
    (folder / "0.tar").chmod(0o600)
    overwrite(folder / "0.tar", (folder / "0.tar").read_bytes().replace(b"text 2", b"TEXT 2"))
    with pytest.raises(ChangedError, match="written again"):
        reader[2]


# ------------------------------------------------------------------------------------------------------------- copies


def test_copies_have_a_budget_and_leave_it_with_their_last_view(monkeypatch) -> None:
    gc.collect()
    before = copied_bytes()
    monkeypatch.setattr(verified, "COPIED_BYTES", before + 250)
    first, stays = settled(memoryview(bytes(range(100))), mapped=True)
    assert stays
    assert copied_bytes() == before + 100
    assert np.frombuffer(first, np.uint8).ctypes.data % 64 == 0
    view = np.frombuffer(first, np.uint8)[40:42]
    second, stays = settled(memoryview(bytes(200)), mapped=True)
    assert not stays
    del first, second
    gc.collect()
    assert copied_bytes() == before + 100
    assert view.tolist() == [40, 41]
    del view
    gc.collect()
    assert copied_bytes() == before
    assert settled(memoryview(bytes(200)), mapped=True)[1]
    large = memoryview(bytes(verified.LARGEST_COPY + 1))
    monkeypatch.setattr(verified, "COPIED_BYTES", 1 << 30)
    assert settled(large, mapped=True) == (large, False)
    assert settled(large, mapped=False) == (large, True)  # they are this process's own


def test_a_forked_process_has_a_budget_of_its_own() -> None:
    kept, _ = settled(memoryview(bytes(1000)), mapped=True)
    child = os.fork()
    if not child:
        os._exit(copied_bytes())
    assert os.waitpid(child, 0)[1] == 0
    assert copied_bytes() >= len(kept)


def test_keys_found_after_a_reader_let_go_of_their_shard_are_right(both, monkeypatch) -> None:
    monkeypatch.setattr(gathered_rows, "OPEN_INDEXES", 4)
    monkeypatch.setattr("shardstream.dataset.indexes.OPEN_INDEXES", 4)
    reader = ss.Reader(both[0])
    for number in (*range(SAMPLES), *range(SAMPLES)):
        assert reader[number]["__key__"] == f"k{number:03d}"
    gc.collect()
    assert copied_bytes() < 4 * 16384
