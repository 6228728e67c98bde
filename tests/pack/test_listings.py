"""Patterns, prefixes of buckets, several files a sample."""

from __future__ import annotations

import errno
import glob
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream import ImageOptions, SourceOptions, StorageOptions
from shardstream.errors import DuplicateKeyError, SourceError, StorageError, UsageError
from shardstream.names.globs import glob_pattern, split_glob
from shardstream.pack.run import pack
from shardstream.pack.sources import File, Item, Reject, Source
from shardstream.pack.sources.base import SourceReading
from shardstream.pack.sources.listings import Entry, grouped
from shardstream.pack.sources.opening import open_source
from shardstream.shards.manifest import Manifest
from shardstream.storage.base.location import Access

from ..storage.places import S3Place, WebPlace
from .making import jpeg, photos, samples


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def all_of(source: Source) -> list[Item | Reject]:
    return list(source.part(np.arange(len(source))))


def found(source: Source) -> list[tuple[str, str, object]]:
    """(path, key, label) of good samples, (path, reason) of others."""
    return [
        (item.path, item.key, item.values.get("cls")) if isinstance(item, Item) else (item.path, "", item.reason)
        for item in all_of(source)
    ]


def files(source: Source) -> list[dict[str, object]]:
    """Fields of each sample, files by their path below the folder."""
    return [
        {
            name: os.path.relpath(value.path, source.root or "") if isinstance(value, File) else value
            for name, value in item.values.items()
        }
        for item in all_of(source)
        if isinstance(item, Item)
    ]


# ------------------------------------------------------------------------------------------------------------ patterns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", None),
        ("*.jpg", (".", "*.jpg")),
        ("/*.jpg", ("/", "*.jpg")),
        ("a/b*/c", ("a", "b*/c")),
        ("a/**/x?.[jp]*", ("a", "**/x?.[jp]*")),
        ("s3://b/*/x", ("s3://b", "*/x")),
        ("s3://b/a/[0-9].jpg", ("s3://b/a", "[0-9].jpg")),
    ],
)
def test_where_a_pattern_begins(text: str, expected: object) -> None:
    assert split_glob(text) == expected


parts = st.sampled_from(["a", "b", "ab", "a.b", "[a]", "^", "-"])
pattern_parts = st.sampled_from(["a", "*", "**", "?", "a*", "*b", "[ab]", "[!a]", "a.?", "[!a]*", "[", "[^a]", "[a-]"])


@given(
    st.lists(st.lists(parts, min_size=1, max_size=3).map("/".join), max_size=6),
    st.lists(pattern_parts, min_size=1, max_size=3),
)
def test_patterns_are_those_of_pythons_glob(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], pattern: list[str]
) -> None:
    root = tmp_path_factory.mktemp("glob")
    for name in names:
        path = root / name / "f"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    text = "/".join(pattern)
    everything = [
        os.path.relpath(os.path.join(folder, name), root) for folder, _, some in os.walk(root) for name in some
    ]
    expected = {path for path in glob.glob(text, root_dir=root, recursive=True) if os.path.isfile(root / path)}
    assert {path for path in everything if glob_pattern(text).fullmatch(path)} == expected


def test_files_by_a_pattern(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "a/2.png", "b/c/3.jpg", "4.jpg", ".x/5.jpg", "a/.6.jpg", "b/d.jpg/7.jpg", "a/8.txt")
    source = open_source(f"{tmp_path}/**/*.jpg")
    assert found(source) == [
        ("4.jpg", "4", None),
        ("a/1.jpg", "a/1", None),
        ("b/c/3.jpg", "b/c/3", None),
        ("b/d.jpg/7.jpg", "b/d.jpg/7", None),
    ]
    assert "--labels name" in source.notes[0]
    assert source.url == f"{tmp_path}/**/*.jpg"
    named = open_source(f"{tmp_path}/*/*.jpg", labels="name")
    assert (named.classes, found(named)) == (("a",), [("a/1.jpg", "a/1", 0)])
    with pytest.raises(SourceError, match="no file matches"):
        open_source(f"{tmp_path}/*.gif")
    with pytest.raises(SourceError, match="no such folder"):
        open_source(f"{tmp_path}/nowhere/*.jpg")
    with pytest.raises(UsageError, match="fields"):
        open_source(f"{tmp_path}/*.jpg", fields={"jpg": "path"})


def test_where_the_output_may_lie(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg")
    for source in (tmp_path, f"{tmp_path}/**", f"{tmp_path}/**/*"):
        assert open_source(source).root == str(tmp_path)
    assert open_source(f"{tmp_path}/**/*.jpg").root is None


def test_a_name_that_looks_like_a_pattern(tmp_path: Path) -> None:
    touch(tmp_path, "[a]/1.jpg", "a/2.jpg")
    assert [entry[0] for entry in found(open_source(tmp_path / "[a]"))] == ["1.jpg"]
    assert [entry[0] for entry in found(open_source(f"{tmp_path}/[a]/*"))] == ["a/2.jpg"]


def test_odd_trees(tmp_path: Path) -> None:
    touch(tmp_path, "c/x.jpg/1.jpg", "c/2.jpg", "c/new\nline.jpg", "c/.hidden.jpg", ".git/3.jpg", "c/d/.e/4.jpg")
    (tmp_path / "c" / "loop").symlink_to(tmp_path)
    (tmp_path / "c" / "dangling.jpg").symlink_to("nothing")
    os.makedirs(os.fsencode(tmp_path) + b"/\xff")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff/caf\xe9.jpg")).write_bytes(b"x")
    source = open_source(tmp_path)
    assert source.classes == ("%FF", "c")
    assert [entry for entry in found(source) if entry[2] in (0, 1)] == [
        ("c/2.jpg", "c/2", 1),
        ("c/dangling.jpg", "c/dangling", 1),
        ("c/new\nline.jpg", "c/new\nline", 1),
        ("c/x.jpg/1.jpg", "c/x.jpg/1", 1),
        (os.fsdecode(b"\xff/caf\xe9.jpg"), "%FF/caf%E9", 0),
    ]
    assert [entry[0] for entry in found(source) if entry[2] not in (0, 1)] == ["c/loop"]


def test_parts_are_small(tmp_path: Path) -> None:
    touch(tmp_path, *(f"c{i % 4}/{i:04}.jpg" for i in range(400)))
    source = open_source(tmp_path)
    numbers = np.array([399, 0, 5])
    part = pickle.loads(pickle.dumps(source.part(numbers)))
    assert len(pickle.dumps(part)) < 1000
    whole = all_of(source)
    assert list(part) == [whole[i] for i in numbers]


# ---------------------------------------------------------------------------------------------- several files a sample


def test_files_of_one_stem(tmp_path: Path) -> None:
    names = ("x/a.jpg", "x/a.mask.PNG", "x/a.json", "x/a.d/b.jpg", "x/a-b.jpeg", "y/a.jpg", "y/a.b.c.jpg", "y/d.json")
    touch(tmp_path, *names, "y/e.jpg", "y/e.JPEG", "y/f", "y/f.jpg")
    source = open_source(tmp_path, reading=SourceReading(group="stem"))
    assert source.classes == ("x", "y")
    assert files(source) == [
        {"jpg": "x/a-b.jpeg", "cls": 0},
        {"jpg": "x/a.d/b.jpg", "cls": 0},
        {"jpg": "x/a.jpg", "json": "x/a.json", "mask.png": "x/a.mask.PNG", "cls": 0},
        {"b.c.jpg": "y/a.b.c.jpg", "jpg": "y/a.jpg", "cls": 1},
        {"jpg": "y/f.jpg", "cls": 1},
    ]
    assert [item.key for item in all_of(source) if isinstance(item, Item)] == ["x/a-b", "x/a.d/b", "x/a", "y/a", "y/f"]
    assert [(item.path, item.reason) for item in all_of(source) if isinstance(item, Reject)] == [
        ("y/d.json", "it is not a picture, in a folder of pictures"),
        ("y/e.jpg", "two of its files would be the field 'jpg'"),
        ("y/f", "it is not a picture, in a folder of pictures"),
    ]
    with pytest.raises(DuplicateKeyError, match="same key") as caught:
        open_source(tmp_path)
    assert "group='stem'" in str(caught.value)
    with pytest.raises(UsageError, match="folders"):
        open_source(Path(__file__), reading=SourceReading(group="stem"))


trees = st.lists(st.lists(st.sampled_from(["a", "a.b", "a-", "b.c.d", "b"]), min_size=1, max_size=3).map("/".join))


@given(trees)
def test_groups_are_what_a_dict_finds(paths: list[str]) -> None:
    def stem(path: str) -> str:
        folder, slash, name = path.rpartition("/")
        return f"{folder}{slash}{name.partition('.')[0]}"

    expected: dict[str, list[str]] = {}
    alone = []
    for path in sorted(set(paths)):
        if stem(path) == path:  # without an extension it is nobody's field
            alone.append((path, [path]))
        else:
            expected.setdefault(stem(path), []).append(path)
    found = grouped((Entry(path, None) for path in sorted(set(paths))), stem)
    got = [(key, [entry.path for entry in entries]) for key, entries in found]
    assert sorted(got) == sorted([*alone, *expected.items()])


def test_grouped_samples_are_packed(tmp_path: Path) -> None:
    for path in photos(tmp_path / "in", 12):
        (tmp_path / "in" / path).with_suffix(".txt").write_text(f"caption of {path}")
    pack(
        tmp_path / "in",
        tmp_path / "out",
        reading=SourceOptions(group="stem"),
        workers=0,
        images=ImageOptions(jpeg="keep"),
    )
    held = samples(tmp_path / "out")
    assert len(held) == 12
    assert held["c1/00004"] == {"jpg": jpeg(4), "txt": b"caption of c1/00004.jpg", "cls": 1}


def test_an_unpacked_webdataset_is_packed_with_its_labels(tmp_path: Path) -> None:
    """Its members lie in folders like class folders, and have labels of their own beside them."""
    for path in photos(tmp_path / "in", 12):
        (tmp_path / "in" / path).with_suffix(".cls").write_text(f"{int(Path(path).stem) + 100}\n")
    (tmp_path / "in/c1/00004.cls").write_text("dog")
    (tmp_path / "in/c1/00007.cls").write_text(str(2**70))
    (tmp_path / "in/c2/00008.cls").unlink()
    pack(
        tmp_path / "in",
        tmp_path / "out",
        reading=SourceOptions(group="stem"),
        workers=0,
        images=ImageOptions(jpeg="keep"),
    )
    held = samples(tmp_path / "out")
    assert held["c0/00003"] == {"jpg": jpeg(3), "cls": 103}
    assert held["c2/00008"] == {"jpg": jpeg(8)}
    assert Manifest.load(tmp_path / "out").classes is None
    rejects = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert [(reject["path"][-12:], reject["reason"].partition(" [")[0]) for reject in rejects] == [
        ("c1/00004.cls", "its label, b'dog', is not an integer"),
        ("c1/00007.cls", "1180591620717411303424 does not fit int64"),
    ]
    pack(
        tmp_path / "in",
        tmp_path / "named",
        reading=SourceOptions(group="stem"),
        labels="name",
        workers=0,
        images=ImageOptions(jpeg="keep"),
    )
    assert samples(tmp_path / "named") == {"c2/00008": {"jpg": jpeg(8), "cls": 2}}  # two labels are one too many


# ------------------------------------------------------------------------------------------------------------- buckets


def plant(place: S3Place | WebPlace, root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            place.plant(str(path.relative_to(root)), path.read_bytes())


def test_a_bucket_is_packed_like_the_folder(tmp_path: Path, s3: S3Place) -> None:
    photos(tmp_path / "in", 9)
    (tmp_path / "in" / "README.md").write_text("beside")
    plant(s3, tmp_path / "in")
    s3.plant("c0/.hidden.jpg", b"x")
    source = open_source(f"{s3.url()}/", access=Access(s3.options))
    assert source.classes == ("c0", "c1", "c2")
    assert source.root is None
    assert "README.md" in source.notes[0]
    assert found(source) == found(open_source(tmp_path / "in"))
    assert [item.size for item in all_of(source) if isinstance(item, Item)] == [
        len(jpeg(i)) for i in (0, 3, 6, 1, 4, 7, 2, 5, 8)
    ]
    pack(
        s3.url(),
        tmp_path / "out",
        storage=StorageOptions(source=s3.options),
        workers=0,
        images=ImageOptions(jpeg="keep"),
    )
    pack(tmp_path / "in", tmp_path / "same", workers=0, images=ImageOptions(jpeg="keep"))
    assert samples(tmp_path / "out") == samples(tmp_path / "same")


def test_a_pattern_in_a_bucket(s3: S3Place) -> None:
    for name in ("a/1.jpg", "a/1.json", "a/2.png", "b/c/3.jpg", "4.jpg"):
        s3.plant(name, b"x")
    assert found(open_source(s3 / "**/*.jpg", access=Access(s3.options))) == [
        ("4.jpg", "4", None),
        ("a/1.jpg", "a/1", None),
        ("b/c/3.jpg", "b/c/3", None),
    ]
    (one,) = all_of(open_source(s3 / "a/1*", access=Access(s3.options), reading=SourceReading(group="stem")))
    assert isinstance(one, Item)
    assert one.values == {"jpg": File(s3 / "a/1.jpg"), "json": File(s3 / "a/1.json")}
    assert one.size == 2
    with pytest.raises(SourceError, match="no file matches"):
        open_source(s3 / "*.gif", access=Access(s3.options))


def test_too_many_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1.jpg").write_bytes(b"x")

    def refuse(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "dup", refuse)
    with pytest.raises(StorageError, match="Too many open files"):
        open_source(tmp_path)


def test_an_empty_prefix(s3: S3Place) -> None:
    with pytest.raises(SourceError, match="no files"):
        open_source(s3 / "nothing/", access=Access(s3.options))


def test_a_packed_data_set_in_a_bucket(s3: S3Place) -> None:
    s3.plant("dataset.json", b"{}")
    with pytest.raises(SourceError, match="packed data set"):
        open_source(s3.url(), access=Access(s3.options))


def test_web_servers_have_no_listing(web: WebPlace) -> None:
    web.plant("a/1.jpg", b"x")
    with pytest.raises(StorageError):
        open_source(f"{web.url()}/")
