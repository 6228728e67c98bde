"""Lists that are trained on as they are: compressed, JSON lines, MPDataset's, with columns that a user chose."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import FormatError, SourceError, UsageError
from shardstream.formats import rooted
from shardstream.formats.files import elsewhere, lists, text
from shardstream.pack.sources import Item
from shardstream.pack.sources.opening import open_source
from shardstream.storage.base.wrapper import FolderStore
from shardstream.testing import MemoryStore
from tests.grouped import grouped

from .making import COMPRESSED, jpeg

COUNT = 12


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data/images").mkdir(parents=True)
    for row in range(COUNT):
        (tmp_path / f"data/images/{row:02d}.jpg").write_bytes(jpeg(row))
    return tmp_path / "data"


def read(place: Any, chosen: dict[str, str] | None = None, **options: str) -> list[dict[str, Any]]:
    opening: dict[str, Any] = {"format_options": options or None}
    found = ss.index(place, fields=chosen, workers=0, **grouped(opening))
    raw = {name: "bytes" if kind in ("jpg", "image") else None for name, kind in found.fields.items()}
    return list(ss.Reader(place, fields=raw, **grouped(opening)))


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join([*lines, ""]))
    return path


KAGGLE = ["id_code,diagnosis,score,note"] + [f'{row:02d},{row % 3},{row / 8},"a ""b"",\n{row}"' for row in range(COUNT)]
CHOSEN = {
    "jpg": "id_code:file:images/{}.jpg",
    "cls": "diagnosis",
    "score": "score:float32",
    "note": "note",
    "id": "id_code",
}


@pytest.mark.parametrize("how", ["", *COMPRESSED])
def test_names_of_files_are_made_of_cells(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_WINDOW", 50)
    path = write(folder / "train.csv", KAGGLE)
    if how:
        data = COMPRESSED[how](path.read_bytes())
        path = folder / f"train.csv.{how.replace('zstd', 'zst')}"
        path.write_bytes(data)
    found = read(path, CHOSEN)
    assert [one["__key__"] for one in found] == [f"{row:02d}" for row in range(COUNT)]
    for row, one in enumerate(found):
        assert bytes(one["jpg"]) == jpeg(row)
        assert (one["cls"], one["id"], one["note"]) == (row % 3, f"{row:02d}", f'a "b",\n{row}')
        assert one["score"] == np.float32(row / 8)
    ss.pack(path, folder / "packed", fields=CHOSEN, workers=0, images=ss.ImageOptions(jpeg="keep"))
    packed = {one["__key__"]: one for one in ss.Reader(folder / "packed", fields={"jpg": "bytes", "note": None})}
    assert {key: bytes(one["jpg"]) for key, one in packed.items()} == {
        one["__key__"]: bytes(one["jpg"]) for one in found
    }


def test_lists_stream_with_workers_and_go_on(folder: Path) -> None:
    path = write(folder / "train.csv", KAGGLE)
    ss.index(path, fields=CHOSEN, workers=0)
    fields: dict[str, Any] = {"jpg": "bytes", "note": None, "score": None}

    def keys(workers: int, state: Any = None) -> list[str]:
        dataset = ss.ShardDataset(path, fields=fields, shuffle=True, batch_size=2)
        loader = ss.Loader(dataset, num_workers=workers)
        if state is not None:
            loader.load_state_dict(state)
        return [key for batch in loader for key in batch["__key__"]]

    loader = ss.Loader(ss.ShardDataset(path, fields=fields, shuffle=True, batch_size=2), num_workers=0)
    first = next(iter(loader))
    whole = keys(0)
    assert sorted(whole) == [f"{row:02d}" for row in range(COUNT)]
    assert [*first["__key__"], *keys(2, loader.state_dict())] == whole


def test_json_lines_that_name_files(folder: Path) -> None:
    rows: list[dict[str, Any]] = [{"path": f"images/{row:02d}.jpg", "label": f"c{row % 2}"} for row in range(COUNT)]
    for row, one in enumerate(rows):
        one |= {"n": row if row % 2 else row / 2, "box": [row, 1], "text": f"é {row}", "odd": [row, "x", None][row % 3]}
        one |= {"flag": row % 2 == 0} if row else {}
    path = write(folder / "train.jsonl", [json.dumps(one) for one in rows])
    found = read(path)
    assert [(one["cls"], bytes(one["jpg"])) for one in found] == [(row % 2, jpeg(row)) for row in range(COUNT)]
    chosen = {"jpg": "path", "n": "n", "box": "box", "text": "text", "odd": "odd", "flag": "flag", "y": "label:name"}
    for row, one in enumerate(read(path, chosen)):
        assert (one["n"], one["box"], one["text"]) == (rows[row]["n"], [row, 1], f"é {row}")
        assert one.get("odd") == rows[row]["odd"]
        assert one.get("flag") == rows[row].get("flag")
        assert one["y"] == row % 2


def test_what_a_list_has_by_itself_is_chosen_by_its_name(folder: Path) -> None:
    path = write(folder / "train.tsv", [f"images/{row:02d}.jpg\t{row}" for row in range(COUNT)])
    assert set(read(path, {"image.jpg": "jpg", "y": "cls"})[0]) == {"__key__", "image.jpg", "y"}
    assert read(path, {"jpg": "0", "y": "1:float"})[3]["y"] == 3.0
    assert read(folder / "images", {"picture.jpg": "jpg"})[0].keys() == {"__key__", "picture.jpg"}


def test_numbers_and_text_that_are_missing(folder: Path) -> None:
    lines = ["path,n,b,j", "images/00.jpg,,true,", 'images/01.jpg,4,0,"[1]"']
    first, second = read(write(folder / "l.csv", lines), {"jpg": "path", "n": "n:int", "b": "b:bool"})
    assert (first.get("n"), first["b"]) == (None, True)
    assert (second["n"], second["b"]) == (4, False)
    keyed = read(write(folder / "k.csv", ["n,t", "1,a", "2,"]), {"n": "n:int16", "t": "t"})
    assert [(one["__key__"], one["n"], one["t"]) for one in keyed] == [("k/00000000", 1, "a"), ("k/00000001", 2, "")]


@pytest.mark.parametrize(
    ("chosen", "error", "match"),
    [
        ({"jpg": "nothing:file"}, UsageError, "jpg='nothing': there is no such column"),
        ({"n": "note:int"}, FormatError, 'column 3 holds \'a "b",.*not int64'),
        ({"n": "score:uint8"}, FormatError, "column 2 holds '0.0', not uint8|holds '0.125'"),
        ({"n": "note:json"}, FormatError, "what is not JSON"),
        ({"n": "note:array:float32:3"}, UsageError, "are not read as array:float32:3 in place"),
        ({"n": "note:float33"}, UsageError, "float33"),
        ({"jpg": "id_code:file:/etc/{}"}, FormatError, "does not lie below"),
        ({"jpg": "id_code:file:../{}.jpg"}, FormatError, "does not lie below"),
        ({"jpg": "note:file"}, FormatError, "several kinds|no suffix"),
    ],
)
def test_choices_that_are_refused(folder: Path, chosen: dict[str, str], error: type[Exception], match: str) -> None:
    path = write(folder / "train.csv", KAGGLE)
    with pytest.raises(error, match=match):
        ss.index(path, fields=chosen, workers=0)


@pytest.mark.parametrize("how", COMPRESSED)
def test_compressed_lists_that_are_damaged(folder: Path, how: str) -> None:
    data = COMPRESSED[how]("".join(f"images/{row:02d}.jpg\t1\n" for row in range(COUNT)).encode())
    path = folder / f"l.tsv.{how.replace('zstd', 'zst')}"
    for cut in (len(data) - 1, len(data) // 2):
        path.write_bytes(data[:cut])
        with pytest.raises(FormatError, match=r"cut off|cannot be decompressed"):
            ss.index(path, workers=0)
    path.write_bytes(b"images/00.jpg\t1\n")
    with pytest.raises(FormatError, match="but is not a"):
        ss.index(path, workers=0)


def test_the_folder_of_mpdataset(folder: Path) -> None:
    write(folder / "data.csv", [f"images/{row:02d}.jpg,,{row % 3}" for row in range(COUNT)])
    write(folder / "cls.csv", ["cat", "dog", "a, b"])
    far = MemoryStore({one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*.*")})
    for place in (folder, far, folder / "data.csv"):
        assert [(one["cls"], bytes(one["jpg"])) for one in read(place)] == [(r % 3, jpeg(r)) for r in range(COUNT)]
        assert ss.index(place, workers=0).classes == ("cat", "dog", "a, b")
    report = ss.pack(folder, folder / "packed", workers=0)
    assert report.samples == COUNT
    assert ss.ShardDataset(folder / "packed").classes == ("cat", "dog", "a, b")


@pytest.mark.parametrize("form", ["{root}/images/{row:02d}.jpg", "images/{row:02d}.jpg"])
def test_lists_whose_root_is_given(folder: Path, tmp_path: Path, form: str) -> None:
    (tmp_path / "lists").mkdir()
    lines = [f"{form.format(root=folder, row=row)},,{row % 3}" for row in range(COUNT)]
    path = write(tmp_path / "lists/data.csv", lines)
    write(tmp_path / "lists/cls.csv", ["a", "b", "c"])
    for place in (path, tmp_path / "lists"):
        for root in (str(folder), "../data"):
            found = read(place, root=root)
            assert [bytes(one["jpg"]) for one in found] == [jpeg(row) for row in range(COUNT)]
    ss.pack(
        path,
        tmp_path / "packed",
        workers=0,
        images=ss.ImageOptions(jpeg="keep"),
        reading=ss.SourceOptions(options={"root": "../data"}),
    )
    packed = {bytes(one["jpg"]) for one in ss.Reader(tmp_path / "packed", fields={"jpg": "bytes"})}
    assert packed == {jpeg(row) for row in range(COUNT)}
    write(path, ["/etc/passwd,,1"])
    with pytest.raises(FormatError, match="does not lie below"):
        ss.index(path, workers=0, reading=ss.SourceOptions(options={"root": str(folder)}))


PATHS = {
    "absolute": lambda root, row: f"{root}/images/{row:02d}.jpg",
    "odd": lambda root, row: f"{root}/x//../images/./{row:02d}.jpg",
    "relative": lambda root, row: f"../data/images/{row:02d}.jpg",
    "mixed": lambda root, row: f"{root if row % 2 else '../data'}/images/{row:02d}.jpg",
    "url": lambda root, row: f"file://{root}/images/{row:02d}.jpg",
    "link": lambda root, row: f"{root}-link/images/{row:02d}.jpg",
}
KINDS = {
    "txt": "{path}",
    "tsv": "{path}\t{label}",
    "csv": '"{path}",{label}',
    "lst": "{label}\t{label}.0\t{path}",
    "jsonl": '{{"note": "/no/such/file", "label": {label}, "path": "{path}"}}',
    "mpdataset": "{path},,{label}",
}


@pytest.mark.parametrize(
    ("kind", "form"), [*zip(KINDS, PATHS, strict=True), ("csv", "absolute"), ("jsonl", "mixed"), ("mpdataset", "url")]
)
def test_lists_whose_files_are_elsewhere(folder: Path, tmp_path: Path, kind: str, form: str) -> None:
    """Any kind of list, in any directory, with the same keys in place and packed."""
    (tmp_path / "lists").mkdir()
    (folder / "x").mkdir()
    (tmp_path / "data-link").symlink_to(folder)
    lines = [KINDS[kind].format(path=PATHS[form](folder, row), label=row % 3) for row in range(COUNT)]
    place = tmp_path / f"lists/list.{kind}"
    if kind == "mpdataset":
        write(tmp_path / "lists/data.csv", lines)
        write(tmp_path / "lists/cls.csv", ["a", "b", "c"])
        place = tmp_path / "lists"
    else:
        write(place, lines)
    found = read(place)
    assert [bytes(one["jpg"]) for one in found] == [jpeg(row) for row in range(COUNT)]
    assert [one["__key__"] for one in found] == [f"{row:02d}" for row in range(COUNT)]
    assert [one.get("cls") for one in found] == [None if kind == "txt" else row % 3 for row in range(COUNT)]
    if form == "mixed":
        items = open_source(place).part(np.arange(COUNT))
        assert [one.key for one in items if isinstance(one, Item)] == [one["__key__"] for one in found]


def test_the_place_of_a_list_is_told_by_its_first_lines(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later line that is elsewhere is an error, which names the root that holds all files."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more/12.jpg").write_bytes(jpeg(12))
    (folder / "lists").mkdir()
    lines = [*(f"{folder}/images/{row:02d}.jpg" for row in range(COUNT)), f"{tmp_path}/more/12.jpg"]
    path = write(folder / "lists/list.txt", lines)
    monkeypatch.setattr(elsewhere, "LOOKED_AT", COUNT)
    with pytest.raises(FormatError, match="does not lie below") as caught:
        read(path)
    assert caught.value.place["line"] == COUNT + 1
    assert f"--format-option root={tmp_path})" in caught.value.hint
    found = read(path, root=str(tmp_path))
    assert [one["__key__"] for one in found[-2:]] == ["data/images/11", "more/12"]
    monkeypatch.setattr(elsewhere, "LOOKED_AT", COUNT + 1)
    assert [one["__key__"] for one in read(path)] == [one["__key__"] for one in found]


def test_columns_of_an_elsewhere_are_remembered(folder: Path, tmp_path: Path) -> None:
    """The place is the same for who chooses columns and for who opens the list afterwards."""
    (tmp_path / "lists").mkdir()
    lines = ["photo,prompt", *(f'{folder}/images/{row:02d}.jpg,"/imagine a cat"' for row in range(COUNT))]
    path = write(tmp_path / "lists/list.csv", lines)
    ss.index(path, fields={"jpg": "photo:file", "prompt": "prompt"}, workers=0)
    found = list(ss.Reader(path, fields={"jpg": "bytes", "prompt": None}))
    assert [bytes(one["jpg"]) for one in found] == [jpeg(row) for row in range(COUNT)]
    assert found[0]["prompt"] == "/imagine a cat"


def test_text_that_looks_like_paths_moves_no_list(folder: Path) -> None:
    """The directory of a list is its place, unless files are elsewhere: labels of Open Images are no files."""
    path = write(folder / "list.csv", ["path,name", *(f"images/{row:02d}.jpg,/m/0{row}" for row in range(COUNT))])
    assert ss.index(path, workers=0).url == str(folder)


@pytest.mark.parametrize("path", ["C:\\\\data\\\\1.jpg", "c:/data/1.jpg", "\\\\server\\data\\1.jpg"])
def test_paths_of_windows_are_refused(folder: Path, path: str) -> None:
    place = write(folder / "list.txt", [path, path])
    for act in (lambda: ss.index(place, workers=0), lambda: ss.pack(place, folder / "out", workers=0)):
        with pytest.raises((FormatError, SourceError), match="is a path of Windows") as caught:
            act()
        assert caught.value.place["line"] == 1


def test_a_list_from_elsewhere_names_no_local_file(folder: Path) -> None:
    for name in (f"{folder}/images/00.jpg", f"file://{folder}/images/00.jpg", "../images/00.jpg"):
        store = MemoryStore({"lists/data.csv": f"{name},,0\n".encode(), "lists/cls.csv": b"a\n"})
        with pytest.raises(FormatError, match="does not lie below"):
            ss.index(FolderStore(store, "lists"), workers=0)


@pytest.mark.parametrize(
    ("place", "root", "expected"),
    [
        ("/a/b", "/a/c", ("/a", ("b/l.csv",), "c")),
        ("/a/b", ".", ("/a/b", ("l.csv",), ".")),
        ("/a/b", "..", ("/a", ("b/l.csv",), ".")),
        ("/a/b", "/c", ("/", ("a/b/l.csv",), "c")),
        ("s3://x/a/b?k=1", "../c", ("s3://x/a?k=1", ("b/l.csv",), "c")),
        ("s3://x/a/b", "s3://x/c/d/", ("s3://x", ("a/b/l.csv",), "c/d")),
        ("s3://x/a", "../../../c", ("s3://x", ("a/l.csv",), "c")),
    ],
)
def test_a_root_widens_the_place(place: str, root: str, expected: Any) -> None:
    found = rooted(place, ("l.csv",), {"root": root})
    assert (found.place, found.names, (found.options or {})["root"]) == expected
    with pytest.raises(UsageError, match="another store"):
        rooted("s3://x/a", ("l.csv",), {"root": "s3://y/a"})


def test_lines_that_cannot_be_read_are_left_out_where_that_is_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "PIECE", 4)
    lines = [f"images/{row:02d}.jpg\t{row}" for row in range(8)]
    path = write(folder / "l.tsv", [*lines[:3], "images/09.jpg", "\t4", *lines[3:], "images/10.jpg\t"])
    with pytest.raises(FormatError, match=r"line 4: the line has 1 columns.*; 3 samples are lost"):
        ss.index(path, workers=0)
    report = ss.index(path, workers=0, damaged="reject")
    assert (report.samples, report.notes) != (8, ())
    assert [one["cls"] for one in ss.Reader(path, fields={"cls": None})] == list(range(8))
    with pytest.raises(FormatError, match="the line has no path"):
        ss.index(write(folder / "m.tsv", ["\t1", "\t2"]), workers=0)
    keyed = write(folder / "k.csv", ["path,name", "images/00.jpg,a", "images/01.jpg,"])
    with pytest.raises(FormatError, match="line 3: the line has no key"):
        ss.index(keyed, workers=0, reading=ss.SourceOptions(options={"key": "name"}))


def test_annotations_whose_pictures_are_elsewhere(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    images = [{"id": row, "file_name": f"{row:02d}.jpg"} for row in range(COUNT)]
    seen = [{"image_id": 3, "category_id": 1, "bbox": [1, 2, 3, 4]}]
    about = {"images": images, "annotations": seen, "categories": [{"id": 1, "name": "cat"}]}
    path = write(tmp_path / "lists/instances.json", [json.dumps(about)])
    with pytest.raises(FormatError, match=r"(?s)the first picture, 00\.jpg, is in none of.*root="):
        ss.index(path, workers=0)
    for root in ("../data/images", str(folder / "images")):
        assert [bytes(one["jpg"]) for one in read(path, root=root)] == [jpeg(row) for row in range(COUNT)]
    report = ss.pack(
        path, tmp_path / "packed", workers=0, reading=ss.SourceOptions(options={"root": str(folder / "images")})
    )
    assert report.samples == COUNT


@pytest.mark.parametrize(
    ("label", "other", "value"),
    [
        ("1", "2", 1),
        ("9007199254740993", "2", 2**53 + 1),
        ("9007199254740993.0", "2", 2**53 + 1),
        ("9223372036854775807.0", "2", 2**63 - 1),
        (" 007 ", "1.5e1", 7),
        ("3", "cat", None),
        ("3", "1,5", None),
        ("2.5", "3.5", None),
        ("1.0e99", "3", None),
        ("9223372036854775808.0", "3", None),
    ],
)
def test_labels_are_integers_to_the_last_digit_or_refused(folder: Path, label: str, other: str, value: Any) -> None:
    """In place and packed; where some are integers, others do not silently make names of all."""
    path = write(folder / "list.tsv", [f"images/00.jpg\t{label}", f"images/01.jpg\t{other}"])
    packed = []
    with suppress(SourceError):
        packed = [one for one in open_source(path).part(np.arange(2)) if isinstance(one, Item)]
    if value is None:
        assert len(packed) < 2
        with pytest.raises(FormatError, match="is not a 64-bit integer") as caught:
            read(path)
        assert "labels=name" in caught.value.hint
        assert [one["cls"] for one in read(path, labels="name")] == [label > other, label <= other]
    else:
        assert packed[0].values["cls"] == read(path)[0]["cls"] == value


def test_a_name_that_two_columns_have_is_no_column(folder: Path) -> None:
    path = write(folder / "list.csv", ["path,note,note", "images/00.jpg,a,b"])
    for act in (lambda: read(path, {"note": "note"}), lambda: ss.pack(str(path), "out", fields={"note": "note"})):
        with pytest.raises(UsageError, match="several columns are called 'note'"):
            act()
    assert read(path, {"jpg": "path:file", "note": "2"})[0]["note"] == "b"
