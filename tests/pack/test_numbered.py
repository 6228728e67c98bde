"""``key="auto"``: equal keys are told apart by numbers that depend on the source alone."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from shardstream import ImageOptions
from shardstream.errors import DuplicateKeyError, UsageError
from shardstream.pack.options import PackOptions
from shardstream.pack.plan.pack_plan import pack_plan
from shardstream.pack.repack import repack
from shardstream.pack.run import pack, run_pack
from shardstream.pack.sources import Item
from shardstream.pack.sources import duplicates as duplicates_module
from shardstream.pack.sources.duplicates import check_unique
from shardstream.pack.sources.opening import open_source
from shardstream.shards.manifest import Manifest

from .making import jpeg, samples, tree

CAPTIONS = [(f"photos/{i // 5:03d}.jpg", f"caption {i}") for i in range(60)]


def keys(source: Any) -> list[str]:
    return [item.key for item in source.part(np.arange(len(source))) if isinstance(item, Item)]


def captions(folder: Path) -> Path:
    (folder / "photos").mkdir()
    for path, _ in CAPTIONS[::5]:
        (folder / path).write_bytes(jpeg(int(path[7:10])))
    path = folder / "captions.jsonl"
    path.write_text("".join(json.dumps({"image": image, "text": text}) + "\n" for image, text in CAPTIONS))
    return path


FIELDS = {"jpg": "image", "txt": "text"}


@given(st.lists(st.sampled_from(["a", "b", "a-2", "a-2-2", "a--2", "a-3", "é"])), st.integers(1, 7))
def test_they_are_unique_and_only_equal_ones_change(names: list[str], batch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates_module, "_BATCH", batch)
        numbering = check_unique(lambda: names, len(names), named=str, url="", hint="", number=True)
    if numbering is None:
        assert len(set(names)) == len(names)
        return
    found = [name + numbering.suffix(i) for i, name in enumerate(names)]
    assert len(set(found)) == len(names)
    first = {name: names.index(name) for name in names}
    assert all((found[i] == name) == (first[name] == i) for i, name in enumerate(names))
    seen = Counter[str]()
    for i, name in enumerate(names):
        seen[name] += 1
        assert numbering.suffix(i) == (f"{numbering.separator}{seen[name]}" if seen[name] > 1 else "")
    taken = [f"{name}{'-' * (len(numbering.separator) - 1)}{i}" for name in seen for i in range(2, seen[name] + 1)]
    assert numbering.separator == "-" or set(taken) & set(names), "no dash more than is needed"


def test_an_image_with_five_captions(tmp_path: Path) -> None:
    path = captions(tmp_path)
    with pytest.raises(DuplicateKeyError, match="lines 1 and 2 have the same key") as caught:
        pack(path, tmp_path / "out", fields=FIELDS)
    assert "--key auto" in str(caught.value.hint)
    report = run_pack(path, tmp_path / "out", PackOptions(fields=FIELDS, key="auto"), workers=0)
    assert report.notes == ("48 samples have the key of an earlier one and are numbered, as 000-2.",)
    found = samples(tmp_path / "out")
    expected = [f"{i // 5:03d}" + (f"-{i % 5 + 1}" if i % 5 else "") for i in range(60)]
    assert {key: found[key]["txt"] for key in expected} == {
        key: text.encode() for key, (_, text) in zip(expected, CAPTIONS, strict=True)
    }
    assert found["003-4"]["jpg"] == found["003"]["jpg"]


@pytest.mark.full
def test_workers_going_on_and_tasks_make_the_same_keys(tmp_path: Path) -> None:
    path = captions(tmp_path)
    options: dict[str, Any] = {"fields": FIELDS, "key": "auto", "shard_size": "4kB"}
    manifest = pack(path, tmp_path / "one", workers=0, **options)
    assert manifest.shards > 5
    pack(path, tmp_path / "two", workers=2, **options)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    for task in list(pack_plan(path, tmp_path / "three", **options).tasks)[::2]:
        task.run()
    report = run_pack(path, tmp_path / "three", PackOptions(**options), workers=2)
    assert report.kept
    assert tree(tmp_path / "one") == tree(tmp_path / "three")
    assert run_pack(path, tmp_path / "three", PackOptions(**options), workers=2).complete


def test_appending_makes_the_same_keys(tmp_path: Path) -> None:
    path = captions(tmp_path)
    (tmp_path / "photos" / "first.jpg").write_bytes(jpeg(1))
    (tmp_path / "first.jsonl").write_text('{"image": "photos/first.jpg", "text": "x"}\n')
    pack(path, tmp_path / "whole", fields=FIELDS, key="auto", workers=0)
    pack(tmp_path / "first.jsonl", tmp_path / "out", fields=FIELDS, key="auto", workers=0)
    pack(path, tmp_path / "out", fields=FIELDS, key="auto", workers=0, append=True)
    pack(path, tmp_path / "out", fields=FIELDS, key="auto", workers=0, append=True)
    assert Manifest.load(tmp_path / "out").samples == 61
    assert samples(tmp_path / "out").keys() == samples(tmp_path / "whole").keys() | {"first"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.tsv", "d/a.jpg\t1\nd/a.png\t2\nd/b.jpg\t3\nd/./a.webp\t4\nd/a.jpg\t5\n"),
        ("list.csv", 'path,label\nd/a.jpg,1\n"d/a.png",2\nd/b.jpg,3\nd/./a.webp,4\n"d/""/../a.jpg",5\n'),
        ("list.txt", "d/a.jpg 1\nd/a.png 2\nd/b.jpg 3\nd/./a.webp 4\nd/a.jpg 5\n"),
        ("list.jsonl", "".join(f'{{"path": "d/{one}"}}\n' for one in ("a.jpg", "a.png", "b.jpg", "./a.webp", "a.j"))),
    ],
)
def test_lists_of_all_kinds(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert keys(open_source(tmp_path / name, key="auto")) == ["a", "a-2", "b", "a-3", "a-4"]


def test_a_key_that_is_there_already(tmp_path: Path) -> None:
    (tmp_path / "list.tsv").write_text("a.jpg\na.png\na-2.jpg\nb.jpg\nb.png\n")
    assert keys(open_source(tmp_path / "list.tsv", key="auto")) == ["a", "a--2", "a-2", "b", "b--2"]


def test_nothing_changes_where_keys_are_unique(tmp_path: Path) -> None:
    (tmp_path / "list.tsv").write_text("d/a.jpg\nd/b.jpg\n")
    source = open_source(tmp_path / "list.tsv", key="auto")
    assert (keys(source), source.notes) == (["a", "b"], ())


def test_without_files_the_lines_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("text,label\nx,1\nx,2\n")
    fields = {"txt": "text:str", "cls": "label"}
    with pytest.raises(UsageError, match="no field is a file") as caught:
        open_source(tmp_path / "list.csv", fields=fields)
    assert "key='auto'" in str(caught.value.hint)
    assert keys(open_source(tmp_path / "list.csv", fields=fields, key="auto")) == ["0000000002", "0000000003"]


def test_rows_of_tables(tmp_path: Path) -> None:
    path = tmp_path / "small.parquet"
    parquet.write_table(pa.table({"path": ["d/a.jpg", "d/b.jpg", "d/a.png"], "x": [1.5, 2, 3]}), path)
    assert keys(open_source(path, key="auto", fields={"jpg": "path", "x": "x"})) == ["a", "b", "a-2"]
    images = [{"bytes": jpeg(i) + bytes(20_000), "path": f"{i % 3}.jpg"} for i in range(1200)]
    parquet.write_table(pa.table({"image": images}), tmp_path / "large.parquet", row_group_size=500)
    report = run_pack(
        tmp_path / "large.parquet",
        tmp_path / "out",
        PackOptions(key="auto", images=ImageOptions(jpeg="keep")),
        workers=0,
    )
    assert "samples are numbered: names beside values, such as 'image.path'" in report.notes[0]
    assert {"large/00000000", "large/00001199"} < samples(tmp_path / "out").keys()


def test_folders(tmp_path: Path) -> None:
    for name in ("x/a.jpg", "x/a.png", "y/a.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    with pytest.raises(DuplicateKeyError) as caught:
        open_source(tmp_path)
    assert "key='auto'" in str(caught.value.hint)
    source = open_source(tmp_path, key="auto")
    assert keys(source) == ["x/a", "x/a-2", "y/a"]
    assert source.notes == ("One sample has the key of an earlier one and is numbered, as x/a-2.",)


def test_tar_files(tmp_path: Path) -> None:
    for number in range(2):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as archive:
            for name in ("a.txt", "b.txt", "a.txt"):
                info = tarfile.TarInfo(name)
                info.size = 2
                archive.addfile(info, io.BytesIO(b"hi"))
    pack(f"{tmp_path}/*.tar", tmp_path / "out", key="auto", workers=0)
    assert samples(tmp_path / "out").keys() == {"a", "b", "a-2", "a-3", "b-2", "a-4"}
    repack(tmp_path / "out", tmp_path / "again", key="auto", workers=0)
    assert samples(tmp_path / "again").keys() == samples(tmp_path / "out").keys()


def test_samples_from_python(tmp_path: Path) -> None:
    found = [{"__key__": key, "n": i} for i, key in enumerate("aba")]
    pack(found, tmp_path / "out", key="auto", workers=0)
    assert {key: value["n"] for key, value in samples(tmp_path / "out").items()} == {"a": 0, "b": 1, "a-2": 2}
    with pytest.raises(UsageError, match="read only once") as caught:
        pack(iter(found), tmp_path / "other", key="auto")
    assert "key='line'" in str(caught.value.hint)


def test_exact_copies_are_left_out_of_numbered_ones(tmp_path: Path) -> None:
    for name, number in (("a.jpg", 1), ("b.jpg", 1), ("c.jpg", 2)):
        (tmp_path / name).write_bytes(jpeg(number))
    (tmp_path / "list.tsv").write_text("a.jpg\nb.jpg\nc.jpg\na.jpg\nc.jpg\n")
    pack(tmp_path / "list.tsv", tmp_path / "out", key="auto", dedup=True, workers=0)
    assert samples(tmp_path / "out").keys() == {"a", "c"}
