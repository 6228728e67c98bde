"""Several data sets as one: lists, globs, braces."""

from __future__ import annotations

from pathlib import Path

import pytest

import shardstream as ss
from shardstream.dataset.opening import find_paths

from .making import numbered, photograph, write_dataset


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("places")
    numbers = numbered([70, 30, 50, 10])
    write_dataset(root / "part-00", numbers[:2])
    write_dataset(root / "part-01", numbers[2:3], format="record")
    write_dataset(root / "part-02", numbers[3:])
    (root / "part-notes").mkdir()
    return root


def ids_of(dataset: ss.ShardDataset) -> list[int]:
    return [sample["id"] for sample in dataset]


def test_all_forms_name_the_same(root: Path) -> None:
    listed = ss.ShardDataset([root / "part-00", root / "part-01", root / "part-02"])
    assert ids_of(listed) == list(range(160))
    for text in ("part-*", "part-{00..02}", "part-{00,01,02}", "part-0[0-2]", "part-0{0..2}"):
        other = ss.ShardDataset(str(root / text))
        assert other.fingerprint == listed.fingerprint
        assert len(other) == 160


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("a/{x,y}/{1..3}", ["a/x/1", "a/x/2", "a/x/3", "a/y/1", "a/y/2", "a/y/3"]),
        ("s3://b/{08..11}", ["s3://b/08", "s3://b/09", "s3://b/10", "s3://b/11"]),
        ("plain", ["plain"]),
        (["a", "b{1,2}"], ["a", "b1", "b2"]),
        ("{,x}y", ["y", "xy"]),
    ],
)
def test_braces(text: str | list[str], places: list[str]) -> None:
    assert find_paths(text) == places


@pytest.mark.parametrize(
    "text", ["a{3..1}", "a{x}", "a{1..}", "a{}", "a{1..2000000}", "a{1..90000}{1..90000}", "s3://b/part-*/x", []]
)
def test_what_cannot_be_read_is_refused(text: str | list[str]) -> None:
    with pytest.raises(ss.errors.UsageError):
        find_paths(text)


def test_a_glob_that_finds_nothing_says_so(root: Path) -> None:
    with pytest.raises(ss.errors.NotFoundError, match="no data set matches"):
        ss.ShardDataset(str(root / "nothing-*"))


def test_a_folder_with_such_characters_in_its_name_is_itself(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "odd{1..2}[x]*", numbered([5]))
    assert ids_of(ss.ShardDataset(str(folder))) == [0, 1, 2, 3, 4]


def test_shuffled_over_all_of_them(root: Path) -> None:
    dataset = ss.ShardDataset(str(root / "part-*"), shuffle=True, tail="exact", batch_size=16)
    first = next(iter(dataset))
    assert len({number // 70 for number in first["id"].tolist()}) > 1
    assert sorted(number for batch in dataset for number in batch["id"].tolist()) == list(range(160))


def test_there_is_no_single_manifest(root: Path) -> None:
    dataset = ss.ShardDataset(str(root / "part-*"))
    assert [one.samples for one in dataset.manifests] == [100, 50, 10]
    with pytest.raises(ss.errors.UsageError, match="3 data sets"):
        _ = dataset.manifest


def test_fields_of_different_types_are_refused_where_they_are_wanted(root: Path, tmp_path: Path) -> None:
    other = write_dataset(tmp_path / "other", [[{"__key__": "x", "id": 1.5, "more": 3}]])
    with pytest.raises(ss.errors.FieldError, match=r"int64 in .*part-00, but float64 in .*other"):
        ss.ShardDataset([root / "part-00", other])
    assert len(ss.ShardDataset([root / "part-00", other], fields=["more"])) == 101


def test_a_field_that_some_lack_is_missing_there(root: Path, tmp_path: Path) -> None:
    other = write_dataset(tmp_path / "other", [[{"__key__": "x", "id": 160, "txt": "hello"}]])
    samples = list(ss.ShardDataset([root / "part-02", other]))
    assert [sample["txt"] for sample in samples] == [None] * 10 + ["hello"]


def test_labels_that_mean_different_things_are_refused(tmp_path: Path) -> None:
    for name, classes in (("a", ["cat", "dog"]), ("b", ["dog", "cat"])):
        with ss.ShardWriter(tmp_path / name, classes=classes) as writer:
            writer.write({"__key__": name, "jpg": photograph(1), "cls": 0})
    with pytest.raises(ss.errors.UsageError, match="equal labels mean different things"):
        ss.ShardDataset([tmp_path / "a", tmp_path / "b"])
    assert len(ss.ShardDataset([tmp_path / "a", tmp_path / "b"], fields=["jpg"])) == 2
