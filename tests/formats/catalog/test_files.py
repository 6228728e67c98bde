"""Folders of pictures and lists of files, trained on as they are."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.dataset.formats import Selection
from shardstream.dataset.opened import DatasetAddress
from shardstream.diagnose import info, verify
from shardstream.errors import ChangedError, DataError, FormatError, NotFoundError, UsageError
from shardstream.formats.catalog.make import find_or_make
from shardstream.formats.catalog.plan import Making
from shardstream.formats.detection import yolo
from shardstream.formats.files import folders, lists
from shardstream.storage import locate
from shardstream.storage.base.verified import COPIED_BYTES
from shardstream.testing import MemoryStore
from tests.grouped import grouped

from .making import jpeg

FIELDS = {"jpg": "bytes", "cls": None}
CLASSES = ("a dog", "cat", "zebra é")
COUNT = 40


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Class folders; a run of the catalogue has 16 files."""
    for module in (folders, lists):
        monkeypatch.setattr(module, "PIECE", 16)
    return make(tmp_path / "data")


def make(root: Path) -> Path:
    for number in range(COUNT):
        file = root / CLASSES[number % 3] / f"p {number:03d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(jpeg(number) + bytes(number))
    return root


def in_memory(root: Path) -> MemoryStore:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return MemoryStore({path.relative_to(root).as_posix(): path.read_bytes() for path in files})


def expected(root: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in root.rglob("*.jpg"):
        name = path.relative_to(root).with_suffix("").as_posix()
        found[name] = CLASSES.index(path.parent.name), path.read_bytes()
    return found


def epoch(place: Any, workers: int = 0, **options: Any) -> list[tuple[str, int, bytes]]:
    given = {"fields": FIELDS, "shuffle": True, "batch_size": 4} | options
    out = []
    for batch in ss.Loader(ss.ShardDataset(place, **grouped(given)), num_workers=workers):
        rows = zip(batch["__key__"], batch["cls"].tolist(), batch["jpg"], strict=True)
        out += [(key, label, bytes(np.asarray(jpg))) for key, label, jpg in rows]
    return out


def same(found: list[tuple[str, int, bytes]], root: Path) -> bool:
    return {key: (label, jpg) for key, label, jpg in found} == expected(root) and len(found) == len(expected(root))


def write_list(root: Path, name: str = "train.tsv", line: str = "{path}\t{label}\n", head: str = "") -> Path:
    files = sorted(root.rglob("*.jpg"))
    lines = (line.format(path=one.relative_to(root).as_posix(), label=one.parent.name, root=root) for one in files)
    (root / name).write_text(head + "".join(lines))
    return root / name


# ------------------------------------------------------------------------------------------------------------ folders


@pytest.mark.parametrize("workers", [0, 2])
def test_class_folders_stream_from_disk_and_from_a_store(folder, workers, tmp_path) -> None:
    found = epoch(folder, workers)
    assert same(found, folder)
    far = in_memory(folder)
    assert epoch(far, workers) == found
    for _ in range(2):
        assert epoch(far, workers, cache=tmp_path / "cache") == found
    assert info(folder).classes == CLASSES


def test_what_is_in_the_cache_is_not_asked_for_again(folder, tmp_path) -> None:
    far = in_memory(folder)
    same(epoch(far, cache=tmp_path / "cache"), folder)
    far.requests.clear()
    assert same(epoch(far, cache=tmp_path / "cache"), folder)
    assert not [one for one in far.requests if one.path.endswith(".jpg") and one.kind == "open"]
    path = f"{CLASSES[0]}/p 000.jpg"
    (folder / path).write_bytes((folder / path).read_bytes()[::-1])
    other = in_memory(folder)
    other.plant(path, (folder / path).read_bytes())  # of the same size: the listing tells that it is another version
    assert same(epoch(other, cache=tmp_path / "cache"), folder)


def test_labels_are_those_that_packing_gives(folder, tmp_path) -> None:
    (folder / "none").mkdir()
    ss.pack(folder, tmp_path / "packed", workers=0)
    for place in (folder, tmp_path / "packed"):
        reader = ss.Reader(place, fields=FIELDS)
        assert info(place).classes == ("a dog", "cat", "none", "zebra é")
        labels = {one["__key__"]: one["cls"] for one in reader}
        assert labels["zebra é/p 002"] == 3
        assert len(labels) == COUNT


def test_a_flat_folder_has_no_labels(tmp_path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number in range(5):
        (flat / f"x{number}.{'png' if number else 'jpg'}").write_bytes(jpeg(number))
    (flat / "README.md").write_text("pictures")
    found = ss.Reader(flat, fields={"image": "bytes"})
    assert [one["__key__"] for one in found] == [f"x{number}" for number in range(5)]
    report = ss.index(flat, workers=0)
    assert report.fields == {"image": "image"}
    assert report.classes is None
    assert any("README.md" in note for note in report.notes)


@pytest.mark.parametrize("name", ["a.tar", "x/y.parquet", "index.mds", "b.tfrecord-00000-of-00001", "c.zip", "d.npy"])
def test_a_folder_with_containers_is_none_of_pictures(tmp_path, name) -> None:
    (tmp_path / "1.jpg").write_bytes(jpeg(1))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"whatever it is")
    with pytest.raises((NotFoundError, DataError)):
        ss.ShardDataset(tmp_path)


def test_splits_are_not_mixed(tmp_path) -> None:
    for split in ("train", "val"):
        make(tmp_path / split)
    with pytest.raises(UsageError, match="splits"):
        ss.ShardDataset(tmp_path)
    assert same(epoch(tmp_path / "val"), tmp_path / "val")


def test_what_changes_is_noticed(folder) -> None:
    first = ss.index(folder, workers=0)
    assert first.objects == 3
    assert ss.index(folder, workers=0).scanned == 0
    (folder / CLASSES[2] / "zz.jpg").write_bytes(jpeg(7))
    again = ss.index(folder, workers=0)
    assert (again.scanned, again.samples) == (1, COUNT + 1)
    assert again.fingerprint != first.fingerprint
    os.utime(folder / CLASSES[2] / "zz.jpg", (1, 1))
    third = ss.index(folder, workers=0)
    assert (third.scanned, third.fingerprint) == (1, again.fingerprint)


@pytest.mark.parametrize("change", [b"", b"more"])
def test_a_file_of_another_size_is_a_changed_one(folder, change) -> None:
    name, far = f"{CLASSES[0]}/p 000.jpg", in_memory(folder)
    data = (folder / name).read_bytes()
    changed = data + change if change else data[:-1]
    near, distant = (ss.ShardDataset(place, fields=FIELDS, batch_size=4) for place in (folder, far))
    (folder / name).write_bytes(changed)
    far.plant(name, changed)
    for dataset in (near, distant):
        with pytest.raises(ChangedError, match=r"p 000\.jpg"):
            list(dataset)


def test_a_file_that_is_gone_is_skipped_where_that_is_asked_for(folder) -> None:
    far, gone = in_memory(folder), f"{CLASSES[1]}/p 001.jpg"
    for place in (folder, far):
        dataset = ss.ShardDataset(place, fields=FIELDS, batch_size=4, tail="exact", on_error="skip")
        strict = ss.ShardDataset(place, fields=FIELDS, batch_size=4)
        (folder / gone).unlink(missing_ok=True)
        far.delete(gone)
        keys = {key for batch in dataset for key in batch["__key__"]}
        assert len(keys) == COUNT - 1
        with pytest.raises(DataError, match=r"p 001\.jpg"):
            list(strict)
        (folder / gone).write_bytes(jpeg(1) + bytes(1))
        far.plant(gone, jpeg(1) + bytes(1))


def test_an_epoch_goes_on_elsewhere_with_other_workers(folder) -> None:
    whole = epoch(folder)
    loader = ss.Loader(ss.ShardDataset(folder, fields=FIELDS, shuffle=True, batch_size=4), num_workers=0)
    begun = []
    for number, batch in enumerate(loader):
        begun += batch["__key__"]
        if number == 3:
            break
    state = loader.state_dict()
    there = ss.Loader(ss.ShardDataset(in_memory(folder), fields=FIELDS, shuffle=True, batch_size=4), num_workers=2)
    there.load_state_dict(state)
    rest = [key for batch in there for key in batch["__key__"]]
    assert begun + rest == [key for key, _, _ in whole]


def test_ranks_share_an_epoch(folder) -> None:
    parts = [epoch(folder, rank=rank, world_size=2) for rank in range(2)]
    assert {key for part in parts for key, _, _ in part} == set(expected(folder))


def test_a_store_with_faults(folder) -> None:
    far = in_memory(folder)
    for fault in ("reset", "busy"):
        far.fail(fault, "*.jpg", times=5)
    assert same(epoch(far), folder)


def test_verify_and_views(folder) -> None:
    assert verify(folder).ok
    assert verify(in_memory(folder)).ok
    view = ss.ShardDataset(folder, fields=FIELDS, where={"cls": [1]}, batch_size=4)
    assert {label for batch in view for label in batch["cls"].tolist()} == {1}


# -------------------------------------------------------------------------------------------------------------- lists


@pytest.mark.parametrize(
    ("name", "line", "head"),
    [
        ("train.tsv", "{path}\t{label}\n", ""),
        ("train.csv", '"{path}",{label}\n', "image_path,label\n"),
        ("train.csv", "x,{path},{label}\r\n", "id,filename,class\n"),
        ("train.txt", "{root}/{path}\t{label}\n", ""),
        ("train.tsv", "./b/..//{path}\t{label}\n", ""),
        ("train.tsv", "{path}\t{label}\n", "path\tlabel\n"),
    ],
)
def test_lists(folder, name, line, head) -> None:
    path = write_list(folder, name, line, head)
    assert same(epoch(path), folder)
    assert ss.index(path).classes == CLASSES


def test_labels_that_are_numbers_stay(folder) -> None:
    lines = [f"{path.relative_to(folder)}\t{CLASSES.index(path.parent.name) * 10}\n" for path in folder.rglob("*.jpg")]
    (folder / "l.tsv").write_text("".join(lines))
    assert {label for _, label, _ in epoch(folder / "l.tsv")} == {0, 10, 20}
    assert ss.index(folder / "l.tsv").classes is None
    named = ss.index(folder / "l.tsv", reading=ss.SourceOptions(options={"labels": "name"}))
    assert named.classes == ("0", "10", "20")


def test_mxnet_lists_and_paths_alone(folder) -> None:
    paths = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.jpg"))]
    (folder / "m.lst").write_text("".join(f"{n}\t{n % 3}.000000\t{path}\n" for n, path in enumerate(paths)))
    assert [label for _, label, _ in sorted(epoch(folder / "m.lst"))] == [n % 3 for n in range(COUNT)]
    (folder / "p.txt").write_text("\n".join(paths))
    assert len(list(ss.Reader(folder / "p.txt", fields={"jpg": "bytes"}))) == COUNT


def test_columns_are_named_by_options(folder) -> None:
    paths = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.jpg"))]
    rows = [f"k{n},{path},{paths[0]},{n % 2}\n" for n, path in enumerate(paths)]
    (folder / "k.csv").write_text("name,left,right,y\n" + "".join(rows))
    options = {"path": "left,right", "key": "name", "label": "y"}
    reader = ss.Reader(
        folder / "k.csv",
        fields={"left": "bytes", "right": "bytes", "cls": None},
        reading=ss.SourceOptions(options=options),
    )
    one = reader.get("k5")
    assert (one["cls"], bytes(one["left"]), bytes(one["right"])) == (
        1,
        (folder / paths[5]).read_bytes(),
        (folder / paths[0]).read_bytes(),
    )
    with pytest.raises(UsageError, match="no such column"):
        ss.ShardDataset(folder / "k.csv", reading=ss.SourceOptions(options={"path": "nothing"}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("../x.jpg\t1\n", "does not lie below"),
        ("s3://bucket/x.jpg\t1\n", "does not lie below"),
        ("a/../../x.jpg\t1\n", "does not lie below"),
        ("\t1\n", "no path"),
        ("a.jpg\t1\nb.jpg\n", "columns"),
        ("a.jpg\t1\nb.jpg\t\n", "label is missing"),
        ("a.jpg\t1\nb.npy\t2\n", "several kinds"),
        ("", "no line"),
        ("\n\n", "no line"),
        ("\0\0\0", "not text"),
        ("a\tb\tc\td\n", "columns"),
    ],
)
def test_lists_that_are_refused(tmp_path, text, said) -> None:
    (tmp_path / "l.tsv").write_text(text)
    with pytest.raises(FormatError, match=said):
        ss.ShardDataset(tmp_path / "l.tsv", fields={"cls": None})


def test_any_bytes_are_a_list_or_one_error(tmp_path) -> None:
    draw = random.Random(4)
    good = b'path,label\n"a b.jpg",1\nc.jpg,2\n'
    for number in range(100):
        data = bytearray(good)
        for _ in range(draw.randrange(1, 5)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        name = f"{number}.{draw.choice(['csv', 'tsv', 'txt', 'lst'])}"
        (tmp_path / name).write_bytes(data[: draw.randrange(len(data) + 1)])
        with suppress(DataError):
            ss.index(tmp_path / name, workers=0)


def test_a_quarter_of_a_list_is_missing(folder) -> None:
    path = write_list(folder)
    gone = sorted(folder.rglob("*.jpg"))[::4]
    for one in gone:
        one.unlink()
    with pytest.raises(DataError, match=r"p 000\.jpg"):
        list(ss.ShardDataset(path, fields=FIELDS, batch_size=4))
    dataset = ss.ShardDataset(path, fields=FIELDS, batch_size=4, tail="exact", on_error="skip", max_skips=None)
    keys = [key for batch in dataset for key in batch["__key__"]]
    assert set(keys) == set(expected(folder))


def test_a_list_in_a_store_is_given_by_its_name(folder) -> None:
    write_list(folder)
    far = in_memory(folder)
    selection = Selection.of(("train.tsv",), None, None)
    location = locate(far)
    assert find_or_make(location, selection, None, Making()).catalogue.samples == COUNT
    opened = DatasetAddress(location, selection=selection).open()
    assert opened.manifest.classes == CLASSES


def test_a_list_that_changes_is_read_again(folder) -> None:
    path = write_list(folder)
    assert ss.index(path, workers=0).samples == COUNT
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert ss.index(path, workers=0).samples == 1


_MEMORY = """
import gc, os, sys
import shardstream as ss
dataset = ss.ShardDataset(sys.argv[1], fields={"cls": None}, shuffle=True, batch_size=256)
for _, batch in zip(range(int(sys.argv[2])), dataset):
    pass
gc.collect()
with open("/proc/self/smaps_rollup") as file:
    # Not Private_Dirty: pages of the catalogue count as that until the kernel has written them to the disk.
    print(sum(int(line.split()[1]) for line in file if line.startswith("Anonymous")))
"""


@pytest.mark.full
def test_no_process_holds_a_long_list(tmp_path) -> None:
    sizes = {}
    for count in (10_000, 300_000):
        path = tmp_path / f"{count}.tsv"
        path.write_text(
            "".join(f"folder/{number % 1000}/{number:09d}.jpg\t{number % 1000}\n" for number in range(count))
        )
        ss.index(path, workers=0)
        sizes[count] = int(subprocess.check_output([sys.executable, "-c", _MEMORY, str(path), "60"], timeout=300))
    assert sizes[300_000] < sizes[10_000] + COPIED_BYTES // 1024 + 4096  # copies of indexes have a limit


def test_a_warning_about_labels_stays_when_other_files_change(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(yolo, "PIECE", 2)
    for number in range(4):
        for path, data in ((f"images/{number}.jpg", jpeg(number)), (f"labels/{number}.txt", b"0 0.9 0.5 1.1 0.2")):
            (tmp_path / "set" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "set" / path).write_bytes(data)

    def warned(count: str) -> bool:
        caplog.clear()
        assert len(ss.Reader(str(tmp_path / "set"))) == 4
        told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert len(told) == len(info(str(tmp_path / "set")).notes) == 1
        return count in told[0]

    assert warned("4 objects in 4 label files, such as labels/0.txt")
    assert warned("4 objects in 4 label files")
    (tmp_path / "set/labels/3.txt").write_bytes(b"0 0.5 0.5 0.1 0.2")
    assert warned("3 objects in 3 label files")
    ss.pack(str(tmp_path / "set"), str(tmp_path / "packed"), workers=0)
    assert "3 objects" in ss.pack_plan(str(tmp_path / "set"), str(tmp_path / "again")).notes[-1]
