from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from shardstream.errors import DuplicateKeyError, SourceError, UsageError
from shardstream.pack.run import pack
from shardstream.pack.sources import Item, Source
from shardstream.pack.sources.opening import open_source

from .making import photos


def items(source: Source) -> list[tuple[int, str, str, object]]:
    return [
        (item.line, item.path, item.key, item.values.get("cls"))
        for item in source.part(np.arange(len(source)))
        if isinstance(item, Item)
    ]


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def test_class_folders(tmp_path: Path) -> None:
    touch(tmp_path, "dog/b.jpg", "dog/deep/a.jpg", "cat/z.jpg", "cat/.hidden.jpg", ".git/x.jpg", "README.md")
    (tmp_path / "empty").mkdir()
    source = open_source(tmp_path)
    assert source.classes == ("cat", "dog", "empty")
    assert items(source) == [
        (1, "cat/z.jpg", "cat/z", 0),
        (2, "dog/b.jpg", "dog/b", 1),
        (3, "dog/deep/a.jpg", "dog/deep/a", 1),
    ]
    assert "README.md" in source.notes[0]


def test_any_part_in_any_order(tmp_path: Path) -> None:
    touch(tmp_path, *(f"c{i % 4}/{i}.jpg" for i in range(40)))
    source = open_source(tmp_path)
    numbers = np.random.RandomState(0).permutation(40)
    whole = items(source)
    assert [
        (item.line, item.path, item.key, item.values["cls"]) for item in source.part(numbers) if isinstance(item, Item)
    ] == [whole[i] for i in numbers]


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    touch(tmp_path, "b.jpg", "a.png")
    source = open_source(tmp_path)
    assert source.classes is None
    assert items(source) == [(1, "a.png", "a", None), (2, "b.jpg", "b", None)]


def test_loops_of_links_end(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    found = items(open_source(tmp_path))
    assert [entry[1] for entry in found if entry[1].endswith("jpg")] == ["a/1.jpg", "b/1.jpg"]


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    os.makedirs(os.fsencode(tmp_path) + b"/c\xff")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/c\xff/new\nline.jpg")).write_bytes(b"x")
    source = open_source(tmp_path)
    assert source.classes == ("c%FF",)
    assert items(source)[0][2] == "c%FF/new\nline"


def test_duplicates_name_both_files(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "a/1.png", "b/2.jpg")
    with pytest.raises(DuplicateKeyError, match=r"a/1\.jpg and a/1\.png"):
        open_source(tmp_path)
    assert len(open_source(tmp_path, key="line")) == 3


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no files"):
        open_source(tmp_path)
    touch(tmp_path, "a/1.jpg")
    with pytest.raises(UsageError, match="no columns"):
        open_source(tmp_path, key="id")
    with pytest.raises(UsageError, match="labels='int'"):
        open_source(tmp_path, labels="int")
    touch(tmp_path, "dataset.json")
    with pytest.raises(SourceError, match="packed data set"):
        open_source(tmp_path)


def test_the_fingerprint_is_of_names_and_classes(tmp_path: Path) -> None:
    touch(tmp_path / "x", "a/1.jpg", "b/2.jpg")
    touch(tmp_path / "y", "a/1.jpg", "b/2.jpg")
    one = open_source(tmp_path / "x").fingerprint
    assert open_source(tmp_path / "y").fingerprint == one
    (tmp_path / "y" / "c").mkdir()
    assert open_source(tmp_path / "y").fingerprint != one


def test_stray_files_among_images_are_rejected(tmp_path: Path) -> None:
    """A text file is not a sample of a data set of photographs, and its key is in nobody's way."""
    photos(tmp_path / "in", 6)
    (tmp_path / "in" / "c0" / "00000.txt").write_text("notes")
    (tmp_path / "in" / "c1" / "Thumbs.db").write_bytes(b"x")
    manifest = pack(tmp_path / "in", tmp_path / "out", workers=0)
    assert (manifest.samples, sorted(manifest.fields)) == (6, ["cls", "jpg"])
    rejects = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["path"] for reject in rejects] == ["c0/00000.txt"]
    assert all("not a picture" in reject["reason"] for reject in rejects)


def test_a_folder_without_images_is_packed_as_it_is(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    assert pack(tmp_path, tmp_path.parent / "out", workers=0).samples == 2
