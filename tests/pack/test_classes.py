"""``classes=`` and ``unknown=``: which number a class has, for folders, lists, tables and samples from Python."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import shardstream as ss
from shardstream.errors import FieldError, SourceError, UsageError
from shardstream.pack.run import pack
from shardstream.shards.manifest import Manifest

from ..storage.places import S3Place
from .making import jpeg, samples

NAMES = ("ape", "cat", "dog")


def folder(root: Path, *classes: str) -> Path:
    for number, name in enumerate(classes):
        path = root / name / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    return root


def write_list(root: Path, *labels: str, name: str = "list.tsv", separator: str = "\t") -> Path:
    root.mkdir(exist_ok=True)
    for number in range(len(labels)):
        (root / f"{number}.jpg").write_bytes(jpeg(number))
    path = root / name
    path.write_text("".join(f"{number}.jpg{separator}{label}\n" for number, label in enumerate(labels)))
    return path


def packed(source: Any, dest: Path, **options: Any) -> dict[str, object]:
    """The label of each sample by its key."""
    pack(source, dest, workers=0, **options)
    return {key: values["cls"] for key, values in samples(dest, ["cls"]).items()}


def rejects(dest: Path) -> list[tuple[str, str]]:
    lines = (dest / "rejects.jsonl").read_text().splitlines()
    return [(one["path"], one["reason"]) for one in map(json.loads, lines)]


def train(root: Path) -> Path:
    pack(folder(root / "files", *NAMES), root / "train", workers=0)
    return root / "train"


def as_text(root: Path) -> Path:
    path = root / "names.txt"
    path.write_bytes(b"\xef\xbb\xbfape\r\ncat \r\ndog\r\n")
    return path


def as_json(root: Path) -> Path:
    path = root / "names.json"
    path.write_text(json.dumps(NAMES))
    return path


def as_numbers(root: Path) -> Path:
    path = root / "class_to_idx.JSON"
    path.write_text(json.dumps({"dog": 2, "ape": 0, "cat": 1}))
    return path


GIVEN: list[Callable[[Path], Any]] = [lambda root: list(NAMES), as_text, as_json, as_numbers, train]


@pytest.mark.parametrize("given", GIVEN)
def test_a_folder_that_lacks_a_class_keeps_the_numbers(tmp_path: Path, given: Callable[[Path], Any]) -> None:
    classes = given(tmp_path)
    assert packed(folder(tmp_path / "val", "dog", "ape"), tmp_path / "out", classes=classes) == {"dog/0": 2, "ape/1": 0}
    assert Manifest.load(tmp_path / "out").classes == NAMES


def test_the_form_of_the_list_has_no_part_in_the_plan(tmp_path: Path) -> None:
    source = folder(tmp_path / "val", "dog")
    plans = {ss.pack_plan(source, tmp_path / "out", classes=given(tmp_path)).fingerprint for given in GIVEN}
    assert len(plans) == 1


@pytest.mark.parametrize(
    ("name", "separator"), [("list.tsv", "\t"), ("list.csv", ","), ("list.txt", " "), ("list", "\t")]
)
def test_names_in_lists_become_numbers(tmp_path: Path, name: str, separator: str) -> None:
    source = write_list(tmp_path / "in", "dog", "cat", "dog", name=name, separator=separator)
    assert packed(source, tmp_path / "out", classes=NAMES) == {"0": 2, "1": 1, "2": 2}
    assert Manifest.load(tmp_path / "out").classes == NAMES


def test_names_in_objects_and_chosen_columns(tmp_path: Path) -> None:
    write_list(tmp_path / "in", "0", "0")
    source = tmp_path / "in" / "list.jsonl"
    rows = [{"file": "0.jpg", "kind": None, "id": "a"}, {"file": "1.jpg", "kind": " dog", "id": "b"}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {"jpg": "file", "cls": "kind"}
    assert packed(source, tmp_path / "out", classes=NAMES, fields=fields, key="id") == {"b": 2}


def test_names_in_tables(tmp_path: Path) -> None:
    write_list(tmp_path, "0", "0")
    small = tmp_path / "small.parquet"
    pa.parquet.write_table(pa.table({"path": ["0.jpg", "1.jpg"], "label": ["dog", "ape"]}), small)
    assert packed(small, tmp_path / "a", classes=NAMES) == {"0": 2, "1": 0}


def large_table(path: Path, *labels: str) -> Path:
    """One that holds the images."""
    images = [jpeg(i) + bytes(200_000) for i in range(len(labels))]
    columns = {"image": images, "label": list(labels), "id": [str(i) for i in range(len(labels))]}
    pa.parquet.write_table(pa.table(columns), path)
    return path


def test_names_in_tables_of_large_images(tmp_path: Path) -> None:
    labels = [NAMES[i % 3] for i in range(100)]
    source = large_table(tmp_path / "large.parquet", *labels)
    assert packed(source, tmp_path / "named", key="id", labels="name")["1"] == sorted(NAMES).index(NAMES[1])
    found = packed(source, tmp_path / "out", classes=NAMES, key="id")
    assert found == {str(i): i % 3 for i in range(100)}


def test_in_tables_of_large_images_an_unknown_name_ends_the_run_too(tmp_path: Path) -> None:
    labels = [NAMES[i % 3] for i in range(99)]
    source = large_table(tmp_path / "large.parquet", *labels, "dgo")
    with pytest.raises(UsageError, match="the label 'dgo' is not in the list of classes"):
        pack(source, tmp_path / "out", workers=0, classes=NAMES, key="id")
    assert (
        len(packed(source, tmp_path / "out", classes=NAMES, key="id", reading=ss.SourceOptions(unknown="reject"))) == 99
    )
    assert rejects(tmp_path / "out")[0][1] == "the label 'dgo' is not in the list of classes"


def dicts(*labels: object) -> list[dict[str, object]]:
    return [{"__key__": str(i), "txt": "a", "cls": label} for i, label in enumerate(labels)]


def one_by_one(*labels: object) -> Iterator[dict[str, object]]:
    yield from dicts(*labels)


@pytest.mark.parametrize("make", [dicts, one_by_one])
def test_names_in_samples_from_python(tmp_path: Path, make: Callable[..., Any]) -> None:
    assert packed(make("dog", 1, "ape"), tmp_path / "a", classes=NAMES) == {"0": 2, "1": 1, "2": 0}
    with pytest.raises(UsageError, match="the label 'dgo' is not in") as caught:
        pack(make("dog", "dgo"), tmp_path / "b", classes=NAMES, workers=0)
    assert "did you mean 'dog'?" in str(caught.value)
    assert packed(make("dog", "dgo"), tmp_path / "b", classes=NAMES, reading=ss.SourceOptions(unknown="reject")) == {
        "0": 2
    }
    assert packed(make("dog", "dgo"), tmp_path / "c") == {"0": b"dog", "1": b"dgo"}


def test_a_missing_label_does_not_say_what_labels_are(tmp_path: Path) -> None:
    assert packed(write_list(tmp_path / "in", "", " ", "1"), tmp_path / "out", classes=NAMES) == {"2": 1}
    assert len(rejects(tmp_path / "out")) == 2


@pytest.mark.parametrize("labels", [None, "int"])
def test_integers_keep_their_numbers_and_get_names(tmp_path: Path, labels: Any) -> None:
    source = write_list(tmp_path / "in", "2", "0", "7")
    assert packed(source, tmp_path / "out", classes=NAMES, labels=labels) == {"0": 2, "1": 0, "2": 7}
    assert Manifest.load(tmp_path / "out").classes == NAMES


def test_without_a_list_names_stay_what_they_are(tmp_path: Path) -> None:
    source = write_list(tmp_path / "in", "dog", "cat")
    with pytest.raises(SourceError, match="the label 'dog' is not a 64-bit integer"):
        pack(source, tmp_path / "out", workers=0)
    assert packed(source, tmp_path / "out", labels="name") == {"0": 1, "1": 0}


def test_what_may_be_a_number_or_a_name_has_to_be_said(tmp_path: Path) -> None:
    source, names = write_list(tmp_path / "in", "10", "0"), ["0", "1", "10"]
    with pytest.raises(UsageError, match="'10' may be a number or a name: class 2 is called '10'") as caught:
        pack(source, tmp_path / "out", workers=0, classes=names)
    assert "--labels int" in str(caught.value)
    assert packed(source, tmp_path / "name", classes=names, labels="name") == {"0": 2, "1": 0}
    assert packed(source, tmp_path / "int", classes=names, labels="int") == {"0": 10, "1": 0}
    digits = [str(i) for i in range(11)]
    assert packed(source, tmp_path / "same", classes=digits) == {"0": 10, "1": 0}


def test_an_unknown_folder_ends_the_run_or_is_rejected(tmp_path: Path) -> None:
    source = folder(tmp_path / "val", "ape", "dgo")
    with pytest.raises(UsageError, match="the folder 'dgo' is not in the list of classes") as caught:
        pack(source, tmp_path / "out", workers=0, classes=NAMES)
    assert caught.value.place["url"] == str(source)
    assert "did you mean 'dog'?" in str(caught.value)
    assert "--unknown reject" in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert packed(source, tmp_path / "out", classes=NAMES, reading=ss.SourceOptions(unknown="reject")) == {"ape/0": 0}
    assert rejects(tmp_path / "out") == [("dgo/1.jpg", "the folder 'dgo' is not in the list of classes")]


def tar_of(path: Path, *labels: bytes) -> Path:
    with tarfile.open(path, "w") as archive:
        for number, label in enumerate(labels):
            for extension, data in (("jpg", jpeg(number)), ("cls", label)):
                member = tarfile.TarInfo(f"{path.stem}/{number}.{extension}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("workers", [0, 2])
def test_names_in_tars_are_looked_up_and_numbers_stay(tmp_path: Path, workers: int) -> None:
    tar_of(tmp_path / "a.tar", b"dog\n", b"1", b"ape")
    tar_of(tmp_path / "b.tar", b" cat ", b"7")
    pack(tmp_path / "{a,b}.tar", tmp_path / "out", workers=workers, classes=NAMES)
    found = {key: values["cls"] for key, values in samples(tmp_path / "out", ["cls"]).items()}
    assert found == {"a/0": 2, "a/1": 1, "a/2": 0, "b/0": 1, "b/1": 7}
    manifest = Manifest.load(tmp_path / "out")
    assert (str(manifest.fields["cls"]), manifest.classes) == ("int64", NAMES)


def test_without_a_list_names_in_tars_stay_names(tmp_path: Path) -> None:
    assert packed(tar_of(tmp_path / "a.tar", b"dog", b"ape"), tmp_path / "out") == {"a/0": b"dog", "a/1": b"ape"}


def test_an_unknown_name_in_a_tar_ends_the_run_or_is_rejected(tmp_path: Path) -> None:
    source = tar_of(tmp_path / "a.tar", b"dog", b"dgo", b"")
    with pytest.raises(UsageError, match="the label 'dgo' is not in the list of classes") as caught:
        pack(source, tmp_path / "out", workers=0, classes=NAMES)
    assert caught.value.place == {"url": str(source), "key": "a/1"}
    assert "did you mean 'dog'?" in str(caught.value)
    assert packed(source, tmp_path / "out", classes=NAMES, reading=ss.SourceOptions(unknown="reject")) == {"a/0": 2}
    reason = "the label {} is not in the list of classes"
    assert rejects(tmp_path / "out") == [("a.tar/a/1", reason.format("'dgo'")), ("a.tar/a/2", reason.format("''"))]


def test_what_one_list_made_of_a_tar_is_not_taken_for_another(tmp_path: Path) -> None:
    """The first pass over a tar outlives a run that fails."""
    source = tar_of(tmp_path / "a.tar", b"dog", b"dgo")

    def broken(sample: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError(sample["__key__"])

    with pytest.raises(SourceError, match="RuntimeError"):
        pack(
            source,
            tmp_path / "out",
            workers=0,
            classes=NAMES,
            reading=ss.SourceOptions(unknown="reject"),
            transform=broken,
        )
    with pytest.raises(UsageError, match="'dgo'"):
        pack(source, tmp_path / "out", workers=0, classes=NAMES)
    assert packed(source, tmp_path / "out", classes=("dgo", "dog")) == {"a/0": 1, "a/1": 0}


@pytest.mark.parametrize("key", ["path", "line"])
def test_an_unknown_label_ends_the_run_with_its_line(tmp_path: Path, key: str) -> None:
    source = write_list(tmp_path / "in", "ape", "dog", "cow", "dgo")
    with pytest.raises(UsageError, match="the label 'cow' is not in the list of classes") as caught:
        pack(source, tmp_path / "out", workers=0, classes=NAMES, key=key)
    assert caught.value.place == {"url": str(source), "line": 3}
    assert not (tmp_path / "out").exists()


def test_unknown_labels_are_rejected_however_many_come_first(tmp_path: Path) -> None:
    source = write_list(tmp_path / "in", *["cow"] * 120, "dog")
    assert packed(source, tmp_path / "out", classes=NAMES, reading=ss.SourceOptions(unknown="reject")) == {"120": 2}
    assert len(rejects(tmp_path / "out")) == 120
    assert rejects(tmp_path / "out")[0] == ("0.jpg", "the label 'cow' is not in the list of classes")


def test_equal_names_are_refused_where_they_become_numbers(tmp_path: Path) -> None:
    names = ["crane", "dog", "crane"]
    with pytest.raises(UsageError, match="classes 0 and 2 have the same name 'crane'"):
        pack(folder(tmp_path / "val", "dog"), tmp_path / "out", workers=0, classes=names)
    assert packed(write_list(tmp_path / "in", "2"), tmp_path / "out", classes=names) == {"0": 2}
    with pytest.raises(UsageError, match=r"several classes are called 'crane'") as caught:
        ss.ShardDataset(tmp_path / "out").label_of("crane")
    assert "[0, 2]" in str(caught.value)
    with pytest.raises(FieldError, match=r"several classes are called 'crane'"):
        ss.ShardDataset(tmp_path / "out", where={"cls": "crane"})


def nothing(root: Path) -> Path:
    return root / "nowhere"


def unpacked(root: Path) -> Path:
    return folder(root / "raw", "ape")


def unnamed(root: Path) -> Path:
    pack(dicts(1), root / "unnamed", workers=0)
    return root / "unnamed"


def written(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        (root / name).write_bytes(data)
        return root / name

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (nothing, "classes: the list cannot be read: No such file"),
        (unpacked, "classes: there is no packed data set in this folder"),
        (unnamed, "the data set has no names of classes"),
        (written("x.txt", b""), "the file names no class"),
        (written("x.txt", b"caf\xe9"), "classes must be UTF-8"),
        (written("x.txt", b"\0"), "zero bytes"),
        (written("x.json", b"["), "malformed JSON"),
        (written("x.json", b'{"a": "b"}'), "this JSON is not a list of names"),
        (written("x.json", b"[1]"), "this JSON is not a list of names"),
        (written("x.json", b'{"a": 1, "b": 2}'), "are not 0, 1, 2"),
        (lambda root: 3, "classes must be a list of names"),
        (lambda root: "", "classes must be a list of names"),
    ],
    ids=range(12),
)
def test_what_is_no_list_of_classes_is_named(tmp_path: Path, make: Callable[[Path], Any], message: str) -> None:
    source = folder(tmp_path / "val", "ape")
    with pytest.raises(UsageError, match=message) as caught:
        pack(source, tmp_path / "out", workers=0, classes=make(tmp_path))
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


def test_bad_unknown(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown must be 'error' or 'reject', got 'skip'"):
        ss.SourceOptions(unknown="skip")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="without classes"):
        pack(folder(tmp_path / "val", "ape"), tmp_path / "out", reading=ss.SourceOptions(unknown="reject"))


def test_a_source_with_names_of_its_own_must_agree(tmp_path: Path) -> None:
    write_list(tmp_path, "0", "0")
    path = tmp_path / "list.parquet"
    names = {"info": {"features": {"label": {"names": ["ape", "cat"]}}}}
    table = pa.table({"path": ["0.jpg", "1.jpg"], "label": [1, 0]})
    pa.parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(names)}), path)
    assert packed(path, tmp_path / "out", classes=NAMES) == {"0": 1, "1": 0}
    assert Manifest.load(tmp_path / "out").classes == NAMES
    with pytest.raises(UsageError, match="label 1 means 'cat' in the source, but 'dog' in classes="):
        pack(path, tmp_path / "other", workers=0, classes=["ape", "dog"])
    with pytest.raises(UsageError, match="label 1 means 'cat' in the source, but nothing in classes="):
        pack(path, tmp_path / "other", workers=0, classes=["ape"])


def test_a_data_set_grows_with_its_own_classes(tmp_path: Path) -> None:
    out = train(tmp_path)
    more = folder(tmp_path / "more", "dog")
    with pytest.raises(UsageError, match="label 0 means 'ape' in the data set, but 'dog' in the new") as caught:
        pack(more, out, workers=0, append=True)
    assert "--classes" in str(caught.value)
    assert packed(more, out, append=True, classes=out)["dog/0"] == 2
    assert Manifest.load(out).version == 2
    pack(more, out, workers=0, append=True, classes=out)
    assert Manifest.load(out).version == 2


def test_a_writer_takes_what_pack_takes(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "out", classes=as_text(tmp_path)) as writer:
        writer.write({"__key__": "a", "cls": 1})
    with ss.ShardWriter(tmp_path / "more", classes=tmp_path / "out") as writer:
        writer.write({"__key__": "b", "cls": 1})
    assert ss.merge([tmp_path / "out", tmp_path / "more"], tmp_path / "both").classes == NAMES


def test_a_list_behind_a_url(s3: S3Place, tmp_path: Path) -> None:
    source = folder(tmp_path / "val", "dog", "ape")
    url = s3 / "train"
    pack(folder(tmp_path / "files", *NAMES), url, workers=0, storage=ss.StorageOptions(options=s3.options))
    pack(source, tmp_path / "a", workers=0, classes=url, storage=ss.StorageOptions(options=s3.options))
    s3.plant("names.txt", b"ape\ncat\ndog\n")
    pack(source, tmp_path / "b", workers=0, classes=s3 / "names.txt", storage=ss.StorageOptions(source=s3.options))
    assert Manifest.load(tmp_path / "a").fingerprint == Manifest.load(tmp_path / "b").fingerprint
    with pytest.raises(UsageError, match="neither a file nor a data set"):
        pack(source, tmp_path / "c", workers=0, classes=s3 / "nowhere", storage=ss.StorageOptions(options=s3.options))


def test_names_of_a_data_set_and_their_labels(tmp_path: Path) -> None:
    ds = ss.ShardDataset(train(tmp_path))
    assert ds.classes == NAMES
    assert [ds.label_of(name) for name in NAMES] == [0, 1, 2]
    with pytest.raises(UsageError, match="no class is called 'dgo'") as caught:
        ds.label_of("dgo")
    assert "did you mean 'dog'?" in str(caught.value)
    with pytest.raises(UsageError, match="has no names of classes"):
        ss.ShardDataset(unnamed(tmp_path)).label_of("dog")
    pack(folder(tmp_path / "files2", "emu"), tmp_path / "other", workers=0)
    urls = [tmp_path / "train", tmp_path / "other"]
    with pytest.raises(UsageError, match="have different class names") as caught:
        ss.ShardDataset(urls)
    assert "--classes" in str(caught.value)
    both = ss.ShardDataset(urls, fields=["jpg"])
    assert both.classes is None
    with pytest.raises(UsageError, match="other classes each"):
        both.label_of("dog")
    assert ss.ShardDataset([tmp_path / "train", tmp_path / "unnamed"]).label_of("dog") == 2
