"""Data of other libraries are opened like ours: indexed once, found again, indexed anew where they changed."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.diagnose import info, verify
from shardstream.errors import (
    ChangedError,
    DataError,
    FieldError,
    FormatError,
    NotFoundError,
    StorageError,
    UsageError,
)
from shardstream.formats.catalog import CATALOGUE_NAME, scan, scanning
from shardstream.formats.catalog.catalog import Catalogue
from shardstream.formats.scans.rows import PIECE
from shardstream.progress import ProgressEvent
from shardstream.shards.index import check_key
from shardstream.testing import MemoryStore

from .making import SAMPLES, batches, everything, jpeg, tar, webdataset


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return webdataset(tmp_path_factory.mktemp("wds"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """One that a test may change."""
    return webdataset(tmp_path / "data")


def in_memory(folder: Path) -> MemoryStore:
    return MemoryStore({path.name: path.read_bytes() for path in folder.iterdir()})


def scanned(url: Any, **options: Any) -> int:
    return ss.index(url, workers=1, **options).scanned


# ---------------------------------------------------------------------------------------------------------- opening


def test_a_folder_of_tars_is_a_data_set(folder: Path) -> None:
    found = everything(folder)
    assert len(found) == 3 * SAMPLES
    sample = found["t1/005"]
    assert sample["cls"] == 6
    assert sample["json"] == {"tar": 1, "row": 5}
    assert sample["jpg"].shape == (16, 24, 3)
    assert ss.Reader(folder, fields={"jpg": "bytes"}).get("t1/005")["jpg"] == jpeg(5)


@pytest.mark.parametrize("names", ["part-{0..2}.tar", "part-*.tar"])
def test_files_by_braces_or_a_glob_are_one_data_set(folder: Path, names: str) -> None:
    assert batches(f"{folder}/{names}") == batches(folder)


def test_one_file_and_a_list_of_files(folder: Path) -> None:
    assert len(ss.Reader(folder / "part-1.tar")) == SAMPLES
    several = ss.ShardDataset([folder / "part-0.tar", folder / "part-2.tar"], fields=["cls"])
    assert len(several.manifests) == 1
    assert several.manifest.samples == 2 * SAMPLES


def test_files_that_are_not_there_are_named(folder: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no such file.*part-3\.tar"):
        ss.ShardDataset(f"{folder}/part-{{0..7}}.tar")
    with pytest.raises(NotFoundError, match="no data set matches"):
        ss.ShardDataset(f"{folder}/nothing-*.tar")


def test_a_glob_in_a_store(folder: Path, s3: Any) -> None:
    for path in folder.iterdir():
        s3.plant(path.name, path.read_bytes())
    assert batches(f"{s3.url()}/part-*.tar", storage_options=s3.options) == batches(folder)


def test_a_folder_of_nothing_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(NotFoundError, match="there is no data set here"):
        ss.ShardDataset(tmp_path)


def test_what_is_no_data_set_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no such file or folder[\s\S]*did you mean 'data'"):
        ss.ShardDataset(webdataset(tmp_path / "data").with_name("dat"))
    ss.repack(folder, tmp_path / "ours", format="record", workers=0)
    (shard,) = (tmp_path / "ours").glob("*.rec")
    with pytest.raises(
        NotFoundError, match=rf"no format[\s\S]*in a data set of shardstream: give that, {tmp_path}/ours"
    ):
        ss.ShardDataset(shard)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_store_over_a_network_gives_what_the_disk_gives(folder: Path, tmp_path: Path, workers: int) -> None:
    store = in_memory(folder)
    expected = batches(folder)
    assert batches(store, workers) == expected
    for _ in range(2):
        assert batches(store, workers, cache=tmp_path / "blocks") == expected


def test_a_second_epoch_out_of_the_cache_asks_for_nothing(folder: Path, tmp_path: Path) -> None:
    store = in_memory(folder)
    batches(store, cache=tmp_path / "blocks")
    reader = ss.ShardDataset(store, cache=tmp_path / "blocks", fields=["cls", "jpg"], batch_size=8)
    before = len(store.requests)
    assert sum(len(batch["cls"]) for batch in ss.Loader(reader, num_workers=0)) == 3 * SAMPLES
    assert len(store.requests) == before


@pytest.mark.parametrize(
    "context", ["fork", *(pytest.param(one, marks=pytest.mark.full) for one in ("spawn", "forkserver"))]
)
def test_workers_of_every_kind(folder: Path, context: str) -> None:
    ds = ss.ShardDataset(folder, fields=["cls", "json", "jpg"], batch_size=8, shuffle=True, seed=5)
    loader = ss.Loader(ds, num_workers=1, multiprocessing_context=context)
    assert [(batch["__key__"], batch["cls"].tolist()) for batch in loader] == batches(folder)


def test_a_run_goes_on_at_another_place_with_other_workers(folder: Path) -> None:
    whole = batches(folder)
    options: dict[str, Any] = {"fields": ["cls"], "batch_size": 8, "shuffle": True, "seed": 5}
    loader = ss.Loader(ss.ShardDataset(folder, **options), num_workers=2)
    iterator = iter(loader)
    first = [(list(batch["__key__"]), batch["cls"].tolist()) for batch in islice(iterator, 3)]
    state = loader.state_dict()
    del iterator
    elsewhere = ss.Loader(ss.ShardDataset(in_memory(folder), **options), num_workers=0)
    elsewhere.load_state_dict(state)
    assert first + [(list(batch["__key__"]), batch["cls"].tolist()) for batch in elsewhere] == whole


def test_the_identity_is_that_of_the_bytes_not_of_their_place_or_time(own: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(own, copy)
    os.utime(copy / "part-0.tar", (1, 1))
    assert ss.ShardDataset(own).manifest.fingerprint == ss.ShardDataset(copy).manifest.fingerprint
    assert ss.ShardDataset(in_memory(own)).manifest.fingerprint == ss.ShardDataset(own).manifest.fingerprint


def test_where_views_and_mixtures_know_them(folder: Path) -> None:
    threes = ss.ShardDataset(folder, fields=["cls"], where={"cls": 3})
    assert {sample["cls"] for sample in threes} == {3}
    val = ss.ShardDataset(folder, fields=["cls"], split=("val", {"train": 0.75, "val": 0.25}))
    assert len(list(val)) == 3 * SAMPLES // 4
    mixed = ss.Mixture({"all": (ss.ShardDataset(folder, fields=["cls"]), 0.5), "threes": (threes, 0.5)}, batch_size=4)
    assert len(next(iter(mixed))["cls"]) == 4


def test_several_of_them_are_laid_end_to_end(folder: Path, tmp_path: Path) -> None:
    other = webdataset(tmp_path / "other", tars=1, start=9)
    assert len(ss.ShardDataset([folder, other], fields=["cls"]).manifests) == 2


# ------------------------------------------------------------------------------------------------- the catalogue


def test_what_was_indexed_is_not_read_again(own: Path) -> None:
    assert scanned(own) == 3
    assert scanned(own) == 0
    os.utime(own / "part-1.tar", (5, 5))
    assert scanned(own) == 1
    webdataset(own, tars=1, start=3)
    assert scanned(own) == 1
    (own / "part-0.tar").unlink()
    assert scanned(own) == 0
    assert set(everything(own)) == {f"t{number}/{row:03d}" for number in (1, 2, 3) for row in range(SAMPLES)}


def test_a_catalog_that_an_earlier_version_kept_is_made_again(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("shardstream.formats.catalog.selected.SCANS", 1)
        scanned = ss.index(own, workers=1).scanned
        assert scanned == 3
        assert ss.index(own, workers=1).scanned == 0
    assert ss.index(own, workers=1).scanned == scanned


def test_an_index_is_the_same_bytes_however_it_was_made(own: Path, tmp_path: Path, home: Path) -> None:
    def kept() -> dict[str, bytes]:
        (place,) = (home / "shardstream/catalogues").iterdir()
        return {path.name: path.read_bytes() for path in place.iterdir() if path.name.startswith("shardstream-")}

    ss.index(own, workers=1)
    first = kept()
    shutil.rmtree(home)
    (own / "part-2.tar").rename(tmp_path / "away")
    ss.index(own, workers=2)
    (tmp_path / "away").rename(own / "part-2.tar")
    ss.index(own, workers=2)
    again = kept()
    assert first.items() <= again.items()


def test_a_catalogue_beside_the_data_serves_everybody(own: Path, home: Path) -> None:
    report = ss.index(own, workers=1, beside=True)
    assert report.place == str(own)
    shutil.rmtree(home)
    (own / "part-1.tar").chmod(0)  # root reads it all the same; the catalogue is not made again in any case
    assert ss.ShardDataset(own).manifest.samples == 3 * SAMPLES
    assert not (home / "shardstream/catalogues").exists()
    (own / "part-1.tar").chmod(0o644)
    webdataset(own, tars=1, start=3)
    assert ss.index(own, workers=1, beside=True).scanned == 1
    for tars in (4, 5):  # what runs may still read stays, once
        assert len([path for path in own.iterdir() if path.name.startswith("shardstream-")]) == 5
        webdataset(own, tars=1, start=tars)
        ss.index(own, workers=1, beside=True)


def test_a_catalogue_in_the_folder_of_a_cache(folder: Path, tmp_path: Path, home: Path) -> None:
    store = in_memory(folder)
    assert ss.index(store, workers=1, cache=tmp_path / "cache").place.startswith(str(tmp_path / "cache"))
    assert batches(store, cache=tmp_path / "cache") == batches(folder)
    assert scanned(store, cache=tmp_path / "cache") == 0


def test_fields_are_chosen_and_named(own: Path) -> None:
    report = ss.index(own, workers=1, fields={"image": "jpg", "label": "cls", "about": "json:str"})
    assert report.fields == {"about": "str", "image": "jpg", "label": "int64"}
    assert ss.Reader(own).get("t0/001")["about"] == '{"tar": 0, "row": 1}'
    assert scanned(own, fields={"image": "jpg", "label": "cls", "about": "json:str"}) == 0
    with pytest.raises(FieldError, match="no object has a field 'png'"):
        ss.index(own, fields={"image": "png"})


def test_checksums_are_compared_with_every_value(own: Path) -> None:
    ss.index(own, workers=1, checksums=True)
    assert info(own).checksums
    assert verify(own).values == 6 * SAMPLES
    path = own / "part-1.tar"
    times, data = path.stat(), bytearray(path.read_bytes())
    data[data.index(jpeg(3)) + 200] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as a disk damages it
    (problem,) = verify(own).problems
    assert (problem.check, problem.shard, problem.key, problem.field) == ("value", "part-1.tar", "t1/003", "jpg")


def test_verify_decodes_and_says_what_is_gone(own: Path) -> None:
    assert verify(own, decode=True).pictures == 3 * SAMPLES
    tar(own / "part-1.tar", ["x/0"], jpg=lambda _: jpeg(1)[:-200], cls=lambda _: 1, json=lambda _: "{}")
    (problem,) = verify(own, decode=True).problems
    assert (problem.check, problem.key) == ("picture", "x/0")


def test_an_object_that_is_written_again_is_noticed(own: Path) -> None:
    ds = ss.ShardDataset(own, fields=["json"], batch_size=8)
    tar(own / "part-1.tar", ["other"] * 1, jpg=jpeg, cls=lambda _: 0, json=lambda _: "{}")
    with pytest.raises(ChangedError, match=r"not the one that was indexed.*part-1\.tar"):
        list(ss.Loader(ds, num_workers=0))
    assert "other" in everything(own)


def test_values_of_one_field_may_be_pictures_of_several_kinds(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    png = b"\x89PNG\r\n\x1a\n" + bytes(60)
    tar(tmp_path / "a.tar", ["a"], jpg=lambda _: jpeg(0))
    tar(tmp_path / "b.tar", ["b"], jpg=lambda _: png)
    assert str(ss.ShardDataset(tmp_path).manifest.fields["jpg"]) == "image"
    tar(tmp_path / "c.tar", ["c"], jpg=lambda _: b"nothing of the kind")
    assert str(ss.ShardDataset(tmp_path).manifest.fields["jpg"]) == "bytes"
    assert everything(tmp_path)["c"]["jpg"] == b"nothing of the kind"


def test_a_field_of_two_types_is_an_error(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", ["a"], cls=lambda _: 3, txt=lambda _: "x")
    tar(tmp_path / "b.tar", ["b"], cls=lambda _: "cat", txt=lambda _: "x")
    with pytest.raises(FieldError, match=r"several types.*int64.*str|several types.*str.*int64"):
        ss.ShardDataset(tmp_path)
    ss.index(tmp_path, workers=1, fields={"text": "txt"})
    assert len(everything(tmp_path)) == 2


def test_splits_are_not_mixed(tmp_path: Path) -> None:
    webdataset(tmp_path / "train", tars=1)
    webdataset(tmp_path / "val", tars=1)
    with pytest.raises(UsageError, match=r"several splits here: train, val.*[\s\S]*/train or .*/val"):
        ss.ShardDataset(tmp_path)
    assert len(ss.Reader(tmp_path / "val")) == SAMPLES
    for path in (tmp_path / "train").iterdir():
        path.rename(tmp_path / f"train-{path.name}")
    (tmp_path / "val/part-0.tar").rename(tmp_path / "val-part-0.tar")
    with pytest.raises(UsageError, match="several splits"):
        ss.ShardDataset(tmp_path)
    assert len(ss.Reader(f"{tmp_path}/train-*.tar")) == SAMPLES


def test_damage_is_one_error_or_left_out(own: Path) -> None:
    path = own / "part-1.tar"
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(FormatError, match=r"part-1\.tar[\s\S]*--damaged reject"):
        ss.ShardDataset(own)
    report = ss.index(own, workers=1, damaged="reject")
    assert 2 * SAMPLES < report.samples < 3 * SAMPLES
    assert any("part-1.tar" in note for note in report.notes)
    assert len(ss.ShardDataset(own, fields=["cls"]).manifest.table.samples) == 3


def test_the_format_can_be_named_and_has_options(folder: Path) -> None:
    assert len(ss.Reader(folder, reading=ss.SourceOptions(format="webdataset"))) == 3 * SAMPLES
    with pytest.raises(UsageError, match=r"there is no source format 'webdatset'[\s\S]*webdataset"):
        ss.Reader(folder, reading=ss.SourceOptions(format="webdatset"))
    with pytest.raises(UsageError, match="has no option 'grup'"):
        ss.Reader(folder, reading=ss.SourceOptions(format="webdataset", options={"grup": "key"}))
    with pytest.raises(UsageError, match="no versions"):
        ss.Reader(folder, version=2)


def test_it_is_packed_like_one_of_ours(folder: Path, tmp_path: Path) -> None:
    ss.repack(folder, tmp_path / "packed", workers=0)
    packed, foreign = everything(tmp_path / "packed"), everything(folder)
    assert packed.keys() == foreign.keys()
    assert all(packed[key]["json"] == foreign[key]["json"] for key in packed)


def test_its_manifest_goes_to_other_processes(folder: Path) -> None:
    manifest = ss.ShardDataset(folder).manifest
    names = list(manifest.names)
    carried = pickle.loads(pickle.dumps(manifest))
    assert (carried.fingerprint, list(carried.names)) == (manifest.fingerprint, names)


@pytest.mark.full
def test_it_is_packed_by_several_processes(folder: Path, tmp_path: Path) -> None:
    assert ss.repack(folder, tmp_path / "packed", workers=2, shard_size="20kB").samples == 3 * SAMPLES


def test_it_is_exported_and_not_merged(folder: Path, tmp_path: Path) -> None:
    assert ss.export(folder, tmp_path / "files", to="files").samples == 3 * SAMPLES
    assert (tmp_path / "files/t1/005.jpg").read_bytes() == jpeg(5)
    with pytest.raises(UsageError, match="this is WebDataset"):
        ss.merge([folder, folder], tmp_path / "merged")


def test_replicas_are_known_by_name_and_size(folder: Path, own: Path) -> None:
    store = in_memory(folder)
    ds = ss.ShardDataset(store, replicas=[own], fields=["cls", "jpg"], batch_size=8)
    before = [request for request in store.requests if request.kind == "get"]
    assert sum(len(batch["cls"]) for batch in ss.Loader(ds, num_workers=0)) == 3 * SAMPLES
    assert [request for request in store.requests if request.kind == "get"] == before


def test_a_catalogue_that_is_damaged_is_made_again_or_refused(own: Path, home: Path) -> None:
    ss.index(own, workers=1)
    (place,) = (home / "shardstream/catalogues").iterdir()
    for name in ("shardstream-catalogue.json", next(path.name for path in place.glob("*.table"))):
        data = bytearray((place / name).read_bytes())
        data[len(data) // 2] ^= 1
        (place / name).write_bytes(data)
        assert len(ss.Reader(own)) == 3 * SAMPLES
    (indexes,) = place.glob("*.bin")
    data = bytearray(indexes.read_bytes())
    data[len(data) // 2] ^= 1
    indexes.write_bytes(data)
    with pytest.raises(DataError):
        everything(own)


def test_a_catalogue_is_not_followed_through_links(
    own: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ss.index(own, workers=1)
    (place,) = (home / "shardstream/catalogues").iterdir()
    assert place.stat().st_mode & 0o077 == 0
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert ss.index(own, workers=1).place.startswith(f"{tmp_path}/shardstream-")
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_catalogue_pickles_without_the_folder_it_came_from(folder: Path, home: Path) -> None:
    ds = ss.ShardDataset(folder, fields=["cls"])
    assert isinstance(ds.manifest, Catalogue)
    copy = pickle.loads(pickle.dumps(ds))
    assert [sample["cls"] for sample in copy] == [sample["cls"] for sample in ds]


@pytest.mark.full
def test_a_program_without_a_guard_is_told(own: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import shardstream as ss\n"
        "from shardstream.formats.catalog import scanning\n"
        "scanning._PROBE_S = -1.0\n"
        f"ss.index({str(own)!r}, workers=2)\n"
    )
    found = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=100)
    assert found.returncode != 0
    assert "if __name__ == '__main__'" in found.stderr


def test_two_processes_make_one_catalogue(own: Path, home: Path) -> None:
    code = f"import shardstream as ss; print(ss.index({str(own)!r}, workers=1).scanned)"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(int(one.communicate(timeout=60)[0]) for one in running) == [0, 3]


@pytest.mark.parametrize("delay", [0.0, pytest.param(0.2, marks=pytest.mark.full)])
def test_a_run_that_is_killed_goes_on(tmp_path: Path, delay: float) -> None:
    folder = webdataset(tmp_path / "many", tars=12, samples=6)
    code = (
        "import time, shardstream as ss\n"
        "def slow(event):\n"
        "    print(event.objects, flush=True)\n"
        "    time.sleep(0.3)\n"
        f"ss.index({str(folder)!r}, workers=1, progress=slow)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 4:
            break
    time.sleep(delay)
    process.kill()
    process.communicate()
    assert 3 <= 12 - scanned(folder) <= 5  # the fourth may not be written down yet
    assert len(everything(folder)) == 72


def test_hostile_catalogues_are_data_errors(own: Path) -> None:
    ss.index(own, workers=1, beside=True)
    names = [path for path in own.iterdir() if path.name.startswith("shardstream-")]
    for path in names:
        whole = path.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 40)):
            data = bytearray(whole)
            data[at] ^= 0x55
            path.write_bytes(data)
            with suppress(DataError):
                everything(own)
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises((DataError, StorageError)):
            everything(own)
        path.write_bytes(whole)
    assert (own / CATALOGUE_NAME).exists()
    assert len(everything(own)) == 3 * SAMPLES


def test_progress_is_told_within_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_PROBE_S", 0.0)
    tar(tmp_path / "data" / "one.tar", [f"{row:05d}" for row in range(2 * PIECE + 1)], txt=str)
    told: list[ProgressEvent] = []
    ss.index(tmp_path / "data", workers=1, progress=told.append)
    size = (tmp_path / "data" / "one.tar").stat().st_size
    done = [event.done for event in told]
    assert done == sorted(done)
    assert len({*done} - {0, size}) >= 2
    assert done[-1] == size


@given(st.lists(st.text(alphabet="ab/\né\ud800", max_size=4) | st.text(alphabet="ab", min_size=1), max_size=5))
def test_keys_are_checked_together_as_one_by_one(keys: list[str]) -> None:
    try:
        expected = [check_key(key).encode() for key in keys]
    except UsageError as error:
        with pytest.raises(FormatError, match=re.escape(error.what)):
            scan._encoded(keys, "x")
    else:
        ends, blob = scan._encoded(keys, "x")
        assert blob == b"".join(expected)
        assert ends.tolist() == [*itertools.accumulate(map(len, expected))]
