"""Names that are not data are left out in the same way by every format, in place and by `pack`."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.errors import NotFoundError, SourceError, UsageError
from shardstream.names.globs import glob_pattern
from shardstream.names.strays import Strays, find_stray
from shardstream.pack.sources.listings import FileListing
from shardstream.pack.sources.opening import open_source
from shardstream.pack.sources.tars import TarSource
from shardstream.storage import locate
from shardstream.testing import MemoryStore

from .making import jpeg

# Of files beside data; {} is the name of a file of data, which has the bytes of one.
STRAYS = [
    *(".{}", "._{}", ".DS_Store", ".git/{}", "Thumbs.db", "thumbs.db", "desktop.ini", "__MACOSX/{}", "__MACOSX/._{}"),
    *("_temporary/0/{}", "_spark_metadata/{}", "_delta_log/{}", "_SUCCESS", "_metadata", "_common_metadata"),
]
OF_TABLES = ["_backup/{}", "_{}", "_started_7"]
# What only looks like one of them.
DATA = ["a.b/{}", "metadata/{}", "temporary/{}", "x_temporary/{}", "SUCCESS/{}", "__MACOSX2/{}", "Thumbs.db2/{}"]


def _rows(number: int) -> bytes:
    return b"".join(json.dumps({"a": number, "b": row}).encode() + b"\n" for row in range(2))


def _table(number: int) -> bytes:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    parquet.write_table(arrow.table({"a": [number, number + 1]}), out)
    return out.getvalue()


def _zip(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def _tar(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


# By what is in a directory: the suffix of its files, and their bytes by number.
KINDS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "class directories": ("jpg", jpeg),
    "jsonl": ("jsonl", _rows),
    "parquet": ("parquet", _table),
    "zip": ("zip", lambda number: _zip({f"{number}/a.jpg": jpeg(number)})),
    "webdataset": ("tar", lambda number: _tar({f"{number}/a.jpg": jpeg(number), f"{number}/a.cls": b"1"})),
}
CASES = [(kind, name) for kind in KINDS for name in STRAYS] + [
    (kind, name) for kind in ("jsonl", "parquet") for name in OF_TABLES
]


def _files(kind: str, first: int = 0) -> dict[str, bytes]:
    suffix, data = KINDS[kind]
    return {
        f"{folder}/{i}.{suffix}": data(first + 10 * n + i) for n, folder in enumerate(("cat", "dog")) for i in range(2)
    }


def _stray(kind: str, name: str, folder: str = "") -> dict[str, bytes]:
    suffix, data = KINDS[kind]
    return {folder + name.format(f"9.{suffix}"): data(9) if "{}" in name else b"x"}


def _write(root: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _keys(place: str | Path) -> list[str]:
    reader = ss.Reader(place)
    return [reader[number]["__key__"] for number in range(len(reader))]


@pytest.mark.one_in(4)  # each name in one kind or two
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_names_that_are_not_data_change_nothing(tmp_path: Path, kind: str, name: str) -> None:
    """At the top and deeper: not the catalog, not what is packed; and each is counted."""
    files, strays = _files(kind), _stray(kind, name) | _stray(kind, name, "cat/")
    _write(tmp_path / "plain", files)
    _write(tmp_path / "more", {**files, **strays})
    plain, found, in_memory = (
        ss.index(place, workers=0)
        for place in (tmp_path / "plain", tmp_path / "more", MemoryStore({**files, **strays}))
    )
    packed, source = open_source(tmp_path / "plain"), open_source(tmp_path / "more")
    assert (found.samples, found.classes, found.fingerprint) == (plain.samples, plain.classes, plain.fingerprint)
    assert (len(source), source.classes, source.fingerprint) == (len(packed), packed.classes, packed.fingerprint)
    assert in_memory.fingerprint == plain.fingerprint
    for notes in (found.notes, in_memory.notes, source.notes):
        (note,) = set(notes) - set(plain.notes)
        assert note.startswith("Not data by name, so left out: 2 files or directories (")


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_look_alike_are_data(tmp_path: Path, kind: str) -> None:
    samples = packed = 0
    suffix, data = KINDS[kind]
    names = ["cat/{}", *(name for name in DATA if name[0] != "_" or kind not in ("jsonl", "parquet"))]
    for number, name in enumerate(names):
        _write(tmp_path, {name.format(f"{number}.{suffix}"): data(number)})
        found, source = ss.index(tmp_path, workers=0).samples, len(open_source(tmp_path))
        assert (found > samples, source > packed) == (True, True), name
        samples, packed = found, source


@pytest.mark.parametrize("name", STRAYS)
def test_members_of_archives_go_by_the_same_rule(tmp_path: Path, name: str) -> None:
    strays = {folder + name.format("9.jpg"): jpeg(9) for folder in ("", "cat/", "./")}
    members = {"./cat/1.jpg": jpeg(1), **strays, "dog/2.jpg": jpeg(2)}
    _write(tmp_path, {"a.zip": _zip(members), "b.tar": _tar(members), "c.tar.gz": _tar(members, "w:gz")})
    assert {key.removeprefix("./") for key in _keys(tmp_path / "a.zip")} == {"cat/1", "dog/2"}
    assert _keys(tmp_path / "b.tar") == _keys(tmp_path / "c.tar.gz") == ["cat/1", "dog/2"]
    streamed = open_source(tmp_path / "c.tar.gz")
    assert isinstance(streamed, TarSource)
    assert [item.key for stream in streamed.streams for item in stream] == ["cat/1", "dog/2"]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_were_written_are_data(tmp_path: Path, kind: str) -> None:
    """The place itself, names in braces, and parts of a glob that do not begin with a wildcard."""
    suffix, data = KINDS[kind]
    for folder in (".data", "_temporary", "__MACOSX"):
        root = tmp_path / folder
        _write(root, _files(kind))
        assert ss.index(root, workers=0).samples == len(open_source(root)) > 0
        files = f"{root}/{{cat,dog}}/{{0,1}}.{suffix}"
        assert ss.index(files, workers=0).samples == len(_keys(files)) > 0
        for pattern in (f"{root}/*/*.{suffix}", f"{tmp_path}/{folder[:2]}{folder[2:]}/*/*.{suffix}"):
            assert len(open_source(pattern)) == len(_keys(files))
            assert ss.index(pattern, workers=0).samples == len(_keys(files))
    hidden = tmp_path / f"x/.one.{suffix}"
    _write(tmp_path, {f"x/.one.{suffix}": data(1)})
    assert ss.index(str(hidden), workers=0).samples > 0


def test_wildcards_leave_out_what_is_not_data(tmp_path: Path) -> None:
    """As those of shells do with dotfiles: `*` is none of these names, `.*` and `_temporary` are."""
    suffix, data = KINDS["parquet"]
    good = [f"x/a/{i}.{suffix}" for i in range(3)]
    _write(
        tmp_path, {name: data(1) for name in (*good, "x/_temporary/0.parquet", "x/_old/0.parquet", "x/a/.0.parquet")}
    )
    assert ss.index(f"{tmp_path}/x/*/*.parquet", workers=0).samples == 6
    assert len(open_source(f"{tmp_path}/x/**/*.parquet")) == 6
    assert len(open_source(f"{tmp_path}/x/_*/*.parquet")) == 4
    assert ss.index(f"{tmp_path}/x/_old/*.parquet", workers=0).samples == 2
    assert ss.index(f"{tmp_path}/x/a/.*.parquet", workers=0).samples == 2
    pattern = glob_pattern("*/?[0-9a]/**/[!b]*")
    for path, matches in {
        "a/_0/c": True,
        "a/.0/c": False,
        "a/b0/.x/c": False,
        "a/b0/y/c": True,
        ".a/b0/c": False,
    }.items():
        assert bool(pattern.fullmatch(path)) is matches
        assert glob_pattern("*/?[0-9a]/**/[!b]*", strays=True).fullmatch(path)


def test_names_in_a_list_are_data(tmp_path: Path) -> None:
    names = [".hidden/1.jpg", "_temporary/2.jpg", "__MACOSX/3.jpg", "cat/.4.jpg"]
    _write(tmp_path, {name: jpeg(number) for number, name in enumerate(names)})
    (tmp_path / "list.tsv").write_text("".join(f"{name}\t0\n" for name in names))
    assert len(_keys(tmp_path / "list.tsv")) == len(open_source(tmp_path / "list.tsv")) == 4
    assert ss.pack(tmp_path / "list.tsv", tmp_path / "out", workers=0).samples == 4


@pytest.mark.parametrize("member", ["a.jpg", "deep/a.wav", "a.MP4"])
def test_a_class_directory_may_begin_with_an_underscore(tmp_path: Path, member: str) -> None:
    """It is a class if it has an image, audio or video file; else it is left out, however many files it has."""
    files = {"cat/1.jpg": jpeg(1), "dog/2.jpg": jpeg(2), "_cls/b.txt": b"x", "_cls/._a.jpg": b"x", "_old/x.jsonl": b"x"}
    _write(tmp_path, files)
    (tmp_path / "_empty").mkdir()
    for expected in (("cat", "dog"), ("_cls", "cat", "dog")):
        source = open_source(tmp_path)
        assert source.classes == ss.ShardDataset(tmp_path).classes == expected
        strays = Strays()
        listed = [entry.path for entry in FileListing(locate(MemoryStore(files))).entries(strays)]
        assert listed == [entry.path for entry in FileListing(locate(tmp_path)).entries()]
        assert {path.partition("/")[0] for path in listed} == set(expected)
        assert strays.count == 2
        files[f"_cls/{member}"] = jpeg(3)
        _write(tmp_path, files)


def test_a_place_with_nothing_else_says_what_was_left_out(tmp_path: Path) -> None:
    _write(tmp_path / "in", {".only/1.jpg": jpeg(1), "_old/a.txt": b"x"})
    told = r"Not data by name, so left out: 2 files or directories \(.only, _old\)"
    with pytest.raises(NotFoundError, match=told):
        ss.ShardDataset(tmp_path / "in")
    with pytest.raises(SourceError, match=told):
        open_source(tmp_path / "in")


def test_find_stray_gives_the_first_part_that_is_not_data() -> None:
    assert find_stray("a/.b/.c/d") == "a/.b"
    assert find_stray("../a/./b") is None
    assert find_stray("_a/b") is None
    assert find_stray("x/_a/b", tables=True) == "x/_a"
    strays = Strays()
    for path in ("a/.b", "a/.b", "c", "d\x1b", "e"):
        strays.add(path)
    assert strays.notes == (r"Not data by name, so left out: 4 files or directories (a/.b, c, d\x1b, ...).",)


SPLITS = r"several splits here: train, val[\s\S]*" + "".join(
    f"\n    shardstream pack {{0}}/{name} {{1}}/{name}" for name in ("train", "val")
)


@pytest.mark.parametrize("kind", ["class directories", "webdataset", "parquet", "jsonl"])
def test_splits_are_packed_one_by_one(tmp_path: Path, kind: str) -> None:
    """By what streaming in place refuses, before anything is written; also by a dry run."""
    source, dest = tmp_path / "photos", tmp_path / "out"
    for first, split in ((0, "train"), (50, "val")):
        _write(source / split, _files(kind, first))
    with pytest.raises(UsageError, match="several splits here: train, val"):
        ss.ShardDataset(source)
    told = SPLITS.format(source, dest)
    with pytest.raises(UsageError, match=told):
        ss.pack(source, dest, workers=0)
    with pytest.raises(UsageError, match=told):
        ss.pack_plan(f"{source}/", f"{dest}/")
    assert not dest.exists()
    one = ss.pack(source / "train", dest / "train", workers=0)
    both = ss.pack(source, tmp_path / "both", workers=0, reading=ss.SourceOptions(split_names=False))
    assert both.samples == 2 * one.samples
    if kind == "class directories":
        assert both.classes == ("train", "val")
        assert ss.pack(source, tmp_path / "named", workers=0, classes=["val", "train"]).classes == ("val", "train")
        with pytest.raises(UsageError, match=told):
            ss.pack(f"{source}/*/*/*.jpg", dest, labels="name", workers=0)
